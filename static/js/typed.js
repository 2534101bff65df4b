// Keeps typed text when its part of the page is replaced: edited messages, summary requests,
// searches.

import { box, find, isTyped, readField, writeField } from "./page.js";

const fields = "input[id]:not([type=hidden]), textarea[id], select[id]";

// Edited messages and fields with text, by ID.
let editing = new Map();
let typed = new Map();
let focused;
// The response decides the contents of the form it answers.
let answered;

const isOpen = (part) => !answered || !(answered.contains(part) || part.contains(answered));

function keep(part) {
  for (const article of part.querySelectorAll("article.msg:has([data-cancel])")) {
    if (isOpen(article)) editing.set(article.id, article);
  }
  for (const field of part.querySelectorAll(fields)) {
    const isKept = !field.closest("#composer, article.msg") && isTyped(field) && isOpen(field);
    if (isKept) typed.set(field.id, readField(field));
  }
  const here = document.activeElement;
  if (!here.id || !part.contains(here) || !here.matches(fields)) return;
  focused = { field: here, start: here.selectionStart, end: here.selectionEnd };
}

// Copies the typed text into the new version of a part.
export function carryOver(old, part) {
  for (const field of old.querySelectorAll(fields)) {
    const same = isTyped(field) && isOpen(field) && find(`[id="${field.id}"]`, part);
    if (same) writeField(same, readField(field));
  }
}

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  answered = detail.requestConfig?.elt.closest("form");
  keep(detail.target);
});
document.addEventListener("htmx:oobBeforeSwap", (event) => keep(event.detail.target));

document.addEventListener("htmx:afterSettle", () => {
  for (const [id, article] of editing) {
    const drawn = document.getElementById(id);
    if (!drawn || drawn === article || find("[data-cancel]", drawn)) continue;
    drawn.replaceWith(article);
    window.htmx.process(article);
  }
  for (const [id, state] of typed) {
    const field = document.getElementById(id);
    if (field && !isTyped(field)) writeField(field, state);
  }
  const place = focused && document.getElementById(focused.field.id);
  const isFree = [document.body, box()].includes(document.activeElement);
  if (place && isFree && place !== document.activeElement) {
    place.closest("details")?.setAttribute("open", "");
    place.focus({ preventScroll: true });
    if (focused.start !== null && place.setSelectionRange) place.setSelectionRange(focused.start, focused.end);
  }
  editing = new Map();
  typed = new Map();
  focused = answered = undefined;
});
