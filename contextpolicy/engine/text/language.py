"""Detects the language of a text, to check that a summary is in the language of its chat.

The script is checked first, then the function words of languages in Latin script. If
the language is unclear, no language is returned, so that a summary is never rejected on
a guess.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

LONGEST_SAMPLE = 20_000
FEWEST_LETTERS = 40
FEWEST_WORDS = 4
# Minimum share of one script in all letters, or of one language in all function words found.
CLEAR_SHARE = 0.6
# In characters: the beginning of a message that shows its language, and the number of messages.
HEAD = 400
MOST_HEADS = 100
# Minimum share of a language in the messages of a chat that uses it.
USED_SHARE = 0.2
# Scripts whose characters are like words, and the letters that such a character counts as.
_OF_WORDS = frozenset({"zh", "ja", "ko"})
_WORD_WEIGHT = 3

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
    scripts = _weigh_scripts(plain)
    if not scripts:
        return ""
    name, weight = scripts.most_common(1)[0]
    if weight < CLEAR_SHARE * scripts.total() or weight < FEWEST_LETTERS:
        return ""
    return _by_little_words(plain) if name == "latin" else name


def is_other_language(text: str, other: str) -> bool:
    """Return True if two texts are clearly in different languages."""
    one, two = detect_text_language(text), detect_text_language(other)
    return bool(one and two) and one != two


def is_foreign_to_chat(text: str, *, user_texts: Sequence[str], other_texts: Sequence[str]) -> bool:
    """Return True if a text is clearly in a language that its chat does not use.

    A chat uses the language of its user, that of all messages together, and each language with at
    least `USED_SHARE` of them. The beginning of each message is read, so that one long document
    does not decide. False if the language of the chat is unclear.
    """
    written = detect_text_language(text)
    mine, others = _sample_heads(user_texts), _sample_heads(other_texts)
    whole = detect_text_language("\n".join([*mine, *others]))
    if not written or not whole or written == whole:
        return False
    short = (head for head in mine if len(head) < HEAD)
    used = {detect_text_language("\n".join(mine)), detect_text_language("\n".join(short))}
    weights: Counter[str] = Counter()
    for head in (*mine, *others):
        weights[detect_text_language(head)] += _weigh_scripts(head).total()
    return written not in used and weights[written] < USED_SHARE * weights.total()


def _sample_heads(texts: Sequence[str]) -> list[str]:
    """Return the beginnings of the texts, at most `MOST_HEADS` of them, evenly distributed."""
    step = -(-len(texts) // MOST_HEADS) or 1
    return [text[:HEAD] for text in texts[::step]]


def _weigh_scripts(plain: str) -> Counter[str]:
    """Return the number of letters by script. A character that is like a word counts as three.

    The Chinese characters of a text with kana are Japanese.
    """
    scripts = Counter(_script(letter) for letter in plain if letter.isalpha())
    if scripts["ja"] >= 0.1 * (scripts["ja"] + scripts["zh"]) > 0:
        scripts["ja"] += scripts.pop("zh", 0)
    for name in _OF_WORDS & scripts.keys():
        scripts[name] *= _WORD_WEIGHT
    return +scripts


@lru_cache(maxsize=4096)
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
