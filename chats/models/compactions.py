"""Compactions: summaries and windows, with the outcome of each."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy

from chats.ground.commitments import new_salt
from contextpolicy.models.base import Stored

# Model name of summaries that were written without a model.
EXTRACTIVE = "extractive"


class Compaction(Stored):
    """A range of history removed from the prompt: replaced by a summary, or cut by a window."""

    class Kind(models.TextChoices):
        SUMMARY = "summary", gettext_lazy("Summary")
        WINDOW = "window", gettext_lazy("Window")

    class Status(models.TextChoices):
        PREPARING = "preparing", gettext_lazy("In progress")
        PREPARED = "prepared", gettext_lazy("Ready")
        PUBLISHED = "published", gettext_lazy("Active")
        UNDONE = "undone", gettext_lazy("Undone")
        REPLACED = "replaced", gettext_lazy("Replaced by a newer compaction")
        OVERTAKEN = "overtaken", gettext_lazy("Outdated")
        REJECTED = "rejected", gettext_lazy("Rejected")
        FAILED = "failed", gettext_lazy("Failed")

    id = models.UUIDField(
        primary_key=True, default=uuid.uuid4, editable=False, verbose_name=gettext_lazy("ID")
    )
    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="compactions")
    kind = models.CharField(max_length=8, choices=Kind.choices, verbose_name=gettext_lazy("kind"))
    status = models.CharField(
        max_length=10, choices=Status.choices, verbose_name=gettext_lazy("status")
    )
    # A window refers to the summary below it; a summary refers to the one it extends.
    base = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=gettext_lazy("summary before the window"),
    )
    previous = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=gettext_lazy("continued summary"),
    )
    # The compaction that was active when this one was planned. Undo restores it.
    displaced = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=gettext_lazy("compaction restored by an undo"),
    )
    # The summary of the same range that a user corrected or regenerated.
    revises = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="revisions",
        verbose_name=gettext_lazy("previous version"),
    )
    from_seq = models.PositiveBigIntegerField(verbose_name=gettext_lazy("first message"))
    to_seq = models.PositiveBigIntegerField(verbose_name=gettext_lazy("last message"))
    exceptions = models.JSONField(default=list, verbose_name=gettext_lazy("messages not covered"))
    source_count = models.PositiveIntegerField(
        default=0, verbose_name=gettext_lazy("covered messages")
    )
    source_digest = models.CharField(
        max_length=64,
        blank=True,
        default="",
        verbose_name=gettext_lazy("digest of the covered messages"),
    )
    text = models.TextField(blank=True, default="")
    sections = models.JSONField(default=list)
    retention = models.JSONField(default=dict)
    trigger = models.CharField(max_length=20, verbose_name=gettext_lazy("trigger"))
    asked_by = models.CharField(
        max_length=60, blank=True, default="worker", verbose_name=gettext_lazy("requested by")
    )
    focus = models.CharField(max_length=500, blank=True, default="")
    # Step of the fallback ladder (see `engine.summaries.ladder`) and the attempt number, from 1.
    rung = models.CharField(
        max_length=20, blank=True, default="", verbose_name=gettext_lazy("method")
    )
    attempt = models.PositiveIntegerField(default=1, verbose_name=gettext_lazy("attempt"))
    # Slugs of skills whose loaded texts are in the system text while this compaction is active, and
    # keys of parts of their files (`SkillFilePart.key`).
    # Null for processes that do not know the column yet.
    skills = models.JSONField(default=list, blank=True, null=True)
    # A prepared summary that requires approval before use.
    needs_approval = models.BooleanField(
        default=False, verbose_name=gettext_lazy("approval required")
    )
    reason = models.CharField(
        max_length=500, blank=True, default="", verbose_name=gettext_lazy("reason")
    )
    # Comment of the user who rejected the summary.
    remark = models.CharField(max_length=400, blank=True, default="")
    context_revision = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("context revision")
    )
    effective_policy = models.ForeignKey(
        "contextpolicy.EffectivePolicy",
        on_delete=models.PROTECT,
        verbose_name=gettext_lazy("effective policy"),
    )
    prompt_version = models.CharField(
        max_length=40, blank=True, default="", verbose_name=gettext_lazy("prompt version")
    )
    model_name = models.CharField(
        max_length=200, blank=True, default="", verbose_name=gettext_lazy("model name")
    )
    tokens_before = models.PositiveIntegerField(
        default=0, verbose_name=gettext_lazy("prompt tokens before")
    )
    tokens_after = models.PositiveIntegerField(
        default=0, verbose_name=gettext_lazy("prompt tokens after")
    )
    # Tokens of the summary text alone. Empty: not counted.
    summary_tokens = models.PositiveIntegerField(
        null=True, blank=True, verbose_name=gettext_lazy("summary tokens")
    )
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    # Cost of the calls that wrote the summary, in `currency`. Empty: no price is known.
    cost = models.DecimalField(max_digits=14, decimal_places=8, null=True, blank=True)
    currency = models.CharField(max_length=8, blank=True, default="", db_default="")
    # Key of the commitments. An erasure empties it.
    salt = models.CharField(max_length=64, blank=True, default=new_salt)
    # Commitments to the prompt of each call, in order. Each is written before its call.
    calls = models.JSONField(default=list, blank=True)
    # SHA-256 of each request body as sent. Missing if no response began or the row is older. Null
    # for processes that do not know the column yet.
    bodies = models.JSONField(default=list, blank=True, null=True)
    # Prompt contents other than messages, such as the texts between them (see `compaction.calls`).
    # Empty for older rows and after an erasure.
    made_of = models.JSONField(default=dict, blank=True, null=True)
    usage = models.JSONField(default=dict, blank=True, verbose_name=gettext_lazy("token usage"))
    text_commitment = models.CharField(
        max_length=64, blank=True, default="", verbose_name=gettext_lazy("commitment to the text")
    )
    # The worker that writes or wrote the summary. The database default serves processes that do not
    # know the column yet.
    worker = models.CharField(max_length=100, blank=True, default="", db_default="")
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(verbose_name=gettext_lazy("created at"))
    finished_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("finished at")
    )
    published_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("published at")
    )
    erased_at = models.DateTimeField(null=True, blank=True, verbose_name=gettext_lazy("erased at"))

    class Meta:
        verbose_name = gettext_lazy("compaction")
        verbose_name_plural = gettext_lazy("compactions")
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
            # Few rows have a claim. They are counted before each new one.
            models.Index(
                fields=["lease_until"],
                condition=Q(lease_until__isnull=False),
                name="compaction_claimed",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.from_seq} to {self.to_seq} ({self.status})"
