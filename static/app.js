// The niceties of the pages. Everything works without this file: links and forms do the work, and
// htmx swaps the same parts in place. Nothing here reads or writes HTML.

const root = document.documentElement;
const find = (selector, from = document) => from.querySelector(selector);
const thread = find("#thread");
const box = () => find("#composer-text");
const isTouch = matchMedia("(pointer: coarse)").matches;
root.classList.add("has-scripts");

// The server writes times in the reader's zone once it knows it.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const secure = location.protocol === "https:" ? "; secure" : "";
if (zone) document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;

// --- Message box ---

// How many characters an area has, beside it; too many are marked.
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

document.addEventListener("input", (event) => {
  if (event.target === box()) measure();
  else if (event.target.dataset?.counted) count(event.target, find(`#${event.target.dataset.counted}`));
});

function sendByEnter(event) {
  const plain = !(event.shiftKey || event.ctrlKey || event.altKey || event.metaKey);
  if (event.key !== "Enter" || !plain || event.isComposing || isTouch) return;
  event.preventDefault();
  if (box().value.trim() && !box().readOnly) box().form.requestSubmit();
}

// While a message is on its way its box stands still, so that nothing typed meanwhile is lost
// when the empty box arrives.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "composer") {
    box().readOnly = true;
    follow = true;
  }
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.target.id === "composer" && box()) box().readOnly = false;
});

// A form that loads a page is sent once; going back makes it usable again.
document.addEventListener("submit", (event) => {
  if (event.defaultPrevented || event.target.hasAttribute("hx-post")) return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-suggestion]");
  if (!button) return;
  box().value = button.dataset.suggestion;
  box().focus();
  measure();
});

// --- Scrolling: follow the reply only while the reader is at the end ---

let follow = true;
// Words that came: the next look, which is no text, comes and goes without a trace.
const isText = (change) => change.type === "characterData"
  || [...change.addedNodes].some((node) => node.id !== "look" && node.textContent.trim());
const isAtEnd = () => thread.scrollHeight - thread.scrollTop - thread.clientHeight < 48;

function toEnd() {
  thread.scrollTop = thread.scrollHeight;
  find("#newtext").hidden = true;
}

if (thread && find("#tail")) {
  const place = location.hash && location.hash !== "#tail" && find(location.hash);
  follow = !place;
  if (follow) toEnd();
  thread.addEventListener("scroll", () => {
    follow = isAtEnd();
    if (follow) find("#newtext").hidden = true;
  });
  new MutationObserver((changes) => {
    const tail = find("#tail");
    if (follow) toEnd();
    else if (changes.some((change) => isText(change) && tail.contains(change.target))) {
      find("#newtext").hidden = isAtEnd();
    }
  }).observe(find(".thread__inner"), { childList: true, subtree: true, characterData: true });
  new ResizeObserver(() => follow && toEnd()).observe(thread);
  find("#newtext").addEventListener("click", () => {
    follow = true;
    toEnd();
    box()?.focus();
  });
}

// Earlier messages come in above, and folded ones leave: the line that was read stays where it was.
let places = [];

document.addEventListener("htmx:beforeSwap", () => {
  const top = thread?.getBoundingClientRect().top;
  places = follow || !thread ? [] : [...thread.querySelectorAll("article.msg, .seam")]
    .map((part) => ({ id: part.id, ...part.getBoundingClientRect().toJSON() }))
    .filter((part) => part.bottom > top);
});

document.addEventListener("htmx:afterSettle", () => {
  const place = places.find(({ id }) => document.getElementById(id));
  places = [];
  if (!place || follow) return;
  thread.scrollTop += document.getElementById(place.id).getBoundingClientRect().top - place.top;
});

// --- After swaps: focus, what was open, what a screen reader is told ---

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

function say(sentence) {
  const status = find("#status");
  if (status && sentence) status.textContent = sentence;
}

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
  measure();
  if (hadFocus && document.activeElement === document.body) {
    (isTouch ? find("#tail .msg.is-last") : box())?.focus({ preventScroll: true });
  }
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

// --- When the server cannot be reached ---

document.addEventListener("htmx:sendError", (event) => {
  if (event.target.hasAttribute?.("data-quiet")) return;
  find("#notices").replaceChildren(find("#not-sent").content.cloneNode(true));
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches("[data-again], [data-quiet]")) find("#notices")?.replaceChildren();
});
// The end of a reply is asked for until it is there.
for (const kind of ["htmx:sendError", "htmx:responseError"]) {
  document.addEventListener(kind, (event) => {
    const asker = event.target;
    if (asker.hasAttribute?.("data-again")) setTimeout(() => window.htmx.trigger(asker, "again"), 3000);
  });
}

// --- From a line of a summary to the message it comes from ---

function showOriginal(key) {
  const original = key && document.getElementById(key);
  if (!original) return false;
  const folded = original.closest("details");
  if (folded) folded.open = true;
  for (const shown of document.querySelectorAll(".is-shown")) shown.classList.remove("is-shown");
  original.classList.add("is-shown");
  original.scrollIntoView({ block: "center" });
  original.focus({ preventScroll: true });
  return true;
}

// Before htmx: what is on the page already needs no request.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-original]");
  if (!link || !showOriginal(link.dataset.original)) return;
  event.preventDefault();
  event.stopPropagation();
}, true);
document.addEventListener("htmx:afterSettle", (event) => {
  showOriginal(event.detail.requestConfig?.elt.dataset.original);
});

// --- Copying ---

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without TLS there is no clipboard to write to; the old command copies a selection.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".code__copy, [data-copy]");
  if (!button) return;
  const source = button.dataset.copy
    ? find(".msg__body", document.getElementById(button.dataset.copy)).innerText
    : find("code", button.closest("figure")).textContent;
  await copy(source);
  say("Copied.");
  if (button.dataset.copy) return;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
});

// --- Keyboard and popovers ---

const openOnes = () => document.querySelectorAll("details.menu[open], details.meter[open]");
const usesShortcuts = () => localStorage.getItem("shortcuts") !== "off";

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
  const editing = find("[data-cancel]", document.activeElement.closest("article") ?? thread);
  if (!open.length && editing) editing.click();
  else if (!open.length && usesShortcuts()) find("#stop:not(:disabled)")?.click();
}

function stepMessages(step) {
  const all = [...document.querySelectorAll("article.msg")];
  const here = all.indexOf(document.activeElement.closest("article.msg"));
  const start = here < 0 ? all.length - (step > 0 ? 1 : 0) : here;
  all[Math.max(0, Math.min(all.length - 1, start + step))]?.focus();
}

// The newest message of one's own, from an empty box.
function editLast(event) {
  if (event.key !== "ArrowUp" || box().value || event.altKey || event.ctrlKey) return;
  const link = [...document.querySelectorAll("[data-edit]")].at(-1);
  if (!link) return;
  event.preventDefault();
  link.click();
}

function stepVersion(step) {
  const message = document.activeElement.closest("article.msg");
  find(`[data-version="${step}"]`, message ?? document.createElement("p"))?.click();
}

// The actions of a message are one stop for Tab; arrow keys go from one to the next.
const inToolbar = "a[href], button:not(:disabled), summary";
const actionsOf = (bar) => [...bar.querySelectorAll(inToolbar)].filter(
  (control) => !control.closest(".menu__panel"),
);

function tidyToolbars() {
  for (const bar of document.querySelectorAll("[data-toolbar]")) {
    const actions = actionsOf(bar);
    const here = actions.find((action) => action === document.activeElement) ?? actions[0];
    for (const action of actions) action.tabIndex = action === here ? 0 : -1;
  }
}

function stepToolbar(event) {
  const bar = event.target.closest("[data-toolbar]");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!bar || !step || event.altKey || event.ctrlKey || event.metaKey) return;
  const actions = actionsOf(bar);
  const at = actions.indexOf(event.target);
  if (at < 0) return;
  event.preventDefault();
  const forward = getComputedStyle(bar).direction === "rtl" ? -step : step;
  actions[(at + forward + actions.length) % actions.length].focus();
  tidyToolbars();
}

tidyToolbars();
document.addEventListener("htmx:afterSettle", tidyToolbars);

function openOriginals() {
  const seams = [...document.querySelectorAll("[data-seam]")];
  const above = seams.filter((seam) => seam.getBoundingClientRect().top < innerHeight / 2);
  const seam = above.at(-1) ?? seams[0];
  if (!seam) return;
  for (const part of [seam, find(".reveal", seam)]) if (part) part.open = true;
  find("summary", seam).focus();
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

document.addEventListener("keydown", (event) => {
  if (event.target === box()) sendByEnter(event);
  stepToolbar(event);
  if (event.key === "Escape") escape();
  if (!usesShortcuts()) return;
  if (event.target === box()) editLast(event);
  const only = event.altKey && !(event.ctrlKey || event.metaKey || event.shiftKey);
  if (only && withAlt[event.code]) {
    event.preventDefault();
    withAlt[event.code]();
  }
  const writing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "?" && !writing) find("#keys")?.showPopover();
});

const choice = find("#shortcuts");
if (choice) {
  choice.checked = usesShortcuts();
  choice.addEventListener("change", () => {
    localStorage.setItem("shortcuts", choice.checked ? "on" : "off");
  });
}

measure();
