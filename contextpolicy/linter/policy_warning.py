"""A warning or an error of a policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as made_by
from typing import Literal

Level = Literal["error", "risk", "note"]
UNSET = "not set"


@dataclass(frozen=True, slots=True)
class PolicyWarning:
    """A warning or error: a stable code, its field, and a sentence.

    An `error` prevents saving. A `risk` is a setting that works badly. A `note` is a
    setting whose effect may be unexpected. `fix`: the values of the suggested fix, by
    field; `UNSET` for a field that should be unset.
    """

    code: str
    field: str
    sentence: str
    level: Level = "note"
    fix: Mapping[str, object] = made_by(default_factory=dict)
