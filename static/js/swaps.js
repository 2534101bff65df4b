// After htmx swaps: restores open elements and the focus, and announces the state of the reply to
// screen readers.

import { box, find, isTouch, say } from "./page.js";
import { gettext } from "./translation.js";

const words = {
  queued: gettext("Reply started."),
  running: gettext("Reply started."),
  completed: gettext("Reply finished."),
  stopped: gettext("Reply stopped."),
  failed: gettext("The reply failed."),
};
const consent = () => find("#tail [data-note=tool-consent]");
const state = () => ({ ...find("#tail")?.dataset, consent: consent()?.id });
let before = state();
const wasOpen = new Set();
let hadFocus = false;

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.target.id === "context-meter" && detail.target.open) wasOpen.add(detail.target.id);
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
  if (now.consent && now.consent !== before.consent) {
    say(find(".notice__title", consent()).textContent.trim());
  } else if (now.turn !== before.turn || words[now.status] !== words[before.status]) {
    say(words[now.status]);
  } else if (now.state !== before.state) {
    const answer = find("#answer .notice__title")?.textContent;
    say(answer ?? gettext("The messages sent to the model have changed."));
  }
  before = now;
  if (hadFocus && document.activeElement === document.body) {
    (isTouch ? find("#tail .msg.is-last") : box())?.focus({ preventScroll: true });
  }
});

// Rendered rows can be up to a second behind the text already shown.
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

// Drops a response to a part that another response has already replaced: the page has its content,
// and htmx would look for it in a removed element.
function leaveOut(event) {
  if (event.target.isConnected) return;
  event.detail.shouldSwap = false;
  if (event.target.id === "tail") isMissed = true;
}
document.addEventListener("htmx:beforeRequest", (event) => {
  event.detail.target.addEventListener("htmx:beforeSwap", leaveOut);
});

// Drops a pending update when a message is sent, because that response includes the current thread.
// The request is not aborted, which htmx would report as an error.
let sends = 0;
let sent = null;
let isMissed = false;
const lookedAt = new WeakMap();

document.addEventListener("htmx:beforeRequest", (event) => {
  const { id } = event.target;
  if (id === "composer") {
    sends += 1;
    sent = event.detail.xhr;
  } else if (id === "changes") {
    if (sent) {
      isMissed = true;
      event.preventDefault();
    } else lookedAt.set(event.detail.xhr, sends);
  }
});
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if ((lookedAt.get(detail.xhr) ?? sends) === sends) return;
  detail.shouldSwap = false;
  isMissed = true;
});

// A response contains the thread from the start of the tail at the time of its request. If another
// response has moved that start, it would repeat messages: only its other parts are used.
const tails = new WeakMap();
let isOutdated = false;
const tail = () => ({ part: find("#tail"), from: find("#tail-from")?.value });

document.addEventListener("htmx:beforeRequest", ({ detail }) => tails.set(detail.xhr, tail()));
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { part, from } = tails.get(detail.xhr) ?? {};
  const isOther = detail.shouldSwap && detail.target.id === "tail" && detail.target !== part;
  isOutdated = isOther && from !== tail().from;
  if (isOutdated) detail.swapOverride = "none";
  // The newer one of the two responses may have come first.
  if (isOther) isMissed = true;
});
// It says which messages are above that start.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if (!isOutdated || event.detail.target.id !== "standing") return;
  event.detail.shouldSwap = false;
  event.stopPropagation();
}, { capture: true });

// Identified by its request, because the response may replace the form.
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (detail.xhr === sent) sent = null;
  if (sent || !(isMissed || (detail.requestConfig?.elt?.id === "composer" && !detail.successful))) return;
  // Nothing else delivers the dropped changes.
  isMissed = false;
  const changes = find("#changes");
  if (changes) window.htmx.trigger(changes, "changed");
});

// The requesting form may be gone when the response arrives: the action bar moved, or a marker was
// rendered again. htmx resolves the target relative to that form, so the form is attached again,
// hidden, until the response arrives.
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

// After an action on a part of the thread, focus its control, otherwise the part.
let used = "";
document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches("[data-again], [data-quiet]")) used = document.activeElement.id;
});
// Refused: the control still exists and was only disabled during the request.
document.addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.failed || document.activeElement !== document.body || !used) return;
  document.getElementById(used)?.focus({ preventScroll: true });
});
document.addEventListener("placed", (event) => {
  const { id } = event.detail;
  const part = document.getElementById(id);
  if (id === "answer" && part) {
    // The open context breakdown would cover it. A swap of it may be settling.
    find("#context-meter")?.removeAttribute("open");
    wasOpen.delete("context-meter");
    part.scrollIntoView({ block: "nearest" });
    part.focus({ preventScroll: true });
    return;
  }
  const control = used && document.getElementById(used);
  const wanted = [control, part && find("summary", part), part];
  for (const each of wanted) {
    if (each && document.activeElement !== each) each.focus({ preventScroll: true });
    if (each && document.activeElement === each) return;
  }
});
// The compaction page is replaced as a whole after an action.
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target?.id !== "main" || document.activeElement !== document.body) return;
  (document.getElementById(used) ?? find("#title"))?.focus();
});
