// Keeps the typed text of the other forms of a page when one of them is sent.

import { isTyped, store } from "./page.js";

const unsaved = "unsaved";

// The typed text of all other forms, by ID. Passwords stay in the page.
export function typedOutside(form) {
  return [...document.querySelectorAll("#main :is(input[id], textarea[id], select[id])")]
    .filter((field) => !["hidden", "password", "file"].includes(field.type))
    .filter((field) => !form.contains(field) && !field.closest("#composer, article.msg") && isTyped(field))
    .map(({ id, value }) => [id, value]);
}

export function typeAgain(values) {
  for (const [id, value] of values) {
    const field = document.getElementById(id);
    if (!field || field.disabled || isTyped(field)) continue;
    field.value = value;
    field.closest("details")?.setAttribute("open", "");
  }
}

// Stores the text for the reload of an address.
export function keepForReload(address, values) {
  if (values.length) store(sessionStorage, unsaved, JSON.stringify([address, values]));
}

const [address, values] = JSON.parse(sessionStorage.getItem(unsaved) ?? "[]");
sessionStorage.removeItem(unsaved);
if (address === location.pathname) typeAgain(values);
