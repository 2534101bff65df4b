// Policy editor: a link to a field opens its group, and text typed while the form reloads is kept.
// Everything else uses htmx, and the page works without scripts.
"use strict";

// Fields changed since the last request for the whole form, by name.
const typed = new Map();

function valueOf(field) {
  return field.type === "checkbox" || field.type === "radio" ? field.checked : field.value;
}

document.addEventListener("input", (event) => {
  const field = event.target;
  if (field.id && field.closest("#policy-editor") && field.name !== "strategy") {
    typed.set(field.id, field);
  }
});

// The error about a missing name no longer applies once there is one.
document.addEventListener("input", ({ target }) => {
  const row = target.closest("#policy-editor .policy-field.errors");
  if (!row || !target.value || !target.required) return;
  row.querySelector(".errorlist")?.remove();
  row.classList.remove("errors");
});

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.target?.id === "policy-editor") {
    typed.clear();
  }
});

document.addEventListener("htmx:afterSettle", () => {
  for (const [id, old] of typed) {
    const now = document.getElementById(id);
    if (now && now !== old && valueOf(now) !== valueOf(old)) {
      if (typeof valueOf(old) === "boolean") {
        now.checked = old.checked;
      } else {
        now.value = old.value;
      }
      now.dispatchEvent(new Event("change", { bubbles: true }));
    }
  }
});

// A button waits for the requests before it, and one of these may replace the button: htmx then
// drops its request. The button in its place is clicked instead.
let waiting = null;

document.addEventListener("click", ({ target }) => {
  waiting = target.closest("#policy-editor button[hx-post]") ?? waiting;
}, true);

document.addEventListener("htmx:beforeRequest", ({ detail }) => {
  if (detail.elt === waiting) waiting = null;
});

document.addEventListener("htmx:afterSettle", () => {
  if (!waiting || waiting.isConnected) return;
  const { name, value } = waiting;
  waiting = null;
  // Later: the request that has just been answered still holds the queue.
  setTimeout(() => {
    const buttons = [...document.querySelectorAll("#policy-editor button[hx-post]")];
    buttons.find((one) => one.name === name && one.value === value)?.click();
  });
});

function openWhere(id) {
  const found = id && document.getElementById(id);
  for (let part = found && found.parentElement; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") {
      part.open = true;
    }
  }
  if (found) {
    found.scrollIntoView({ block: "center" });
    // Several checkboxes share a name: use the first checked one, otherwise the first.
    const one = found.matches("div") ? found.querySelector(":checked") ?? found.querySelector("input") : found;
    one?.focus({ preventScroll: true });
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("#policy-editor a[href^='#id_']");
  if (link) {
    event.preventDefault();
    openWhere(link.hash.slice(1));
  }
});
