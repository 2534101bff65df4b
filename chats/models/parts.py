"""The column for the parts of a message.

Short parts are stored as JSON, long parts as compressed JSON.
"""

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# From this length in characters of JSON, parts are compressed: real texts of that length take 36 %
# of their space and load 0.1 ms slower (`docs/measurements.md`). Shorter ones gain too little.
LONG = 8_000
# Only key of the object stored for a compressed list. Parts themselves are always a list.
DEFLATED = "deflated"


class PartsField(models.JSONField):
    """A list of message parts. Compression is invisible to callers."""

    def get_prep_value(self, value: Any) -> Any:  # JSON, or an expression
        prepared = super().get_prep_value(value)
        return pack_parts(prepared) if isinstance(prepared, list) else prepared

    def from_db_value(
        self, value: str | None, expression: Any, connection: "BaseDatabaseWrapper"
    ) -> Any:
        return unpacked(super().from_db_value(value, expression, connection))


def pack_parts(parts: list[Any]) -> list[Any] | dict[str, str]:
    """Return the value to store: the list, or an object with its compressed form."""
    written = json.dumps(parts, separators=(",", ":"))
    if len(written) < LONG:
        return parts
    return {DEFLATED: base64.b64encode(zlib.compress(written.encode())).decode()}


def unpacked(stored: Any) -> Any:  # JSON
    """Return the message parts from the stored value: a JSON list, or a compressed one."""
    if isinstance(stored, dict) and set(stored) == {DEFLATED}:
        return json.loads(zlib.decompress(base64.b64decode(stored[DEFLATED])))
    return stored
