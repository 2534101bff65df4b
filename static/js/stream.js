// Server events: text of replies, and change notices.

import { find } from "./page.js";
import { Switchboard } from "./switchboard.js";

// Debounce: several changes in a row cause one request.
const patience = 200;
// A worker that does not respond within this time has ended or does not exist.
const longestSilence = 3000;
// Longer than one animation frame.
const longestFrame = 100;
// Replies on this page by ID.
const replies = new Map();
// Newest change of each chat that the page does not show yet. It stays until a response is shown.
const wanted = new Map();
// The change that a pending request was sent for.
const covered = new WeakMap();
let send = () => {};
let looking;

// What htmx uses as the connection to a reply.
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

// Renders received text in the next animation frame. A finished block waits for the open rest that
// follows it: shown alone, it would repeat that text.
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
  // The page is hidden, so there are no animation frames.
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
  wanted.set(chat, { at: Math.max(at, wanted.get(chat)?.at ?? 0) });
  lookSoon();
}

function lookSoon() {
  clearTimeout(looking);
  if (wanted.size && !document.hidden) looking = setTimeout(look, patience);
}

// A growing reply ends with a request for what follows it. It does not grow while it waits for
// consent to a tool call, which can take hours.
const isGrowing = () => Boolean(find("#tail [data-live]:not(:has([data-note=tool-consent]))"));

// During a request, htmx would queue another
// one for a part that the response replaces, and then drop it.
function look() {
  for (const part of parts()) {
    const { chat, drawn } = part.dataset;
    const change = wanted.get(chat);
    if (!change || part.matches(".htmx-request") || isGrowing()) continue;
    if (change.at > Number(drawn)) window.htmx.trigger(part, "changed");
    else wanted.delete(chat);
  }
}

function cover({ target, detail }) {
  if (target.dataset?.chat) covered.set(detail.xhr, wanted.get(target.dataset.chat));
}

// A shown response includes all changes that were known when its request was sent.
function shown({ detail: { xhr, shouldSwap, isError, requestConfig } }) {
  const { chat } = requestConfig?.elt.dataset ?? {};
  const isShown = !isError && (shouldSwap || xhr.status === 204);
  if (chat && isShown && wanted.get(chat) === covered.get(xhr)) wanted.delete(chat);
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
  // One worker per user, so a new sign-in gets its own stream.
  const all = new SharedWorker(url, { type: "module", name: person });
  const goAlone = () => {
    // Only once: with a second stream, each text would be shown twice.
    all.port.onmessage = all.onerror = null;
    clearTimeout(silence);
    all.port.postMessage({ bye: true });
    alone(address);
    greet();
  };
  const silence = setTimeout(goAlone, longestSilence);
  all.port.onmessage = ({ data }) => {
    clearTimeout(silence);
    hear(data);
  };
  all.onerror = goAlone;
  send = (message) => all.port.postMessage(message);
}

const settings = find("#stream")?.dataset;
if (settings) {
  if (window.SharedWorker) shared(settings);
  else alone(settings.address);
  greet();
  window.htmx.createEventSource = (address) => new Reply(address);
  document.addEventListener("visibilitychange", lookSoon);
  document.addEventListener("htmx:beforeRequest", cover);
  // After all handlers that can drop a response.
  window.addEventListener("htmx:beforeSwap", shown);
  document.addEventListener("htmx:afterSettle", lookSoon);
  // A failed request is sent again by another module.
  document.addEventListener("htmx:afterRequest", ({ detail }) => detail.successful && lookSoon());
  addEventListener("pagehide", () => send({ bye: true }));
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    greet();
    hear({ lost: true });
  });
}
