"""The rows of the ledger. Only `contextpolicy.ledger` writes them; triggers hold them in place."""

from typing import Any, ClassVar, NoReturn

from django.db import models

from contextpolicy.models.base import Stored


class AppendOnly(Exception):
    """A ledger row was about to be changed or deleted through the ORM."""


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    """A query set for reading: bulk writes are refused before the database refuses them."""

    def refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise AppendOnly in place of the bulk write."""
        raise AppendOnly("Audit events are never changed or deleted.")

    update = refuse
    delete = refuse
    bulk_update = refuse
    bulk_create = refuse


class AuditEvent(Stored):
    """One thing that happened. `hash` chains it to the row before it in the same scope."""

    scope = models.CharField(max_length=50)
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=60)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    chat_id = models.UUIDField(null=True, blank=True, db_index=True)
    turn_id = models.UUIDField(null=True, blank=True, db_index=True)
    data = models.JSONField(default=dict)
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["scope", "seq"], name="ledger_seq_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["type", "-id"], name="ledger_type"),
            models.Index(fields=["at"], name="ledger_at"),
        ]

    def __str__(self) -> str:
        return f"{self.type} ({self.scope} #{self.seq})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert the row; raises AppendOnly if it is stored already."""
        if not self._state.adding:
            raise AppendOnly("Audit events are never changed.")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise AppendOnly: events are never deleted."""
        raise AppendOnly("Audit events are never deleted.")


class LedgerHead(Stored):
    """The end of one chain. Locked and moved in the transaction that appends."""

    scope = models.CharField(max_length=50, primary_key=True)
    count = models.PositiveBigIntegerField()
    last_hash = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.scope}: {self.count}"


class LedgerReader(Stored):
    """The place of something that follows the ledger, each event once, in the order of commits.

    Ids are given before a commit, so one below `last` can come later: `missed` has those that are
    waited for, as [id, since when].
    """

    name = models.CharField(max_length=40, primary_key=True)
    last = models.PositiveBigIntegerField(default=0)
    missed = models.JSONField(default=list)
    # Raised with each move: who read at the same time moves nothing.
    moves = models.PositiveBigIntegerField(default=0)
    moved_at = models.DateTimeField(null=True, blank=True)
    # Where only one may read at a time.
    lease_token = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name}: {self.last}"


class LedgerVerification(Stored):
    """A verification that somebody asked for, and what it found. An empty scope: every chain."""

    scope = models.CharField(max_length=50, blank=True)
    # Only the chains that grew since the last one by itself: those of log entries from this one on.
    since_leaf = models.PositiveBigIntegerField(null=True, blank=True)
    asked_by = models.CharField(max_length=200)
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    # The reason why it has no result, as a code.
    error = models.CharField(max_length=60, blank=True, default="")
    chains = models.PositiveBigIntegerField(default=0)
    rows = models.PositiveBigIntegerField(default=0)
    broken = models.PositiveBigIntegerField(default=0)
    # The first breaks, as [scope, seq, reason], and what else was found, counted by sentences.
    breaks = models.JSONField(default=list, blank=True)
    told = models.JSONField(default=dict, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["asked_at"],
                condition=models.Q(finished_at__isnull=True),
                name="verification_unfinished",
            )
        ]

    def __str__(self) -> str:
        return f"verification of {self.scope or 'all chains'}, asked at {self.asked_at}"
