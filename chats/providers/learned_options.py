"""The options that a server refused, in the form in which they are stored with a model.

Adapters learn them from errors. Once the server accepted the changed request and the reply was
complete, a turn stores them (`stored_options`), so other processes know them, also after a restart.
All values are from closed lists, so an error that repeats a client's text can only choose among
them. After `EXPIRES`, the options are sent again, because a server may have been upgraded.
"""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from chats.providers.call_ids import ID_FORMS
from chats.providers.output_limits import MODEL_LIMITS
from chats.providers.refused_fields import HINTS
from chats.providers.required_fields import FILLS

Options = Mapping[str, Any]
Learned = TypeVar("Learned")
EXPIRES = timedelta(days=7)
LEARNED_AT = "learned_at"
# The values of each option.
VALUES: Mapping[str, frozenset[Any]] = {
    "takes_usage_option": frozenset({True, False}),
    "limit_name": frozenset({"max_tokens", "max_completion_tokens"}),
    "takes_result_images": frozenset({True, False}),
    "takes_original_images": frozenset({True, False}),
    "id_form": frozenset(ID_FORMS),
    "most_output": frozenset({None, *MODEL_LIMITS}),
}


class LearnedHere(Generic[Learned]):
    """The options that this process learned, by model name, until `EXPIRES`."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Learned, float]] = {}

    def get(self, model: str) -> Learned | None:
        """Return the options of a model; None if there are none, or if they have expired."""
        learned, at = self._found.get(model, (None, 0.0))
        return learned if time.monotonic() - at < EXPIRES.total_seconds() else None

    def put(self, model: str, learned: Learned) -> None:
        """Store the options of a model."""
        self._found[model] = learned, time.monotonic()


def select_valid_options(stored: Options, *, now: datetime) -> Options:
    """Return the stored options that adapters know. Empty if they have expired."""
    learned_at = stored.get(LEARNED_AT)
    if not isinstance(learned_at, str) or now - datetime.fromisoformat(learned_at) > EXPIRES:
        return {}
    found = {name: stored[name] for name in VALUES if name in stored}
    found = {name: value for name, value in found.items() if value in VALUES[name]}
    fills = [fill for fill in stored.get("fills", ()) if fill in FILLS]
    return {**found, "fills": tuple(fills), "without": HINTS & set(stored.get("without", ()))}
