"""Verifies the log and its checkpoints, as a part of every verification of the ledger.

Each entry names a row of a chain with its hash, so a chain that was cut, dropped or written anew
does not fit. Each checkpoint's root is computed from the entries, and its signature is checked.
"""

from collections import Counter
from collections.abc import Iterator

from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from chats.checkpoints import keys, outside
from contextpolicy import ledger
from contextpolicy.audit import notes
from contextpolicy.audit.tree import Frontier, leaf_hash
from contextpolicy.ledger import Break
from contextpolicy.models import (
    AuditEvent,
    LedgerCheckpoint,
    LedgerLeaf,
    LedgerOrigin,
)

FILE = "checkpoint file"
KEPT = "checkpoints were compared with the file beside the data"
SIGNED = "checkpoints are signed, and every entry of their logs is as the chains are"


def verify(*, scope: str | None, told: Counter[str]) -> Iterator[Break]:
    """Yield entries that no chain has, and checkpoints that do not hold; never writes."""
    # Read first: a checkpoint that is signed meanwhile is in the database before it is in the file.
    kept = kept_outside() if scope is None else ""
    yield from pinned(scope)
    if scope is None:
        yield from of_file(kept, told=told)
        for origin in LedgerOrigin.objects.order_by("pk"):
            yield from of_origin(origin, told=told)


def kept_outside() -> str | None:
    """Return the note of the file beside the data; empty without one, None if it is unreadable."""
    try:
        return outside.last()
    except outside.FileUnreadable:
        return None


def of_file(note: str | None, *, told: Counter[str]) -> Iterator[Break]:
    """Yield why the ledger is not the one of the last checkpoint in the file beside the data.

    The database cannot vouch for itself: who writes all of it anew writes its keys anew too.
    """
    if note == "":
        return
    try:
        found = list(against(note or ""))
    except ValueError:
        yield Break(FILE, 0, "the file with the last checkpoint holds none that can be read")
        return
    told[KEPT] += not found
    yield from found


def pinned(scope: str | None) -> Iterator[Break]:
    """Yield the first row of each chain that is not what a signed entry says."""
    leaves = LedgerLeaf.objects.exclude(scope="")
    if scope is not None:
        leaves = leaves.filter(scope=scope)
    rows = AuditEvent.objects.filter(scope=OuterRef("scope"), seq=OuterRef("count"))
    found = leaves.annotate(now=Subquery(rows.values("hash")[:1]))
    wrong = found.filter(Q(now=None) | ~Q(now=F("last_hash"))).order_by("scope", "count")
    seen = ""
    for leaf in wrong.iterator(chunk_size=2000):
        if leaf.scope != seen:
            seen = leaf.scope
            yield Break(leaf.scope, leaf.count, "it is not the row that a checkpoint was signed of")


def of_origin(origin: LedgerOrigin, *, told: Counter[str]) -> Iterator[Break]:
    """Yield the checkpoints of an origin whose root or signature does not hold."""
    frontier = Frontier()
    heads = LedgerCheckpoint.objects.filter(origin=origin).order_by("size")
    known = keys.known()
    leaves = entries_of(origin)
    name = f"log {origin.name}"
    for head in heads:
        while frontier.size < head.size and (entry := next(leaves, None)) is not None:
            frontier.append(leaf_hash(entry))
        if reason := head_fault(head, frontier=frontier, known=known):
            yield Break(name, head.size, reason)
            return
        told[SIGNED] += 1
    if next(leaves, None) is not None:
        yield Break(name, frontier.size + 1, "no checkpoint was signed of this entry")


def head_fault(head: LedgerCheckpoint, *, frontier: Frontier, known: list[bytes]) -> str:
    """Say why a checkpoint does not hold; empty when it does.

    An unknown key and a bad signature are two answers.
    """
    expected = notes.body_of(head.origin.name, frontier.size, frontier.root())
    if not head.note.startswith(f"{expected}\n"):
        return "the entries before it do not give the root that was signed"
    answers = [notes.is_signed(head.note, name=head.origin.name, public=key) for key in known]
    if False in answers:
        return "its signature does not fit"
    return "" if True in answers else "it is signed by a key that is not known here"


def entries_of(origin: LedgerOrigin) -> Iterator[bytes]:
    """Yield the entries of a log in their order; a missing one ends them."""
    rows: QuerySet[LedgerLeaf] = LedgerLeaf.objects.filter(origin=origin).order_by("place")
    for place, leaf in enumerate(rows.iterator(chunk_size=2000)):
        if leaf.place != place:
            return
        if leaf.scope:
            yield notes.entry(leaf.scope, leaf.count, leaf.last_hash)
        else:
            yield notes.first_entry(origin.before)


def against(anchor: str) -> Iterator[Break]:
    """Yield why the ledger is not the one of a checkpoint that was kept elsewhere.

    Raises ValueError for a text that is no checkpoint.
    """
    head = notes.read(anchor)
    name = f"log {head.origin}"
    origin = LedgerOrigin.objects.filter(name=head.origin).first()
    known = keys.known()
    answers = [notes.is_signed(anchor, name=head.origin, public=key) for key in known]
    if True not in answers:
        wrong = False in answers
        reason = "its signature does not fit" if wrong else "its key is not known here"
        yield Break(name, head.size, f"the checkpoint of the file does not hold: {reason}")
    if origin is None:
        yield Break(name, head.size, "the ledger has no log of this origin")
        return
    frontier = Frontier()
    for entry in entries_of(origin):
        if frontier.size == head.size:
            break
        frontier.append(leaf_hash(entry))
    if (frontier.size, frontier.root()) != (head.size, head.root):
        yield Break(name, head.size, "the ledger is not the one of which this was signed")


def verify_file(*, told: Counter[str]) -> Iterator[Break]:
    """Yield the differences between the ledger and the checkpoint file in the data folder."""
    yield from of_file(kept_outside(), told=told)


def name_of(note: str) -> str:
    """Return the origin and the size of a checkpoint. Raises ValueError for a text that is none."""
    head = notes.read(note)
    return f"{head.origin}, {head.size} entries"


ledger.CHECKS.append(verify)
ledger.ANCHORS.append(verify_file)
