"""Compares vectors with NumPy, an optional dependency that no other module imports.

NumPy is imported at a worker's first comparison. A user's vectors stay in this process's memory
for the next question, up to a total limit. Reading them stops at the deadline and continues with
the next question.
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

# Maximum vectors of a user, and bytes of all cached vectors in single precision.
MOST_VECTORS = 200_000
MOST_BYTES = 256 << 20
# Rows read between two checks of the deadline.
BLOCK = 2_000
# Maximum texts selected by vectors alone.
MOST_NEAREST = 60
# Number of random pairs, and their quantile, that define the similarity floor. With fewer texts
# there is no floor.
PAIRS, FLOOR_SHARE, FEWEST = 200, 0.99, 50
# Texts with at least this similarity count as identical.
SAME = 0.995


@dataclass(frozen=True, slots=True)
class QuestionLikeness:
    """The similarity of a user's texts to a question.

    `nearest`: the most similar texts, by id. `usual`: the average over the searched texts; 0 if
    there are too few. `floor`: a value that random pairs of texts rarely reach; above 1 if there
    are too few texts, so that no text reaches it.
    """

    nearest: Mapping[int, float]
    usual: float
    floor: float
    ids: Any = field(repr=False)
    marks: Any = field(repr=False)

    def of(self, ids: Collection[int]) -> dict[int, float]:
        """Return the similarity of each given text that has a vector."""
        known = dict.fromkeys(ids)
        at = import_numpy().isin(self.ids, list(known)).nonzero()[0]
        found: dict[int, float] = {}
        for place in at.tolist():
            key, mark = int(self.ids[place]), float(self.marks[place])
            found[key] = max(mark, found.get(key, -1.0))
        return found

    def scaled(self, ids: Collection[int]) -> dict[int, float]:
        """Return similarities scaled from 0 (usual) to 1 (best)."""
        best = max(self.nearest.values(), default=self.usual)
        width = best - self.usual
        if width <= 0:
            return {}
        return {key: max(mark - self.usual, 0.0) / width for key, mark in self.of(ids).items()}


def is_numpy_installed() -> bool:
    """Return True if NumPy is installed and loads, without importing it in this process."""
    return find_spec("numpy") is not None and find_missing_numpy_library() is None


@cache
def find_missing_numpy_library() -> native.MissingLibrary | None:
    """Return the system library that NumPy lacks here, or None. Does not load NumPy here."""
    return native.try_import("numpy")


@cache
def import_numpy() -> Any:
    """Import NumPy in one thread at a time.

    Several threads that import it at once delay each other: with 100,000 vectors, 114 ms of
    processor time in two threads, 21 ms in one.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return importlib.import_module("numpy")


def pack_vector(vector: Sequence[float]) -> bytes:
    """Return a vector normalised to length 1, in half precision, as stored."""
    np = import_numpy()
    row = np.asarray(vector, dtype=np.float64)
    return bytes((row / np.linalg.norm(row)).astype("<f2").tobytes())


@dataclass(slots=True)
class Matrix:
    """A user's vectors in memory: text ids and rows of numbers.

    All rows between the ids `oldest` and `newest` have been read.
    """

    ids: "list[np.ndarray[Any, Any]]" = field(default_factory=list)
    rows: "list[np.ndarray[Any, Any]]" = field(default_factory=list)
    number: int = 0
    newest: int = 0
    oldest: int | None = None
    # All rows have been read, or as many as the limits allow.
    is_whole: bool = False

    @property
    def size(self) -> int:
        return sum(block.nbytes for block in self.rows)

    def add(self, found: Sequence[tuple[int, int, bytes]]) -> None:
        np = import_numpy()
        numbers = [row[0] for row in found]
        self.newest = max(self.newest, *numbers)
        self.oldest = min(numbers) if self.oldest is None else min(self.oldest, *numbers)
        joined = b"".join(bytes(row[2]) for row in found)
        block = np.frombuffer(joined, dtype="<f2").reshape(len(found), -1)
        self.ids.append(np.fromiter((row[1] for row in found), dtype=np.int64, count=len(found)))
        self.rows.append(block.astype(np.float32))
        self.number += len(found)


class Matrices:
    """This process's vector cache, for the people who searched most recently."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: OrderedDict[tuple[int, int], Matrix] = OrderedDict()

    def read(self, space_id: int, owner_id: int, *, give_up: float) -> Matrix | None:
        """Return a user's vectors. None if they cannot be read before the deadline `give_up`."""
        key = (space_id, owner_id)
        with self.lock:
            matrix = self.kept.pop(key, None) or Matrix()
        self.fill(matrix, space_id, owner_id, give_up=give_up)
        stored = TextVector.objects.filter(space=space_id, owner=owner_id)
        if matrix.is_whole and stored.count() < matrix.number:
            # Some vectors were deleted in the meantime.
            matrix = Matrix()
            self.fill(matrix, space_id, owner_id, give_up=give_up)
        with self.lock:
            self.kept[key] = matrix
            while sum(one.size for one in self.kept.values()) > MOST_BYTES and len(self.kept) > 1:
                self.kept.popitem(last=False)
        return matrix if matrix.is_whole else None

    def fill(self, matrix: Matrix, space_id: int, owner_id: int, *, give_up: float) -> None:
        """Read newer rows, then older ones, until the deadline."""
        for way in ("newer", "older"):
            if way == "newer" and not matrix.number:
                continue
            if way == "older" and matrix.is_whole:
                continue
            for found in read_vector_blocks(matrix, space_id, owner_id, way=way):
                matrix.add(found)
                if matrix.number >= MOST_VECTORS or matrix.size >= MOST_BYTES:
                    matrix.is_whole = True
                    return
                if time.monotonic() > give_up:
                    return
            matrix.is_whole = matrix.is_whole or way == "older"


def read_vector_blocks(
    matrix: Matrix, space_id: int, owner_id: int, *, way: str
) -> Iterator[list[tuple[int, int, bytes]]]:
    """Yield stored vectors: newer vectors in ascending order, older vectors in descending order."""
    while True:
        values = [space_id, owner_id]
        between = ""
        if way == "newer":
            between, values = " AND id > %s", [*values, matrix.newest]
        elif matrix.oldest is not None:
            between, values = " AND id < %s", [*values, matrix.oldest]
        order = "id" if way == "newer" else "id DESC"
        # Without the hint, SQLite scans everyone's rows, because they are stored in id order.
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


def compare_question_texts(
    question: Sequence[float],
    *,
    space_id: int,
    owner_id: int,
    places: Collection[int] | None,
    without: Collection[int],
    give_up: float,
) -> QuestionLikeness | None:
    """Compare a question with all texts of a user. None on timeout.

    `places`: the branches to search; None for all. `without`: ids of texts to skip. `give_up`: a
    deadline of the monotonic clock. Raises ValueError if the question's vector and the stored ones
    differ in length.
    """
    np = import_numpy()
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
    return QuestionLikeness(nearest, usual, estimate_similarity_floor(matrix), ids, marks)


def estimate_similarity_floor(matrix: Matrix) -> float:
    """Return a similarity that random pairs of a user's texts rarely exceed."""
    np = import_numpy()
    if matrix.number < FEWEST:
        return 2.0
    chosen = np.random.default_rng(matrix.number).integers(0, matrix.number, size=(PAIRS, 2))
    ends = np.cumsum([len(block) for block in matrix.rows])

    def at(place: int) -> Any:
        block = int(np.searchsorted(ends, place, side="right"))
        return matrix.rows[block][place - (ends[block] - len(matrix.rows[block]))]

    pairs = [float(at(one) @ at(other)) for one, other in chosen.tolist()]
    # Repeated texts ("Thanks.") say nothing about the similarity of different texts.
    alike = [mark for mark in pairs if mark < SAME]
    return float(np.quantile(alike, FLOOR_SHARE)) if alike else 2.0
