// Requests a cache warm-up when the user starts typing in an idle chat.

import { box, find } from "./page.js";

document.addEventListener("input", ({ target }) => {
  const { warmUp, idleFrom } = target.dataset ?? {};
  if (target !== box() || !warmUp || Date.now() < Number(idleFrom)) return;
  // Once per message box; each sent message creates a new one.
  delete target.dataset.warmUp;
  const token = find("[name=csrfmiddlewaretoken]", target.form).value;
  fetch(warmUp, { method: "POST", headers: { "X-CSRFToken": token } }).catch(() => {});
});
