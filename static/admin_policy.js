// The policy editor: groups that the chosen strategy does not use step aside.
// Without this script every group is shown, which is only longer.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const strategy = document.getElementById("id_strategy");
  if (!strategy) {
    return;
  }
  const arrange = () => {
    for (const group of document.querySelectorAll("fieldset.by-strategy")) {
      const isUsed = !strategy.value || group.classList.contains(`for-${strategy.value}`);
      // What was refused is never hidden.
      group.hidden = !isUsed && !group.querySelector(".errors, .errorlist");
    }
  };
  strategy.addEventListener("change", arrange);
  arrange();
});
