// Helpers for all modules.

export const find = (selector, from = document) => from.querySelector(selector);
export const thread = find("#thread");
// Each sent message replaces the message box element.
export const box = () => find("#composer-text");
// A key that an input method uses. Safari ends the composition before the Enter that confirms it, and
// marks that key with the code 229.
export const isComposing = (event) => event.isComposing || event.keyCode === 229;
export const isTouch = matchMedia("(pointer: coarse)").matches;

// Announces a text to screen readers.
export function say(sentence) {
  const status = find("#status");
  if (status && sentence) status.textContent = sentence;
}

// Stores a text in the browser. If the storage is full or off, the page works without it.
export function store(storage, key, value) {
  try {
    storage.setItem(key, value);
  } catch (error) {
    console.warn(error);
  }
}

const passing = ["open", "tabindex", "hx-swap-oob"];

function drawn(part) {
  const copy = part.cloneNode(true);
  for (const each of [copy, ...copy.querySelectorAll("[open], [tabindex]")]) {
    for (const name of passing) each.removeAttribute(name);
  }
  for (const token of copy.querySelectorAll("[name=csrfmiddlewaretoken]")) token.setAttribute("value", "");
  copy.normalize();
  return copy;
}

// Returns true if two parts were rendered alike, ignoring CSRF tokens.
export const isSame = (one, other) => drawn(one).isEqualNode(drawn(other));

// Returns true if the user changed the field.
export const isTyped = (field) => (field.options
  ? [...field.options].some((option) => option.selected !== option.defaultSelected)
  : field.value !== field.defaultValue);
