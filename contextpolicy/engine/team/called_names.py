"""Reads the names in a `[NEXT:…]` marker that a model wrote more freely than asked."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from contextpolicy.engine.team.team_view import EVERYBODY, PERSON, fold_member_name

# "and", "or" and their signs. Words need spaces around them.
_SEPARATOR = re.compile(r" (?:and|or|und|oder|et|ou|y|o|e) | ?[&/;+和与與及] ?", re.IGNORECASE)
# Maximum number of parts that one name has if it contains such words or signs.
MOST_PARTS = 6
_SIGNS = " \t@＠*_~\"'“”‘’«»「」.!?…。！？:：#-"
_REMARK = re.compile(r"[(（][^()（）]*[)）]$")
_ALL = frozenset(
    {"all", "everyone", "everybody", "alle", "tous", "todos", "所有人", "大家", "全员"}
)
# Words of politeness, which do not call a member.
_POLITE = frozenset(
    {"please", "bitte", "thanks", "thankyou", "danke", "merci", "gracias", "请", "谢谢"}
)


def split_called_names(called: Sequence[str], *, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a marker calls, as far as possible in the spelling of `names`.

    A text that is a whole name is kept. Otherwise, signs around it and a remark in brackets are
    removed, and it is split at "and" and its signs; of the names that fit, the longest is taken. A
    part of a name is never taken for the name, so all other texts are returned unchanged. Words for
    all members become `team_view.EVERYBODY`.
    """
    known = {fold_member_name(name): name for name in (*names, EVERYBODY, PERSON)}
    found: list[str] = []
    for text in called:
        if fold_member_name(text) in known:
            found.append(text)
        else:
            found += _split_names(text, known)
    return tuple(found)


def _split_names(called: str, known: dict[str, str]) -> list[str]:
    text = " ".join(called.split())
    marks = [match.span() for match in _SEPARATOR.finditer(text)]
    borders = [(0, 0), *marks, (len(text), len(text))]
    parts = [(before[1], after[0]) for before, after in pairwise(borders)]
    found: list[str] = []
    place = 0
    while place < len(parts):
        taken, name = _find_longest(text, parts[place : place + MOST_PARTS], known)
        if name and fold_member_name(name.strip(_SIGNS)) not in _POLITE:
            found.append(name)
        place += taken
    return found


def _find_longest(
    text: str, parts: Sequence[tuple[int, int]], known: dict[str, str]
) -> tuple[int, str]:
    """Return the longest known name at the start of the parts, and the number of its parts.

    Without one, the first part unchanged.
    """
    for count in range(len(parts), 0, -1):
        written = text[parts[0][0] : parts[count - 1][1]].strip()
        for plain in (written.strip(_SIGNS), _REMARK.sub("", written).strip(_SIGNS)):
            folded = fold_member_name(plain)
            if folded in known:
                return count, known[folded]
            if folded in _ALL:
                return count, EVERYBODY
    return 1, text[slice(*parts[0])].strip()
