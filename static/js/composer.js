// The message box: height, character count and sending.

import { keep, restore } from "./drafts.js";
import { box, find, isComposing, isTouch } from "./page.js";

// Shows the number of characters of a text area; marks it if over the limit.
function count(area, place) {
  const length = [...area.value].length;
  find("[data-count]", place).textContent = length.toLocaleString("en");
  place.classList.toggle("is-over", length > Number(area.dataset.limit));
}

function measure() {
  const area = box();
  if (!area) return;
  count(area, find("#composer-count"));
  if (!CSS.supports("field-sizing", "content")) {
    area.style.height = "auto";
    area.style.height = `${area.scrollHeight}px`;
  }
}

// True if the message of a form has files, so that its text can be empty.
const hasFiles = (form) => "hasFiles" in form.dataset || Boolean(find("[name=files], .attachment[aria-busy]", form));

const countBeside = (area) => count(area, find(`#${area.dataset.counted}`));

restore();
measure();
// Text typed before this script loaded, or restored by the browser on reload.
addEventListener("pageshow", () => document.querySelectorAll("[data-counted]").forEach(countBeside));
document.addEventListener("htmx:afterSettle", measure);
document.addEventListener("input", (event) => {
  if (event.target === box()) {
    measure();
    keep();
  } else if (event.target.dataset?.counted) countBeside(event.target);
});

// Enter sends a message; Ctrl+Enter sends from any multi-line box.
document.addEventListener("keydown", (event) => {
  const area = event.target;
  if (event.key !== "Enter" || isComposing(event) || event.shiftKey || event.altKey) return;
  if (area.localName !== "textarea" || !area.form) return;
  const isAsked = event.ctrlKey || event.metaKey;
  if (!isAsked && (isTouch || !area.hasAttribute("data-enter-sends"))) return;
  event.preventDefault();
  if (area.readOnly) return;
  if (area.hasAttribute("data-enter-sends") && !area.value.trim() && !hasFiles(area.form)) return;
  area.form.requestSubmit([...area.form.elements].find(({ type }) => type === "submit"));
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-suggestion]");
  if (!button) return;
  box().value = button.dataset.suggestion;
  box().focus();
  measure();
  keep();
});
