// What is in a message box and not sent yet: kept for each chat, in this browser, until its person
// signs out.

import { box, find } from "./page.js";

const beginning = "draft:";
const person = find("#stream")?.dataset.person;
const mine = `${beginning}${person}:`;

function forget(isForgotten) {
  for (const key of Object.keys(localStorage)) {
    if (key.startsWith(beginning) && isForgotten(key)) localStorage.removeItem(key);
  }
}

// A chat that does not exist yet has a draft too, under the address of the page for new ones.
const keyOf = (form) => mine + new URL(form.action).pathname;

// What is on its way: a page that is left meanwhile does not hear whether it arrived.
const sentFrom = (form) => `${keyOf(form)}#sent`;
const own = () => [...document.querySelectorAll("#thread .msg--user[id]")];

// Adler-32, as the server writes it beside each message: what stands there is drawn, not as typed.
function checksum(text) {
  let [a, b] = [1, 0];
  for (const byte of new TextEncoder().encode(text.trim())) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  return (b * 65536 + a).toString(16);
}

export function keep() {
  if (!person || !box()) return;
  if (box().value) localStorage.setItem(keyOf(box().form), box().value);
  else localStorage.removeItem(keyOf(box().form));
  localStorage.removeItem(sentFrom(box().form));
}

export function send() {
  if (!person) return;
  const mark = { text: box().value, behind: own().at(-1)?.id ?? "" };
  localStorage.setItem(sentFrom(box().form), JSON.stringify(mark));
}

// Whether words that were on their way stand in the thread, behind what stood there when they were sent.
function arrived(words) {
  const { text, behind } = JSON.parse(localStorage.getItem(sentFrom(box().form)) ?? "{}");
  if (!words || words !== text) return false;
  const all = own();
  const later = all.slice(all.findIndex(({ id }) => id === behind) + 1);
  return later.some((message) => message.dataset.checksum === checksum(text));
}

export function restore() {
  // What the server sent back is newer.
  if (!person || !box() || box().value) return;
  const draft = localStorage.getItem(keyOf(box().form)) ?? "";
  if (arrived(draft)) drop(box().form);
  else box().value = draft;
}

export function drop(form) {
  localStorage.removeItem(keyOf(form));
  localStorage.removeItem(sentFrom(form));
}

// It came after the page was drawn.
document.addEventListener("htmx:afterSettle", () => {
  const area = box();
  if (!person || !area || !arrived(area.value)) return;
  area.value = "";
  area.dispatchEvent(new Event("input", { bubbles: true }));
});

if (person) forget((key) => !key.startsWith(mine));
// Who comes to a page that asks for a sign-in has not signed out.
if (find("[data-signed-out]")) forget(() => true);
document.addEventListener("submit", (event) => {
  if (new URL(event.target.action).pathname.endsWith("/logout/")) forget(() => true);
});
