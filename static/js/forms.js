// A form that loads a page is sent once; going back makes it usable again.

document.addEventListener("submit", (event) => {
  if (event.defaultPrevented || event.target.hasAttribute("hx-post")) return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});
