// Links from a summary line to its source message.

function show(key) {
  const original = key && document.getElementById(key);
  if (!original) return false;
  const folded = original.closest("details");
  if (folded) folded.open = true;
  for (const shown of document.querySelectorAll(".is-shown")) shown.classList.remove("is-shown");
  original.classList.add("is-shown");
  original.scrollIntoView({ block: "center" });
  original.focus({ preventScroll: true });
  return true;
}

// Runs before htmx: no request is needed if the original is already on the page.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-original]");
  if (!link || !show(link.dataset.original)) return;
  event.preventDefault();
  event.stopPropagation();
}, true);
document.addEventListener("htmx:afterSettle", (event) => {
  show(event.detail.requestConfig?.elt.dataset.original);
});
