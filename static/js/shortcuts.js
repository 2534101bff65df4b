// Keyboard shortcuts, and Escape for open elements.

import { offer } from "./acts.js";
import { box, find, isComposing, store, thread } from "./page.js";

const openOnes = () => document.querySelectorAll("details.menu[open], details.meter[open]");
const areOn = () => localStorage.getItem("shortcuts") !== "off";

document.addEventListener("click", (event) => {
  for (const open of openOnes()) if (!open.contains(event.target)) open.open = false;
});

function escape() {
  if (find("#keys:popover-open")) return;
  const open = [...openOnes()];
  for (const each of open) {
    each.open = false;
    find("summary", each).focus();
  }
  const place = document.activeElement.closest("article") ?? thread ?? document;
  const editing = find("[data-cancel]", place);
  if (!open.length && editing) editing.click();
  else if (!open.length && areOn()) find("#stop:not(:disabled)")?.click();
}

function stepMessages(step) {
  const all = [...document.querySelectorAll("article.msg")];
  const here = all.indexOf(document.activeElement.closest("article.msg"));
  const start = here < 0 ? all.length - (step > 0 ? 1 : 0) : here;
  all[Math.max(0, Math.min(all.length - 1, start + step))]?.focus();
}

// The user's newest message, from an empty box.
function editLast(event) {
  if (event.key !== "ArrowUp" || box().value || event.altKey || event.ctrlKey) return;
  const message = [...document.querySelectorAll("article.msg[data-acts~=edit]")].at(-1);
  if (!message) return;
  event.preventDefault();
  offer(message);
  find("[data-act=edit]", message).click();
}

function stepVersion(step) {
  const message = document.activeElement.closest("article.msg");
  const button = message && find(`[data-version="${step}"]`, message);
  button?.click();
  return Boolean(button);
}

function openOriginals() {
  const markers = [...document.querySelectorAll("[data-marker]")];
  const above = markers.filter((marker) => marker.getBoundingClientRect().top < innerHeight / 2);
  const marker = above.at(-1) ?? markers[0];
  if (!marker) return;
  for (const part of [marker, find(".reveal", marker)]) if (part) part.open = true;
  find("summary", marker).focus();
}

function toggleMeter() {
  const meter = find("#context-meter");
  if (!meter) return;
  meter.open = !meter.open;
  find("summary", meter).focus();
}

const withAlt = {
  KeyN: () => find("#new-chat")?.click(),
  KeyC: toggleMeter,
  KeyO: openOriginals,
  ArrowUp: () => stepMessages(-1),
  ArrowDown: () => stepMessages(1),
  ArrowLeft: () => stepVersion("back"),
  ArrowRight: () => stepVersion("on"),
};

// On some keyboards the same keys type a letter or move by words in a text field.
function isTyping({ code, key }) {
  return ["ArrowLeft", "ArrowRight"].includes(code) || (code.startsWith("Key") && code !== `Key${key.toUpperCase()}`);
}

document.addEventListener("keydown", (event) => {
  // Escape and the arrows belong to an open suggestion list.
  if (isComposing(event)) return;
  if (event.key === "Escape") escape();
  if (!areOn()) return;
  if (event.target === box()) editLast(event);
  const writing = event.target.closest("input, textarea, select, [contenteditable]");
  const only = event.altKey && !(event.ctrlKey || event.metaKey || event.shiftKey);
  const act = only && !(writing && isTyping(event)) && withAlt[event.code];
  if (act && act() !== false) event.preventDefault();
  if (event.key === "?" && !writing) find("#keys")?.showPopover();
});

const choice = find("#shortcuts");
if (choice) {
  choice.checked = areOn();
  choice.addEventListener("change", () => {
    store(localStorage, "shortcuts", choice.checked ? "on" : "off");
  });
}
