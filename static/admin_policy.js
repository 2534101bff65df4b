// The policy editor: a link to a field opens the group that it is in. Everything else is HTMX, and
// the page works without either.
"use strict";

function openWhere(id) {
  const found = id && document.getElementById(id);
  for (let part = found && found.parentElement; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") {
      part.open = true;
    }
  }
  if (found) {
    found.scrollIntoView({ block: "center" });
    found.focus({ preventScroll: true });
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("#policy-editor a[href^='#id_']");
  if (link) {
    event.preventDefault();
    openWhere(link.hash.slice(1));
  }
});
