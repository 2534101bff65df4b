"""Turns and the receipts of their model calls."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from chats.ground.sentences import localize_sentence
from contextpolicy.models.base import Stored


class Turn(Stored):
    """A user message and the work it causes: the unit of work of the reply pipeline.

    A state machine: `queued → running → completed | stopped | failed`, or `absorbed` if another
    turn answers its message. Every write after the claim carries the lease token.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Queued")
        RUNNING = "running", gettext_lazy("Running")
        COMPLETED = "completed", gettext_lazy("Completed")
        STOPPED = "stopped", gettext_lazy("Stopped")
        FAILED = "failed", gettext_lazy("Failed")
        ABSORBED = "absorbed", gettext_lazy("Merged into another turn")

    id = models.UUIDField(
        primary_key=True, default=uuid.uuid4, editable=False, verbose_name=gettext_lazy("ID")
    )
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
    status = models.CharField(
        max_length=10,
        choices=Status.choices,
        default=Status.QUEUED,
        verbose_name=gettext_lazy("status"),
    )
    attempt = models.PositiveIntegerField(default=0, verbose_name=gettext_lazy("attempt"))
    # Attempts whose worker died. Attempts handed back by a worker do not count.
    losses = models.PositiveIntegerField(default=0)
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(
        max_length=100, blank=True, default="", verbose_name=gettext_lazy("worker process")
    )
    handed_back = models.BooleanField(
        default=False, verbose_name=gettext_lazy("returned to the queue")
    )
    queued_at = models.DateTimeField(verbose_name=gettext_lazy("queued at"))
    started_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("started at")
    )
    first_token_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("first token at")
    )
    finished_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("finished at")
    )
    stop_requested_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("stop requested at")
    )
    # The provider asked to wait until then. Not a status: the turn keeps running and renews its
    # lease.
    waiting_until = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("waiting until")
    )
    effective_policy = models.ForeignKey(
        "contextpolicy.EffectivePolicy",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        verbose_name=gettext_lazy("effective policy"),
    )
    model = models.ForeignKey(
        "contextpolicy.ModelSpec", null=True, blank=True, on_delete=models.SET_NULL
    )
    model_name = models.CharField(
        max_length=200, blank=True, default="", verbose_name=gettext_lazy("model name")
    )
    # API key of the request. None: a user asked. Only unfinished turns are looked up by it.
    api_key = models.ForeignKey(
        "ApiKey",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
    )
    # For a team's reply: its round, agent, number in the round, and the last message it may see,
    # which is fixed at its first start. A turn without an agent waits for its round.
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
    # Lane among replies of a round that run in parallel. 0: runs alone.
    lane = models.PositiveIntegerField(default=0, db_default=0)
    seen_to = models.PositiveBigIntegerField(null=True, blank=True)
    step = models.PositiveIntegerField(default=0, verbose_name=gettext_lazy("step"))
    # Number of times the running step's text was discarded and restarted. A viewer's position is
    # valid within one such run.
    begun_anew = models.PositiveIntegerField(default=0)
    # End of the prompts of all steps, before the question: {"state": id, "note": …}. None until the
    # first prompt needs it.
    tail = models.JSONField(null=True, blank=True)
    # Queued without a worker until a user decides about its tool calls, see `ToolCall.consent`.
    awaits_consent = models.BooleanField(default=False, db_default=False)
    # Options of a /v1 request: system, tools, parameters, and the seq after which the client's own
    # messages begin. Cleared when the turn ends, except `is_refusal`: the model declined in its own
    # words. None: not a /v1 request.
    client = models.JSONField(null=True, blank=True)
    # Text of the running step so far. It becomes a message when the step ends.
    partial_text = models.TextField(blank=True, default="")
    partial_reasoning = models.TextField(blank=True, default="")
    reply = models.OneToOneField(
        "Message", null=True, blank=True, on_delete=models.SET_NULL, related_name="reply_of"
    )
    usage = models.JSONField(default=dict, blank=True, verbose_name=gettext_lazy("token usage"))
    error_code = models.CharField(
        max_length=60, blank=True, default="", verbose_name=gettext_lazy("error code")
    )
    error_sentence = models.CharField(
        max_length=500, blank=True, default="", verbose_name=gettext_lazy("error message")
    )
    # Template and values of the sentence; see `chats.ground.sentences`. Empty: the sentence has no
    # values.
    error_details = models.JSONField(default=dict, blank=True)
    # Result of the compaction check after this turn; see `compaction.report`.
    compaction_outcome = models.CharField(max_length=40, blank=True, default="")

    class Meta:
        verbose_name = gettext_lazy("turn")
        verbose_name_plural = gettext_lazy("turns")
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
    def localized_error(self) -> str:
        """The sentence of the failure in the active language."""
        return localize_sentence(self.error_sentence, self.error_details)

    @property
    def is_over(self) -> bool:
        """True once the turn is neither queued nor running."""
        return self.status not in {self.Status.QUEUED, self.Status.RUNNING}


UNFINISHED = [Turn.Status.QUEUED, Turn.Status.RUNNING]


class TurnReference(Stored):
    """An excerpt of a message, often of another chat, retrieved as context for a turn.

    `start` and `end` are character offsets in the message's text. `score` ranks the excerpts of the
    turn. The text is stored in the message alone. `match_seq` is the `seq` of the message that
    matched the question: this one, or a message near it in the same chat.
    """

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="references")
    place = models.PositiveSmallIntegerField()
    message = models.ForeignKey("Message", on_delete=models.CASCADE, related_name="referred_by")
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    score = models.FloatField()
    # None: the turn is older than the column.
    match_seq = models.PositiveBigIntegerField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "place"], name="reference_place_once")
        ]

    def __str__(self) -> str:
        return f"reference {self.place} of {self.turn_id}"

    @property
    def reason(self) -> str:
        """`match` or `nearby`. Empty: the turn is older than stored reasons."""
        if self.match_seq is None:
            return ""
        return "match" if self.match_seq == self.message.seq else "nearby"


class PromptText(Stored):
    """A prompt text other than a message (system, tools, summary), by content hash.

    Receipts refer to it by digest, so a policy text sent a million times is stored once. Texts
    taken from a chat have a separate digest per chat. An erasure deletes the row and the digest.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    origin = models.CharField(max_length=20)
    text = models.TextField()
    # Counted by the worker that sent it first. Empty: not counted.
    tokens = models.PositiveIntegerField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.origin} {self.digest[:12]}"


class Receipt(Stored):
    """The record of one model call: its prompt and the reasons for its contents.

    The row is written before the call and completed once after it. Call 0 of a step extracts the
    chat state. Step 0 contains the calls after the turn: call 0 generates the chat's title, calls
    from `INFERRING` on infer preferences, and the others are warm-ups.
    """

    # Number of an auxiliary call, and of the step after the turn.
    BESIDE: ClassVar = 0
    AFTERWARDS: ClassVar = 0
    # First number of preference calls. No turn has this many warm-ups.
    INFERRING: ClassVar = 1_000_000

    class Outcome(models.TextChoices):
        OPEN = "open", gettext_lazy("In progress")
        OK = "ok", gettext_lazy("Completed")
        FAILED = "failed", gettext_lazy("Failed")
        STOPPED = "stopped", gettext_lazy("Stopped")
        LOST = "lost", gettext_lazy("Worker lost")

    id = models.UUIDField(
        primary_key=True, default=uuid.uuid4, editable=False, verbose_name=gettext_lazy("ID")
    )
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="receipts")
    attempt = models.PositiveIntegerField(verbose_name=gettext_lazy("attempt"))
    step = models.PositiveIntegerField(verbose_name=gettext_lazy("step"))
    call = models.PositiveIntegerField(default=1, verbose_name=gettext_lazy("call"))
    effective_policy = models.ForeignKey(
        "contextpolicy.EffectivePolicy",
        on_delete=models.PROTECT,
        verbose_name=gettext_lazy("effective policy"),
    )
    compaction = models.ForeignKey("Compaction", null=True, blank=True, on_delete=models.SET_NULL)
    model_name = models.CharField(max_length=200, verbose_name=gettext_lazy("model name"))
    # [[origin, message id, seq, tokens, cut to, digest, results cut to], …], in prompt order.
    segments = models.JSONField()
    # [[from seq, to seq, reason], …]
    left_out = models.JSONField()
    budget = models.JSONField()
    prompt_tokens = models.PositiveIntegerField(verbose_name=gettext_lazy("prompt tokens"))
    # Hash of the prompt as sent, and the salt of the commitment. Erasing a part empties both.
    prompt_sha256 = models.CharField(
        max_length=64, blank=True, verbose_name=gettext_lazy("SHA-256 of the prompt")
    )
    salt = models.CharField(max_length=64, blank=True, default="")
    # SHA-256 of the request body as sent. Empty if the call got no response, used no HTTP
    # transport, or predates the column. Erasing a part empties it.
    body_sha256 = models.CharField(max_length=64, blank=True, default="")
    # The ledger's commitment to this row. Empty for calls older than ledger commitments.
    commitment = models.CharField(
        max_length=64, blank=True, default="", verbose_name=gettext_lazy("commitment")
    )
    # Time from which the prompt cannot be rebuilt because a part of it was erased.
    erased_at = models.DateTimeField(null=True, blank=True)
    last_seq = models.PositiveBigIntegerField(verbose_name=gettext_lazy("last message"))
    notes = models.JSONField(default=list)
    # Whether a summary was needed at this prompt: action, reason, tokens, mark, turns.
    compaction_need = models.JSONField(default=dict, blank=True)
    outcome = models.CharField(
        max_length=8,
        choices=Outcome.choices,
        default=Outcome.OPEN,
        verbose_name=gettext_lazy("outcome"),
    )
    error_code = models.CharField(
        max_length=60, blank=True, default="", verbose_name=gettext_lazy("error code")
    )
    usage = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(verbose_name=gettext_lazy("created at"))
    finished_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("finished at")
    )

    class Meta:
        verbose_name = gettext_lazy("receipt")
        verbose_name_plural = gettext_lazy("receipts")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["turn", "attempt", "step", "call"], name="receipt_per_call"
            )
        ]
        indexes: ClassVar = [
            # The index serves the cleanup job. It has few rows at any time.
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
        """Purpose of the call: `reply`, `state`, `title`, `preferences` or `warm_up`."""
        if self.step == self.AFTERWARDS and self.call >= self.INFERRING:
            return "preferences"
        if self.step == self.AFTERWARDS:
            return "title" if self.call == self.BESIDE else "warm_up"
        return "state" if self.call == self.BESIDE else "reply"


class WarmUp(Stored):
    """Cache warm-up state of a branch: the last warm-up and the running call.

    The worker holds a lease, so a crash is detected and each server runs one warm-up at a time.
    """

    branch = models.OneToOneField(
        "Branch", primary_key=True, on_delete=models.CASCADE, related_name="warm_up"
    )
    # Active compaction ID and context revision at the last warm-up.
    swap = models.CharField(max_length=80, blank=True, default="")
    # Idle period in which the user started typing: the time since which the chat was idle.
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
