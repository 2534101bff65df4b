"""The rows of checkpoints: the log of chain heads, its signed heads, and the keys."""

from typing import ClassVar

from django.db import models

from contextpolicy.models.base import Stored


class LedgerOrigin(Stored):
    """The name of one log of checkpoints. A new log begins after an older backup is restored."""

    name = models.CharField(max_length=200, unique=True)
    opened_at = models.DateTimeField()
    # The last checkpoint of the previous origin, as a note, and why this one was opened.
    before = models.TextField(blank=True, default="")
    reason = models.CharField(max_length=300, blank=True, default="")

    def __str__(self) -> str:
        return self.name


class LedgerKey(Stored):
    """A key pair that signs checkpoints.

    Rotation deletes the private key and keeps the public one. Both keys are stored as
    base64. The private key is encrypted like the API keys of providers.
    """

    public = models.CharField(max_length=44, unique=True)
    encrypted_private = models.TextField(blank=True, default="")
    made_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.public


class LedgerLeaf(Stored):
    """One entry of a log: the length of a chain and its last hash.

    The first entry may name the previous log.
    """

    origin = models.ForeignKey(LedgerOrigin, on_delete=models.PROTECT)
    place = models.PositiveBigIntegerField()
    # The scope and the hash are empty in the first entry of an origin that follows another.
    scope = models.CharField(max_length=50, blank=True)
    last_hash = models.CharField(max_length=64, blank=True)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["origin", "place"], name="leaf_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["scope", "origin", "-count"], name="leaf_of_chain")
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.count}"


class LedgerCheckpoint(Stored):
    """One signed head of a log. `frontier`: the roots, in hex, from which the log grows."""

    origin = models.ForeignKey(LedgerOrigin, on_delete=models.PROTECT)
    size = models.PositiveBigIntegerField()
    note = models.TextField()
    frontier = models.JSONField()
    signed_at = models.DateTimeField()
    # The newest event when the checkpoint was signed; later events are counted from it.
    last_event = models.PositiveBigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["origin", "size"], name="checkpoint_once")
        ]

    def __str__(self) -> str:
        return f"{self.origin_id}: {self.size}"


class LedgerTimestamp(Stored):
    """The timestamp (RFC 3161) of a checkpoint, or the attempt to get one.

    `response`: the authority's response, in DER and base64; empty until it arrives.
    """

    checkpoint = models.OneToOneField(
        LedgerCheckpoint, on_delete=models.PROTECT, related_name="timestamp"
    )
    authority = models.CharField(max_length=500)
    tried_at = models.DateTimeField()
    received_at = models.DateTimeField(null=True, blank=True)
    response = models.TextField(blank=True, default="")
    problem = models.CharField(max_length=40, blank=True, default="")

    def __str__(self) -> str:
        return f"timestamp of {self.checkpoint_id}"
