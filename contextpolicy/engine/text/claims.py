"""The format of a summary's bullets: a label, then sentences with their sources.

    - User, 2023-05-08: I have cats. [#3] One is Tom. [#7, #9] 05-12: Tom is ill. [#15]

The label names the author and the day. The author applies to the whole bullet. A day applies until
the next day, which is written without the year if the year is unchanged. A source mark applies to
the sentences before it, back to the previous mark. A claim is one such span with its label.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from contextpolicy.engine.text.sentence_ends import ENDS

USER, ASSISTANT = "User", "Assistant"
# In characters: a longer author name is cut in a label.
LONGEST_AUTHOR = 60

SOURCE_MARK = re.compile(r"\[#\d+(?:\s*[,;–-]\s*#?\d+)*\]")
_SEQ = re.compile(r"#(\d+)")
_DAY = r"\d{4}-\d{2}-\d{2}"
_LABEL = re.compile(
    rf"(?:(?P<author>[^\n:\[\]]{{1,{LONGEST_AUTHOR}}}), (?P<day>{_DAY})"
    rf"|(?P<only_author>{USER}|{ASSISTANT})|(?P<only_day>{_DAY})): "
)
_NEXT_DAY = re.compile(r"(?P<year>\d{4}-)?(?P<rest>\d{2}-\d{2}): ")
_BULLET = re.compile(r"^(\s*[-*•]\s+)(.*)$", re.MULTILINE)
# In characters: how far to look for the end of a sentence.
_END = 40
_SENTENCE_END = re.compile(rf"[{ENDS}`][\"'”’)\]）」』》*]*\s*$")


class Claim(NamedTuple):
    """A part of a bullet with its own sources. `sources` are message seqs in written order."""

    label: str
    text: str
    sources: tuple[int, ...]


class Label(NamedTuple):
    """The parts of a label. A part that the label does not contain is empty."""

    author: str = ""
    day: str = ""


def write_label(author: str, day: str) -> str:
    """Format the label of a bullet: `User, 2023-05-08: `. Empty if author and day are unknown."""
    name = re.sub(r"[\s:\[\]]+", " ", author).strip()[:LONGEST_AUTHOR].rstrip(" ,")
    named = ", ".join(part for part in (name, day) if part)
    return f"{named}: " if named else ""


def read_label(label: str) -> Label:
    """Parse a label made by `write_label`. For any other text, all parts are empty."""
    found = _LABEL.fullmatch(label)
    if found is None:
        return Label()
    author = found["author"] or found["only_author"] or ""
    return Label(author, found["day"] or found["only_day"] or "")


def split_bullet_claims(bullet: str) -> list[Claim]:
    """Split the text of a bullet into its claims.

    A mark inside a sentence does not end a claim: "Ann [#1] and Bob [#2] agreed." is one
    claim.
    """
    bullet = bullet.strip()
    parts = list(_parts(bullet))
    known = _LABEL.match(bullet)
    label = known[0] if known else ""
    texts = [parts[0][0].removeprefix(label), *(text.lstrip() for text, _ in parts[1:])]
    author, day = read_label(label)
    claims = []
    for text, (_, sources) in zip(texts, parts, strict=True):
        following = _NEXT_DAY.match(text) if day else None
        if following:
            day = f"{following['year'] or day[:5]}{following['rest']}"
            label = write_label(author, day)
            text = text[following.end() :]
        if text.strip() or sources:
            claims.append(Claim(label, text.strip(), sources))
    return claims


def write_next_day(day: str, *, before: str) -> str:
    """Format the day before a bullet's next sentence. `before`: the previous sentence's day."""
    return f"{day.removeprefix(before[:5])}: "


def _parts(bullet: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the spans of a bullet that end in source marks, then the remaining text."""
    start, sources = 0, dict[int, None]()
    marks = list(SOURCE_MARK.finditer(bullet))
    for mark, following in zip_longest(marks, marks[1:]):
        sources |= dict.fromkeys(map(int, _SEQ.findall(mark[0])))
        text = bullet[start : mark.start()]
        if following and not bullet[mark.end() : following.start()].strip():
            # Two marks in a row; the text of the claim ends before the first of them.
            bullet = bullet[: mark.start()] + " " * len(mark[0]) + bullet[mark.end() :]
            continue
        rest = bullet[mark.end() : following.start() if following else None]
        if not following and not any(map(str.isalnum, rest)):
            yield text.rstrip() + rest.strip(), tuple(sources)
            return
        if _SENTENCE_END.search(text[-_END:]):
            yield text, tuple(sources)
            start, sources = mark.end(), {}
    yield bullet[start:], tuple(sources)


def parse_source_seqs(text: str) -> list[int]:
    """Return the seqs in the source marks of a text, ascending and distinct."""
    marks = " ".join(SOURCE_MARK.findall(text))
    return sorted(set(map(int, _SEQ.findall(marks))))


def find_unlabelled_seqs(summary: str) -> frozenset[int]:
    """Return the seqs in the source marks of bullets without a label."""
    claims = (
        claim for bullet in _BULLET.finditer(summary) for claim in split_bullet_claims(bullet[2])
    )
    return frozenset(
        seq for claim in claims if not any(read_label(claim.label)) for seq in claim.sources
    )


def has_days(summary: str) -> bool:
    """Return True if the label of any bullet contains a day."""
    labels = (_LABEL.match(bullet[2]) for bullet in _BULLET.finditer(summary))
    return any(read_label(label[0]).day for label in labels if label)


def strip_source_marks(text: str) -> str:
    """Remove the source marks from a text, such as [#12] or [#12, #15].

    They are not facts of the chat.
    """
    return SOURCE_MARK.sub(" ", text)


def bracket_source_marks(text: str) -> str:
    """Replace the square brackets of source marks with round ones, so that they cite nothing."""
    return SOURCE_MARK.sub(lambda mark: f"({mark[0][1:-1]})", text)


def strip_summary_labels(text: str) -> str:
    """Remove the labels of all bullets of a summary. Their days are not facts of the chat."""
    return _BULLET.sub(_without_label, text)


def strip_bullet_label(bullet: str) -> str:
    """Remove the label of one bullet, given without its bullet character."""
    return _LABEL.sub("", bullet, count=1) if _LABEL.match(bullet) else bullet


def _without_label(bullet: re.Match[str]) -> str:
    if not _LABEL.match(bullet[2]):
        return bullet[0]
    return bullet[1] + " ".join(
        f"{claim.text} {write_mark(claim.sources)}".strip()
        for claim in split_bullet_claims(bullet[2])
    )


def write_mark(sources: Iterable[int]) -> str:
    """Format a source mark: `[#7, #9]`. Empty if there are no sources."""
    named = ", ".join(f"#{seq}" for seq in sources)
    return f"[{named}]" if named else ""
