// Autocompletes agent names after `@` in the message box. The server renders the hidden list; this
// script filters and shows it. Names can also be typed in full.

import { box, find, isComposing } from "./page.js";

// Letters of scripts without spaces between words: Thai, Lao, Japanese, Chinese, Korean.
const unspaced = "\\u0e00-\\u0eff\\u3040-\\u30ff\\u3400-\\u9fff\\uac00-\\ud7af";
// Start of a mention: not inside a word, as in an email address.
const written = new RegExp(`(?<=^|[^\\p{L}\\p{N}\\p{M}_]|[${unspaced}])@("?)([^@"\\n]{0,60})$`, "u");
const inlineCode = /(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)/g;
const fenceLine = /^ {0,3}(`{3,}|~{3,})(.*)$/;

const list = () => find("#mentions");
const options = () => [...list().children];
const shown = () => options().filter((option) => !option.hidden);
// In a new chat the list has the names of every team that can be chosen.
const isOfTeam = ({ dataset }) => !dataset.team || dataset.team === find("#team")?.value;
const isOpen = () => Boolean(list()) && !list().hidden;
const chosen = () => shown().find((option) => option.getAttribute("aria-selected") === "true");

// Comparison key of names, folded like on the server.
const fold = (name) => name.normalize("NFKC").toLowerCase().replace(/[\s_\u200c\u200d-]+/g, "");

// The `@` whose list was closed or used: the list stays closed for it.
let closedAt = -1;

function isInFence(lines) {
  let fence = "";
  for (const line of lines) {
    const [, marks, rest] = line.match(fenceLine) ?? [];
    if (!marks) continue;
    if (!fence) fence = marks[0] === "~" || !rest.includes("`") ? marks : "";
    else if (marks[0] === fence[0] && marks.length >= fence.length && !rest.trim()) fence = "";
  }
  return Boolean(fence);
}

// Returns the mention before the caret, or undefined.
function asked(area) {
  const { selectionStart: caret, selectionEnd: end, value } = area;
  const [, quote, name] = (caret === end && value.slice(0, caret).match(written)) || [];
  if (name === undefined) return undefined;
  const at = caret - name.length - quote.length - 1;
  const lines = value.slice(0, at).split("\n");
  const before = lines.pop();
  // No mentions inside inline code, fenced code and quotations.
  const isCode = before.replace(inlineCode, "").includes("`") || isInFence(lines);
  return isCode || /^\s*>/.test(before) ? undefined : { at, caret, quote, name };
}

// Matches from the start of any word of a name. A complete name has nothing to complete.
function fits(name, begun) {
  if (/^\s/.test(begun)) return false;
  const wanted = fold(begun);
  const words = name.split(/[\s_-]+/);
  const starts = words.some((word, place) => fold(words.slice(place).join("")).startsWith(wanted));
  return starts && !(wanted && fold(name) === wanted && /\s$/.test(begun));
}

function choose(option) {
  for (const each of options()) each.setAttribute("aria-selected", String(each === option));
  box().setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" });
}

function close() {
  if (!list()) return;
  list().hidden = true;
  box().setAttribute("aria-expanded", "false");
  box().removeAttribute("aria-activedescendant");
}

function open() {
  const names = list();
  names.hidden = false;
  names.classList.remove("is-below");
  // Above the box, unless there is only room below.
  const room = find("#composer-box").getBoundingClientRect();
  names.classList.toggle("is-below", names.offsetHeight > room.top && innerHeight - room.bottom > room.top);
  box().setAttribute("aria-expanded", "true");
}

function update() {
  const area = box();
  if (!list()) return;
  const place = document.activeElement === area && !area.readOnly ? asked(area) : undefined;
  if (place?.at !== closedAt) closedAt = -1;
  if (!place || closedAt >= 0) {
    close();
    return;
  }
  const active = isOpen() && chosen();
  for (const option of options()) option.hidden = !isOfTeam(option) || !fits(option.dataset.name, place.name);
  const found = shown();
  const isWhole = found.length === 1 && !place.quote && fold(found[0].dataset.name) === fold(place.name);
  if (!found.length || isWhole) {
    close();
    return;
  }
  open();
  choose(active && !active.hidden ? active : found[0]);
}

function take(option) {
  const area = box();
  const place = asked(area);
  if (!place) {
    close();
    return;
  }
  const { name } = option.dataset;
  const after = area.value.slice(place.caret);
  const isClosed = place.quote && after.startsWith('"');
  const rest = isClosed ? after.slice(1) : after;
  const mention = /\s/.test(name) ? `@"${name}"` : `@${name}`;
  const end = place.caret + (isClosed ? 1 : 0) + (rest.startsWith(" ") ? 1 : 0);
  area.setRangeText(`${mention} `, place.at, end, "end");
  closedAt = place.at;
  close();
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

function step(by) {
  const found = shown();
  choose(found[(found.indexOf(chosen()) + by + found.length) % found.length]);
}

const withKey = {
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  Enter: () => take(chosen()),
  Tab: () => take(chosen()),
  Escape: () => {
    closedAt = asked(box())?.at ?? -1;
    close();
  },
};

// Handled first: otherwise Enter would send, and Escape would stop the reply.
document.addEventListener("keydown", (event) => {
  if (event.target !== box() || !isOpen() || isComposing(event)) return;
  if (event.shiftKey || event.altKey || event.ctrlKey || event.metaKey) return;
  const act = withKey[event.key];
  if (!act) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  act();
}, { capture: true });

document.addEventListener("input", (event) => {
  // Ignore text that an input method is still composing.
  if (event.target === box() && !event.isComposing) update();
});
document.addEventListener("compositionend", ({ target }) => {
  if (target === box()) update();
});
document.addEventListener("selectionchange", () => {
  if (list() && document.activeElement === box()) update();
});
document.addEventListener("focusout", ({ target }) => {
  if (target === box()) close();
});
document.addEventListener("mousedown", (event) => {
  // Keep the focus in the box.
  if (event.target.closest("#mentions")) event.preventDefault();
});
document.addEventListener("click", ({ target }) => {
  const option = target.closest("#mentions [role=option]");
  if (option) take(option);
});

// Each sent message replaces the message box element.
function prepare() {
  if (!list() || box().hasAttribute("role")) return;
  const roles = { "role": "combobox", "aria-autocomplete": "list", "aria-haspopup": "listbox" };
  for (const [name, value] of Object.entries(roles)) box().setAttribute(name, value);
  box().setAttribute("aria-controls", list().id);
  box().setAttribute("aria-expanded", "false");
  closedAt = -1;
  update();
}
prepare();
document.addEventListener("htmx:afterSettle", prepare);
