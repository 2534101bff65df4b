"""Signs checkpoints: one log entry per grown chain, then the head of the log.

Signing locks the instance chain, so two signers never create two logs. Nothing is signed if the
database does not contain the last checkpoint of the file.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_noop

from chats.checkpoints import external_copy, keys, log_file
from chats.ground.refusals import Refusal
from contextpolicy import ledger
from contextpolicy.audit import notes
from contextpolicy.audit.tree import Frontier, hash_leaf
from contextpolicy.models import (
    AuditEvent,
    LedgerCheckpoint,
    LedgerHead,
    LedgerKey,
    LedgerLeaf,
    LedgerOrigin,
)

logger = logging.getLogger(__name__)
PAGE = 2000


class LedgerIsOlder(Refusal):
    """The database lacks the last checkpoint: an older backup was restored, or data was changed."""

    code = "ledger_older_than_checkpoint"
    status = 409
    sentence = gettext_noop(
        "The database does not contain the last signed checkpoint ({size} entries of {origin}). A "
        "backup was restored, or the audit log was changed. New checkpoints are not signed. If "
        "you restored a backup on purpose, start a new origin: manage.py ledger_checkpoint "
        "--open-origin REASON."
    )


class CheckpointCopyUnreadable(LedgerIsOlder):
    """The external copy of the last checkpoint is not a checkpoint."""

    sentence = gettext_noop(
        "The external copy of the last signed checkpoint cannot be read, so the audit log cannot "
        "be compared with it. New checkpoints are not signed. Restore the copy. If it is lost, "
        "start a new origin: manage.py ledger_checkpoint --open-origin REASON."
    )


class NothingToOpen(Refusal):
    """A new origin was requested although the log matches the last checkpoint."""

    code = "origin_not_needed"
    status = 409
    sentence = gettext_noop(
        "The database contains the last checkpoint, so no new origin is needed. Sign the next "
        "checkpoint: manage.py ledger_checkpoint."
    )


@dataclass(frozen=True, slots=True)
class Log:
    """The checkpoint log of an origin. Appended entries stay in memory until the log is signed."""

    origin: LedgerOrigin
    frontier: Frontier

    def add(self, entry: bytes) -> int:
        self.frontier.append(hash_leaf(entry))
        return self.frontier.size - 1


def sign_checkpoint(
    *, actor: str, now: datetime, reason: str, new_key: bool = False
) -> LedgerCheckpoint:
    """Sign a checkpoint of all chains. With `new_key`, both the old and a new key sign it.

    Raises `LedgerIsOlder`, `SigningKeyUnreadable` and `FileUnreadable`; then nothing is signed.
    Raises `CopyNotWritten` after the checkpoint was stored, if only the file cannot be written.
    """
    with transaction.atomic():
        ledger.lock_chain_head(ledger.INSTANCE)
        require_last()
        log = open_log(now=now)
        made = create_checkpoint(
            log,
            actor=actor,
            now=now,
            reason=reason,
            signers=select_signing_keys(new=new_key, now=now),
        )
        transaction.on_commit(partial(store_copies, made))
    return made


def open_origin(*, actor: str, now: datetime, reason: str) -> LedgerCheckpoint:
    """Start the next origin after a backup was restored, and sign its first checkpoint.

    Its first entry names the checkpoint missing from the database. An unreadable signing key is
    replaced. Raises `NothingToOpen` and `FileUnreadable`, and `CopyNotWritten` after the checkpoint
    was stored.
    """
    with transaction.atomic():
        ledger.lock_chain_head(ledger.INSTANCE)
        before = external_copy.load_checkpoint_note()
        old = keys.ensure_signing_key(now=now)
        if is_note_known(before) and is_key_readable(old):
            raise NothingToOpen
        if not is_key_readable(old):
            keys.retire_signing_key(old, now=now)
        number = LedgerOrigin.objects.count() + 1
        name = f"{settings.LEDGER_ORIGIN}/{max(number, 2)}"
        while LedgerOrigin.objects.filter(name=name).exists() or name == parse_note_origin(before):
            number += 1
            name = f"{settings.LEDGER_ORIGIN}/{number}"
        origin = LedgerOrigin.objects.create(
            name=name, opened_at=now, before=before, reason=reason[:300]
        )
        log = Log(origin, Frontier())
        LedgerLeaf.objects.create(origin=origin, place=log.add(notes.encode_first_entry(before)))
        data = {"origin": name, "before": parse_note_origin(before), "reason": reason[:300]}
        ledger.record_event("checkpoint.origin_opened", actor=actor, now=now, data=data)
        made = create_checkpoint(
            log,
            actor=actor,
            now=now,
            reason="origin",
            signers=select_signing_keys(new=False, now=now),
        )
        transaction.on_commit(partial(store_copies, made, aside=str(origin.pk)))
    return made


def create_checkpoint(
    log: Log, *, actor: str, now: datetime, reason: str, signers: list[LedgerKey]
) -> LedgerCheckpoint:
    """Append an entry per grown chain, sign the head of the log, and store both.

    If there are several signers, all but the last are retired. The caller stores copies after the
    commit.
    """
    data: dict[str, Any] = {"reason": reason, "origin": log.origin.name}
    ledger.record_event("checkpoint.signed", actor=actor, now=now, data=data)
    newest = AuditEvent.objects.aggregate(found=Max("pk"))["found"] or 0
    LedgerLeaf.objects.bulk_create(append_grown_chains(log), batch_size=PAGE)
    body = notes.format_checkpoint_body(log.origin.name, log.frontier.size, log.frontier.root())
    note = notes.sign_note(
        body, name=log.origin.name, keys=[keys.decrypt_private_key(key) for key in signers]
    )
    for key in signers[:-1]:
        keys.retire_signing_key(key, now=now)
    made = LedgerCheckpoint.objects.create(
        origin=log.origin,
        size=log.frontier.size,
        note=note,
        frontier=[root.hex() for root in log.frontier.roots],
        signed_at=now,
        last_event=newest,
    )
    ledger.checkpointed.send(sender=LedgerCheckpoint, checkpoint=made)
    return made


def store_copies(made: LedgerCheckpoint, *, aside: str = "") -> None:
    """Write a stored checkpoint to the process log, to the operator's list and to the file.

    The file is last, because it is the only one that can fail. `aside`: the previous file is
    renamed with this suffix before. Raises `CopyNotWritten`.
    """
    log_checkpoint(made)
    log_file.add_missing()
    if aside:
        external_copy.set_aside(aside)
    external_copy.replace_checkpoint_note(made.note)


def append_grown_chains(log: Log) -> Iterator[LedgerLeaf]:
    """Yield an entry for each chain that has grown since its last entry."""
    logged = LedgerLeaf.objects.filter(scope=OuterRef("scope"), origin=log.origin)
    newest = Subquery(logged.order_by("-count").values("count")[:1])
    grown = LedgerHead.objects.annotate(logged=Coalesce(newest, 0)).filter(count__gt=F("logged"))
    for head in grown.order_by("scope").iterator(chunk_size=PAGE):
        entry = notes.encode_chain_entry(head.scope, head.count, head.last_hash)
        place = log.add(entry)
        yield LedgerLeaf(
            origin=log.origin,
            place=place,
            scope=head.scope,
            count=head.count,
            last_hash=head.last_hash,
        )


def open_log(*, now: datetime) -> Log:
    """Return the log of the current origin. The first checkpoint creates it."""
    origin = LedgerOrigin.objects.order_by("-pk").first()
    if origin is None:
        origin = LedgerOrigin.objects.create(name=settings.LEDGER_ORIGIN, opened_at=now)
    last = find_newest_checkpoint(origin)
    roots = [bytes.fromhex(root) for root in last.frontier] if last else []
    return Log(origin, Frontier(last.size if last else 0, roots))


def find_newest_checkpoint(origin: LedgerOrigin | None = None) -> LedgerCheckpoint | None:
    """Return the newest checkpoint of `origin`, or of the newest origin if none is given.

    Without an argument, origins without checkpoints are skipped. Return None if there are no
    checkpoints.
    """
    rows = LedgerCheckpoint.objects.select_related("origin")
    if origin is not None:
        rows = rows.filter(origin=origin)
    return rows.order_by("-origin", "-size").first()


def select_signing_keys(*, new: bool, now: datetime) -> list[LedgerKey]:
    """Return the keys that sign: the active one and, if `new`, a new one, which becomes active.

    The ledger records a new key.
    """
    old = keys.ensure_signing_key(now=now)
    if not new:
        return [old]
    made = keys.create_signing_key(now=now)
    data = {"fingerprint": {"from": old.public, "to": made.public}}
    ledger.record_event("checkpoint.key_changed", actor="system", now=now, data=data)
    return [old, made]


def require_last() -> None:
    """Raise `LedgerIsOlder` if the database lacks the checkpoint of the external copy.

    Raises `CheckpointCopyUnreadable` if the copy is not a checkpoint, and `FileUnreadable`. Does
    nothing without an external copy.
    """
    before = external_copy.load_checkpoint_note()
    if not is_note_known(before):
        known = try_parse_checkpoint(before)
        if known is None:
            raise CheckpointCopyUnreadable
        raise LedgerIsOlder(size=known.size, origin=known.origin)


def is_note_known(before: str) -> bool:
    """Return True if the database contains the checkpoint `before` from the external copy.

    True if there is no external copy, for which `before` is empty.
    """
    return not before or LedgerCheckpoint.objects.filter(note=before).exists()


def try_parse_checkpoint(note: str) -> notes.Checkpoint | None:
    try:
        return notes.parse_note_checkpoint(note)
    except ValueError:
        return None


def parse_note_origin(note: str) -> str:
    """Return the origin of a note; empty if the note is invalid."""
    found = try_parse_checkpoint(note)
    return found.origin if found else ""


def is_key_readable(key: LedgerKey) -> bool:
    """Return True if the key can sign."""
    try:
        keys.decrypt_private_key(key)
    except keys.SigningKeyUnreadable:
        return False
    return True


def log_checkpoint(made: LedgerCheckpoint) -> None:
    """Write the checkpoint to the process log, from which it can be collected."""
    logger.info("checkpoint %s", json.dumps({"note": made.note}))
