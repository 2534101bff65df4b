// Requests that fail. The typed text stays, a sentence appears next to the control, and "Try again"
// repeats the request. Background requests are retried until they succeed.

import { find } from "./page.js";
import { fill, gettext } from "./translation.js";

const sentences = {
  401: gettext("You are signed out. Sign in in another tab, then try again."),
  403: gettext("The server refused this request. Try again, or reload the page."),
  404: gettext("This item no longer exists, or you no longer have access to it."),
  408: gettext("The server did not answer in time. Try again."),
  413: gettext("The input is larger than the server accepts. Shorten it, then try again."),
  429: gettext("Too many requests. Wait a moment, then try again."),
};
export const unreachable = gettext("The server could not be reached. Check your connection, then try again.");
export const late = gettext("The server did not answer in time. Check whether the action was completed, then try again.");
export const signIn = gettext(
  "The server answered with an unexpected page. You may need to sign in again in another tab. Then try again.",
);
const stopped = gettext("The request was stopped before the server answered. Check whether the action was completed, then try again.");
const stale = gettext("You have signed in again since this page was opened. Try again.");

// Milliseconds.
const firstRetry = 1000;
const longestRetry = 8000;
const tellAfter = 10_000;

// Parses a response as inert HTML, like htmx: its scripts never run.
export function parse(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

const isPage = (text) => /^\s*(<!doctype|<html)/i.test(text);

// Returns the message for an error response. Error pages of the product contain their own.
export function sentenceFor(status, text, headers) {
  const page = text && isPage(text) ? parse(text) : null;
  if (status === 403 && page && find("[data-stale]", page)) {
    takeToken();
    return stale;
  }
  const own = page && headers("X-Request-ID") && find(".notice__title", page)?.textContent.trim();
  if (own) return own.replaceAll(/\s+/g, " ");
  if (sentences[status]) return sentences[status];
  const words = status >= 500
    ? gettext("The server is not available (status {status}). Try again in a moment.")
    : gettext("The server refused this request (status {status}). Try again, or reload the page.");
  return fill(words, { status });
}

// A sign-in in another tab replaces the CSRF token of forms.
function takeToken() {
  const [, token] = document.cookie.match(/(?:^|; )(?:__Host-csrf|csrftoken)=([^;]+)/) ?? [];
  if (!token) return;
  for (const field of document.querySelectorAll("[name=csrfmiddlewaretoken]")) field.value = token;
  if (document.body.hasAttribute("hx-headers")) {
    document.body.setAttribute("hx-headers", JSON.stringify({ "X-CSRFToken": token }));
  }
}

// htmx reports failures by its own events.
function ask({ verb, path }, control) {
  return window.htmx.ajax(verb, path, { source: control })?.catch(() => {});
}

// htmx keeps the promise of a request it sends after another one to itself, and rejects it without a
// reason. Its failure is reported by an event too.
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason === undefined) event.preventDefault();
});

const notes = new Map();

export function clearFailure(key) {
  notes.get(key)?.remove();
  notes.delete(key);
}

// Place of the message: near the text, otherwise beside the control.
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

// `signInAt`: the address of the page that confirms the identity of a signed-in user.
export function showFailure({ key, control, sentence, status, signInAt, again }) {
  clearFailure(key);
  const note = document.createElement("div");
  const words = document.createElement("p");
  const button = document.createElement("button");
  note.className = "failure";
  note.setAttribute("role", "alert");
  note.dataset.status = status;
  words.textContent = sentence;
  button.type = "button";
  button.className = "btn btn--s button";
  button.textContent = gettext("Try again");
  button.addEventListener("click", () => {
    clearFailure(key);
    again();
  });
  note.append(words, button);
  if (status === 401) {
    const link = document.createElement("a");
    link.href = signInAt ?? `/login/?${new URLSearchParams({ next: location.pathname })}`;
    link.target = "_blank";
    link.textContent = signInAt ? gettext("Confirm your identity") : gettext("Sign in");
    link.className = "btn btn--s button";
    button.before(link);
  }
  notes.set(key, note);
  put(note, control);
}

// Key of a request: method and address.
const keyOf = ({ verb, path }) => `${verb} ${path}`;

function repeat(control, config) {
  const { submitter } = config.triggeringEvent ?? {};
  if (!control.matches("form:not([hx-trigger])")) ask(config, control);
  else control.requestSubmit(submitter?.isConnected ? submitter : null);
}

// Requests the page sends without a user action.

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
    ? sentences[status] ?? gettext("This page is out of date. Reload it.")
    : gettext("This page is not up to date: the server cannot be reached. Trying again …");
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

// htmx logs each failed request twice: as "afterRequest", then by its cause. It reads the text from
// `error` after it has called its logger. The page already reports a lost or stopped connection, and a
// control with "replace" aborts its older request on purpose: neither is an error of the page. Every
// other cause stays in the console.
const isReplaced = (control) => control.getAttribute?.("hx-sync")?.endsWith(":replace");
const isHandled = {
  "htmx:afterRequest": () => true,
  "htmx:sendError": () => true,
  "htmx:sendAbort": () => true,
};
// Admin pages load htmx after this file, or not at all.
document.addEventListener("DOMContentLoaded", () => {
  if (!window.htmx) return;
  window.htmx.logger = (control, name, detail) => {
    if (detail.error && isHandled[name]?.(control)) delete detail.error;
  };
});

const otherPages = new WeakSet();

document.addEventListener("htmx:responseError", (event) => {
  const { xhr } = event.detail;
  const isOtherPage = otherPages.has(xhr);
  const words = isOtherPage ? signIn : sentenceFor(xhr.status, xhr.responseText, (name) => xhr.getResponseHeader(name));
  fail(event, words, isOtherPage ? 401 : xhr.status);
});
document.addEventListener("htmx:sendError", (event) => fail(event, unreachable));
document.addEventListener("htmx:timeout", (event) => fail(event, late));
// The user stopped the page from loading.
document.addEventListener("htmx:sendAbort", (event) => isReplaced(event.target) || fail(event, stopped));

// Every response of the product has a request ID. One without it comes from a proxy or the sign-in
// page of a network. The product's own sign-in page is a whole page instead of a part.
function isOtherAnswer({ xhr, shouldSwap, requestConfig, select }) {
  if (!xhr.getResponseHeader("X-Request-ID")) return true;
  if (!shouldSwap || !isPage(xhr.responseText)) return false;
  const wanted = xhr.getResponseHeader("HX-Reselect") ?? select
    ?? requestConfig.elt.closest("[hx-select]")?.getAttribute("hx-select");
  return !(wanted && find(wanted, parse(xhr.responseText)));
}

document.addEventListener("htmx:beforeSwap", (event) => {
  const { detail } = event;
  if (detail.isError || !detail.xhr || !isOtherAnswer(detail)) return;
  otherPages.add(detail.xhr);
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
