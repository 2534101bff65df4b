// What the server says by itself: the words of replies, and that something changed.

import { find } from "./page.js";
import { Switchboard } from "./switchboard.js";

// Several changes in a row are one look.
const patience = 200;
// A worker that does not answer so long has ended with the last tab, or is none.
const longestSilence = 3000;
// Longer than a picture takes.
const longestFrame = 100;
// Replies on this page, by their id.
const replies = new Map();
// The newest change of each chat that the page does not show yet.
const wanted = new Map();
let send = () => {};
let looking;

// What htmx takes for a connection of its own to the reply's address.
class Reply extends EventTarget {
  readyState = EventSource.OPEN;

  constructor(address) {
    super();
    this.turn = new URL(address, location).searchParams.get("turn");
    replies.set(this.turn, this);
    send({ follow: this.turn });
  }

  close() {
    this.readyState = EventSource.CLOSED;
    if (replies.get(this.turn) !== this) return;
    replies.delete(this.turn);
    send({ leave: this.turn });
  }
}

// What came since the last picture is shown in the next one. A block waits for the open rest that comes
// right after it: shown alone, it would push down words that it holds itself.
const spoken = [];
let isDue = false;

function speak() {
  isDue = false;
  const whole = spoken.findLastIndex(({ kind }) => kind !== "block") + 1;
  for (const { turn, kind, data } of spoken.splice(0, whole)) {
    replies.get(turn)?.dispatchEvent(new MessageEvent(kind, { data }));
  }
}

function say(words) {
  spoken.push(words);
  if (isDue || words.kind === "block") return;
  isDue = true;
  requestAnimationFrame(speak);
  // Nobody looks, so there is no next picture.
  setTimeout(speak, longestFrame);
}

function hear({ turn, kind, data, changed, at, lost }) {
  if (turn) say({ turn, kind, data });
  if (changed) want(changed, at);
  if (lost) for (const part of parts()) want(part.dataset.chat, Infinity);
  if (changed !== undefined || lost) document.dispatchEvent(new Event("chats:changed"));
}

const parts = () => document.querySelectorAll("[data-chat]");

function want(chat, at) {
  wanted.set(chat, Math.max(at, wanted.get(chat) ?? 0));
  lookSoon();
}

function lookSoon() {
  clearTimeout(looking);
  if (wanted.size && !document.hidden) looking = setTimeout(look, patience);
}

// A reply that grows asks for what is behind it when it ends.
function look() {
  for (const part of parts()) {
    const { chat, drawn } = part.dataset;
    if (!wanted.has(chat) || find("#tail [data-live]")) continue;
    const isNews = wanted.get(chat) > Number(drawn);
    wanted.delete(chat);
    if (isNews) window.htmx.trigger(part, "changed");
  }
}

function greet() {
  const drawn = [...document.querySelectorAll("[data-drawn]")].map((part) => Number(part.dataset.drawn));
  send({ hello: Math.min(Date.now(), ...drawn) });
  for (const turn of replies.keys()) send({ follow: turn });
}

function alone(address) {
  const board = new Switchboard(address);
  const port = { postMessage: hear };
  send = (message) => board.hear(port, message);
}

function shared({ address, worker, person }) {
  const url = `${worker}?${new URLSearchParams({ stream: address })}`;
  // By the person's name: who signs in after somebody else gets a stream of their own.
  const all = new SharedWorker(url, { type: "module", name: person });
  const goAlone = () => {
    all.port.onmessage = null;
    all.port.postMessage({ bye: true });
    alone(address);
    greet();
  };
  const silence = setTimeout(goAlone, longestSilence);
  all.port.onmessage = ({ data }) => {
    clearTimeout(silence);
    hear(data);
  };
  all.onerror = () => {
    clearTimeout(silence);
    goAlone();
  };
  send = (message) => all.port.postMessage(message);
}

const settings = find("#stream")?.dataset;
if (settings) {
  if (window.SharedWorker) shared(settings);
  else alone(settings.address);
  greet();
  window.htmx.createEventSource = (address) => new Reply(address);
  document.addEventListener("visibilitychange", lookSoon);
  document.addEventListener("htmx:afterSettle", lookSoon);
  addEventListener("pagehide", () => send({ bye: true }));
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    greet();
    hear({ lost: true });
  });
}
