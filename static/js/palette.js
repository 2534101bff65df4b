// Search palette: query on every keystroke, one request at a time. Text typed during a request is
// searched after the response, or when it is late. A late response never replaces a newer one,
// because each request aborts the previous one.

import { find, isComposing } from "./page.js";

const dialog = find("#palette");
const box = find("#palette-question");
const list = () => find("#palette-list");
const options = () => [...list().children];
const chosen = () => options().find((option) => option.getAttribute("aria-selected") === "true");
const isAnswered = () => find("#palette-found").dataset.question === box.value.trim();
// Milliseconds after which a response is late.
const LATE = 150;
// The pending request, and whether the text changed since.
let asking = null;
let isTyped = false;

function ask() {
  isTyped = false;
  box.dispatchEvent(new Event("ask"));
}

function typed() {
  if (asking) isTyped = true;
  else ask();
}

function stopWaiting(request) {
  if (asking !== request) return;
  asking = null;
  if (isTyped) ask();
}

function choose(option) {
  for (const each of options()) each.setAttribute("aria-selected", String(each === option));
  if (option) {
    box.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  } else {
    box.removeAttribute("aria-activedescendant");
  }
}

function step(by) {
  const all = options();
  if (all.length) choose(all[(all.indexOf(chosen()) + by + all.length) % all.length]);
}

// Switches the branch with a form, like the search page.
function post(address) {
  const form = document.createElement("form");
  const token = document.createElement("input");
  form.method = "post";
  form.action = address;
  form.hidden = true;
  token.name = "csrfmiddlewaretoken";
  token.value = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  form.append(token);
  document.body.append(form);
  form.submit();
}

function open(option) {
  if (option.dataset.choose) {
    post(option.dataset.choose);
  } else {
    dialog.close();
    location.assign(option.dataset.address);
  }
}

function openAll() {
  if (!box.value.trim()) return;
  find("#palette-all").value = box.value;
  find("#palette-all").form.requestSubmit();
}

// The results may be for an older question, so open the search page instead.
const withKey = {
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  Enter: () => (isAnswered() && chosen() ? open(chosen()) : openAll()),
};

export function showPalette() {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  box.select();
}

if (dialog) {
  document.addEventListener("keydown", (event) => {
    const isOurs = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.code === "KeyK";
    if (!isOurs || isComposing(event)) return;
    event.preventDefault();
    showPalette();
  });
  for (const opener of document.querySelectorAll("[data-palette]")) {
    opener.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      showPalette();
    });
  }
  // Ignore text that an input method is still composing.
  box.addEventListener("input", ({ isComposing: isOpen }) => isOpen || typed());
  box.addEventListener("compositionend", typed);
  box.addEventListener("htmx:beforeRequest", ({ detail }) => {
    asking = detail.xhr;
    setTimeout(() => stopWaiting(detail.xhr), LATE);
  });
  box.addEventListener("htmx:afterRequest", ({ detail }) => stopWaiting(detail.xhr));
  box.addEventListener("keydown", (event) => {
    const act = withKey[event.key];
    if (!act || isComposing(event)) return;
    event.preventDefault();
    act();
  });
  find("#palette-close").addEventListener("click", () => dialog.close());
  // Escape closes only the dialog.
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "Escape") event.stopPropagation();
  });
  find("#palette-all").form.addEventListener("submit", () => {
    find("#palette-all").value = box.value;
  });
  dialog.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) open(option);
    else if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("htmx:afterSettle", () => {
    box.setAttribute("aria-expanded", String(options().length > 0));
    choose(options()[0]);
  });
}

// The search page: its URL follows the search, so that Back returns to it.
const search = find("#search");
search?.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (!detail.successful) return;
  const fields = new URLSearchParams(new FormData(search));
  for (const [name, value] of [...fields]) if (!value) fields.delete(name);
  history.replaceState(history.state, "", `${search.action}?${fields}`);
});
