// Scrolling: the page follows the reply only while the reader is at the end.

import { box, find, thread } from "./page.js";

let follow = true;
// Ignored changes: the action bar moves between messages, and error messages appear beside
// controls.
const aside = "[data-toolbar], .failure";
const isAside = (node) => Boolean((node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement)?.closest(aside));
const isNews = ({ target, addedNodes, removedNodes }) => !isAside(target)
  && ![...addedNodes, ...removedNodes].some((node) => node.matches?.(aside));
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
  // Opening an element counts as reading it, even without scrolling.
  thread.addEventListener("toggle", (event) => {
    if (event.target.contains(document.activeElement)) follow = isAtEnd();
  }, true);
  new MutationObserver((changes) => {
    const news = changes.filter(isNews);
    const tail = find("#tail");
    if (follow && news.length) toEnd();
    else if (news.some((change) => isText(change) && tail.contains(change.target))) {
      find("#newtext").hidden = isAtEnd();
    }
  }).observe(find(".thread__inner"), { childList: true, subtree: true, characterData: true });
  // A link or search hit within this chat.
  addEventListener("hashchange", () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target || target.id === "tail") return;
    follow = false;
    target.scrollIntoView({ block: "center" });
  });
  new ResizeObserver(() => follow && toEnd()).observe(thread);
  find("#newtext").addEventListener("click", () => {
    follow = true;
    toEnd();
    box()?.focus();
  });
}

if (thread && find("#tail")) watch();

// Scroll to the end after sending.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "composer") follow = true;
});

// Earlier messages are added above and covered ones removed: keep the current line in place.
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
