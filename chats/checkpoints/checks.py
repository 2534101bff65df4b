"""Verifies the checkpoint log and its checkpoints, as part of every ledger verification.

Each log entry names a chain row and its hash, so a chain that was cut, dropped or rewritten no
longer matches. Each checkpoint's root is recomputed from the entries, and its signature is checked.
"""

from collections import Counter
from collections.abc import Iterator

from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils.translation import gettext_noop

from chats.checkpoints import external_copy, keys
from contextpolicy import ledger
from contextpolicy.audit import notes
from contextpolicy.audit.tree import Frontier, hash_leaf
from contextpolicy.ledger import Break
from contextpolicy.models import (
    AuditEvent,
    LedgerCheckpoint,
    LedgerLeaf,
    LedgerOrigin,
)

# The sentences below are stored with a verification. Pages translate them.
FILE = "checkpoint file"
KEPT = gettext_noop("Checkpoints that match the checkpoint file")
SIGNED = gettext_noop("Checkpoints with valid signatures that match the audit logs")
FILE_UNREADABLE = gettext_noop("the checkpoint file contains no readable checkpoint")
ROW_DIFFERS = gettext_noop("the row differs from the signed checkpoint")
OTHER_ROOT = gettext_noop("the entries before the checkpoint do not produce the signed root hash")
SIGNER_UNKNOWN = gettext_noop("an unknown key signed the checkpoint")
FILE_KEY_UNKNOWN = gettext_noop("the checkpoint in the file is invalid: its key is unknown")
OTHER_LEDGER = gettext_noop("the audit log does not match this checkpoint")


def verify_checkpoints(*, scope: str | None, tally: Counter[str]) -> Iterator[Break]:
    """Yield log entries that no longer match their chain, and invalid checkpoints. Writes nothing.

    `scope`: check only this chain; None checks all chains, the checkpoint file and every origin.
    Successful comparisons are added to the counter.
    """
    # Read first: a checkpoint signed during the check reaches the database before the file.
    kept = read_checkpoint_file() if scope is None else ""
    yield from compare_signed_entries(scope)
    if scope is None:
        yield from compare_checkpoint_file(kept, tally=tally)
        for origin in LedgerOrigin.objects.order_by("pk"):
            yield from verify_origin(origin, tally=tally)


def read_checkpoint_file() -> str | None:
    """Return the note in the checkpoint file: "" without a file, None if it is unreadable."""
    try:
        return external_copy.load_checkpoint_note()
    except external_copy.FileUnreadable:
        return None


def compare_checkpoint_file(note: str | None, *, tally: Counter[str]) -> Iterator[Break]:
    """Yield the differences between the ledger and the checkpoint file in the data folder.

    An attacker who rewrites the database can also replace its keys, but not this file. `note`: the
    file's content, None if it is unreadable. A match is added to the counter.
    """
    if note == "":
        return
    try:
        found = list(compare_checkpoint(note or ""))
    except ValueError:
        yield Break(FILE, 0, FILE_UNREADABLE)
        return
    tally[KEPT] += not found
    yield from found


def compare_signed_entries(scope: str | None) -> Iterator[Break]:
    """Yield the first row of each chain that differs from its signed entry."""
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
            yield Break(leaf.scope, leaf.count, ROW_DIFFERS)


def verify_origin(origin: LedgerOrigin, *, tally: Counter[str]) -> Iterator[Break]:
    """Yield the first checkpoint of an origin whose root or signature is invalid.

    If all are valid, yield the first entry that no checkpoint covers. Each valid checkpoint before
    the first invalid one is added to the counter.
    """
    frontier = Frontier()
    heads = LedgerCheckpoint.objects.filter(origin=origin).order_by("size")
    known = keys.load_valid_keys()
    leaves = iter_log_entries(origin)
    name = f"log {origin.name}"
    for head in heads:
        while frontier.size < head.size and (entry := next(leaves, None)) is not None:
            frontier.append(hash_leaf(entry))
        if reason := describe_checkpoint_fault(head, frontier=frontier, known=known):
            yield Break(name, head.size, reason)
            return
        tally[SIGNED] += 1
    if next(leaves, None) is not None:
        yield Break(name, frontier.size + 1, gettext_noop("no checkpoint covers this entry"))


def describe_checkpoint_fault(
    head: LedgerCheckpoint, *, frontier: Frontier, known: list[bytes]
) -> str:
    """Return the reason why a checkpoint is invalid. Empty if it is valid.

    An unknown key and a bad signature give different reasons.
    """
    expected = notes.format_checkpoint_body(head.origin.name, frontier.size, frontier.root())
    if not head.note.startswith(f"{expected}\n"):
        return OTHER_ROOT
    answers = [notes.is_signed(head.note, name=head.origin.name, public=key) for key in known]
    if False in answers:
        return gettext_noop("the signature of the checkpoint is invalid")
    return "" if True in answers else SIGNER_UNKNOWN


def iter_log_entries(origin: LedgerOrigin) -> Iterator[bytes]:
    """Yield the entries of a log in order. Stops at the first missing entry."""
    rows: QuerySet[LedgerLeaf] = LedgerLeaf.objects.filter(origin=origin).order_by("place")
    for place, leaf in enumerate(rows.iterator(chunk_size=2000)):
        if leaf.place != place:
            return
        if leaf.scope:
            yield notes.encode_chain_entry(leaf.scope, leaf.count, leaf.last_hash)
        else:
            yield notes.encode_first_entry(origin.before)


def compare_checkpoint(anchor: str) -> Iterator[Break]:
    """Yield the differences between the ledger and a checkpoint stored elsewhere.

    Raises ValueError if the text is not a checkpoint.
    """
    head = notes.parse_note_checkpoint(anchor)
    name = f"log {head.origin}"
    origin = LedgerOrigin.objects.filter(name=head.origin).first()
    known = keys.load_valid_keys()
    answers = [notes.is_signed(anchor, name=head.origin, public=key) for key in known]
    if True not in answers:
        reason = FILE_KEY_UNKNOWN
        if False in answers:
            reason = gettext_noop("the checkpoint in the file is invalid: its signature is invalid")
        yield Break(name, head.size, reason)
    if origin is None:
        yield Break(
            name, head.size, gettext_noop("the audit log has no checkpoint log for this origin")
        )
        return
    frontier = Frontier()
    for entry in iter_log_entries(origin):
        if frontier.size == head.size:
            break
        frontier.append(hash_leaf(entry))
    if (frontier.size, frontier.root()) != (head.size, head.root):
        yield Break(name, head.size, OTHER_LEDGER)


def verify_file(*, tally: Counter[str]) -> Iterator[Break]:
    """Compare the ledger with the checkpoint file in the data folder. Yield the differences."""
    yield from compare_checkpoint_file(read_checkpoint_file(), tally=tally)


def format_checkpoint_name(note: str) -> str:
    """Return the origin and size of a checkpoint.

    Raises ValueError if the text cannot be parsed.
    """
    head = notes.parse_note_checkpoint(note)
    return f"{head.origin}, {head.size} entries"


ledger.CHECKS.append(verify_checkpoints)
ledger.ANCHORS.append(verify_file)
