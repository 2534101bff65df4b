// One's own message stands in the thread while it is on its way, and says so if it does not arrive.

import { drop, keep, send } from "./drafts.js";
import { box, find, say } from "./page.js";

const place = find("#sending");
// The new chat whose page comes next.
const begun = "begun";
// What is on its way, and what was typed meanwhile; null: nothing.
let text = null;
let typed = null;

function show() {
  place.replaceChildren();
  if (!text.trim()) return;
  const message = find("#sending-message").content.cloneNode(true).firstElementChild;
  find(".plain", message).textContent = text;
  place.append(message);
}

function fail() {
  const message = place.lastElementChild;
  if (!message) return;
  message.removeAttribute("aria-busy");
  message.classList.add("is-failed");
  say("Your message was not sent.");
}

// The words of a message that did not arrive are in the box again, before what was typed since.
function putBack() {
  if (!box().value.startsWith(text)) box().value = [text, box().value].filter(Boolean).join("\n");
  box().dispatchEvent(new Event("input", { bubbles: true }));
  fail();
  text = null;
}

function set(value) {
  box().value = value;
  box().dispatchEvent(new Event("input", { bubbles: true }));
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id !== "composer") return;
  text = box().value;
  send();
  show();
  // Its words are in the request already.
  box().value = "";
});
// The box comes back with each answer; what was typed into the one before goes on in it.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.requestConfig?.elt.id === "composer") typed = box().value;
});
document.addEventListener("htmx:afterSettle", () => {
  const rest = typed;
  typed = null;
  if (rest === null || text === null) return;
  if (find("#composer-error") || box().value) {
    if (rest) set([box().value, rest].join("\n"));
    fail();
  } else {
    place.replaceChildren();
    if (rest) set(rest);
  }
  text = null;
  keep();
});
for (const kind of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
  document.addEventListener(kind, (event) => {
    if (event.target.id === "composer" && text !== null) putBack();
  });
}

// The first message of a chat loads its page.
document.addEventListener("form:sending", ({ target }) => {
  if (target.id !== "composer" || !place) return;
  keep();
  text = box().value;
  sessionStorage.setItem(begun, target.action);
  find("#welcome")?.setAttribute("hidden", "");
  show();
  box().readOnly = true;
});
document.addEventListener("form:failed", ({ target }) => {
  if (target.id !== "composer" || !place) return;
  sessionStorage.removeItem(begun);
  box().readOnly = false;
  find("#welcome")?.removeAttribute("hidden");
  fail();
  keep();
});
const came = sessionStorage.getItem(begun);
sessionStorage.removeItem(begun);
if (came && box()?.form.hasAttribute("hx-post")) {
  drop({ action: came });
  box().focus({ preventScroll: true });
}
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted || !place) return;
  place.replaceChildren();
  find("#welcome")?.removeAttribute("hidden");
  if (box()) box().readOnly = false;
});
