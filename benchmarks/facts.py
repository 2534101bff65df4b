"""The cost of finding facts in growing texts, and of checking which facts a summary kept.

`python -m benchmarks.facts` prints milliseconds at 10,000, 100,000 and 1,000,000 characters for
prose, for a table of numbers and for text without spaces. It also prints the growth factor for ten
times the text.
"""

import sys
import time
from collections.abc import Callable, Mapping
from itertools import count, islice, pairwise

from contextpolicy.engine.text.facts import compare_summary_facts

SIZES = (10_000, 100_000, 1_000_000)
PROSE = (
    "On 3 May 2026 Anna Berg {n} paid {n},250.50 for order_{n} at https://shop.example/{n}. "
    "The board, said Eva, meets at 14:{m:02d} in src/room_{n}.txt, or ask eva{n}@shop.example. "
)
Make = Callable[[int], str]


def of(pattern: str) -> Make:
    """Return a function that repeats the pattern with rising numbers up to a given length."""

    def make(size: int) -> str:
        pieces = (pattern.format(n=n, m=n % 60) for n in count())
        few = islice(pieces, size // len(pattern) + 10)
        return "".join(few)[:size]

    return make


TEXTS: Mapping[str, Make] = {
    "prose": of(PROSE),
    "numbers": of("{n} {n}.5, "),
    "one run of letters": of("abcdefghij"),
    "base64": of("QkFTRTY0+a/Z{n}x"),
    "paths without an end": of("a/"),
    "capitals": of("ABCDEFGHIJ"),
    "names": of("Ann Berg{n} "),
    "signs": of("@-_.'"),
}


def seconds(make: Make, size: int) -> float:
    """Return the fastest of three comparisons of a text with its second half, in CPU seconds."""
    text = make(size)
    kept = text[size // 2 :]
    taken = []
    for _ in range(3):
        begun = time.process_time()
        compare_summary_facts(text, kept)
        taken.append(time.process_time() - begun)
    return min(taken)


def growth(make: Make, *, size: int, times: int) -> float:
    """Return the factor by which the CPU time grows for text that is `times` as long."""
    return seconds(make, size * times) / max(seconds(make, size), 1e-4)


def main() -> None:
    """Measure and print."""
    for kind, make in TEXTS.items():
        found = [seconds(make, size) for size in SIZES]
        steps = [later / max(before, 1e-4) for before, later in pairwise(found)]
        told = "  ".join(f"{1000 * spent:9.1f} ms" for spent in found)
        grown = "  ".join(f"×{step:4.1f}" for step in steps)
        sys.stdout.write(f"{kind:<22}{told}   {grown}\n")


if __name__ == "__main__":
    main()
