// Keeps the chat list up to date with other tabs and other chats: which chats exist, their titles,
// order and unread state.

import { find } from "./page.js";

// Debounce: several changes in a row cause one request.
const patience = 300;
const list = find("#chat-list");
// A folder loads its chats each time it is opened.
const itemsIn = (place) => [...place.querySelectorAll("li[id]")].filter((item) => !item.closest(".navfolder"));
// The first page as last loaded, and its chats. All other chats stay below it.
let shown = "";
let drawn = new Set(list ? itemsIn(list).map(({ id }) => id) : []);
let isWanted = false;
let waiting;
// Further pages, open folders and the focus, to restore after an update.
let more = [];
let folders = [];
let focused = {};

function lookSoon() {
  clearTimeout(waiting);
  if (isWanted && !document.hidden) waiting = setTimeout(look, patience);
}

function look() {
  isWanted = false;
  window.htmx.trigger(list, "listed");
}

// Returns what stays below the new first page: further pages, their "more" link, and chats pushed
// off the first page. Chats that were above its last chat and are missing now were removed. A chat
// that was pinned before can be anywhere, so then the list starts again.
function loaded(ids) {
  const items = itemsIn(list);
  const end = [...ids].at(-1);
  const last = items.findIndex(({ id }) => id === end);
  const below = items.slice(last + 1).filter(({ id }) => !ids.has(id));
  const isUnpinned = items.slice(0, last).some((item) => !ids.has(item.id) && find("svg", item));
  const isKept = last >= 0 && !isUnpinned && below.some(({ id }) => !drawn.has(id));
  drawn = ids;
  if (!isKept) return [];
  for (const item of items) if (!below.includes(item)) item.remove();
  return [...list.children].filter((part) => part.id === "more-chats" || itemsIn(part).length);
}

// Appends a part below the first page and merges a day that continues.
function append(part) {
  const heading = find("h2", part);
  const isSame = ({ textContent }) => textContent === heading?.textContent;
  const same = [...list.querySelectorAll(":scope > .navgroup > h2")].find(isSame);
  if (same) find("ul", same.parentElement).append(...itemsIn(part));
  else list.append(part);
  if (same || !heading) return;
  heading.id = itemsIn(part)[0].id.replace("chat-", "group-");
  part.setAttribute("aria-labelledby", heading.id);
}

// The focused element of the list. After an update, the element with the same ID is focused.
function focusIn() {
  const place = document.activeElement;
  return { place, id: place.closest("#chat-list [id]")?.id };
}

function refocus({ place, id }) {
  if (!id || document.activeElement === place) return;
  const again = place.isConnected ? place : find(`[id="${id}"] :is(a, summary)`, list);
  again?.focus({ preventScroll: true });
}

// Reopens a folder with its previous chats; opening it reloads them.
function reopen(old) {
  const folder = find(`#${old.id}`, list);
  if (!folder || folder.open) return;
  find(".navfolder__chats", folder).replaceChildren(...find(".navfolder__chats", old).children);
  folder.open = true;
}

function show(title) {
  const heading = find(".chat__title");
  if (!title || !heading || heading.textContent === title.textContent) return;
  // A function, because "$" has a meaning in a replacement text.
  document.title = document.title.replace(/^.*(?= · )/, () => title.textContent);
  heading.textContent = title.textContent;
}

if (list) {
  document.addEventListener("chats:changed", () => {
    isWanted = true;
    lookSoon();
  });
  document.addEventListener("visibilitychange", lookSoon);
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!list.contains(event.detail.target) || !event.detail.shouldSwap) return;
    focused = focusIn();
    if (event.detail.target !== list) return;
    const answer = event.detail.serverResponse;
    if (answer === shown) {
      event.detail.shouldSwap = false;
      return;
    }
    shown = answer;
    more = loaded(new Set([...answer.matchAll(/<li id="([^"]+)"/g)].map(([, id]) => id)));
    folders = [...list.querySelectorAll(".navfolder[open]")];
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target !== list) {
      if (list.contains(event.detail.target)) refocus(focused);
      return;
    }
    if (more.length) {
      find("#more-chats", list)?.remove();
      for (const part of more) append(part);
      window.htmx.process(list);
    }
    more = [];
    for (const folder of folders) reopen(folder);
    folders = [];
    refocus(focused);
    show(find("[aria-current=page] .navitem__title", list));
  });
}
