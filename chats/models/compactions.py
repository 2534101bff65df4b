"""Compactions: summaries and windows, with the outcome of each."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from chats.ground.seals import new_salt
from contextpolicy.models.base import Stored

# What stands for the model's name where a summary was written without one.
EXTRACTIVE = "extractive"


class Compaction(Stored):
    """One batch of history that left the prompt: folded into a summary, or left out by a window."""

    class Kind(models.TextChoices):
        SUMMARY = "summary", "Summary"
        WINDOW = "window", "Window"

    class Status(models.TextChoices):
        PREPARING = "preparing", "Being written"
        PREPARED = "prepared", "Ready"
        PUBLISHED = "published", "In force"
        UNDONE = "undone", "Undone"
        REPLACED = "replaced", "Replaced by a later one"
        OVERTAKEN = "overtaken", "Overtaken"
        REJECTED = "rejected", "Rejected"
        FAILED = "failed", "Failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="compactions")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    status = models.CharField(max_length=10, choices=Status.choices)
    # A window names the summary under it; a summary names the one it folds.
    base = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    previous = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    # The compaction in force before it, on which it was planned; an undo brings that back.
    displaced = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    # The summary of the same range that a person corrected or had written again.
    revises = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="revisions"
    )
    from_seq = models.PositiveBigIntegerField()
    to_seq = models.PositiveBigIntegerField()
    exceptions = models.JSONField(default=list)
    source_count = models.PositiveIntegerField(default=0)
    source_digest = models.CharField(max_length=64, blank=True, default="")
    text = models.TextField(blank=True, default="")
    sections = models.JSONField(default=list)
    retention = models.JSONField(default=dict)
    trigger = models.CharField(max_length=20)
    asked_by = models.CharField(max_length=60, blank=True, default="worker")
    focus = models.CharField(max_length=500, blank=True, default="")
    # The rung of its ladder (see `engine.ladder`) and the number of the attempt, from 1.
    rung = models.CharField(max_length=20, blank=True, default="")
    attempt = models.PositiveIntegerField(default=1)
    # A prepared summary that somebody has to read before it may be used.
    needs_approval = models.BooleanField(default=False)
    reason = models.CharField(max_length=500, blank=True, default="")
    # The words of a person who rejected it.
    remark = models.CharField(max_length=400, blank=True, default="")
    context_revision = models.PositiveBigIntegerField(default=0)
    effective_policy = models.ForeignKey("contextpolicy.EffectivePolicy", on_delete=models.PROTECT)
    prompt_version = models.CharField(max_length=40, blank=True, default="")
    model_name = models.CharField(max_length=200, blank=True, default="")
    tokens_before = models.PositiveIntegerField(default=0)
    tokens_after = models.PositiveIntegerField(default=0)
    # The tokens of the text alone; empty where nothing was counted.
    summary_tokens = models.PositiveIntegerField(null=True, blank=True)
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    # In the currency of the model's price, apart from what replies cost; empty: no price is known.
    cost = models.DecimalField(max_digits=14, decimal_places=8, null=True, blank=True)
    currency = models.CharField(max_length=8, blank=True, default="", db_default="")
    # The key of the commitments; an erasure empties it.
    salt = models.CharField(max_length=64, blank=True, default=new_salt)
    # Commitments to the prompt of each call, in order; each is written before its call is made.
    calls = models.JSONField(default=list, blank=True)
    # The SHA-256 of the body of each of them, as it left; none where no answer began, or before
    # these were kept. Empty for processes that do not know the column yet.
    bodies = models.JSONField(default=list, blank=True, null=True)
    # What the prompts of its calls are made of beside messages, texts between them included (see
    # `compaction.calls`). Empty where none was kept, or once erased.
    made_of = models.JSONField(default=dict, blank=True, null=True)
    usage = models.JSONField(default=dict, blank=True)
    text_commitment = models.CharField(max_length=64, blank=True, default="")
    # The worker that writes or wrote it; with a default in the database, for processes that do not
    # know the column yet.
    worker = models.CharField(max_length=100, blank=True, default="", db_default="")
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    published_at = models.DateTimeField(null=True, blank=True)
    erased_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["branch"],
                condition=Q(status__in=["preparing", "prepared"]),
                name="one_compaction_in_the_making",
            ),
            models.CheckConstraint(condition=Q(to_seq__gte=F("from_seq")), name="range_is_ordered"),
            models.CheckConstraint(
                condition=Q(status="preparing", lease_until__isnull=False) & ~Q(lease_token="")
                | ~Q(status="preparing") & Q(lease_until__isnull=True, lease_token=""),
                name="claim_while_preparing",
            ),
            models.CheckConstraint(
                condition=~Q(kind="summary", status__in=["prepared", "published"]) | ~Q(text=""),
                name="a_usable_summary_has_text",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["rejected", "failed"]) | ~Q(reason=""),
                name="a_failure_has_a_reason",
            ),
        ]
        indexes: ClassVar = [
            # Few rows have a claim; they are counted before each new one.
            models.Index(
                fields=["lease_until"],
                condition=Q(lease_until__isnull=False),
                name="compaction_claimed",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.from_seq} to {self.to_seq} ({self.status})"
