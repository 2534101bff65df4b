// Keeps the typed text and the choices of the other forms of a page when one of them is sent.

import { isTyped, readField, store, writeField } from "./page.js";

const unsaved = "unsaved";

// The changed fields of all other forms, by ID. Passwords stay in the page.
export function typedOutside(form) {
  return [...document.querySelectorAll("#main :is(input[id], textarea[id], select[id])")]
    .filter((field) => !["hidden", "password", "file"].includes(field.type))
    .filter((field) => !form.contains(field) && !field.closest("#composer, article.msg") && isTyped(field))
    .map((field) => [field.id, readField(field)]);
}

export function typeAgain(values) {
  for (const [id, state] of values) {
    const field = document.getElementById(id);
    if (!field || field.disabled || isTyped(field)) continue;
    writeField(field, state);
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
