// Text that an input method is still composing starts no request. The request follows at the end of
// the composition.

const asking = "[hx-trigger*=input]";

document.addEventListener("input", (event) => {
  if (event.isComposing && event.target.closest(asking)) event.stopPropagation();
}, { capture: true });
document.addEventListener("compositionend", ({ target }) => {
  if (target.closest(asking)) target.dispatchEvent(new Event("input", { bubbles: true }));
});
