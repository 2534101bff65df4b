// Updates the thread after markers or rails changed: unchanged elements stay, others are inserted
// or removed. The server sends the order and state of everything above the tail.

import { find, isSame } from "./page.js";
import { carryOver } from "./typed.js";

const keyOf = (part) => part.id || part.dataset.day;
const partsOf = (place) => [...place.querySelectorAll(".msg, .marker, .daymark, section.notice")]
  .filter((part) => keyOf(part) && !part.closest("#tail"));

// Updates a message to its current state.
function update(message, told) {
  for (const name of ["sent", "acts", "lock"]) {
    const value = told.dataset[name];
    if (message.dataset[name] === value) continue;
    if (value === undefined) delete message.dataset[name];
    else message.dataset[name] = value;
  }
  const where = find("[data-where]", message);
  const words = (find("[data-where]", told) ?? told).textContent;
  if (where && where.textContent !== words) where.textContent = words;
}

// Returns the element of the new version of a part that corresponds to the focused one of the old.
function findAgain(held, old, part) {
  if (held === old || part.contains(held)) return held === old ? part : held;
  const same = held.id && find(`[id="${held.id}"]`, part);
  if (same) return same;
  const alike = (from) => [...from.querySelectorAll(held.localName)];
  return alike(part)[alike(old).indexOf(held)] ?? find("summary", part) ?? part;
}

// Replaces a part but keeps open elements, loaded originals and the focus.
function replace(old, part) {
  const held = old.contains(document.activeElement) && document.activeElement;
  for (const open of [old, ...old.querySelectorAll("details[id]")]) {
    const same = open.id === part.id ? part : find(`[id="${open.id}"]`, part);
    if (open.open && same) same.open = true;
  }
  for (const loaded of old.querySelectorAll("[id^=under-]")) {
    find(`[id="${loaded.id}"]`, part)?.replaceWith(loaded);
  }
  carryOver(old, part);
  const again = held && findAgain(held, old, part);
  old.replaceWith(part);
  if (again) again.focus({ preventScroll: true });
}

// Removes a part. If it has the focus, its neighbour gets it.
function remove(gone) {
  const next = gone.contains(document.activeElement)
    && (gone.nextElementSibling ?? gone.previousElementSibling);
  gone.remove();
  if (next) next.focus({ preventScroll: true });
}

function isOther(old, part) {
  // The user is editing it, so update it when they finish.
  if (find("[data-cancel]", old)) return false;
  if (part.matches(".msg")) return old.dataset.marks !== part.dataset.marks;
  return part.matches(".marker") && (!part.dataset.look || part.dataset.look !== old.dataset.look);
}

function reconcile(told) {
  const messages = find("#messages");
  const known = new Map(partsOf(messages).map((part) => [keyOf(part), part]));
  const [first] = known.values();
  const earlier = find(".earlier[id]", told);
  const came = [];
  let isShort = false;
  let last = null;
  for (const part of [...told.children].filter((part) => !part.matches(".earlier"))) {
    const old = known.get(keyOf(part));
    known.delete(keyOf(part));
    const isWhole = part.localName !== "i";
    if (!old && !isWhole) {
      isShort = true;
      continue;
    }
    if (old && (!isWhole || !isOther(old, part))) {
      if (old.matches(".msg")) update(old, part);
      const isEdited = Boolean(find("[data-cancel]", old));
      if (old.matches(".msg") && !isEdited && old.dataset.marks !== part.dataset.marks) came.push(old);
      last = old;
      continue;
    }
    if (old) replace(old, part);
    else if (last) last.after(part);
    else if (first?.isConnected) first.before(part);
    else find("#tail").before(part);
    window.htmx.process(part);
    last = part;
  }
  const link = find(".earlier[id]", messages);
  if (link?.id !== earlier?.id) {
    link?.remove();
    if (earlier) {
      find(".entries", messages).prepend(earlier);
      window.htmx.process(earlier);
    }
  }
  for (const gone of known.values()) remove(gone);
  return { isShort, came };
}

// Requests messages with changed flags individually.
function refresh(message) {
  const address = `${location.pathname}messages/${message.id.slice("message-".length)}/`;
  // The response sets its own target.
  message.dataset.background = "";
  window.htmx.ajax("GET", address, { source: message, target: `#${message.id}` })?.catch(() => {});
}

let wanted = [];
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if (event.detail.target.id !== "standing") return;
  event.detail.shouldSwap = false;
  const { isShort, came } = reconcile(event.detail.fragment.firstElementChild);
  wanted = came;
  // The page is missing messages, so load the whole thread.
  if (isShort) wanted = null;
});
document.addEventListener("htmx:afterSettle", () => {
  const [asked, isShort] = [wanted ?? [], wanted === null];
  wanted = [];
  for (const message of asked) if (message.isConnected) refresh(message);
  if (!isShort) return;
  find("#tail-seen").value = "0";
  window.htmx.trigger("#changes", "changed");
});

// Keeps a part that was rendered alike, whatever attributes changed on the page.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const { target, fragment } = event.detail;
  const part = fragment.firstElementChild;
  if (target.id === "composer" || part?.id !== target.id) return;
  if (isSame(part, target)) event.detail.shouldSwap = false;
});
