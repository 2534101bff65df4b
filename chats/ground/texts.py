"""Replaces characters and numbers that databases cannot store, and removes markup.

Replaced are NUL, surrogates and NaN. Removed are tags and Markdown.
"""

import json
import math
import re
from bisect import bisect_left
from collections import defaultdict
from typing import Any

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"
# Maximum digits of an integer.
MOST_DIGITS = 1000
# Signs of Markdown: around words, and before headings. `2**3` has none.
INLINE_SIGNS = re.compile(r"(?<!\w)\*\*|\*\*(?!\w)|~~|`+|(?<!\S)#{2,6}\s+")
# At the beginning of a line: headings, quotations and lists.
LINE_SIGNS = re.compile(r"^\s*(?:(?:#{1,6}|>|[-*+])\s+)+")


def strip_inline_signs(text: str) -> str:
    """Return Markdown without the markup for bold, strikethrough, code and headings.

    Used for display as plain text. Single asterisks and underscores stay, because names contain
    them.
    """
    return INLINE_SIGNS.sub("", text)


def strip_line_signs(line: str) -> str:
    """Return a line of Markdown as plain text. A line without letters or digits is unchanged."""
    plain = strip_inline_signs(LINE_SIGNS.sub("", line)).strip()
    return plain if any(char.isalnum() for char in plain) else line


def sanitise_text(text: str) -> str:
    """Replace NUL and lone surrogates in a string with U+FFFD.

    Surrogate pairs become one character.
    """
    if not UNSTORABLE.search(text):
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", REPLACEMENT)


def sanitise_value(value: Any) -> Any:
    """Return a JSON value in which all strings, object keys and numbers can be stored."""
    if isinstance(value, str):
        return sanitise_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [sanitise_value(inner) for inner in value]
    if isinstance(value, dict):
        return {sanitise_text(key): sanitise_value(inner) for key, inner in value.items()}
    return value


def read_server_json(data: str | bytes) -> Any:
    """Parse the JSON of another server. Raises ValueError and RecursionError.

    Invalid UTF-8 becomes U+FFFD, and control characters within strings are accepted. Numbers that
    JSON or a database cannot represent (NaN, infinity, 1e400, thousands of digits) become None.
    """
    text = data if isinstance(data, str) else data.decode("utf-8-sig", "replace")
    return _DECODER.decode(text)


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _whole(digits: str) -> int | None:
    # Python refuses to convert more digits.
    return int(digits) if len(digits) <= MOST_DIGITS else None


# Made once: this parses each token of a stream.
_DECODER = json.JSONDecoder(
    strict=False,
    parse_constant=lambda _name: None,
    parse_float=_finite,
    parse_int=_whole,
)


def replace_tagged_blocks(text: str, *, tags: re.Pattern[str], by: str = "") -> str:
    """Return text with each tagged block replaced by `by`.

    A block reaches from an opening tag to the next closing one of the same name.
    `tags` matches opening and closing tags with the groups `slash` and `name`. Runs in
    linear time. A single pattern for whole blocks would read the rest of the text again for
    each tag that is never closed.
    """
    found = list(tags.finditer(text))
    closings: dict[str, list[int]] = defaultdict(list)
    for tag in found:
        if tag["slash"]:
            closings[tag["name"].lower()].append(tag.start())
    ends = {tag.start(): tag.end() for tag in found}
    pieces, place = [], 0
    for tag in found:
        if tag["slash"] or tag.start() < place:
            continue
        known = closings[tag["name"].lower()]
        nearest = bisect_left(known, tag.end())
        if nearest < len(known):
            pieces.append(text[place : tag.start()])
            place = ends[known[nearest]]
    return by.join([*pieces, text[place:]])
