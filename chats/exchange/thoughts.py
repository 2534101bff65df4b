"""Separates the reasoning in an imported reply from its text, as for replies on this server.

Other products store reasoning in the text, between tags such as `<think>`. Open WebUI uses a
`<details type="reasoning">` block.
"""

import re
from collections.abc import Sequence

from chats.exchange.bounds import SEARCHED_TEXT
from chats.providers.think_tags import ThinkTags, split_unopened
from contextpolicy.engine.messages.messages import Part, ReasoningPart, TextPart

# The beginning of a block of Open WebUI; each line of the reasoning is quoted.
_DETAILS = re.compile(r"\s*+<details(\s[^>]*+)>\s*+")
_REASONING = 'type="reasoning"'
_SUMMARY, _SUMMARY_END, _DETAILS_END = "<summary>", "</summary>", "</details>"
# The maximum blocks of a text; others stay in it. Each takes time for the whole rest of the text.
MOST_BLOCKS = 100
_QUOTED = re.compile(r"^(?:>|&gt;) ?", re.MULTILINE)


def extract_reasoning_parts(parts: Sequence[Part]) -> Sequence[Part]:
    """Return a reply's parts, with the reasoning in its text as separate parts.

    Returns the same object if the text contains no reasoning.
    """
    found: list[Part] = []
    has_text = has_thoughts = False
    for part in parts:
        if not isinstance(part, TextPart):
            found.append(part)
            continue
        if len(part.text) > SEARCHED_TEXT:
            found.append(part)
            has_text = True
            continue
        thoughts, answer = split_leading_reasoning(part.text, is_first=not has_text)
        has_text, has_thoughts = True, has_thoughts or answer != part.text
        found += [ReasoningPart(text) for text in thoughts]
        if answer or not thoughts:
            found.append(TextPart(answer))
    return tuple(found) if has_thoughts else parts


def split_leading_reasoning(text: str, *, is_first: bool) -> tuple[list[str], str]:
    """Return the reasoning at the beginning of a text, and the rest.

    `is_first`: the text begins the reply, so the opening tag may be missing.
    """
    thoughts: list[str] = []
    while len(thoughts) < MOST_BLOCKS and (
        found := match_reasoning_block(text) or match_reasoning_tags(text)
    ):
        thoughts.append(found[0])
        text = found[1]
    if not thoughts and is_first and (unopened := split_unopened(text)) is not None:
        thoughts, text = [unopened[0]], unopened[1]
    return [one for one in thoughts if one.strip()], text


def match_reasoning_block(text: str) -> tuple[str, str] | None:
    """Return the reasoning in a leading Open WebUI block, and the rest; None without one."""
    block = _DETAILS.match(text)
    if block is None or _REASONING not in block[1]:
        return None
    start, last = block.end(), text.rfind(_DETAILS_END)
    if text.startswith(_SUMMARY, start) and (end := text.find(_SUMMARY_END, start, last)) >= 0:
        start = end + len(_SUMMARY_END)
    end = text.find(_DETAILS_END, start)
    if end < 0:
        return None
    return unquote_reasoning(text[start:end]), text[end + len(_DETAILS_END) :].lstrip()


def unquote_reasoning(text: str) -> str:
    """Return the reasoning in an Open WebUI block, whose lines are quoted."""
    return _QUOTED.sub("", text.strip("\n"))


def match_reasoning_tags(text: str) -> tuple[str, str] | None:
    """Return the reasoning between tags at the beginning, and the rest; None without such tags."""
    tags = ThinkTags(only_first=True)
    pieces = [*tags.push(text), *tags.flush()]
    thoughts = "".join(piece for kind, piece in pieces if kind == "reasoning")
    answer = "".join(piece for kind, piece in pieces if kind == "text")
    return (thoughts, answer) if answer != text or thoughts else None
