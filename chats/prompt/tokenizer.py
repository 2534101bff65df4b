"""Counts tokens with the o200k vocabulary stored in this repository.

Loading takes up to one second and 50 MB, so each process loads it at its first count. Pages do not
wait: until it is loaded, they show estimates, marked with ≈. The count of a message is stored with
it. Other models use other tokenizers. The calibration factor of a model accounts for the
difference.
"""

import base64
import gzip
import hashlib
import threading
from functools import cache
from pathlib import Path

import tiktoken

from contextpolicy.engine.messages.tokens import ApproximateCounter, TokenCounter
from speed.counts import CountCache

VOCABULARY = Path(__file__).parent / "vocabulary" / "o200k_base.tiktoken.gz"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
# The pattern by which o200k splits text before merging; part of the vocabulary, as in tiktoken.
WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
LEADING = r"[^\r\n\p{L}\p{N}]?"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERN = "|".join(
    [
        f"{LEADING}{UPPER}*{LOWER}+{WORD}",
        f"{LEADING}{UPPER}+{LOWER}*{WORD}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
# Merging is quadratic in the length of an unbroken run ("aaaa…"), so long texts are counted in
# slices. A slice border adds at most one token.
SLICE = 20_000
_making = threading.Lock()


class VocabularyDamaged(Exception):
    """The vocabulary file does not match its checksum."""


class O200kCounter:
    """A token counter with the vocabulary of OpenAI's current models."""

    version = "o200k-1"

    def count(self, text: str) -> int:
        """Return the number of tokens. Lookalikes of special tokens count as plain text."""
        return _counts.count(text) if text else 0


def _count(text: str) -> int:
    encoding = load_encoding()
    return sum(
        len(encoding.encode_ordinary(text[start : start + SLICE]))
        for start in range(0, len(text), SLICE)
    )


_counts = CountCache(_count)


def get_page_counter(*, wait: float = 0) -> TokenCounter:
    """Return the production counter, or an estimating one until the vocabulary is loaded.

    The first call starts loading in a thread. `wait`: the time to wait for it, in seconds.
    """
    if not is_loaded():
        start_loader().join(wait)
    return O200kCounter() if is_loaded() else ApproximateCounter()


def is_loaded() -> bool:
    """Return True if this process has the vocabulary in memory."""
    return _load.cache_info().currsize > 0


@cache
def start_loader() -> threading.Thread:
    """Start the thread that loads the vocabulary, once per process."""
    thread = threading.Thread(target=load_encoding, name="load-vocabulary", daemon=True)
    thread.start()
    return thread


def is_estimate(counter: TokenCounter) -> bool:
    """Return True if the counts of this counter may differ from those of a turn."""
    return counter.version != O200kCounter.version


def load_encoding() -> tiktoken.Encoding:
    """Load the encoding once per process. Thread-safe. Raises `VocabularyDamaged`."""
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
    encoding = tiktoken.Encoding(
        "o200k_base",
        pat_str=PATTERN,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    )
    # The encoding has its own copy; the table would keep 30 MB.
    ranks.clear()
    return encoding
