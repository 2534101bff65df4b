// The chat list follows what happens in other tabs and in chats that no tab shows: which chats there
// are, their titles and order, and what is unread.

import { find } from "./page.js";

// Several changes in a row are one look.
const patience = 300;
const list = find("#chat-list");
// A folder brings its own chats each time it is opened.
const itemsIn = (place) => [...place.querySelectorAll("li[id]")].filter((item) => !item.closest(".navfolder"));
// The first page as it came last, and its chats; all others were loaded by the person.
let shown = "";
let drawn = new Set(list ? itemsIn(list).map(({ id }) => id) : []);
let isWanted = false;
let waiting;
// What the person loaded below the first page, the folders they opened, and where the focus was.
let more = [];
let folders = [];
let focused = "";

function lookSoon() {
  clearTimeout(waiting);
  if (isWanted && !document.hidden) waiting = setTimeout(look, patience);
}

function look() {
  isWanted = false;
  window.htmx.trigger(list, "listed");
}

// What stays below the first page that has come, which has these chats.
function loaded(ids) {
  const kept = [];
  for (const part of [...list.children]) {
    if (part.matches(".navfolder")) continue;
    const items = itemsIn(part);
    if (!items.length && kept.length) kept.push(part);
    const below = items.filter(({ id }) => !drawn.has(id) && !ids.has(id));
    for (const item of items) if (!below.includes(item)) item.remove();
    if (below.length) kept.push(part);
  }
  drawn = ids;
  return kept;
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
    if (event.detail.target !== list || !event.detail.shouldSwap) return;
    const answer = event.detail.serverResponse;
    if (answer === shown) {
      event.detail.shouldSwap = false;
      return;
    }
    shown = answer;
    focused = document.activeElement.closest("#chat-list li")?.id ?? "";
    more = loaded(new Set([...answer.matchAll(/<li id="([^"]+)"/g)].map(([, id]) => id)));
    folders = [...list.querySelectorAll(".navfolder[open]")];
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target !== list) return;
    if (more.length) {
      find("#more-chats", list)?.remove();
      list.append(...more);
      window.htmx.process(list);
    }
    more = [];
    for (const folder of folders) reopen(folder);
    folders = [];
    find(`[id="${focused}"] a`, list)?.focus({ preventScroll: true });
    focused = "";
    show(find("[aria-current=page] .navitem__title", list));
  });
}
