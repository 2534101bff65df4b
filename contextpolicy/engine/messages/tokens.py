"""Counts tokens with a tokenizer or an estimate.

The counter is a parameter, so the two are interchangeable. *Local tokens* are tokens as
counted here. The local tokens of a prompt are the sum over its wire messages and its
tools. Providers frame messages differently. The calibration factor of a model corrects
for that; it is applied to the limits, not here.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    Role,
    ToolSpec,
    WireMessage,
    convert_parts_to_wires,
)

# Role, separators and the id of a tool result: 3 to 5 tokens with the public chat formats.
MESSAGE_OVERHEAD = 4
# The overhead of one tool call or one tool definition.
TOOL_OVERHEAD = 8


class TokenCounter(Protocol):
    """Counts the tokens of a text; `version` is stored with each count."""

    @property
    def version(self) -> str:
        """A stable name. Two counters with the same version give the same counts."""

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`; 0 for the empty text."""


class ApproximateCounter:
    """Estimates tokens without a vocabulary, for models whose tokenizer is not available.

    Estimates are high on purpose. A quarter of the characters is too inaccurate: code needs a third
    more and Chinese four times as much. The estimate follows what tokenizers do. A short word is
    one token. A capital inside a word and every six letters start another. Two digits or two
    symbols are one. Non-Latin scripts count by the length of their UTF-8 form. Long unbroken runs
    such as base64 have nearly as many tokens as characters.
    """

    version = "approx-1"

    def count(self, text: str) -> int:
        """Estimate the number of tokens of `text`."""
        total = 0
        for match in _RUN.finditer(text):
            kind = match.lastgroup or "sign"
            length = match.end() - match.start()
            total += -(-length * _TOKENS_PER_100[kind] // 100)
        return total


_RUN = re.compile(
    r"(?P<dense>[A-Za-z0-9+/]{40,})"
    r"|(?P<word>[A-Z]?[a-z]+|[A-Z]+)"
    r"|(?P<digit>[0-9]+)"
    r"|(?P<space>[^\S\n]{2,}|\n+)"
    r"|(?P<sign>[!-/:-@\[-`{-~\x00-\x08\x0e-\x1f\x7f]+)"
    r"|(?P<two_bytes>[\x80-\u07ff]+)"
    r"|(?P<wide>[\u0800-\uffff]+)"
    r"|(?P<astral>[\U00010000-\U0010ffff]+)"
)
_TOKENS_PER_100 = {
    "dense": 65,
    "word": 16,
    "digit": 50,
    "space": 9,
    "sign": 50,
    "two_bytes": 50,
    "wide": 125,
    "astral": 200,
}


def count_wire_tokens(message: WireMessage, counter: TokenCounter) -> int:
    """Count the tokens of one wire message: its text, calls, images and message overhead."""
    total = MESSAGE_OVERHEAD + counter.count(message.content)
    for call in message.tool_calls:
        total += TOOL_OVERHEAD + counter.count(call.name) + counter.count(call.arguments)
    return total + count_image_tokens(part for _, part in message.images)


def count_image_tokens(parts: Iterable[Part]) -> int:
    """Add up the fixed token counts of the images among the parts."""
    images = (part.image for part in parts if isinstance(part, FilePart))
    return sum(image.tokens for image in images if image is not None)


def count_uncut_tokens(parts: Sequence[Part], role: Role, counter: TokenCounter) -> int:
    """Count the tokens of a stored message as sent uncut. Reasoning is not counted."""
    return sum(
        count_wire_tokens(wire, counter=counter) for wire in convert_parts_to_wires(role, parts)
    )


def count_tool_tokens(tools: Sequence[ToolSpec], counter: TokenCounter) -> int:
    """Count the tokens of the tool definitions; 0 if there are none."""
    return sum(
        TOOL_OVERHEAD
        + counter.count(tool.name)
        + counter.count(tool.description)
        + counter.count(json.dumps(tool.parameters, ensure_ascii=False, sort_keys=True))
        for tool in tools
    )
