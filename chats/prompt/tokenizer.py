"""Counts tokens with the o200k vocabulary that lies in our own tree.

Loading costs a second and 90 MB, so a process does it at its first count: the worker, and the web
process of an installation where programs add what a team's members said. Every count is stored with
its message. Other models' tokenizers differ; the calibration factor of a model says by
how much.
"""

import base64
import gzip
import hashlib
import threading
from functools import cache
from pathlib import Path

import tiktoken

VOCABULARY = Path(__file__).parent / "vocabulary" / "o200k_base.tiktoken.gz"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
# The pattern by which o200k splits text before merging; a fact of the vocabulary, as in tiktoken.
WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
LEAD = r"[^\r\n\p{L}\p{N}]?"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERN = "|".join(
    [
        f"{LEAD}{UPPER}*{LOWER}+{WORD}",
        f"{LEAD}{UPPER}+{LOWER}*{WORD}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
# Merging is quadratic in the length of one unbroken run ("aaaa…"), so long texts are counted in
# slices; a slice border adds at most one token.
SLICE = 20_000
_making = threading.Lock()


class VocabularyDamaged(Exception):
    """The vocabulary file does not match its checksum."""


class O200kCounter:
    """A counter that counts as OpenAI's current models do."""

    version = "o200k-1"

    def count(self, text: str) -> int:
        """Return the number of tokens; lookalikes of special tokens count as plain text."""
        encoding = load()
        return sum(
            len(encoding.encode_ordinary(text[start : start + SLICE]))
            for start in range(0, len(text), SLICE)
        )


def load() -> tiktoken.Encoding:
    """Load the encoding, once per process whoever asks first. Raises `VocabularyDamaged`."""
    with _making:
        return _load()


@cache
def _load() -> tiktoken.Encoding:
    content = gzip.decompress(VOCABULARY.read_bytes())
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise VocabularyDamaged(str(VOCABULARY))
    ranks = {}
    for line in content.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding(
        "o200k_base",
        pat_str=PATTERN,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    )
