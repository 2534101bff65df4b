// Whoever begins to write in a chat that has rested lets the model server read the chat meanwhile.

import { box, find } from "./page.js";

document.addEventListener("input", ({ target }) => {
  const { warmUp, restsFrom } = target.dataset ?? {};
  if (target !== box() || !warmUp || Date.now() < Number(restsFrom)) return;
  // Once for each message box; there is a new one after each message.
  delete target.dataset.warmUp;
  const token = find("[name=csrfmiddlewaretoken]", target.form).value;
  fetch(warmUp, { method: "POST", headers: { "X-CSRFToken": token } }).catch(() => {});
});
