"""Cuts a whole message for a summary request: its texts, files, tool calls and tool results."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from contextpolicy.engine.history.truncation import cut_text
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

# In characters: a tool call or result gets at least this many, so the last ones may be left out.
SHORTEST_SHARE = 200


def cut_message_parts(
    parts: Sequence[Part], *, max_chars: int, get_limit: Callable[[str], int]
) -> tuple[tuple[Part, ...], str]:
    """Cut the contents of a message to about `max_chars` characters in all.

    Each part gets an equal share, and the unused rest of a short one goes to the long ones. Of a
    part, the beginning and the end are kept. The second value counts the calls that had no room, by
    name; empty if all are kept. Each call in `parts` has one result. `get_limit` returns the limit
    of a tool's results.
    """
    kept, note = _drop_tool_parts(parts, most=max(1, max_chars // SHORTEST_SHARE // 2))
    texts = [_get_content(part, get_limit) for part in kept]
    share = compute_share([len(text) for text in texts], limit=max_chars)
    cut = [
        _with_content(part, cut_text(text, limit=share, style="head_tail").text)
        for part, text in zip(kept, texts, strict=True)
    ]
    return tuple(cut), note


def compute_share(lengths: Sequence[int], *, limit: int) -> int:
    """Return the length to which texts are cut, so that all together fit the limit; at least 1."""
    left, share = limit, limit
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            return max(share, 1)
        left -= length
    return max(limit, 1)


def _drop_tool_parts(parts: Sequence[Part], *, most: int) -> tuple[list[Part], str]:
    """Return the parts with only the first `most` calls and results, and a note on the others.

    Calls and results are in the same order, so the same ones are kept.
    """
    kept: list[Part] = []
    seen: Counter[type[Part]] = Counter()
    calls: Counter[str] = Counter()
    for part in parts:
        seen[type(part)] += 1
        if not isinstance(part, ToolCallPart | ToolResultPart) or seen[type(part)] <= most:
            kept.append(part)
        elif isinstance(part, ToolCallPart):
            calls[part.name] += 1
    notes = (f"(and {count:,} more calls of {name})" for name, count in calls.items())
    return kept, "\n".join(notes)


def _get_content(part: Part, get_limit: Callable[[str], int]) -> str:
    if isinstance(part, ToolCallPart):
        return part.arguments
    if isinstance(part, ToolResultPart):
        return cut_text(part.content, limit=get_limit(part.name), style="head_tail").text
    return part.text if isinstance(part, TextPart | FilePart) else ""


def _with_content(part: Part, text: str) -> Part:
    if isinstance(part, ToolCallPart):
        return replace(part, arguments=text)
    if isinstance(part, ToolResultPart):
        return replace(part, content=text)
    return replace(part, text=text) if isinstance(part, TextPart | FilePart) else part
