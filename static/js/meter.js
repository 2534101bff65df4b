// Counts the message that is being written in the context meter, when its text or files have changed.

import { box, find } from "./page.js";

// Milliseconds without a change.
const pause = 800;
const none = JSON.stringify(["", []]);
let counted = none;
let timer;

function content() {
  const files = document.querySelectorAll("#composer-files [name=files]");
  return JSON.stringify([box()?.value.trim() ?? "", Array.from(files, ({ value }) => value)]);
}

function count() {
  const area = box();
  const isOver = area && [...area.value].length > Number(area.dataset.limit);
  if (!find("#context-meter") || isOver || content() === counted) return;
  counted = content();
  window.htmx.trigger(document.body, "draft");
}

function countLater() {
  clearTimeout(timer);
  timer = setTimeout(count, pause);
}

document.addEventListener("input", ({ target }) => {
  if (target === box()) countLater();
});
document.addEventListener("attachments", countLater);
// A file was read, or a reply has replaced the meter.
document.addEventListener("htmx:afterSettle", ({ target }) => {
  if (!target.matches?.(".attachment")) return;
  counted = none;
  countLater();
});
document.addEventListener("htmx:oobAfterSwap", ({ detail }) => {
  if (detail.target.id !== "context-meter") return;
  counted = none;
  countLater();
});
// A draft of this browser that the page has restored.
countLater();
