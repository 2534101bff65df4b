// From a line of a summary to the message it comes from.

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

// Before htmx: what is on the page already needs no request.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-original]");
  if (!link || !show(link.dataset.original)) return;
  event.preventDefault();
  event.stopPropagation();
}, true);
document.addEventListener("htmx:afterSettle", (event) => {
  show(event.detail.requestConfig?.elt.dataset.original);
});
