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

export function keep() {
  if (!person || !box()) return;
  if (box().value) localStorage.setItem(keyOf(box().form), box().value);
  else localStorage.removeItem(keyOf(box().form));
}

export function restore() {
  // What the server sent back is newer.
  if (person && box() && !box().value) box().value = localStorage.getItem(keyOf(box().form)) ?? "";
}

export function drop(form) {
  localStorage.removeItem(keyOf(form));
}

if (person) forget((key) => !key.startsWith(mine));
// Who comes to a page that asks for a sign-in has not signed out.
if (find("[data-signed-out]")) forget(() => true);
document.addEventListener("submit", (event) => {
  if (new URL(event.target.action).pathname.endsWith("/logout/")) forget(() => true);
});
