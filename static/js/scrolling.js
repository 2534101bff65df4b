// Scrolling: the page follows the reply only while the reader is at the end.

import { box, find, thread } from "./page.js";

let follow = true;
// Words that came.
const isText = (change) => change.type === "characterData"
  || [...change.addedNodes].some((node) => node.textContent.trim());
const isAtEnd = () => thread.scrollHeight - thread.scrollTop - thread.clientHeight < 48;

function toEnd() {
  thread.scrollTop = thread.scrollHeight;
  find("#newtext").hidden = true;
}

function watch() {
  const place = document.getElementById(location.hash.slice(1));
  follow = !place || place.id === "tail";
  if (follow) toEnd();
  thread.addEventListener("scroll", () => {
    follow = isAtEnd();
    if (follow) find("#newtext").hidden = true;
  });
  // Who opens something is reading it, although nothing was scrolled.
  thread.addEventListener("toggle", (event) => {
    if (event.target.contains(document.activeElement)) follow = isAtEnd();
  }, true);
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

if (thread && find("#tail")) watch();

// Who sends a message wants to see it.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "composer") follow = true;
});

// Earlier messages come in above, and folded ones leave: the line that was read stays where it was.
let places = [];

document.addEventListener("htmx:beforeSwap", () => {
  const top = thread?.getBoundingClientRect().top;
  places = follow || !thread ? [] : [...thread.querySelectorAll("article.msg, .marker")]
    .map((part) => ({ id: part.id, ...part.getBoundingClientRect().toJSON() }))
    .filter((part) => part.bottom > top);
});

document.addEventListener("htmx:afterSettle", () => {
  const place = places.find(({ id }) => document.getElementById(id));
  places = [];
  if (!place || follow) return;
  thread.scrollTop += document.getElementById(place.id).getBoundingClientRect().top - place.top;
});
