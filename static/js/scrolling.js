// Scrolling: the page follows the reply only while the reader is at the end.

import { box, find, thread } from "./page.js";

let follow = true;
// The toolbar moves from message to message, and a sentence about a failed request stands beside its
// control: neither is news.
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
  // Who opens something is reading it, although nothing was scrolled.
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
  // A link or a search hit in this chat.
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
