"""Compares vectors: the only module that knows NumPy, which is an extra.

It is imported with the first comparison, in a worker. The vectors of a person stay in this
process's memory for the next question, at most so many of them altogether; reading them stops where
its time is over and goes on with the next question.
"""

import importlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.db import connection

from chats.ground import native
from chats.models import TextVector
from chats.models.search import SEQ_BITS

if TYPE_CHECKING:
    import numpy as np

# Of one person; and the bytes of all of them, in single precision, that stay in memory.
MOST_VECTORS = 200_000
MOST_BYTES = 256 << 20
# Rows read before the clock is looked at.
BLOCK = 2_000
# The texts that vectors alone choose.
MOST_NEAREST = 60
# Two texts of a person taken at random are so alike; a text has to be more so. Of fewer texts
# nothing is known.
PAIRS, FLOOR_SHARE, FEWEST = 200, 0.99, 50
# Texts so alike are the same.
SAME = 0.995


@dataclass(frozen=True, slots=True)
class QuestionLikeness:
    """The likeness of a person's texts with a question.

    `nearest`: the most alike, by their ids. `usual` is that of all texts with the question on
    average, `floor` what hardly any two texts taken at random reach; 0, and above 1, where there
    are too few texts to tell.
    """

    nearest: Mapping[int, float]
    usual: float
    floor: float
    ids: Any = field(repr=False)
    marks: Any = field(repr=False)

    def of(self, ids: Collection[int]) -> dict[int, float]:
        """Return the likeness of those of some texts that have a vector."""
        known = dict.fromkeys(ids)
        at = numpy().isin(self.ids, list(known)).nonzero()[0]
        found: dict[int, float] = {}
        for place in at.tolist():
            key, mark = int(self.ids[place]), float(self.marks[place])
            found[key] = max(mark, found.get(key, -1.0))
        return found

    def scaled(self, ids: Collection[int]) -> dict[int, float]:
        """Return the likeness of some texts from 0, the usual one, to 1, that of the best."""
        best = max(self.nearest.values(), default=self.usual)
        width = best - self.usual
        if width <= 0:
            return {}
        return {key: max(mark - self.usual, 0.0) / width for key, mark in self.of(ids).items()}


def is_installed() -> bool:
    """Tell whether vectors can be compared here; nothing is imported for it."""
    return find_spec("numpy") is not None and missing_library() is None


@cache
def missing_library() -> native.MissingLibrary | None:
    """Return the system library that NumPy lacks here, without loading NumPy in this process."""
    return native.try_import("numpy")


@cache
def numpy() -> Any:
    """Import NumPy, to compute in one thread: several wait for each other on a busy machine.

    Measured with 100,000 vectors: 114 ms of processor in two threads, 21 ms in one.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return importlib.import_module("numpy")


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector of length 1 in half precision, as it is stored."""
    np = numpy()
    row = np.asarray(vector, dtype=np.float64)
    return bytes((row / np.linalg.norm(row)).astype("<f2").tobytes())


@dataclass(slots=True)
class Matrix:
    """The vectors of a person that were read: ids of texts, rows of numbers.

    `newest` and `oldest` are the ids of the rows between which everything was read.
    """

    ids: "list[np.ndarray[Any, Any]]" = field(default_factory=list)
    rows: "list[np.ndarray[Any, Any]]" = field(default_factory=list)
    number: int = 0
    newest: int = 0
    oldest: int | None = None
    is_whole: bool = False

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(block.nbytes for block in self.rows)

    def add(self, found: Sequence[tuple[int, int, bytes]]) -> None:
        """Take in rows: number, text, vector."""
        np = numpy()
        numbers = [row[0] for row in found]
        self.newest = max(self.newest, *numbers)
        self.oldest = min(numbers) if self.oldest is None else min(self.oldest, *numbers)
        joined = b"".join(bytes(row[2]) for row in found)
        block = np.frombuffer(joined, dtype="<f2").reshape(len(found), -1)
        self.ids.append(np.fromiter((row[1] for row in found), dtype=np.int64, count=len(found)))
        self.rows.append(block.astype(np.float32))
        self.number += len(found)


class Matrices:
    """The vectors that this process keeps, those of the last questions."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: OrderedDict[tuple[int, int], Matrix] = OrderedDict()

    def read(self, space_id: int, owner_id: int, *, give_up: float) -> Matrix | None:
        """Return the vectors of a person; None if they could not be read in time."""
        key = (space_id, owner_id)
        with self.lock:
            matrix = self.kept.pop(key, None) or Matrix()
        self.fill(matrix, space_id, owner_id, give_up=give_up)
        stored = TextVector.objects.filter(space=space_id, owner=owner_id)
        if matrix.is_whole and stored.count() < matrix.number:
            # Some were deleted.
            matrix = Matrix()
            self.fill(matrix, space_id, owner_id, give_up=give_up)
        with self.lock:
            self.kept[key] = matrix
            while sum(one.size for one in self.kept.values()) > MOST_BYTES and len(self.kept) > 1:
                self.kept.popitem(last=False)
        return matrix if matrix.is_whole else None

    def fill(self, matrix: Matrix, space_id: int, owner_id: int, *, give_up: float) -> None:
        """Read what is new, then what is older, until the time is over."""
        for way in ("newer", "older"):
            if way == "newer" and not matrix.number:
                continue
            if way == "older" and matrix.is_whole:
                continue
            for found in blocks(matrix, space_id, owner_id, way=way):
                matrix.add(found)
                if matrix.number >= MOST_VECTORS or matrix.size >= MOST_BYTES:
                    matrix.is_whole = True
                    return
                if time.monotonic() > give_up:
                    return
            matrix.is_whole = matrix.is_whole or way == "older"


def blocks(
    matrix: Matrix, space_id: int, owner_id: int, *, way: str
) -> Iterator[list[tuple[int, int, bytes]]]:
    """Yield stored vectors: the newer ones ascending, the older ones descending."""
    while True:
        values = [space_id, owner_id]
        between = ""
        if way == "newer":
            between, values = " AND id > %s", [*values, matrix.newest]
        elif matrix.oldest is not None:
            between, values = " AND id < %s", [*values, matrix.oldest]
        order = "id" if way == "newer" else "id DESC"
        # SQLite would walk through the rows of everybody, because they lie in this order.
        by = " INDEXED BY vector_of_person" if connection.vendor == "sqlite" else ""
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT id, text, vector FROM chats_textvector{by} WHERE space_id = %s"  # noqa: S608  # fixed texts
                f" AND owner_id = %s{between} AND vector <> %s ORDER BY {order} LIMIT {BLOCK}",
                [*values, b""],
            )
            found = cursor.fetchall()
        if not found:
            return
        yield found


KEPT = Matrices()


def compare(
    question: Sequence[float],
    *,
    space_id: int,
    owner_id: int,
    places: Collection[int] | None,
    without: Collection[int],
    give_up: float,
) -> QuestionLikeness | None:
    """Compare a question with all texts of a person; None if that took too long.

    `places` numbers the branches that are looked through, all without one; `without` are texts that
    are not chosen. `give_up` is a moment of the monotonic clock. Raises ValueError for a question
    of another length.
    """
    np = numpy()
    matrix = KEPT.read(space_id, owner_id, give_up=give_up)
    if matrix is None:
        return None
    if not matrix.number:
        return QuestionLikeness({}, 0.0, 2.0, np.empty(0, dtype=np.int64), np.empty(0))
    row = np.asarray(question, dtype=np.float32)
    row = row / np.linalg.norm(row)
    if matrix.rows[0].shape[1] != row.shape[0]:
        raise ValueError("a question of another length")
    marks = np.concatenate([block @ row for block in matrix.rows])
    ids = np.concatenate(matrix.ids)
    may = ~np.isin(ids, list(without)) if without else np.ones(len(ids), dtype=bool)
    if places is not None:
        may &= np.isin(ids >> SEQ_BITS, list(places))
    at = np.flatnonzero(may)
    best = at[np.argsort(marks[at])[::-1][: 4 * MOST_NEAREST]]
    nearest: dict[int, float] = {}
    for place in best.tolist():
        if len(nearest) < MOST_NEAREST:
            nearest.setdefault(int(ids[place]), float(marks[place]))
    usual = float(marks[at].mean()) if len(at) >= FEWEST else 0.0
    return QuestionLikeness(nearest, usual, floor_of(matrix), ids, marks)


def floor_of(matrix: Matrix) -> float:
    """Return how alike nearly all random pairs of a person's texts are at most."""
    np = numpy()
    if matrix.number < FEWEST:
        return 2.0
    chosen = np.random.default_rng(matrix.number).integers(0, matrix.number, size=(PAIRS, 2))
    ends = np.cumsum([len(block) for block in matrix.rows])

    def at(place: int) -> Any:
        block = int(np.searchsorted(ends, place, side="right"))
        return matrix.rows[block][place - (ends[block] - len(matrix.rows[block]))]

    pairs = [float(at(one) @ at(other)) for one, other in chosen.tolist()]
    # The same words again ("Thanks.") tell nothing of how alike different texts are.
    alike = [mark for mark in pairs if mark < SAME]
    return float(np.quantile(alike, FLOOR_SHARE)) if alike else 2.0
