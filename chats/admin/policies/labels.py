"""Display names of the built-in strategies."""

from django.utils.translation import gettext_lazy

STRATEGY_NAMES = {
    "simple": gettext_lazy("Newest messages (fixed number)"),
    "sliding_window": gettext_lazy("Newest messages (as many as fit)"),
    "dynamic_summary": gettext_lazy("Newest messages and a summary of the older ones"),
    "entity_state": gettext_lazy("State instead of the dialogue"),
}
