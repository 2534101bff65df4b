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

const isTicked = (field) => ["checkbox", "radio"].includes(field.type);

// Returns true if the user changed the field.
export function isTyped(field) {
  if (field.options) return [...field.options].some((option) => option.selected !== option.defaultSelected);
  return isTicked(field) ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
}

// The state of a field: a text, a list of options, or whether it is ticked.
export function readField(field) {
  if (isTicked(field)) return field.checked;
  return field.multiple && field.options ? [...field.selectedOptions].map(({ value }) => value) : field.value;
}

export function writeField(field, state) {
  if (isTicked(field)) field.checked = state;
  else if (!Array.isArray(state)) field.value = state;
  else for (const option of field.options) option.selected = state.includes(option.value);
}
