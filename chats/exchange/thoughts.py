"""Separates the reasoning in an imported reply from its text, as for replies of this server.

Other products store reasoning in the text, between tags such as `<think>`. Open WebUI uses a
`<details type="reasoning">` block.
"""

import re
from collections.abc import Sequence

from chats.providers.think_tags import ThinkTags, split_unopened
from contextpolicy.engine.messages.messages import Part, ReasoningPart, TextPart

# The block of Open WebUI; each line of the reasoning is quoted.
_DETAILS = re.compile(
    r"\s*<details\s[^>]*type=\"reasoning\"[^>]*>\s*(?:<summary>.*?</summary>)?(.*?)</details>\s*",
    re.DOTALL,
)
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
    while found := match_reasoning_block(text) or match_reasoning_tags(text):
        thoughts.append(found[0])
        text = found[1]
    if not thoughts and is_first and (unopened := split_unopened(text)) is not None:
        thoughts, text = [unopened[0]], unopened[1]
    return [one for one in thoughts if one.strip()], text


def match_reasoning_block(text: str) -> tuple[str, str] | None:
    """Return the reasoning in an Open WebUI block at the beginning, and the rest; or None."""
    block = _DETAILS.match(text)
    if block is None:
        return None
    return _QUOTED.sub("", block.group(1).strip("\n")), text[block.end() :]


def match_reasoning_tags(text: str) -> tuple[str, str] | None:
    """Return the reasoning between tags at the beginning, and the rest; or None."""
    tags = ThinkTags(only_first=True)
    pieces = [*tags.push(text), *tags.flush()]
    thoughts = "".join(piece for kind, piece in pieces if kind == "reasoning")
    answer = "".join(piece for kind, piece in pieces if kind == "text")
    return (thoughts, answer) if answer != text or thoughts else None
