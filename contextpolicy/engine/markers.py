"""Reads routing markers inside a team's messages, and removes them on the prompt's view.

A message may say who writes it (`[FROM:x]`), what the team works on (`[TEAM_TASK]`, with all text
to the next bracket) and who comes next (`[NEXT:y]`). The store keeps them; a prompt does not show
them.
"""

import re

from contextpolicy.engine.truncation import fence_after

# Names are ASCII words: only ASCII letters fold, so that no other alphabet's K or S is a marker.
_FROM = re.compile(r"\[FROM:[^\]]+\]", re.IGNORECASE | re.ASCII)
_TEAM_TASK = re.compile(r"\[TEAM_TASK\][^\[]*", re.IGNORECASE | re.ASCII)
_NEXT = re.compile(r"\[NEXT:[^\]]*\]", re.IGNORECASE | re.ASCII)
INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
_NEXT_NAME = re.compile(r"\[NEXT:([^\]]*)\]", re.IGNORECASE | re.ASCII)

# White space and line ends of ECMAScript: U+FEFF is one, U+001C to U+001F and U+0085 are none.
SPACES = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_RUN = re.compile(f"[{SPACES}]{{2,}}")
_EDGES = re.compile(f"^[{SPACES}]+|[{SPACES}]+$")


def strip_markers(text: str) -> str:
    """Remove all markers and tidy what is left: single spaces, trimmed lines, no empty lines.

    Lines of fenced code stay as they are. A pure function of the text.
    """
    unnamed = _without(_FROM, text)
    untasked = _TEAM_TASK.sub("", unnamed)
    return _tidied(_without(_NEXT, untasked))


def unmarked(text: str) -> str:
    """Remove who speaks and who is next from a text that people read; its spaces stay.

    In code they stay too.
    """
    lines, fence = [], ""
    for line in text.split("\n"):
        following = fence_after(fence, line)
        lines.append(line if fence or following else _outside_code(line))
        fence = following
    return "\n".join(lines).strip("\n")


def _outside_code(line: str) -> str:
    if "[" not in line:
        return line
    made, place = [], 0
    for code in INLINE_CODE.finditer(line):
        made += [_plain(line[place : code.start()]), code[0]]
        place = code.end()
    found = "".join((*made, _plain(line[place:])))
    return line if found == line else found.rstrip()


def _plain(text: str) -> str:
    return _without(_NEXT, _without(_FROM, text))


def next_names(text: str) -> tuple[str, ...]:
    """Return the names in a message's `[NEXT:…]` markers, in order; a comma separates several."""
    closed = text[: text.rfind("]") + 1]
    found = (name.strip() for match in _NEXT_NAME.findall(closed) for name in match.split(","))
    return tuple(name for name in found if name)


def _without(marker: re.Pattern[str], text: str) -> str:
    # Behind the last bracket nothing can match; searching there would cost the square of its length
    # for a text of many openings.
    end = text.rfind("]") + 1
    return marker.sub("", text[:end]) + text[end:]


def _tidied(text: str) -> str:
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        following = fence_after(fence, line)
        if fence or following:
            lines.append(line)
        elif plain := _EDGES.sub("", _RUN.sub(" ", line)):
            lines.append(plain)
        fence = following
    return "\n".join(lines)
