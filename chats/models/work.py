"""Turns, receipts and compactions: what was done about what was said."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from chats.seals import new_salt
from contextpolicy.models.base import Stored


class Turn(Stored):
    """A user message and what it caused: the unit of work of the reply pipeline.

    A state machine, `queued → running → completed | stopped | failed`, or `absorbed` when another
    turn took its message up. Every write after the claim carries the lease token.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        COMPLETED = "completed", "Completed"
        STOPPED = "stopped", "Stopped"
        FAILED = "failed", "Failed"
        ABSORBED = "absorbed", "Taken up by another turn"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="turns")
    # Order of acceptance within the chat, from the same counter as Message.accepted.
    accepted = models.PositiveBigIntegerField()
    trigger = models.ForeignKey(
        "Message", null=True, blank=True, on_delete=models.CASCADE, related_name="triggered"
    )
    continues = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="continued_by"
    )
    absorbed_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="absorbed"
    )
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.QUEUED)
    attempt = models.PositiveIntegerField(default=0)
    # How many attempts ended with their worker; an attempt that was handed back does not count.
    losses = models.PositiveIntegerField(default=0)
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=100, blank=True, default="")
    handed_back = models.BooleanField(default=False)
    queued_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    first_token_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    # The provider asked to wait until then: a column, not a state; the lease goes on.
    waiting_until = models.DateTimeField(null=True, blank=True)
    effective_policy = models.ForeignKey(
        "contextpolicy.EffectivePolicy", null=True, blank=True, on_delete=models.PROTECT
    )
    model = models.ForeignKey(
        "contextpolicy.ModelSpec", null=True, blank=True, on_delete=models.SET_NULL
    )
    model_name = models.CharField(max_length=200, blank=True, default="")
    # The key that asked for it; None where a person did. Only unfinished turns are looked up by it.
    api_key = models.ForeignKey(
        "ApiKey",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
    )
    step = models.PositiveIntegerField(default=0)
    # How often the text of the running step was taken back and begun anew: a viewer's place in it
    # counts within one beginning.
    begun_anew = models.PositiveIntegerField(default=0)
    # What the prompts of all its steps end with before the question: {"state": id, "note": …}.
    # None until the first prompt needed it.
    tail = models.JSONField(null=True, blank=True)
    # The text of the running step so far; it becomes a message only when the step ends.
    partial_text = models.TextField(blank=True, default="")
    partial_reasoning = models.TextField(blank=True, default="")
    reply = models.OneToOneField(
        "Message", null=True, blank=True, on_delete=models.SET_NULL, related_name="reply_of"
    )
    usage = models.JSONField(default=dict, blank=True)
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_sentence = models.CharField(max_length=500, blank=True, default="")
    error_details = models.JSONField(default=dict, blank=True)
    # What the look for something to fold after this turn came to; see `compaction.outcomes`.
    compaction_outcome = models.CharField(max_length=40, blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["branch"], condition=Q(status="running"), name="one_running_turn"
            ),
            models.UniqueConstraint(fields=["branch", "accepted"], name="turn_accepted_once"),
            models.CheckConstraint(
                condition=Q(status="running", lease_until__isnull=False) & ~Q(lease_token="")
                | ~Q(status="running") & Q(lease_until__isnull=True, lease_token=""),
                name="lease_while_running",
            ),
            models.CheckConstraint(
                condition=Q(trigger__isnull=False) | Q(continues__isnull=False),
                name="turn_has_a_cause",
            ),
            models.CheckConstraint(
                condition=~Q(status="failed") | ~Q(error_code=""), name="failure_has_a_code"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["status", "queued_at"],
                condition=Q(status__in=["queued", "running"]),
                name="turn_unfinished",
            )
        ]

    def __str__(self) -> str:
        return f"turn {self.pk} ({self.status})"

    @property
    def is_over(self) -> bool:
        """No further write will change this turn."""
        return self.status not in {self.Status.QUEUED, self.Status.RUNNING}


class PromptText(Stored):
    """A text that was sent but is no message (system, tools, summary), by content hash.

    Receipts name these by digest, so that one policy text sent a million times is stored once.
    Words of a chat have a digest of their own in each chat; an erasure takes row and digest.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    origin = models.CharField(max_length=20)
    text = models.TextField()
    # As it was sent first, in the worker's count; empty: nobody counted it.
    tokens = models.PositiveIntegerField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.origin} {self.digest[:12]}"


class Receipt(Stored):
    """What one model call was sent and why: written before the call, completed once after it.

    Call 0 of a turn asked for the state of the chat, not for the reply.
    """

    FOR_STATE: ClassVar = 0

    class Outcome(models.TextChoices):
        OPEN = "open", "Call not over"
        OK = "ok", "Answered"
        FAILED = "failed", "Failed"
        STOPPED = "stopped", "Stopped"
        LOST = "lost", "The worker was lost"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="receipts")
    attempt = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    call = models.PositiveIntegerField(default=1)
    effective_policy = models.ForeignKey("contextpolicy.EffectivePolicy", on_delete=models.PROTECT)
    compaction = models.ForeignKey("Compaction", null=True, blank=True, on_delete=models.SET_NULL)
    model_name = models.CharField(max_length=200)
    # [[origin, message id, seq, tokens, cut to, digest, results cut to], …], in prompt order.
    segments = models.JSONField()
    # [[from seq, to seq, reason], …]
    left_out = models.JSONField()
    budget = models.JSONField()
    prompt_tokens = models.PositiveIntegerField()
    # Of the prompt as it was sent, and the salt of the commitment; an erased part empties both.
    prompt_sha256 = models.CharField(max_length=64, blank=True)
    salt = models.CharField(max_length=64, blank=True, default="")
    # What the ledger holds of this row; empty where the call was made before it held anything.
    commitment = models.CharField(max_length=64, blank=True, default="")
    # Since when the prompt cannot be built again, because a part of it was erased.
    erased_at = models.DateTimeField(null=True, blank=True)
    last_seq = models.PositiveBigIntegerField()
    notes = models.JSONField(default=list)
    # Whether a summary was due when this was composed: action, reason, tokens, mark, turns.
    compaction_need = models.JSONField(default=dict, blank=True)
    outcome = models.CharField(max_length=8, choices=Outcome.choices, default=Outcome.OPEN)
    error_code = models.CharField(max_length=60, blank=True, default="")
    usage = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["turn", "attempt", "step", "call"], name="receipt_per_call"
            )
        ]

    def __str__(self) -> str:
        return f"receipt of {self.turn_id}, attempt {self.attempt}, step {self.step}"

    @property
    def purpose(self) -> str:
        """What was asked for: `state` or `reply`."""
        return "state" if self.call == self.FOR_STATE else "reply"


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
    # What was in force before it: planned on top of this, and what an undo brings back.
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
    # Of one ladder: the rung (see `engine.ladder`) and the number of the attempt, from 1.
    rung = models.CharField(max_length=20, blank=True, default="")
    attempt = models.PositiveIntegerField(default=1)
    # Prepared, but somebody has to read it before it may be used.
    needs_approval = models.BooleanField(default=False)
    reason = models.CharField(max_length=500, blank=True, default="")
    # What a person who rejected it wrote.
    remark = models.CharField(max_length=400, blank=True, default="")
    context_revision = models.PositiveBigIntegerField(default=0)
    effective_policy = models.ForeignKey("contextpolicy.EffectivePolicy", on_delete=models.PROTECT)
    prompt_version = models.CharField(max_length=40, blank=True, default="")
    model_name = models.CharField(max_length=200, blank=True, default="")
    tokens_before = models.PositiveIntegerField(default=0)
    tokens_after = models.PositiveIntegerField(default=0)
    # Of the text alone; empty where nothing was counted.
    summary_tokens = models.PositiveIntegerField(null=True, blank=True)
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    # In the currency of the model's price, apart from what replies cost; empty: no price is known.
    cost = models.DecimalField(max_digits=14, decimal_places=8, null=True, blank=True)
    # The key of the commitments; an erasure empties it.
    salt = models.CharField(max_length=64, blank=True, default=new_salt)
    # To the prompt of each call, in their order; written down before the call is made.
    calls = models.JSONField(default=list, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    text_commitment = models.CharField(max_length=64, blank=True, default="")
    # Who writes or wrote it; also a default of the column, for processes that do not know it yet.
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
