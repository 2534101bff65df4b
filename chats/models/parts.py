"""The column for the parts of a message: short ones as JSON, long ones as compressed JSON."""

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# From this many characters of JSON on, parts are compressed: real texts of that length take 36 % of
# their room and are read 0.1 ms slower (`docs/measurements.md`). A shorter one is not worth it.
LONG = 8_000
# The only key of the object that stands for a long list; parts themselves are always a list.
DEFLATED = "deflated"


class PartsField(models.JSONField):
    """A list of parts. Whoever reads or writes the field never meets the compressed form."""

    def get_prep_value(self, value: Any) -> Any:  # JSON, or an expression
        """Compress a long list."""
        prepared = super().get_prep_value(value)
        return packed(prepared) if isinstance(prepared, list) else prepared

    def from_db_value(
        self, value: str | None, expression: Any, connection: "BaseDatabaseWrapper"
    ) -> Any:
        """Read the list, whichever way it was stored."""
        return unpacked(super().from_db_value(value, expression, connection))


def packed(parts: list[Any]) -> list[Any] | dict[str, str]:
    """Return what is stored for these parts: the list itself, or a long one in compressed form."""
    written = json.dumps(parts, separators=(",", ":"))
    if len(written) < LONG:
        return parts
    return {DEFLATED: base64.b64encode(zlib.compress(written.encode())).decode()}


def unpacked(stored: Any) -> Any:  # JSON
    """Return the parts that were stored in either form."""
    if isinstance(stored, dict) and set(stored) == {DEFLATED}:
        return json.loads(zlib.decompress(base64.b64decode(stored[DEFLATED])))
    return stored
