"""Shadow evaluations: draft versions that are applied to real turns, and their results."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored
from contextpolicy.models.policies import ContextPolicy, PolicyVersion
from contextpolicy.models.radius import BlastRadius


class Evaluation(Stored):
    """A shadow evaluation of a draft.

    For some days, the draft is applied to each turn after its reply. No prompt of the draft is sent
    to a model. The totals cover all turns of the evaluation. They change in the transaction that
    writes a turn's row, so a killed worker counts nothing twice.
    """

    class State(models.TextChoices):
        OPEN = "open", gettext_lazy("Running")
        ENDED = "ended", gettext_lazy("Ended")
        PROMOTED = "promoted", gettext_lazy("Published")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    policy = models.ForeignKey(
        ContextPolicy,
        on_delete=models.PROTECT,
        related_name="evaluations",
        verbose_name=gettext_lazy("policy"),
    )
    version = models.ForeignKey(
        PolicyVersion,
        on_delete=models.PROTECT,
        related_name="evaluations",
        verbose_name=gettext_lazy("version"),
    )
    # The number of the active version when the evaluation began; 0: none.
    base = models.PositiveIntegerField()
    place = models.CharField(
        max_length=10, choices=BlastRadius.APPLIED, verbose_name=gettext_lazy("evaluated chats")
    )
    # The percentage of branches whose turns are evaluated.
    share = models.PositiveSmallIntegerField(
        default=100, verbose_name=gettext_lazy("share of branches (%)")
    )
    state = models.CharField(
        max_length=10, choices=State.choices, default=State.OPEN, verbose_name=gettext_lazy("state")
    )
    # Reason why the evaluation ended: `time`, `person`, `promoted`, `other_version`.
    reason = models.CharField(max_length=20, blank=True, default="")
    started_by_id = models.BigIntegerField(null=True, blank=True)
    started_at = models.DateTimeField(verbose_name=gettext_lazy("started"))
    ends_at = models.DateTimeField(verbose_name=gettext_lazy("planned end"))
    ended_at = models.DateTimeField(null=True, blank=True, verbose_name=gettext_lazy("ended"))
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # All turns up to this row of the ledger are evaluated.
    cursor = models.PositiveBigIntegerField(default=0)
    turns = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("replies"))
    unknown = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("not evaluated"))
    changed = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("would change"))
    would_refuse = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("would be refused")
    )
    compactions_now = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("compactions, active version")
    )
    compactions_then = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("compactions, draft")
    )
    tokens_now = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("prompt tokens, active version")
    )
    tokens_then = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("prompt tokens, draft")
    )

    class Meta:
        verbose_name = gettext_lazy("evaluation")
        verbose_name_plural = gettext_lazy("evaluations")
        ordering: ClassVar = ["-started_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["policy"], condition=Q(state="open"), name="one_open_evaluation_per_policy"
            )
        ]

    def __str__(self) -> str:
        return f"{self.version}, evaluated since {self.started_at:%d %b %Y}"

    @property
    def judged(self) -> int:
        """The number of turns for which the version's result is known."""
        return self.turns - self.unknown


class EvaluatedTurn(Stored):
    """The result of one turn: ids and numbers. It outlives the turn, so it has no foreign key."""

    class Outcome(models.TextChoices):
        EQUAL = "equal", gettext_lazy("The same")
        CHANGED = "changed", gettext_lazy("Different")
        REFUSED = "refused", gettext_lazy("Refused")
        UNKNOWN = "unknown", gettext_lazy("Unknown")

    evaluation = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="judgements")
    turn_id = models.UUIDField()
    at = models.DateTimeField()
    outcome = models.CharField(max_length=8, choices=Outcome.choices)
    # The reason why the result is unknown, or the code of the refusal.
    reason = models.CharField(max_length=40, blank=True, default="")
    tokens_now = models.PositiveIntegerField(default=0)
    tokens_then = models.PositiveIntegerField(default=0)
    full_now = models.PositiveIntegerField(default=0)
    full_then = models.PositiveIntegerField(default=0)
    compacts_now = models.BooleanField(default=False)
    compacts_then = models.BooleanField(default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation", "turn_id"], name="turn_evaluated_once")
        ]
        indexes: ClassVar = [models.Index(fields=["at"], name="evaluated_turn_by_time")]

    def __str__(self) -> str:
        return f"turn {self.turn_id}: {self.outcome}"


class VirtualCoverage(Stored):
    """The messages of a branch that the evaluated version would have compacted by now.

    Without this row, the version would compact at every turn. A virtual summary has only a range
    and a size.
    """

    evaluation = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="coverages")
    branch_id = models.UUIDField()
    # While the version decides the same as the active one, the branch's real history counts.
    follows = models.BooleanField(default=True)
    # The branch's real summary, until a virtual one goes beyond it.
    summary_id = models.UUIDField(null=True, blank=True)
    from_seq = models.PositiveBigIntegerField(default=1)
    to_seq = models.PositiveBigIntegerField(default=0)
    tokens = models.PositiveIntegerField(default=0)
    exceptions = models.JSONField(default=list)
    window_to = models.PositiveBigIntegerField(default=0)
    # A virtual summary that is ready: its range, exceptions and size.
    ready = models.JSONField(null=True, blank=True)
    # The real compaction of the last evaluated turn.
    last_id = models.UUIDField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["evaluation", "branch_id"], name="one_virtual_coverage")
        ]

    def __str__(self) -> str:
        return f"virtual coverage of {self.branch_id}"
