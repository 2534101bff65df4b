// Sends page forms in the background, so that the typed text stays until the server has responded.
// A redirect is followed, a page with form errors replaces this one, and after any other error the
// text is still there.

import { clearFailure, late, parse, sentenceFor, showFailure, signIn, unreachable } from "./failures.js";
import { find } from "./page.js";
import { keepForReload, typeAgain, typedOutside } from "./unsaved.js";

const timeout = 120_000;
// Browsers limit the size of keepalive requests.
const mostKept = 60_000;
const isUpload = (form) => Boolean(find("input[type=file]", form));
const addressOf = (form) => new URL(form.getAttribute("action") || location.href, location);
const pathOf = (form) => addressOf(form).pathname;
// Every page of the admin has this attribute, also those without a list or a form of their own.
const isAdmin = document.body.hasAttribute("data-admin-utc-offset");

function isOurs(form) {
  if (form.method !== "post" || form.hasAttribute("hx-post") || form.target) return false;
  // Admin actions and exports respond with their own pages and files.
  return !isAdmin || (form.id.endsWith("_form") && form.id !== "changelist-form");
}

function request(form, submitter) {
  const fields = new FormData(form, submitter);
  const isMultipart = form.enctype === "multipart/form-data";
  const body = isMultipart ? fields : new URLSearchParams(fields);
  // The form is sent even if the user leaves the page immediately.
  const keepalive = !isMultipart && body.toString().length < mostKept;
  return fetch(submitter?.hasAttribute("formaction") ? submitter.formAction : addressOf(form), {
    method: "POST",
    body,
    keepalive,
    headers: { "X-Page-Form": "1" },
    signal: isUpload(form) ? undefined : AbortSignal.timeout(timeout),
  });
}

function follow(address, form) {
  const to = new URL(address, location);
  const isHere = to.pathname === location.pathname && to.search === location.search;
  if (!isHere) {
    location.assign(to);
    return;
  }
  keepForReload(to.pathname, typedOutside(form));
  history.replaceState(history.state, "", to);
  location.reload();
}

// Shows the response page if it is one of this product for this form.
function show(form, response, text) {
  if (isAdmin) return false;
  const page = parse(text);
  const main = find("#main", page);
  const isAgain = main && [...main.querySelectorAll("form")].some((each) => pathOf(each) === pathOf(form));
  if (!main || !(response.ok || isAgain) || !response.headers.has("X-Request-ID")) return false;
  const values = typedOutside(form);
  form.dispatchEvent(new CustomEvent("form:replacing", { bubbles: true }));
  find("#main").replaceWith(main);
  typeAgain(values);
  document.title = page.title;
  window.htmx?.process(main);
  main.dispatchEvent(new CustomEvent("htmx:afterSettle", { bubbles: true, detail: { target: main } }));
  (find("[aria-invalid=true], [autofocus]", main) ?? main).focus({ preventScroll: true });
  scrollTo(0, 0);
  return true;
}

// Scripts of Django that prepare a form when its page loads. They run again for a new form.
const preparing = ["inlines.js", "prepopulate_init.js", "autocomplete.js", "change_form.js"];

function prepareAdminForm(content) {
  for (const old of document.querySelectorAll("script[src]")) {
    if (!preparing.includes(new URL(old.src).pathname.split("/").pop())) continue;
    const script = document.createElement("script");
    for (const { name, value } of old.attributes) script.setAttribute(name, value);
    script.async = false;
    old.replaceWith(script);
  }
  // Date fields and lists of two columns wait for this event.
  dispatchEvent(new Event("load"));
  window.htmx?.process(content);
}

// Shows the page that the admin answered with: a form with errors, or a preview. The server has
// processed the request, so it is not sent again.
function showAdmin(response, text) {
  const page = isAdmin && response.ok && response.headers.has("X-Request-ID") ? parse(text) : null;
  const content = page && find("#content", page);
  if (!content) return false;
  find("#content").replaceWith(content);
  find(".messagelist")?.remove();
  const messages = find(".messagelist", page);
  if (messages) content.before(messages);
  document.title = page.title;
  prepareAdminForm(content);
  const first = find("[aria-invalid=true], .errornote", content) ?? content;
  if (!first.matches("input, select, textarea")) first.tabIndex = -1;
  first.focus();
  return true;
}

async function send(form, submitter) {
  const key = `post ${pathOf(form)}`;
  const fail = (sentence, status = 0, signInAt = null) => {
    delete form.dataset.sent;
    form.dispatchEvent(new CustomEvent("form:failed", { bubbles: true }));
    const again = () => form.requestSubmit(submitter?.isConnected ? submitter : null);
    showFailure({ key, control: form, sentence, status, signInAt, again });
  };
  clearFailure(key);
  let response;
  let text;
  try {
    response = await request(form, submitter);
    text = await response.text();
  } catch (error) {
    fail(error.name === "TimeoutError" ? late : unreachable);
    return;
  }
  const address = response.headers.get("X-Location");
  if (address) {
    // Work that the next page cannot continue.
    const waits = [];
    form.dispatchEvent(new CustomEvent("form:leaving", { bubbles: true, detail: { waits } }));
    await Promise.all(waits);
    follow(address, form);
  }
  else if (show(form, response, text) || showAdmin(response, text)) return;
  else if (response.ok) fail(signIn, 401);
  else {
    const header = (name) => response.headers.get(name);
    fail(sentenceFor(response.status, text, header), response.status, header("X-Sign-In"));
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || !isOurs(form)) return;
  event.preventDefault();
  if (form.dataset.sent) return;
  form.dataset.sent = "yes";
  form.dispatchEvent(new CustomEvent("form:sending", { bubbles: true }));
  send(form, event.submitter);
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
