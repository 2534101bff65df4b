"""The rows of the ledger. Only `contextpolicy.ledger` writes them, and triggers enforce that."""

from typing import Any, ClassVar, NoReturn

from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class AppendOnly(Exception):
    """The ORM tried to change or delete a ledger row."""


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    """A read-only query set: it rejects bulk writes before the database does."""

    def refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise AppendOnly instead of the bulk write."""
        raise AppendOnly("Audit events are never changed or deleted.")

    update = refuse
    delete = refuse
    bulk_update = refuse
    bulk_create = refuse


class AuditEvent(Stored):
    """One event. `hash` chains it to the previous row of the same scope."""

    scope = models.CharField(max_length=50, verbose_name=gettext_lazy("audit log"))
    seq = models.PositiveBigIntegerField(verbose_name=gettext_lazy("row"))
    type = models.CharField(max_length=60, verbose_name=gettext_lazy("event"))
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    chat_id = models.UUIDField(
        null=True, blank=True, db_index=True, verbose_name=gettext_lazy("chat")
    )
    turn_id = models.UUIDField(
        null=True, blank=True, db_index=True, verbose_name=gettext_lazy("turn")
    )
    data = models.JSONField(default=dict)
    previous_hash = models.CharField(max_length=64, verbose_name=gettext_lazy("previous hash"))
    hash = models.CharField(max_length=64, verbose_name=gettext_lazy("hash"))

    objects = AuditEventQuerySet.as_manager()

    class Meta:
        verbose_name = gettext_lazy("audit event")
        verbose_name_plural = gettext_lazy("audit events")
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
        """Insert the row. Raises AppendOnly if it is already stored."""
        if not self._state.adding:
            raise AppendOnly("Audit events are never changed.")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise AppendOnly: events are never deleted."""
        raise AppendOnly("Audit events are never deleted.")


class LedgerHead(Stored):
    """The last row of one chain. The transaction that appends a row locks and updates it."""

    scope = models.CharField(max_length=50, primary_key=True)
    count = models.PositiveBigIntegerField()
    last_hash = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.scope}: {self.count}"


class LedgerReader(Stored):
    """The position of a ledger consumer, which gets each event once.

    Ids are assigned before the commit, so an id below `last` can still appear later. `missed` lists
    these gaps as [id, time from which it has been missing].
    """

    name = models.CharField(max_length=40, primary_key=True)
    last = models.PositiveBigIntegerField(default=0)
    missed = models.JSONField(default=list)
    # Increased with each move: a concurrent reader then moves nothing.
    moves = models.PositiveBigIntegerField(default=0)
    moved_at = models.DateTimeField(null=True, blank=True)
    # The lease of the reader, used if only one reader is allowed at a time.
    lease_token = models.CharField(max_length=32, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name}: {self.last}"


class LedgerVerification(Stored):
    """A requested verification and its result. An empty scope: every chain."""

    scope = models.CharField(max_length=50, blank=True)
    # Verify only the chains that grew since the last scheduled run: those with log entries from
    # this one on.
    since_leaf = models.PositiveBigIntegerField(null=True, blank=True)
    asked_by = models.CharField(max_length=200)
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    # The code of the error if there is no result.
    error = models.CharField(max_length=60, blank=True, default="")
    chains = models.PositiveBigIntegerField(default=0)
    rows = models.PositiveBigIntegerField(default=0)
    broken = models.PositiveBigIntegerField(default=0)
    # The first breaks, as [scope, seq, reason], and the other results, counted by sentence.
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
