// The actions of a message: one action bar per page. It moves under the message with the pointer or
// focus, otherwise under the newest one. It has one tab stop; arrow keys move inside it.

import { find } from "./page.js";

const pattern = find("#acts-pattern");
// Placeholder IDs in the template of the bar.
const anyMessage = "00000000-0000-0000-0000-000000000000";
const anyTurn = "ffffffff-ffff-ffff-ffff-ffffffffffff";
const inToolbar = "a[href], button:not(:disabled), summary";
let bar;
// The message whose action is pending. Its element may be replaced by the response.
let acted = "";

const messageOf = (part) => part?.closest?.("article.msg[data-acts]");
const newest = () => [...document.querySelectorAll(".msg.is-last[data-acts]")].at(-1);
const isUsed = () => bar?.isConnected && Boolean(find(":focus-visible, details[open]", bar));

function drawn(message) {
  const { acts, turn, lock } = message.dataset;
  const offered = acts.split(" ");
  if (lock) offered.push("locked");
  const made = pattern.content.cloneNode(true).firstElementChild;
  for (const act of made.querySelectorAll("[data-act]")) if (!offered.includes(act.dataset.act)) act.remove();
  const menu = find(".menu", made);
  if (!find("[data-act]", menu)) menu.remove();
  for (const control of made.querySelectorAll("*")) {
    for (const attribute of control.attributes) {
      attribute.value = attribute.value
        .replaceAll(anyMessage, message.id.slice("message-".length)).replaceAll(anyTurn, turn);
    }
  }
  if (lock) find("[data-act=locked] small", made).textContent = lock;
  return made;
}

// Moves the bar under a message.
export function offer(message) {
  const link = message && find(".msg__more", message);
  if (!link || message.contains(bar)) return;
  if (bar?.contains(document.activeElement)) messageOf(bar)?.focus({ preventScroll: true });
  bar?.remove();
  bar = drawn(message);
  link.after(bar);
  window.htmx.process(bar);
  tidy(bar.closest("[data-toolbar]"));
}

function settle() {
  if (isUsed()) return;
  const wanted = [
    document.getElementById(acted),
    messageOf(document.activeElement),
    find("article.msg[data-acts]:hover"),
    newest(),
  ];
  offer(wanted.find((message) => message && find(".msg__more", message)));
  // Runs after the other handlers of the response.
  setTimeout(() => (acted = ""));
}

const actionsOf = (toolbar) => [...toolbar.querySelectorAll(inToolbar)].filter(
  (control) => !control.closest(".menu__panel") && control.checkVisibility(),
);

function tidy(toolbar) {
  const actions = actionsOf(toolbar);
  const here = actions.find((action) => action === document.activeElement) ?? actions[0];
  for (const action of actions) action.tabIndex = action === here ? 0 : -1;
}

// Scrolls to an open menu that ends below the thread, behind the message box.
function reveal(menu) {
  const panel = menu.open && find(".menu__panel", menu);
  if (panel) panel.scrollIntoView({ block: "nearest" });
}

if (pattern) {
  settle();
  document.addEventListener("toggle", ({ target }) => {
    if (target.matches?.(".msg__acts .menu")) reveal(target);
  }, true);
  document.addEventListener("htmx:beforeRequest", ({ target }) => {
    if (!bar?.contains(target)) return;
    const { id } = messageOf(bar);
    const remember = () => {
      // The user moved on to another message, so the bar stays there.
      if (messageOf(bar)?.id === id) acted = id;
    };
    target.addEventListener("htmx:beforeOnLoad", remember, { once: true });
  });
  document.addEventListener("htmx:afterSettle", settle);
  document.addEventListener("pointerover", (event) => {
    // Touch has no hover: users tap the menu button.
    if (event.pointerType === "touch" || isUsed()) return;
    const message = messageOf(event.target);
    if (message) offer(message);
    else settle();
  });
  document.addEventListener("focusin", ({ target }) => {
    const message = messageOf(target);
    if (!message || !(target === message || target.matches(":focus-visible"))) return;
    offer(message);
    if (target.matches(".msg__more")) actionsOf(bar)[0]?.focus();
    else if (target.closest("[data-toolbar]")) tidy(target.closest("[data-toolbar]"));
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".msg__more");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    offer(messageOf(link));
    const menu = find(".menu", bar);
    if (menu) menu.open = true;
    (menu ? find("summary", menu) : actionsOf(bar)[0])?.focus();
    // Otherwise it would count as a click outside the menu, which closes it.
    event.stopImmediatePropagation();
  });
}

document.addEventListener("keydown", (event) => {
  const toolbar = event.target.closest("[data-toolbar]");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!toolbar || !step || event.altKey || event.ctrlKey || event.metaKey) return;
  const actions = actionsOf(toolbar);
  const at = actions.indexOf(event.target);
  if (at < 0) return;
  event.preventDefault();
  const forward = getComputedStyle(toolbar).direction === "rtl" ? -step : step;
  actions[(at + forward + actions.length) % actions.length].focus();
  tidy(toolbar);
});
