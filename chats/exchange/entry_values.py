"""Values of imported entries: tool results, times, ids and texts."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from chats.exchange.jsonstream import get_list_items, is_json_list, parse_lazy_value
from chats.exchange.shelf import ShelvedParts
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    ToolCallPart,
)
from contextpolicy.engine.text import names

Role = Literal["user", "assistant"]


# Ids that only give a position, such as `line-3`, or `1` in exports of DeepSeek.
POSITION = re.compile(r"[A-Za-z]{0,10}-?\d{1,6}")
# Ids that Claude and LibreChat write if there is no parent.
NO_PARENT = frozenset(
    {"00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000", ""}
)
# A time in seconds, or in a fraction of a second, as a text.
NUMBER = re.compile(r"\d{9,19}(?:\.\d{1,9})?")


@dataclass(slots=True)
class SourceEntry:
    """An entry of a file: a message, a tool result, or an entry to skip.

    `parts` is empty except for messages. `result`: the id of the call and its content. An empty id
    means the nearest preceding call. `files`: those of the result.
    """

    id: str
    parent: str | None
    role: Role = "user"
    parts: Sequence[Part] = ()
    ts: int | None = None
    model: str = ""
    result: tuple[str, object] | None = None
    files: Sequence[FilePart] = ()

    def metadata(self) -> dict[str, object]:
        known = {"ts": self.ts, "kind": "normal", "model": self.model}
        return {name: value for name, value in known.items() if value is not None and value != ""}


def list_entry_calls(entry: SourceEntry) -> list[ToolCallPart]:
    """Return the tool calls of an entry. Parts moved to disk contain none."""
    if isinstance(entry.parts, ShelvedParts):
        return []
    return [part for part in entry.parts if isinstance(part, ToolCallPart)]


def shorten_id(own_id: str) -> str:
    """Return an id that can be stored. Long or unusual ids are replaced by a digest."""
    if len(own_id) <= 200 and names.is_allowed_name(own_id):
        return own_id
    return "id-" + hashlib.sha256(own_id.encode("utf-8", "surrogatepass")).hexdigest()


def derive_source(own_ids: Sequence[str], content: Callable[[], str]) -> str:
    """Return an id for a chat without an id, from its message ids or from its content.

    Ids that the importer made of positions are the same in other chats.
    """
    if any(POSITION.fullmatch(own_id) for own_id in own_ids):
        return f"content:{content()}"
    return "ids:" + hashlib.sha256("\n".join(own_ids).encode("utf-8", "surrogatepass")).hexdigest()


def extract_result_text(content: object) -> str:
    """Return the text of a tool result in any format."""
    if isinstance(content, str):
        return content
    if is_json_list(content):
        texts = [
            item["text"]
            for item in get_list_items(content)
            if isinstance(item, Mapping) and isinstance(item.get("text"), str)
        ]
        if texts:
            return "\n\n".join(texts)
    return encode_as_json(content) if content is not None else ""


def encode_as_json(value: object) -> str:
    """Return a value as JSON text. A string is returned unchanged, because it is JSON already."""
    if isinstance(value, str):
        return value
    return json.dumps(parse_lazy_value(value), ensure_ascii=False, separators=(",", ":"))


def parse_milliseconds(ts: object) -> int | None:
    """Convert a time to milliseconds; None if it is not a valid time.

    Accepts ISO 8601, or a number of seconds, milli-, micro- or nanoseconds, even as a string.
    """
    if isinstance(ts, str) and NUMBER.fullmatch(ts):
        # Some numbers are also dates without separators: "1712110101530" is in the year 1712.
        ts = float(ts)
    if isinstance(ts, str):
        try:
            return convert_to_milliseconds(datetime.fromisoformat(ts))
        except (ValueError, OverflowError):
            return None
    if isinstance(ts, bool) or not isinstance(ts, int | float) or not 0 < ts < 10**20:
        return None
    # Seconds are below 10**11 until the year 5138.
    power = next(power for power in (0, 3, 6, 9) if ts < 10 ** (11 + power))
    return int(ts * 1000 / 10**power)


def convert_to_milliseconds(moment: datetime) -> int | None:
    """Convert a time to milliseconds; without a time zone it is UTC. None before 1970."""
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    found = int(moment.timestamp() * 1000)
    return found if found > 0 else None


def select_texts(values: Iterable[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str) and value.strip()]
