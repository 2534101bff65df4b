"""Detects the scripts of a text, because tokens per character differ most by script.

Counts the characters of each script, weighted by the usual number of tokens per character.
"""

import re
from collections.abc import Iterable, Mapping

# Minimum share of a script that counts. With the second share or more, the whole text counts as
# being in that script.
PRESENT = 0.05
SOLE = 0.8
LATIN = "latin"
_RANGES: Mapping[str, str] = {
    "greek": "\u0370-\u03ff",
    "cyrillic": "\u0400-\u052f",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f",
    "indic": "\u0900-\u0dff",
    "thai": "\u0e00-\u0e7f",
    "kana": "\u3040-\u30ff",
    "hangul": "\u1100-\u11ff\uac00-\ud7af",
    "han": "\u2e80-\u2fdf\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
}
_RUN = re.compile("|".join(f"(?P<{name}>[{letters}]+)" for name, letters in _RANGES.items()))
# A character of these scripts is about one token; of the others, three or four characters are.
_WHOLE = frozenset({"kana", "hangul", "han"})
_PER_TOKEN = 4


def compute_script_shares(texts: Iterable[str]) -> dict[str, float]:
    """Return the share of each script in the texts, in tokens; empty if there is no text."""
    weights: dict[str, float] = {}
    for text in texts:
        letters = len(text)
        for run in () if text.isascii() else _RUN.finditer(text):
            name, length = run.lastgroup or LATIN, run.end() - run.start()
            letters -= length
            weight = length if name in _WHOLE else length / _PER_TOKEN
            weights[name] = weights.get(name, 0.0) + weight
        weights[LATIN] = weights.get(LATIN, 0.0) + letters / _PER_TOKEN
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()} if total else {}


def select_present_scripts(found: Mapping[str, float]) -> list[str]:
    """Return the scripts whose share is large enough to count."""
    return sorted(name for name, share in found.items() if share >= PRESENT)


def find_dominant_script(found: Mapping[str, float]) -> str:
    """Return the script of at least `SOLE` of the text.

    "" if scripts are mixed or there is no text.
    """
    return next((name for name, share in found.items() if share >= SOLE), "")
