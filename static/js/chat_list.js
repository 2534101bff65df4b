// The chat list follows what happens in other tabs and in chats that no tab shows: which chats there
// are, their titles and order, and what is unread.

import { find } from "./page.js";

// Several changes in a row are one look.
const patience = 300;
const list = find("#chat-list");
// A folder brings its own chats each time it is opened.
const itemsIn = (place) => [...place.querySelectorAll("li[id]")].filter((item) => !item.closest(".navfolder"));
// The first page as it came last, and its chats; all others stay below it.
let shown = "";
let drawn = new Set(list ? itemsIn(list).map(({ id }) => id) : []);
let isWanted = false;
let waiting;
// What the person loaded below the first page, the folders they opened, and where the focus was.
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

// What stays below the first page that has come, which has these chats: what the person loaded, with
// the link to more, and what the page pushed out. What stood above its last chat and is not on it is
// gone; but one that was pinned may lie anywhere now, and then the list begins again.
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

// Puts a part below the first page; a day that goes on stays under one heading.
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

// Where the focus is in the list. Of what comes anew, the part with the same id gets it back.
function focusIn() {
  const place = document.activeElement;
  return { place, id: place.closest("#chat-list [id]")?.id };
}

function refocus({ place, id }) {
  if (!id || document.activeElement === place) return;
  const again = place.isConnected ? place : find(`[id="${id}"] :is(a, summary)`, list);
  again?.focus({ preventScroll: true });
}

// Opens a folder again with the chats that it showed; opened, it asks for them anew.
function reopen(old) {
  const folder = find(`#${old.id}`, list);
  if (!folder || folder.open) return;
  find(".navfolder__chats", folder).replaceChildren(...find(".navfolder__chats", old).children);
  folder.open = true;
}

function show(title) {
  const heading = find(".chat__title");
  if (!title || !heading || heading.textContent === title.textContent) return;
  document.title = document.title.replace(heading.textContent, title.textContent);
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
