// After parts were swapped: what was open is open, the focus is where it was, and a screen reader
// is told what became of the reply.

import { box, find, isTouch, say } from "./page.js";

const words = {
  queued: "Reply started.",
  running: "Reply started.",
  completed: "Reply finished.",
  stopped: "Reply stopped.",
  failed: "The reply failed.",
};
const state = () => ({ ...find("#tail")?.dataset });
let before = state();
const wasOpen = new Set();
let hadFocus = false;

document.addEventListener("htmx:beforeSwap", () => {
  hadFocus = Boolean(document.activeElement.closest("#tail, #composer"));
});

document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const { target } = event.detail;
  for (const part of [target, ...target.querySelectorAll("details[id]")]) {
    if (part.open) wasOpen.add(part.id);
  }
});

document.addEventListener("htmx:afterSettle", () => {
  for (const id of wasOpen) find(`#${id}`)?.setAttribute("open", "");
  wasOpen.clear();
  const now = state();
  if (now.turn !== before.turn || words[now.status] !== words[before.status]) {
    say(words[now.status]);
  } else if (now.state !== before.state) {
    const answer = find("#answer .notice__title")?.textContent;
    say(answer ?? "What the model gets of older messages has changed.");
  }
  before = now;
  if (hadFocus && document.activeElement === document.body) {
    (isTouch ? find("#tail .msg.is-last") : box())?.focus({ preventScroll: true });
  }
});

// The rows that replies are drawn from are up to a second behind the words that are shown already.
let grown = [];

document.addEventListener("htmx:beforeSwap", () => {
  const replies = document.querySelectorAll("#tail [data-live]");
  grown = Array.from(replies, (reply) => ({ id: reply.id, words: find(".live", reply) }));
});

function bringWords() {
  grown = grown.filter(({ id, words }) => {
    const reply = document.getElementById(id);
    const place = reply && find(".live", reply);
    if (!place || place === words) return true;
    if (place.textContent.length < words.textContent.length) place.replaceChildren(...words.childNodes);
    return false;
  });
}
document.addEventListener("htmx:oobAfterSwap", bringWords);
document.addEventListener("htmx:afterSwap", bringWords);

// An answer to a part that another answer has replaced meanwhile has no place any more; what it
// brings is on the page already, and htmx would look for it in what was taken away.
function leaveOut(event) {
  if (!event.target.isConnected) event.detail.shouldSwap = false;
}
document.addEventListener("htmx:beforeRequest", (event) => {
  event.detail.target.addEventListener("htmx:beforeSwap", leaveOut);
});

// The form that asked may be gone when the answer comes: the action bar stands under another
// message, a marker was drawn anew. htmx looks for the place that the answer names beside that form,
// so the form is on the page again, unseen, until the answer is there.
const aside = document.createElement("div");
aside.hidden = true;

function bringBack({ target }) {
  if (target.isConnected) return;
  aside.replaceChildren(target);
  document.body.append(aside);
}
document.addEventListener("htmx:beforeRequest", ({ target }) => {
  target.addEventListener("htmx:beforeOnLoad", bringBack);
  target.addEventListener("htmx:afterOnLoad", () => aside.replaceChildren());
});

// An action on a part of the thread: its control has the focus again, else the part itself.
let used = "";
document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches("[data-again], [data-quiet]")) used = document.activeElement.id;
});
// Refused: what was used is there still, and was only switched off for the time of the request.
document.addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.failed || document.activeElement !== document.body || !used) return;
  document.getElementById(used)?.focus({ preventScroll: true });
});
document.addEventListener("placed", (event) => {
  const { id } = event.detail;
  const part = document.getElementById(id);
  const control = used && document.getElementById(used);
  const wanted = [control, part && find("summary", part), part];
  for (const each of wanted) {
    if (each && document.activeElement !== each) each.focus({ preventScroll: true });
    if (each && document.activeElement === each) return;
  }
});
// The page of a compaction comes back as a whole after an action on it.
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target?.id !== "main" || document.activeElement !== document.body) return;
  (document.getElementById(used) ?? find("#title"))?.focus();
});
