// Shows the user's message in the thread during sending, and an error if it fails.

import { drop, keep, send } from "./drafts.js";
import { box, find, say, store } from "./page.js";
import { gettext } from "./translation.js";

const place = find("#sending");
// The new chat whose page loads next.
const begun = "begun";
// The message being sent, and text typed since; null: none.
let text = null;
let typed = null;

function show() {
  place.replaceChildren();
  const names = document.querySelectorAll("#composer-files [name=files] ~ * .attachment__name");
  const files = [...names].map((name) => name.textContent.trim());
  if (!text.trim() && !files.length) return;
  const message = find("#sending-message").content.cloneNode(true).firstElementChild;
  find(".plain", message).textContent = text.trim() ? text : files.join("\n");
  place.append(message);
}

function fail() {
  const message = place.lastElementChild;
  if (!message) return;
  message.removeAttribute("aria-busy");
  message.classList.add("is-failed");
  say(gettext("Your message was not sent."));
}

// Puts the text of a failed message back into the box, before text typed since.
function putBack() {
  box().value = [text, box().value].filter(Boolean).join("\n");
  box().dispatchEvent(new Event("input", { bubbles: true }));
  fail();
  // Otherwise the next update of another part would count as the answer to the next attempt.
  text = typed = null;
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
  // The request already contains the text.
  box().value = "";
});
// Each response replaces the box; keep text typed into the previous one.
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
for (const kind of ["htmx:sendError", "htmx:sendAbort", "htmx:responseError", "htmx:timeout"]) {
  document.addEventListener(kind, (event) => {
    if (event.target.id === "composer" && text !== null) putBack();
  });
}

// The first message of a chat loads its page.
document.addEventListener("form:sending", ({ target }) => {
  if (target.id !== "composer" || !place) return;
  keep();
  text = box().value;
  store(sessionStorage, begun, target.action);
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
