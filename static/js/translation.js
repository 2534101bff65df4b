// Sentences of the scripts in the page's language. The page loads the catalogue first
// (`/jsi18n/`); English needs none.

export const gettext = (text) => window.django?.gettext?.(text) ?? text;

export const ngettext = (one, many, count) => window.django?.ngettext?.(one, many, count)
  ?? (count === 1 ? one : many);

// Replaces {names} in a translated sentence.
export const fill = (text, values) => text.replaceAll(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
