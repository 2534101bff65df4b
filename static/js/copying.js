// Copies the source text of a message, or a code block.

import { find, say } from "./page.js";
import { gettext } from "./translation.js";

// Without TLS there is no clipboard API, and a browser may refuse it. The old command copies a
// selection instead.
function copyBySelection(text) {
  const here = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  here?.focus({ preventScroll: true });
  if (!isCopied) throw new Error("refused");
}

// Pass a promise: the text may still be loading, and browsers allow writing only right after the
// click.
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
  // A sign-in page, of this product or of a network, is not the message.
  const isSource = answer.ok && !answer.redirected && answer.headers.has("X-Request-ID");
  if (!isSource) throw new Error("refused");
  return answer.text();
}

// Next to an icon, the confirmation shows only briefly.
function tell(button, word, sentence) {
  say(sentence);
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
    tell(button, gettext("Not copied"), gettext("Not copied."));
    return;
  }
  if (source) {
    tell(button, gettext("Copied"), gettext("Copied."));
    return;
  }
  say(gettext("Copied."));
  button.textContent = gettext("Copied");
  setTimeout(() => (button.textContent = gettext("Copy")), 1500);
});

// Rendered code is stored once for all languages, with English buttons.
function nameButtons(part) {
  if (document.documentElement.lang === "en") return;
  for (const button of part.querySelectorAll(".code__copy")) button.textContent = gettext("Copy");
}

document.addEventListener("DOMContentLoaded", () => nameButtons(document));
document.addEventListener("htmx:load", ({ detail }) => nameButtons(detail.elt));
