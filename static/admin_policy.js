// The policy editor: a link to a field opens the group that it is in, and what is typed while the
// form is on its way back stays. Everything else is HTMX, and the page works without either.
"use strict";

// What was changed since the last request for the whole form was sent, by name.
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

function openWhere(id) {
  const found = id && document.getElementById(id);
  for (let part = found && found.parentElement; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") {
      part.open = true;
    }
  }
  if (found) {
    found.scrollIntoView({ block: "center" });
    // Several boxes are one field: the first that is ticked, or the first.
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
