// In the administration, too, a form keeps its text if it could not be sent.

import "./composing.js";
import "./failures.js";
import "./forms.js";
