// Copying a message as it was written, or a block of code.

import { find, say } from "./page.js";

// Without TLS there is no clipboard to write to, and a browser may refuse it; the old command
// copies a selection.
function copyBySelection(text) {
  const here = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  here?.focus({ preventScroll: true });
}

// The words may still be on their way: a browser lets a page write only just after the click.
async function copy(words) {
  try {
    const blob = words.then((text) => new Blob([text], { type: "text/plain" }));
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
  } catch {
    copyBySelection(await words);
  }
}

async function sourceAt(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error("refused");
  return answer.text();
}

// Beside a picture the word stands for a moment only.
function tell(button, word) {
  say(`${word}.`);
  const label = find("[data-said]", button) ?? document.createElement("span");
  label.dataset.said = "";
  label.textContent = word;
  button.append(label);
  clearTimeout(button.quiet);
  button.quiet = setTimeout(() => label.remove(), 1500);
}

document.addEventListener("click", async ({ target }) => {
  const button = target.closest(".code__copy, [data-source]");
  if (!button) return;
  const { source } = button.dataset;
  try {
    const words = source
      ? sourceAt(source)
      : Promise.resolve(find("code", button.closest("figure")).textContent);
    await copy(words);
  } catch {
    tell(button, "Not copied");
    return;
  }
  if (source) {
    tell(button, "Copied");
    return;
  }
  say("Copied.");
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
});
