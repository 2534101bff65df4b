// In the administration, too, the text of a form that could not be sent stays in it.

import "./failures.js";
import "./forms.js";
