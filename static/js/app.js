// Progressive enhancement: everything works without scripts. Links and forms do the work, and htmx
// swaps the same parts in place. Nothing here reads or writes HTML.

import "./browser.js";
import "./stream.js";
import "./chat_list.js";
import "./failures.js";
import "./forms.js";
import "./drafts.js";
import "./mentions.js";
import "./composer.js";
import "./composing.js";
import "./attachments.js";
import "./pasting.js";
import "./warm_ups.js";
import "./meter.js";
import "./sending.js";
import "./scrolling.js";
import "./standing.js";
import "./swaps.js";
import "./typed.js";
import "./originals.js";
import "./copying.js";
import "./acts.js";
import "./printing.js";
import "./shortcuts.js";
import "./palette.js";
