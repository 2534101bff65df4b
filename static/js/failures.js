// Requests that fail. The typed text stays, a sentence appears next to the control, and "Try again"
// repeats the request. Background requests are retried until they succeed.

import { find } from "./page.js";

const sentences = {
  401: "You are signed out. Sign in in another tab, then try again.",
  403: "The server refused this request. Try again, or reload the page.",
  404: "This no longer exists, or you no longer have access to it.",
  408: "The server did not answer in time. Try again.",
  413: "This is larger than the server accepts. Shorten it, then try again.",
  429: "Too many requests. Wait a moment, then try again.",
};
const unreachable = "The server could not be reached. Check your connection, then try again.";
const late = "The server did not answer in time. Check whether it was done, then try again.";
const signIn = "The server answered with another page. You may have to sign in in another tab, then try again.";
const stale = "You signed in again since this page was opened. Try again.";

// Milliseconds.
const firstRetry = 1000;
const longestRetry = 8000;
const tellAfter = 10_000;

// The page of an answer, as inert as htmx reads one: its scripts never run.
export function parse(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

const isPage = (text) => /^\s*(<!doctype|<html)/i.test(text);

// The sentence for a response that is an error; our own error pages bring theirs.
export function sentenceFor(status, text, headers) {
  const page = text && isPage(text) ? parse(text) : null;
  if (status === 403 && page && find("[data-stale]", page)) {
    takeToken();
    return stale;
  }
  const own = page && headers("X-Request-ID") && find(".notice__title", page)?.textContent.trim();
  if (own) return own.replaceAll(/\s+/g, " ");
  if (sentences[status]) return sentences[status];
  if (status >= 500) return `The server is not available (status ${status}). Try again in a moment.`;
  return `The server refused this request (status ${status}). Try again, or reload the page.`;
}

// A sign-in in another tab replaces the token that forms carry.
function takeToken() {
  const [, token] = document.cookie.match(/(?:^|; )(?:__Host-csrf|csrftoken)=([^;]+)/) ?? [];
  if (!token) return;
  for (const field of document.querySelectorAll("[name=csrfmiddlewaretoken]")) field.value = token;
  if (document.body.hasAttribute("hx-headers")) {
    document.body.setAttribute("hx-headers", JSON.stringify({ "X-CSRFToken": token }));
  }
}

// A failure is told by htmx's own events.
function ask({ verb, path }, control) {
  return window.htmx.ajax(verb, path, { source: control })?.catch(() => {});
}

const notes = new Map();

export function clearFailure(key) {
  notes.get(key)?.remove();
  notes.delete(key);
}

// Where the sentence goes: with the text, else beside the control.
function put(note, control) {
  const box = find("#composer-box", control);
  const panel = control.closest(".menu__panel, .meter__panel, dialog, fieldset");
  const toolbar = control.closest("[data-toolbar]");
  if (!control.isConnected) find("#notices")?.replaceChildren(note);
  else if (box) box.before(note);
  else if (control.matches("form") && find("textarea, input:not([type=hidden]), select", control)) control.append(note);
  else if (panel && panel !== control) panel.append(note);
  else (toolbar ?? control).after(note);
  note.scrollIntoView({ block: "nearest" });
}

export function showFailure({ key, control, sentence, status, again }) {
  clearFailure(key);
  const note = document.createElement("div");
  const words = document.createElement("p");
  const button = document.createElement("button");
  note.className = "failure";
  note.setAttribute("role", "alert");
  words.textContent = sentence;
  button.type = "button";
  button.className = "btn btn--s button";
  button.textContent = "Try again";
  button.addEventListener("click", () => {
    clearFailure(key);
    again();
  });
  note.append(words, button);
  if (status === 401) {
    const link = document.createElement("a");
    link.href = `/login/?${new URLSearchParams({ next: location.pathname })}`;
    link.target = "_blank";
    link.textContent = "Sign in";
    link.className = "btn btn--s button";
    button.before(link);
  }
  notes.set(key, note);
  put(note, control);
}

// The key of a request: what is asked, of whom.
const keyOf = ({ verb, path }) => `${verb} ${path}`;

function repeat(control, config) {
  const { submitter } = config.triggeringEvent ?? {};
  if (!control.matches("form:not([hx-trigger])")) ask(config, control);
  else control.requestSubmit(submitter?.isConnected ? submitter : null);
}

// Requests that the page sends by itself.

const waiting = new WeakMap();
let failingSince = 0;

function wait(control, config, status) {
  const isFinal = status >= 400 && status < 500 && ![408, 429].includes(status);
  failingSince ||= Date.now();
  if (isFinal || Date.now() - failingSince > tellAfter) tell(status, isFinal);
  if (isFinal) return;
  const { tries = 0, timer } = waiting.get(control) ?? {};
  clearTimeout(timer);
  const delay = Math.min(longestRetry, firstRetry * 2 ** tries) * (0.75 + Math.random() / 2);
  const next = () => control.isConnected && ask(config, control);
  waiting.set(control, { tries: tries + 1, timer: setTimeout(next, delay) });
}

function tell(status, isFinal) {
  const place = find("#notices");
  if (!place || find(".failure", place)) return;
  const note = document.createElement("p");
  note.className = "failure";
  note.dataset.background = "";
  note.textContent = isFinal
    ? sentences[status] ?? "This page is out of date. Reload it."
    : "This page is not up to date: the server cannot be reached. Trying again …";
  place.replaceChildren(note);
}

function recover(control) {
  waiting.delete(control);
  failingSince = 0;
  find("#notices > .failure[data-background]")?.remove();
}

const isBackground = (control) => control.hasAttribute?.("data-background") || control.hasAttribute?.("data-again");

function fail(event, sentence, status = 0) {
  const control = event.target;
  const { requestConfig } = event.detail;
  if (!(control instanceof Element) || !requestConfig) return;
  if (isBackground(control)) {
    wait(control, requestConfig, status);
    return;
  }
  showFailure({
    key: keyOf(requestConfig), control, sentence, status, again: () => repeat(control, requestConfig),
  });
}

const otherPages = new WeakSet();

document.addEventListener("htmx:responseError", (event) => {
  const { xhr } = event.detail;
  const isOtherPage = otherPages.has(xhr);
  const words = isOtherPage ? signIn : sentenceFor(xhr.status, xhr.responseText, (name) => xhr.getResponseHeader(name));
  fail(event, words, isOtherPage ? 401 : xhr.status);
});
document.addEventListener("htmx:sendError", (event) => fail(event, unreachable));
document.addEventListener("htmx:timeout", (event) => fail(event, late));

// A proxy's sign-in page comes as a success. It is a whole page where a part of one was asked for.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { detail } = event;
  const { xhr, isError } = detail;
  if (isError || !detail.shouldSwap || !xhr || !isPage(xhr.responseText)) return;
  const control = detail.requestConfig.elt;
  const wanted = xhr.getResponseHeader("HX-Reselect") ?? detail.select
    ?? control.closest("[hx-select]")?.getAttribute("hx-select");
  if (wanted && find(wanted, parse(xhr.responseText))) return;
  otherPages.add(xhr);
  Object.assign(detail, { shouldSwap: false, isError: true });
});

document.addEventListener("htmx:beforeRequest", ({ target, detail }) => {
  if (!detail.requestConfig || isBackground(target)) return;
  clearFailure(keyOf(detail.requestConfig));
  if (!target.matches("[data-quiet]")) find("#notices")?.replaceChildren();
});
document.addEventListener("htmx:afterRequest", ({ target, detail }) => {
  if (detail.successful && isBackground(target)) recover(target);
});
