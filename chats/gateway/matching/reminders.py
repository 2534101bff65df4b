"""Finds reminders that a client adds to its newest message and later removes or replaces.

An addition counts as a reminder only with evidence: it is in tagged blocks, or the newest message
has the same one or one of the same kind. Otherwise a user may have edited the message.
"""

import re
from collections import Counter
from collections.abc import Iterator

from chats.gateway.matching.hashes import strip_client_tags

# Minimum length of a reminder, in characters that are not spaces.
SHORTEST_REMINDER = 4
LETTERS = re.compile(r"[^\W\d_]+")
DIGITS = re.compile(r"\d+")
# From here on, Unicode has mostly scripts without spaces between words, such as Chinese.
FIRST_UNSPACED = "\u2e80"
WORD = re.compile(rf"[{FIRST_UNSPACED}-\U0010ffff]|[^\W_]+")
BRACKETS = {
    "(": ")",
    "[": "]",
    "{": "}",
    "\uff08": "\uff09",
    "\uff3b": "\uff3d",
    "\u3010": "\u3011",
    "\u300c": "\u300d",
}
MIRROR = str.maketrans({**BRACKETS, **{closing: opening for opening, closing in BRACKETS.items()}})
# The beginning of a reminder that names it, such as `Open files:`.
LABEL = re.compile("[^\n:\uff1a]{2,60}[:\uff1a](?!/)")
# Share of equal words in two reminders of the same kind.
SAME_WORDS = 0.5
# Lines at the end or start of a message that may be a reminder.
MOST_LINES = 40
# Characters of a reminder whose words are compared.
LONGEST_COMPARED = 4_000


def is_text_with_tags(text: str, other: str) -> bool:
    """Return True if two texts are equal apart from tagged blocks added by clients.

    If there is such a block, the number of spaces and line breaks is ignored.
    """
    own, others = strip_client_tags(text), strip_client_tags(other)
    has_blocks = own != text.strip() or others != other.strip()
    return own == others if not has_blocks else own.split() == others.split()


def is_reminded_text(stored: str, *, text: str, newest: str) -> bool:
    """Return True if a stored text and `text` differ only in reminders.

    The newest message has the same reminder, or one of the same kind.
    """
    return (
        is_text_with_reminder(stored, text=text, newest=newest)
        or is_text_with_reminder(text, text=stored, newest=newest)
        or is_text_with_changed_reminder(stored, text=text, newest=newest)
        or is_text_with_replaced_reminder(stored, text=text, newest=newest)
    )


def is_text_with_reminder(stored: str, *, text: str, newest: str) -> bool:
    """Return True if a stored text is `text` with a reminder that the newest message has too.

    The reminder is before the text, after it, or both. Its numbers may differ, such as a time.
    """
    newest = DIGITS.sub("0", newest)
    for before, after in iter_additions(stored, text=text):
        begin, end = DIGITS.sub("0", before), DIGITS.sub("0", after)
        if newest.startswith(begin) and newest.endswith(end):
            return True
    return False


def iter_additions(stored: str, *, text: str) -> Iterator[tuple[str, str]]:
    """Yield the texts before and after `text` in a stored text, if they are whole words."""
    for before, found, after in {stored.partition(text), stored.rpartition(text)}:
        if not found or not (before or after):
            continue
        is_apart = is_apart_from_text(before[-1:], text[:1]) and is_apart_from_text(
            text[-1:], after[:1]
        )
        # Every added part has this length: a user may well use a short word twice.
        is_long = all(is_long_enough(part) for part in (before, after) if part)
        if is_apart and is_long:
            yield before, after


def is_text_with_changed_reminder(stored: str, *, text: str, newest: str) -> bool:
    """Return True if a stored text is `text` with a reminder like that of the newest message.

    The reminders are of the same kind, and have their own lines or are in brackets.
    """
    for before, after in iter_additions(stored, text=text):
        has_begin = not before or any(
            is_same_kind(before, newest[:size]) for size in iter_head_ends(newest, like=before)
        )
        if has_begin and (
            not after
            or any(is_same_kind(after, newest[at:]) for at in iter_tail_starts(newest, like=after))
        ):
            return True
    return False


def is_text_with_replaced_reminder(stored: str, *, text: str, newest: str) -> bool:
    """Return True if `text` has the reminder of the newest message instead of its stored one.

    Both reminders are before the text, or both after it. They are paragraphs or in brackets, or
    lines of the same kind.
    """
    return has_replaced_tail(stored, text=text, newest=newest) or has_replaced_tail(
        mirror_text(stored), text=mirror_text(text), newest=mirror_text(newest), is_mirrored=True
    )


def has_replaced_tail(stored: str, *, text: str, newest: str, is_mirrored: bool = False) -> bool:
    """Return True if two texts differ only in the reminders at their end."""
    shared = count_equal_start(stored, text)
    for at in iter_tail_starts(text, like=""):
        tail, other = text[at:], stored[at:]
        if at > shared or not newest.endswith(tail) or stored.endswith(tail):
            continue
        if not all(is_separate(each) and is_long_enough(each) for each in (tail, other)):
            continue
        is_paragraph = all(count_line_ends(each) > 1 for each in (tail, other))
        if is_paragraph or is_in_brackets(tail.strip()):
            return True
        if is_mirrored:
            tail, other = mirror_text(tail), mirror_text(other)
        if is_same_kind(tail, other):
            return True
    return False


def count_line_ends(part: str) -> int:
    """Return the number of line breaks at the start of an added part."""
    return part[: len(part) - len(part.lstrip())].count("\n")


def mirror_text(text: str) -> str:
    """Return the text in reverse order, with its brackets mirrored."""
    return text[::-1].translate(MIRROR)


def iter_tail_starts(text: str, *, like: str) -> Iterator[int]:
    """Yield the positions in the text at which a reminder may start, the last first.

    `like`: a reminder of the same kind. One that has its own lines does not match one in brackets.
    """
    end = len(text.rstrip())
    if "\n" not in like[: len(like) - len(like.lstrip())]:
        opening = next((o for o, c in BRACKETS.items() if text[:end].endswith(c)), None)
        at = text.rfind(opening, 1, end) if opening else -1
        if at > 0:
            yield len(text[:at].rstrip())
        if like:
            return
    at = end
    for _ in range(MOST_LINES):
        at = text.rfind("\n", 1, at)
        if at < 0:
            return
        start = len(text[:at].rstrip())
        if start:
            yield start
        at = start


def iter_head_ends(text: str, *, like: str) -> Iterator[int]:
    """Yield the positions in the text at which a reminder at its start may end."""
    for at in iter_tail_starts(mirror_text(text), like=mirror_text(like)):
        yield len(text) - at


def is_same_kind(first: str, second: str) -> bool:
    """Return True if two reminders have the same label or first line, or mostly the same words.

    Each has its own lines or is in brackets.
    """
    if not all(is_long_enough(each) and is_separate(each) for each in (first, second)):
        return False
    is_bracketed = is_in_brackets(first.strip())
    if is_bracketed != is_in_brackets(second.strip()):
        return False
    one, other = (DIGITS.sub("0", each.strip()[:LONGEST_COMPARED]) for each in (first, second))
    if find_label(one) and find_label(one) == find_label(other):
        return True
    if is_bracketed and "0" in one and LETTERS.sub("w", one) == LETTERS.sub("w", other):
        # For example a date, whose words may all differ.
        return True
    words, others = list_words(one), list_words(other)
    if not words or not others or not (is_bracketed or words[0] == others[0]):
        return False
    equal = (Counter(words) & Counter(others)).total()
    return 2 * equal > SAME_WORDS * (len(words) + len(others))


def list_words(text: str) -> list[str]:
    """Return the words of a text. In scripts without spaces, each character counts as a word."""
    return [word for word in WORD.findall(text) if word[0].isalnum()]


def is_separate(part: str) -> bool:
    """Return True if an added part has a line break at its side, or is in brackets."""
    spaces = part[: len(part) - len(part.lstrip())] + part[len(part.rstrip()) :]
    return "\n" in spaces or is_in_brackets(part.strip())


def find_label(part: str) -> str:
    """Return the words before the colon of an added part, or the first of several lines.

    Empty if the part has neither, or if that line is too short.
    """
    inner = part[1:].lstrip() if part[:1] in BRACKETS else part
    if label := LABEL.match(inner):
        return label.group()
    first, _, more = inner.partition("\n")
    return first.strip() if more and is_long_enough(first) else ""


def is_in_brackets(part: str) -> bool:
    return part[:1] in BRACKETS and part[-1:] == BRACKETS[part[:1]]


def is_long_enough(part: str) -> bool:
    return len("".join(part.split())) >= SHORTEST_REMINDER


def count_equal_start(text: str, other: str) -> int:
    """Return the length of the common prefix of two strings."""
    limit = min(len(text), len(other))
    if text[:limit] == other[:limit]:
        return limit
    return next(n for n in range(limit) if text[n] != other[n])


def is_apart_from_text(left: str, right: str) -> bool:
    """Return True unless the two characters belong to the same word.

    Also True if one of them is missing.
    """
    return not (is_word_character(left) and is_word_character(right))


def is_word_character(character: str) -> bool:
    """Return True for a letter or digit of a script that separates words by spaces."""
    return character.isalnum() and character < FIRST_UNSPACED
