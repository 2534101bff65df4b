"""Time and memory of semantic search in 100,000 messages of one person.

`python -m benchmarks.meaning [--messages 100000] [--dimensions 384]` indexes messages of generated
words, each with a random vector. It then measures whole searches with the vector of a query. The
first search reads all vectors. The time of an embedding model is not included.
"""

import argparse
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.prepared import create_tables

SEARCHES = 40
LIMIT = 0.3


def main(arguments: Sequence[str]) -> int:
    """Fill, search, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=384)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as data:
        os.environ.setdefault("PALIMPSEST_DATA", data)
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        django.setup()

        from benchmarks.search import fill, index

        create_tables()
        (owner_id,), words = fill(1, given.messages, chats=max(given.messages // 200, 1))
        index()
        space_id = store(owner_id, dimensions=given.dimensions)
        return ask(owner_id, words, space_id=space_id, dimensions=given.dimensions)


def store(owner_id: int, *, dimensions: int) -> int:
    """Store a random vector for each text under an active embedding model; return its id."""
    from django.utils import timezone

    from chats.memory.search import nearest
    from chats.models import SearchText, TextVector, VectorSpace

    np = nearest.import_numpy()
    space = VectorSpace.objects.create(
        key="chance", state="serving", dimensions=dimensions, created_at=timezone.now()
    )
    chance = np.random.default_rng(3)
    texts = list(SearchText.objects.order_by("pk").values_list("pk", "message"))
    begun = time.perf_counter()
    for start in range(0, len(texts), 1_000):
        some = texts[start : start + 1_000]
        rows = chance.standard_normal((len(some), dimensions))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        TextVector.objects.bulk_create(
            TextVector(
                space=space,
                owner_id=owner_id,
                message_id=message,
                text=key,
                passage=0,
                vector=row.astype("<f2").tobytes(),
            )
            for (key, message), row in zip(some, rows, strict=True)
        )
    say(f"{len(texts):,} vectors stored in {time.perf_counter() - begun:.1f} s")
    return int(space.pk)


def ask(owner_id: int, words: Sequence[str], *, space_id: int, dimensions: int) -> int:
    """Search with vectors and without, and print times and memory."""
    from django.db import connection
    from django.utils import timezone

    from chats.memory.search import meaning, nearest
    from chats.memory.search.recall import recall_excerpts
    from chats.memory.search.recall_scope import Scope

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    chance = random.Random(3)  # noqa: S311  # to be repeated
    before = peak()
    tries, began, worked = 0, time.perf_counter(), time.process_time()
    vector = [chance.gauss(0, 1) for _ in range(dimensions)]

    def look(question: Sequence[float], seconds: float) -> Any:
        give_up = time.monotonic() + seconds
        return partial(
            meaning.compare_question_vector, question, space_id=space_id, give_up=give_up
        )

    nothing: dict[str, Any] = {"owner_id": owner_id, "places": None, "without": ()}
    while look(vector, 0.75 * LIMIT)(**nothing) is None:
        tries += 1
    say(
        f"the first comparison reads all: {time.perf_counter() - began:.2f} s,"
        f" {time.process_time() - worked:.2f} s of processor,"
        f" {tries} questions before it had words alone; {peak() - before:.0f} MB more at most,"
        f" {sum(one.size for one in nearest.KEPT.kept.values()) / 1e6:.0f} MB kept"
    )
    times: dict[str, list[float]] = {}
    for _ in range(SEARCHES):
        question = " ".join(words[chance.randint(1, 4_000)] for _ in range(5))
        vector = [chance.gauss(0, 1) for _ in range(dimensions)]
        asked = partial(
            recall_excerpts, owner_id, question, scope=Scope(), limit=18, at=timezone.now()
        )
        timed(times, "with vectors", partial(asked, look=look(vector, 1.0)))
        timed(times, "words alone", asked)
        timed(times, "comparing alone", partial(look(vector, 1.0), **nothing))
    for kind, found in times.items():
        found.sort()
        say(
            f"{kind}: {1000 * statistics.median(found):.0f} ms, 95 of 100 in"
            f" {1000 * found[int(0.95 * len(found))]:.0f} ms"
        )
    return int(times["with vectors"][int(0.95 * SEARCHES)] > LIMIT)


def timed(times: dict[str, list[float]], kind: str, work: Callable[[], object]) -> None:
    """Call a function and record its wall time and CPU time."""
    begun, worked = time.perf_counter(), time.process_time()
    work()
    times.setdefault(kind, []).append(time.perf_counter() - begun)
    times.setdefault(f"{kind}, processor", []).append(time.process_time() - worked)


def peak() -> float:
    """The peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
