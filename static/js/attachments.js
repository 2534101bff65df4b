// Files of the message box: uploads those that are picked, dropped or pasted, and shows each as an
// item with its progress. The server renders an item once its upload has ended.

import { carryFiles, forgetUnsent, unsentFiles } from "./drafts.js";
import { clearFailure, late, parse, sentenceFor, showFailure, signIn, unreachable } from "./failures.js";
import { box, find, say } from "./page.js";
import { fill, gettext } from "./translation.js";

const list = () => find("#composer-files");
// Sending during an upload waits for its end. Otherwise the message would be sent without the file.
let isSendingLater = false;
// Milliseconds without progress of an upload, and of waiting for uploads after a message was sent.
const longestSilence = 2 * 60 * 1000;
const longestWait = 60 * 1000;
const sizeOf = (bytes) => Math.floor(bytes / 1024 / 1024);

function fail(item, sentence) {
  item.classList.add("is-failed");
  item.removeAttribute("aria-busy");
  find("[data-state]", item).textContent = sentence;
  say(sentence);
  isSendingLater = false;
}

// A failed upload keeps its file, so that it can be repeated.
let failures = 0;

function failUpload(item, file, reason, status) {
  if (!item.isConnected) return;
  fail(item, fill(gettext("{name} was not uploaded."), { name: file.name }));
  const key = `upload ${(failures += 1)}`;
  const again = () => {
    if (!item.isConnected) return;
    item.remove();
    upload(file);
  };
  const sentence = `${file.name}: ${reason}`;
  showFailure({ key, control: box().form, sentence, status, again });
  item.addEventListener("attachment:removed", () => clearFailure(key));
}

// Replaces the item by the one of the server, if the response has one.
function finish(item, request, file) {
  const { name } = file;
  const header = (field) => request.getResponseHeader(field);
  const made = header("X-Request-ID") && find("li.attachment", parse(request.responseText));
  if (!item.isConnected) return;
  if (!made) {
    const isError = request.status >= 400;
    const sentence = isError ? sentenceFor(request.status, request.responseText, header) : signIn;
    failUpload(item, file, sentence, isError ? request.status : 401);
    return;
  }
  const isFocused = item.contains(document.activeElement);
  item.replaceWith(made);
  window.htmx.process(made);
  if (isFocused) find("[data-remove-file]", made).focus();
  const failed = made.classList.contains("is-failed");
  if (failed) isSendingLater = false;
  document.dispatchEvent(new Event("attachments"));
  say(failed ? find("[data-state]", made).textContent.trim() : fill(gettext("{name} is attached."), { name }));
}

function upload(file) {
  const item = find("#composer-file").content.cloneNode(true).firstElementChild;
  find("[data-name]", item).textContent = file.name;
  list().append(item);
  const limit = Number(list().dataset.limit);
  if (file.size > limit) {
    const sentence = gettext("{name} is larger than the limit of {limit} MiB per file. Attach a smaller file.");
    fail(item, fill(sentence, { name: file.name, limit: sizeOf(limit) }));
    return;
  }
  const request = new XMLHttpRequest();
  const begin = Date.now();
  // The limit counts from the beginning of the request.
  const extend = () => {
    request.timeout = Date.now() - begin + longestSilence;
  };
  const state = find("[data-state]", item);
  request.upload.addEventListener("progress", ({ loaded, total }) => {
    extend();
    const words = isSendingLater ? gettext("Uploading, {n} %. Then the message is sent.") : gettext("Uploading, {n} %");
    if (total) state.textContent = fill(words, { n: Math.floor((100 * loaded) / total) });
  });
  request.addEventListener("load", () => finish(item, request, file));
  request.addEventListener("error", () => failUpload(item, file, unreachable, 0));
  request.addEventListener("timeout", () => failUpload(item, file, late, 0));
  item.addEventListener("attachment:removed", () => request.abort());
  const form = new FormData();
  form.append("file", file);
  request.open("POST", list().dataset.address);
  extend();
  // After the session has expired, the server answers with an error instead of the sign-in page.
  request.setRequestHeader("X-Page-Form", "1");
  request.setRequestHeader("X-CSRFToken", find("[name=csrfmiddlewaretoken]", box().form).value);
  request.send(form);
}

const busy = () => [...list().querySelectorAll(".attachment[aria-busy]")];
const uploads = () => busy().filter((item) => !find("[name=files]", item));

document.addEventListener(
  "submit",
  (event) => {
    if (event.target.id !== "composer") return;
    isSendingLater = uploads().length > 0;
    if (!isSendingLater) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const words = gettext("Uploading. Then the message is sent.");
    for (const item of uploads()) find("[data-state]", item).textContent = words;
    say(words);
  },
  { capture: true },
);

// Sends the message once its files are uploaded and read.
function sendIfReady() {
  if (!isSendingLater || busy().length) return;
  isSendingLater = false;
  if (!find(".attachment.is-failed", list())) box().form.requestSubmit();
}

// Files that were attached while a message was sent. The response replaces the box and its list.
let later = [];
// The files of the message being sent. Their items are replaced when they are read, so their ids
// count too.
let sent = new Set();
let sentIds = new Set();
const idOf = (item) => find("[name=files]", item)?.value;

function attachLater() {
  if (!later.length || !list()) return;
  list().append(...later);
  later = [];
  document.dispatchEvent(new Event("attachments"));
}

function noteSent(form) {
  if (form.id !== "composer") return;
  sent = new Set(list()?.children ?? []);
  sentIds = new Set([...sent].map(idOf).filter(Boolean));
}

const isLater = (item) => !sent.has(item) && !sentIds.has(idOf(item));
const laterItems = () => [...(list()?.children ?? [])].filter(isLater);

function takeLater(form) {
  if (form?.id !== "composer") return;
  later = laterItems();
  for (const item of later) item.remove();
}

document.addEventListener("htmx:beforeRequest", ({ target }) => noteSent(target));
document.addEventListener("htmx:beforeSwap", ({ detail }) => takeLater(detail.requestConfig?.elt));
// The first message of a chat is sent with a page form.
document.addEventListener("form:sending", ({ target }) => noteSent(target));
document.addEventListener("form:replacing", ({ target }) => takeLater(target));

// Leaving the page would end the uploads. The message is sent already, so the wait has a limit.
async function carryLater() {
  const end = Date.now() + longestWait;
  while (uploads().some(isLater) && Date.now() < end) await new Promise((done) => setTimeout(done, 100));
  carryFiles(laterItems().map(idOf).filter(Boolean));
}

document.addEventListener("form:leaving", ({ target, detail }) => {
  if (target.id === "composer") detail.waits.push(carryLater());
});
document.addEventListener("htmx:afterSwap", attachLater);
// A response that replaces nothing.
document.addEventListener("htmx:afterRequest", attachLater);

document.addEventListener("attachments", sendIfReady);
document.addEventListener("htmx:afterSettle", ({ target }) => {
  if (target.matches?.(".attachment")) sendIfReady();
  if (target.id === "main") attachLater();
});

export function attach(files) {
  if (list()) for (const file of files) upload(file);
}

// Attaches the uploads of an unsent message again. The server leaves out deleted ones.
async function restore() {
  const query = new URLSearchParams(unsentFiles().map((id) => ["files", id]));
  let response;
  let text = "";
  try {
    response = await fetch(`${list().dataset.unsent}?${query}`);
    text = await response.text();
  } catch {
    // Told below.
  }
  if (!response?.ok || response.redirected || !response.headers.has("X-Request-ID")) {
    const status = response?.status ?? 0;
    const sentence = response?.ok ? signIn : status && sentenceFor(status, text, (name) => response.headers.get(name));
    showFailure({ key: "unsent files", control: box().form, sentence: sentence || unreachable, status, again: restore });
    return;
  }
  forgetUnsent();
  for (const item of parse(text).querySelectorAll("li.attachment")) {
    list().append(item);
    window.htmx.process(item);
  }
  document.dispatchEvent(new Event("attachments"));
}

// A refused message has its files already.
if (list()?.children.length) forgetUnsent();
if (unsentFiles().length) restore();
document.addEventListener("click", ({ target }) => {
  if (target.closest("[data-attach]")) find("#composer-picker").click();
  const item = target.closest("[data-remove-file]")?.closest(".attachment");
  if (!item) return;
  item.dispatchEvent(new CustomEvent("attachment:removed"));
  item.remove();
  document.dispatchEvent(new Event("attachments"));
  box()?.focus({ preventScroll: true });
});
document.addEventListener("change", ({ target }) => {
  if (target.id !== "composer-picker") return;
  attach([...target.files]);
  // The same file can be chosen again.
  target.value = "";
});
