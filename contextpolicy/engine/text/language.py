"""Detects the language of a text, to check that a summary is in the language of its chat.

The script is checked first, then the function words of languages in Latin script. If
the language is unclear, no language is returned, so that a summary is never rejected on
a guess.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

LONGEST_SAMPLE = 20_000
FEWEST_LETTERS = 40
FEWEST_WORDS = 4
# Minimum share of one script in all letters, or of one language in all function words found.
CLEAR_SHARE = 0.6

_SCRIPTS: Mapping[str, str] = {
    "CJK": "zh",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "CYRILLIC": "cyrillic",
    "ARABIC": "ar",
    "HEBREW": "he",
    "GREEK": "el",
    "THAI": "th",
    "DEVANAGARI": "devanagari",
    "LATIN": "latin",
}
_LISTED = """\
en the and is are was of to with for that this have has not will by from
de der die das und ist sind nicht mit für ein eine auf von zu den dem wird
fr le les des et est sont pas avec pour une dans sur du au que qui il
es el los las y es son no con para una en del al que por se lo
it il gli e è sono non con per una nel della di che da si lo
pt o os as e é são não com para uma em do da que por se ao
nl de het en is zijn niet met voor een van te op dat die wordt aan
"""
_LITTLE_WORDS: Mapping[str, frozenset[str]] = {
    line.split()[0]: frozenset(line.split()[1:]) for line in _LISTED.splitlines()
}
# The function words of all these languages.
COMMON_WORDS: frozenset[str] = frozenset().union(*_LITTLE_WORDS.values())
_NO_WORDS = re.compile(r"```[\s\S]*?(?:```|\Z)|`[^`\n]*`|https?://\S+|^#[^\n]*$", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]+")


def detect_text_language(text: str) -> str:
    """Return a code for the language of a text, or "" if it is unclear.

    Some scripts that several languages share have a separate code, such as `cyrillic`. Code,
    addresses and headings do not count, nor does text after `LONGEST_SAMPLE` characters.
    """
    plain = _NO_WORDS.sub(" ", text[:LONGEST_SAMPLE])
    scripts = Counter(_script(letter) for letter in plain if letter.isalpha())
    total = scripts.total()
    if total == 0:
        return ""
    if scripts["ja"] >= 0.1 * total:
        return "ja"
    name, letters = scripts.most_common(1)[0]
    # A Chinese character counts like a word.
    weight = 3 if name in ("zh", "ko") else 1
    if letters < CLEAR_SHARE * total or letters * weight < FEWEST_LETTERS:
        return ""
    return _by_little_words(plain) if name == "latin" else name


def is_other_language(text: str, other: str) -> bool:
    """Return True if two texts are clearly in different languages."""
    one, two = detect_text_language(text), detect_text_language(other)
    return bool(one and two) and one != two


def _script(letter: str) -> str:
    name = unicodedata.name(letter, "").partition(" ")[0]
    return _SCRIPTS.get(name, name)


def _by_little_words(text: str) -> str:
    found: Counter[str] = Counter()
    for word in _WORD.findall(text.casefold()):
        for language, words in _LITTLE_WORDS.items():
            found[language] += word in words
    (first, most), (_, second) = found.most_common(2)
    is_clear = most >= FEWEST_WORDS and most * (1 - CLEAR_SHARE) > second * CLEAR_SHARE
    return first if is_clear else ""
