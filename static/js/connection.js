// When the server cannot be reached.

import { find } from "./page.js";

document.addEventListener("htmx:sendError", (event) => {
  if (event.target.hasAttribute?.("data-quiet")) return;
  find("#notices").replaceChildren(find("#not-sent").content.cloneNode(true));
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.target.matches("[data-again], [data-quiet]")) find("#notices")?.replaceChildren();
});
// The end of a reply is asked for until it is there.
for (const kind of ["htmx:sendError", "htmx:responseError"]) {
  document.addEventListener(kind, (event) => {
    const asker = event.target;
    if (asker.hasAttribute?.("data-again")) setTimeout(() => window.htmx.trigger(asker, "again"), 3000);
  });
}
