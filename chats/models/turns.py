"""Turns and the receipts of their model calls."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

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
    # The attempts that ended with their worker; an attempt that was handed back does not count.
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
    # The provider asked to wait until then: a column, not a status; the lease is renewed meanwhile.
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
    # Of a team's reply: its round, who replies, its number there, and the last message that it may
    # see, which is fixed when it first begins. A turn without an agent waits for its round.
    round = models.ForeignKey(
        "Round",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="turns",
        db_index=False,
    )
    agent = models.ForeignKey(
        "Agent",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
    )
    hop = models.PositiveIntegerField(null=True, blank=True)
    # Its place among the replies of a round that are written at the same time; 0: it runs alone.
    lane = models.PositiveIntegerField(default=0, db_default=0)
    seen_to = models.PositiveBigIntegerField(null=True, blank=True)
    step = models.PositiveIntegerField(default=0)
    # Counts how often the running step's text was taken back and begun anew: a viewer's place in it
    # counts within one beginning.
    begun_anew = models.PositiveIntegerField(default=0)
    # The end of the prompts of all its steps, before the question: {"state": id, "note": …}.
    # None until the first prompt needed it.
    tail = models.JSONField(null=True, blank=True)
    # What a program behind /v1 asked for beside its messages: system, tools, parameters, and the
    # seq after which its own messages begin. Emptied when the turn ends; None: it came elsewhere.
    client = models.JSONField(null=True, blank=True)
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
    # The result of the look for something to fold after this turn; see `compaction.report`.
    compaction_outcome = models.CharField(max_length=40, blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["branch", "lane"],
                condition=Q(status="running"),
                name="one_running_turn_in_a_lane",
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
            ),
            models.Index(
                fields=["round", "hop"],
                condition=Q(round__isnull=False),
                name="turn_of_round",
            ),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk} ({self.status})"

    @property
    def is_over(self) -> bool:
        """True once no further write will change this turn."""
        return self.status not in {self.Status.QUEUED, self.Status.RUNNING}


UNFINISHED = [Turn.Status.QUEUED, Turn.Status.RUNNING]


class TurnReference(Stored):
    """A part of a message, often of another chat, that goes along with a turn's question.

    `start` and `end` are characters of its text; `score` compares it with the others of the turn.
    The words stay in the message alone.
    """

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="references")
    place = models.PositiveSmallIntegerField()
    message = models.ForeignKey("Message", on_delete=models.CASCADE, related_name="referred_by")
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    score = models.FloatField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "place"], name="reference_place_once")
        ]

    def __str__(self) -> str:
        return f"reference {self.place} of {self.turn_id}"


class PromptText(Stored):
    """A text that was sent but is no message (system, tools, summary), by content hash.

    Receipts name these by digest, so that one policy text sent a million times is stored once.
    Words of a chat have a digest of their own in each chat; an erasure takes row and digest.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    origin = models.CharField(max_length=20)
    text = models.TextField()
    # Counted by the worker that sent it first; empty: not counted.
    tokens = models.PositiveIntegerField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.origin} {self.digest[:12]}"


class Receipt(Stored):
    """The record of one model call: what was sent and why.

    Written before the call, completed once after it. Call 0 of a turn asked for the state of the
    chat, not for the reply. Step 0 holds the calls after the turn: call 0 asked for the chat's
    title, those from `INFERRING` on for preferences; the others are the warm-ups, which asked for
    nothing.
    """

    # The number of a call beside the reply, and of the step after the turn.
    BESIDE: ClassVar = 0
    AFTERWARDS: ClassVar = 0
    # The first number of the calls for preferences: no turn has as many warm-ups.
    INFERRING: ClassVar = 1_000_000

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
    # The hash of the prompt as sent, and the salt of the commitment; an erased part empties both.
    prompt_sha256 = models.CharField(max_length=64, blank=True)
    salt = models.CharField(max_length=64, blank=True, default="")
    # The hash of the body that left as bytes; empty for calls that were not answered, that went
    # through no transport, or were made before it was kept. An erased part empties it too.
    body_sha256 = models.CharField(max_length=64, blank=True, default="")
    # The ledger's commitment to this row; empty for calls made before the ledger held any.
    commitment = models.CharField(max_length=64, blank=True, default="")
    # The time since which the prompt cannot be built again, because a part of it was erased.
    erased_at = models.DateTimeField(null=True, blank=True)
    last_seq = models.PositiveBigIntegerField()
    notes = models.JSONField(default=list)
    # The need of a summary when this was composed: action, reason, tokens, mark, turns.
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
        indexes: ClassVar = [
            # Few at any time; it serves the sweep.
            models.Index(
                fields=["created_at"],
                condition=Q(step=0, call=0, outcome="open"),
                name="title_being_written",
            )
        ]

    def __str__(self) -> str:
        return f"receipt of {self.turn_id}, attempt {self.attempt}, step {self.step}"

    @property
    def purpose(self) -> str:
        """The purpose of the call: `reply`, `state`, `title`, `preferences` or `warm_up`."""
        if self.step == self.AFTERWARDS and self.call >= self.INFERRING:
            return "preferences"
        if self.step == self.AFTERWARDS:
            return "title" if self.call == self.BESIDE else "warm_up"
        return "state" if self.call == self.BESIDE else "reply"


class WarmUp(Stored):
    """The warm-ups of a branch: what was read ahead, and the call that is being made.

    A call is made with a lease: who dies leaves a trace, and each server makes one at a time.
    """

    branch = models.OneToOneField(
        "Branch", primary_key=True, on_delete=models.CASCADE, related_name="warm_up"
    )
    # What was in force at the last call: the compaction's id and the context revision.
    swap = models.CharField(max_length=80, blank=True, default="")
    # The rest in which somebody began to write: the time since which the chat rested.
    rest = models.DateTimeField(null=True, blank=True)
    warmed_at = models.DateTimeField(null=True, blank=True)
    receipt = models.OneToOneField(
        Receipt, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    provider = models.CharField(max_length=60, blank=True, default="")
    worker = models.CharField(max_length=100, blank=True, default="")
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["lease_until"],
                condition=Q(lease_until__isnull=False),
                name="warm_up_running",
            )
        ]

    def __str__(self) -> str:
        return f"warm-up of {self.branch_id}"
