"""Parses routing markers in a team's messages, and removes them from prompts.

A message may name its author (`[FROM:x]`), the team's task (`[TEAM_TASK]`, with all text up to the
next bracket) and the next speaker (`[NEXT:y]`). The stored message keeps the markers; prompts do
not show them. Models that write Chinese may use full-width brackets and colons in `[NEXT:y]`.
"""

import re

from contextpolicy.engine.history.truncation import advance_code_fence

# Names are ASCII words. Only ASCII letters fold, so the K or S of another alphabet never matches.
_FROM = re.compile(r"\[FROM:[^\]]+\]", re.IGNORECASE | re.ASCII)
_TEAM_TASK = re.compile(r"\[TEAM_TASK\][^\[]*", re.IGNORECASE | re.ASCII)
# The brackets of a `[NEXT:y]` marker.
NEXT_BRACKETS = (("[", "]"), ("［", "］"), ("【", "】"))
# By the closing bracket: the pattern of a marker, with the names.
_NEXT = {
    closing: re.compile(
        rf"{re.escape(opening)}NEXT[:：]([^{re.escape(closing)}]*){re.escape(closing)}",
        re.IGNORECASE | re.ASCII,
    )
    for opening, closing in NEXT_BRACKETS
}
_ASCII_NEXT = re.compile(r"\[NEXT:[^\]]*\]", re.IGNORECASE | re.ASCII)
_NAME_SEPARATOR = re.compile("[,，、]")
INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")

# White space and line ends of ECMAScript: U+FEFF is included, U+001C to U+001F and U+0085 are not.
SPACES = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_RUN = re.compile(f"[{SPACES}]{{2,}}")
_EDGES = re.compile(f"^[{SPACES}]+|[{SPACES}]+$")


def strip_markers(text: str, *, only_ascii: bool = False) -> str:
    """Remove all markers and clean up whitespace: single spaces, trimmed lines, no empty lines.

    Markers in fenced code are removed too, but its whitespace is unchanged. A pure function of the
    text. `only_ascii`: keep full-width markers, as versions up to 0.9 did.
    """
    unnamed = _without(_FROM, text)
    untasked = _TEAM_TASK.sub("", unnamed)
    return _tidy_text(_without_next(untasked, only_ascii=only_ascii))


def strip_display_markers(text: str) -> str:
    """Remove author and next-speaker markers from text to display.

    Markers in code are kept. Spaces at the end of a line that had a marker are removed, and so are
    line breaks at both ends of the text.
    """
    lines, fence = [], ""
    for line in text.split("\n"):
        following = advance_code_fence(fence, line)
        lines.append(line if fence or following else _outside_code(line))
        fence = following
    return "\n".join(lines).strip("\n")


def _outside_code(line: str) -> str:
    if not any(pair[0] in line for pair in NEXT_BRACKETS):
        return line
    made, place = [], 0
    for code in INLINE_CODE.finditer(line):
        made += [_plain(line[place : code.start()]), code[0]]
        place = code.end()
    found = "".join((*made, _plain(line[place:])))
    return line if found == line else found.rstrip()


def _plain(text: str) -> str:
    return _without_next(_without(_FROM, text))


def parse_next_names(text: str) -> tuple[str, ...]:
    """Return the names in a message's `[NEXT:…]` markers, in order.

    A marker can list several names, separated by commas.
    """
    markers = [
        match
        for closing, marker in _NEXT.items()
        for match in marker.finditer(text, 0, _find_end(text, closing))
    ]
    markers.sort(key=lambda match: match.start())
    found = (name.strip() for match in markers for name in _NAME_SEPARATOR.split(match[1]))
    return tuple(name for name in found if name)


def _find_end(text: str, closing: str) -> int:
    # Nothing can match after the last bracket. Searching there would take quadratic time in a text
    # of many openings.
    return text.rfind(closing) + 1


def _without_next(text: str, *, only_ascii: bool = False) -> str:
    for closing, marker in (("]", _ASCII_NEXT),) if only_ascii else _NEXT.items():
        text = _without(marker, text, closing=closing)
    return text


def _without(marker: re.Pattern[str], text: str, *, closing: str = "]") -> str:
    end = _find_end(text, closing)
    return marker.sub("", text[:end]) + text[end:]


def _tidy_text(text: str) -> str:
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        following = advance_code_fence(fence, line)
        if fence or following:
            lines.append(line)
        elif plain := _EDGES.sub("", _RUN.sub(" ", line)):
            lines.append(plain)
        fence = following
    return "\n".join(lines)
