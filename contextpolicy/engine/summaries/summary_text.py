"""Writes the selected sentences of a summary as bullets with labels and source marks."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from contextpolicy.engine.summaries.prompts import neutralise_template_marks
from contextpolicy.engine.summaries.sentence_candidates import Candidate
from contextpolicy.engine.summaries.sentence_scores import is_sentence
from contextpolicy.engine.text.claims import write_label, write_next_day

# In characters: the maximum length of a bullet of several messages. Wide scripts need fewer.
LONGEST_BULLET, LONGEST_WIDE_BULLET = 320, 200


def write_sections(lines: Sequence[Candidate], sections: Sequence[str]) -> str:
    """Write the sections; if there are none, write only the bullets."""
    if not sections:
        return "\n".join(_write_bullets(lines))
    written = []
    for section in sections:
        written.append(f"## {section}")
        written += _write_bullets(line for line in lines if line.sentence.section == section)
    return "\n".join(written)


def _write_bullets(lines: Iterable[Candidate]) -> Iterator[str]:
    """Write bullets in the order of the chat.

    Neighbouring sentences of one author share a bullet. A line that does not end like a sentence
    gets its own bullet.
    """
    ordered = sorted(lines, key=lambda line: (line.order, line.place, line.sentence.text))
    for _, group in groupby(ordered, key=_get_bullet_key):
        for several in _split_bullets(group):
            label = write_label(several[0].author, several[0].day)
            said = _join_sentences(_add_source_marks(several))
            yield f"- {label}{neutralise_template_marks(' '.join(said.split()))}"


def _get_bullet_key(line: Candidate) -> tuple[str, bool, tuple[int, int]]:
    """Return a key that is equal for lines that may share a bullet."""
    is_whole = is_sentence(line.sentence.text)
    return line.author, bool(line.day), (-1, -1) if is_whole else (line.order, line.place)


def _split_bullets(lines: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    """Split neighbours into groups of readable length, between messages."""
    several: list[Candidate] = []
    length = 0
    for _, of_message in groupby(lines, key=lambda line: line.source):
        own = [*of_message]
        added = sum(len(line.sentence.text) for line in own)
        is_wide = own[0].sentence.text[-1:] in _WIDE
        most = LONGEST_WIDE_BULLET if is_wide else LONGEST_BULLET
        if several and length + added > most:
            yield several
            several, length = [], 0
        several += own
        length += added
    yield several


def _add_source_marks(lines: Sequence[Candidate]) -> list[str]:
    """Return the sentences of a bullet with their source marks.

    A mark follows the last sentence of its message. A new day precedes the sentence where it
    begins.
    """
    marked = []
    day = lines[0].day
    for (source, following), group in groupby(lines, key=lambda line: (line.source, line.day)):
        said = _join_sentences([line.sentence.text for line in group])
        gap = "" if said[-1:] in _WIDE or not source else " "
        change = write_next_day(following, before=day) if following != day else ""
        marked.append(f"{change}{said}{gap}{source}")
        day = following
    return marked


def _join_sentences(texts: Sequence[str]) -> str:
    """Join sentences with a space, or without one after wide scripts such as Chinese."""
    made = ""
    for text in texts:
        is_wide = made.rstrip("]0123456789#, [")[-1:] in _WIDE
        made += text if is_wide else f" {text}"
    return made.strip()


# The last character of a sentence in Chinese or Japanese.
_WIDE = frozenset("。！？」』”）》")
