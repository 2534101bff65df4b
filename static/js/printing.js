// Printing: loads the whole chat and the originals of the active summary first.

import { parse } from "./failures.js";
import { find, thread } from "./page.js";

// Limit, so that a server that repeats the same part cannot block the page forever.
const mostParts = 2000;
const earlier = ".earlier[id] [hx-get]";
let opened = [];

// A print dialog waits for no response, so these requests are synchronous.
function read(address) {
  const request = new XMLHttpRequest();
  request.open("GET", address, false);
  request.setRequestHeader("HX-Request", "true");
  request.send();
  const isOurs = request.status === 200 && request.getResponseHeader("X-Request-ID");
  return isOurs ? parse(request.responseText).body : null;
}

// Replaces the linking paragraph with the response, like htmx.
function load(link) {
  const parts = read(link.getAttribute("hx-get"));
  if (!parts) return false;
  for (const part of parts.querySelectorAll("[hx-swap-oob]")) {
    part.removeAttribute("hx-swap-oob");
    document.getElementById(part.id)?.replaceWith(part);
  }
  const made = [...parts.children];
  link.closest("p").replaceWith(...made);
  for (const part of made) window.htmx.process(part);
  return true;
}

function loadAll(selector, from) {
  for (let count = 0; from && count < mostParts; count += 1) {
    const link = find(selector, from);
    if (!link || !load(link)) return;
  }
}

function open(part) {
  if (!part || part.open) return;
  part.open = true;
  opened.push(part);
}

addEventListener("beforeprint", () => {
  if (!thread) return;
  const below = thread.scrollHeight - thread.scrollTop;
  const marker = [...document.querySelectorAll(".marker[data-marker]:not(.marker--plain)")].at(-1);
  const originals = marker && find("[id^=originals-]", marker);
  try {
    loadAll(earlier, thread);
    loadAll("[id^=under-] p[hx-get], .under p [hx-get]", originals);
  } catch {
    // The server is unreachable: print the loaded part, with a note.
  }
  open(marker);
  open(originals);
  thread.scrollTop = thread.scrollHeight - below;
});

addEventListener("afterprint", () => {
  for (const part of opened) part.open = false;
  opened = [];
});
