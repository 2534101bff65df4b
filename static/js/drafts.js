// Drafts: unsent text and uploads of each chat's message box, kept in this browser until sign-out.

import { box, find, store } from "./page.js";

const beginning = "draft:";
const person = find("#stream")?.dataset.person;
const mine = `${beginning}${person}:`;

function forget(isForgotten) {
  for (const key of Object.keys(localStorage)) {
    if (key.startsWith(beginning) && isForgotten(key)) localStorage.removeItem(key);
  }
}

// The new-chat page has a draft too, stored under its address.
const keyOf = (form) => mine + new URL(form.action).pathname;

// Text being sent: a page that is left during sending does not learn whether it arrived.
const sentFrom = (form) => `${keyOf(form)}#sent`;
// The ids of the uploads.
const filesOf = (form) => `${keyOf(form)}#files`;
const own = () => [...document.querySelectorAll("#thread .msg--user[id]")];

// Adler-32 as computed by the server for each message, because the page has only rendered text.
function checksum(text) {
  let [a, b] = [1, 0];
  for (const byte of new TextEncoder().encode(text.trim())) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  return (b * 65536 + a).toString(16);
}

// The ids of the uploads that the box had when its page was left, until it has them again.
let unsent = person && box() ? JSON.parse(localStorage.getItem(filesOf(box().form)) ?? "[]") : [];

export const unsentFiles = () => unsent;

export function forgetUnsent() {
  unsent = [];
}

// Uploads for the next message of a chat that begins now. The page of the chat attaches them.
const carried = "carried files";

export function carryFiles(ids) {
  if (ids.length) store(sessionStorage, carried, JSON.stringify(ids));
}

// A message box without `hx-post` is that of the page for new chats.
if (person && box()?.form.hasAttribute("hx-post")) {
  unsent.push(...JSON.parse(sessionStorage.getItem(carried) ?? "[]"));
}
sessionStorage.removeItem(carried);

export function keep() {
  if (!person || !box()) return;
  if (box().value) store(localStorage, keyOf(box().form), box().value);
  else localStorage.removeItem(keyOf(box().form));
  const files = [...unsent, ...Array.from(box().form.querySelectorAll("[name=files]"), ({ value }) => value)];
  if (files.length) store(localStorage, filesOf(box().form), JSON.stringify(files));
  else localStorage.removeItem(filesOf(box().form));
  localStorage.removeItem(sentFrom(box().form));
}

export function send() {
  if (!person) return;
  const mark = { text: box().value, behind: own().at(-1)?.id ?? "" };
  store(localStorage, sentFrom(box().form), JSON.stringify(mark));
}

// Returns true if sent text appears in the thread after the messages present at sending.
function arrived(words) {
  const { text, behind } = JSON.parse(localStorage.getItem(sentFrom(box().form)) ?? "{}");
  if (!words || words !== text) return false;
  const all = own();
  const later = all.slice(all.findIndex(({ id }) => id === behind) + 1);
  return later.some((message) => message.dataset.checksum === checksum(text));
}

export function restore() {
  // Text returned by the server is newer.
  if (!person || !box() || box().value) return;
  const draft = localStorage.getItem(keyOf(box().form)) ?? "";
  if (arrived(draft)) {
    forgetUnsent();
    drop(box().form);
  } else box().value = draft;
}

export function drop(form) {
  for (const key of [keyOf(form), filesOf(form), sentFrom(form)]) localStorage.removeItem(key);
}

document.addEventListener("attachments", keep);
// The message arrived after the page was rendered.
document.addEventListener("htmx:afterSettle", () => {
  const area = box();
  if (!person || !area || !arrived(area.value)) return;
  area.value = "";
  area.dispatchEvent(new Event("input", { bubbles: true }));
});

if (person) forget((key) => !key.startsWith(mine));
// A page that asks for a new sign-in does not mean that the user signed out.
if (find("[data-signed-out]")) forget(() => true);
document.addEventListener("submit", (event) => {
  if (new URL(event.target.action).pathname.endsWith("/logout/")) forget(() => true);
});
