"""The characters that end a sentence, in all scripts, and the pieces of text without any."""

import re
from collections.abc import Iterator

# Ends that have a space after them, and ends that need none: of Chinese and Japanese, Devanagari,
# Urdu, Arabic, Armenian, Khmer, Burmese and Ethiopic.
SPACED_ENDS = ".!?…"
UNSPACED_ENDS = "。！？।॥۔؟։។။።"
ENDS = SPACED_ENDS + UNSPACED_ENDS
# In characters: a longer piece without an end is split at clauses or spaces.
LONGEST_PIECE = 200
# In characters: the shortest part of such a piece.
SHORTEST_PART = 40


def find_breaks(piece: str) -> Iterator[int]:
    """Yield the places at which a piece without sentence ends is split.

    Thai, Lao, Khmer and Burmese put a space between clauses and no mark between sentences, so they
    are split at spaces. Any other piece is split after clause marks if it is longer than
    `LONGEST_PIECE`.
    """
    has_own_spaces = bool(_CLAUSE_SPACED.search(piece))
    if (len(piece) <= LONGEST_PIECE and not has_own_spaces) or _AT_END.search(piece):
        return
    start = 0
    for found in (_SPACE if has_own_spaces else _CLAUSE_END).finditer(piece):
        if found.end() - start >= SHORTEST_PART and found.end() < len(piece):
            start = found.end()
            yield start


_CLAUSE_SPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_AT_END = re.compile(rf"[{ENDS}][\"'”’)\]）」』》*]*\s*$")
_CLAUSE_END = re.compile(r"[,;:،؛](?:\s+)|[，；：、]\s*")
_SPACE = re.compile(r"\s+")
