"""Reads what events of the ledger add to the sums: replies, failures, calls, compactions.

The rows that an event names may be erased by now. Then what the event itself says is counted.
"""

import uuid
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime

from chats.counts.sums import DayGroup, Sums, bucket_of, group_of
from chats.models import Compaction, CompactionBalance, Receipt, Turn
from contextpolicy.engine.costs import (
    Effect,
    PricedCall,
    UsedTokens,
    broken,
    cost_of,
    saved,
    used_of,
)
from contextpolicy.models import AuditEvent, ModelSpec

ENDED = ("turn.completed", "turn.stopped", "turn.failed")
# Rows that end an attempt, and name its calls.
ATTEMPTS = (*ENDED, "turn.requeued", "turn.handed_back")
BY_STATUS = {
    "turn.completed": "replies",
    "turn.stopped": "stopped",
    "turn.failed": "failed",
}
# What became of compactions, by event; `window.moved` made one without a summary.
OUTCOMES = {
    "compaction.published": "published",
    "compaction.revised": "revised",
    "compaction.rejected": "rejected",
    "compaction.failed": "failed",
    "compaction.overtaken": "overtaken",
    "compaction.undone": "undone",
    "compaction.redone": "redone",
    "window.moved": "window",
}
# In which one of its calls a compaction's cost is told.
PAID = ("compaction.prepared", "compaction.rejected", "compaction.failed", "compaction.overtaken")
BESIDE = ("gateway.passed_on", "summary.tried")
TITLED = "chat.titled"
# Every event that something is counted of.
TYPES = frozenset({*ATTEMPTS, *OUTCOMES, *PAID, *BESIDE, TITLED})
# With these the next prompt begins differently, though no new compaction takes effect.
REVERSALS = ("compaction.undone", "compaction.redone")
# So many turns back the last call before a compaction is looked for.
TURNS_BACK = 3

# The columns of a receipt, and of what stands beside it, that can be long and that nothing counts.
LARGE = (
    "segments",
    "left_out",
    "budget",
    "notes",
    "effective_policy__values",
    "turn__partial_text",
    "turn__partial_reasoning",
    "compaction__text",
    "compaction__sections",
    "compaction__retention",
)


class EventRows:
    """The rows behind some events, read a kind at a time."""

    def __init__(self, events: Sequence[AuditEvent]) -> None:
        calls = [pk for event in events for pk in calls_of(event)]
        turns = [event.turn_id for event in events if event.type in ATTEMPTS and event.turn_id]
        made = [pk for event in events if (pk := compaction_of(event))]
        related = ("turn__model", "effective_policy", "compaction")
        receipts = Receipt.objects.select_related(*related).defer(*LARGE)
        self.receipts = receipts.in_bulk(calls)
        ended = Turn.objects.select_related("model", "effective_policy")
        self.turns = ended.defer("partial_text", "partial_reasoning").in_bulk(turns)
        rows = Compaction.objects.select_related("effective_policy")
        self.compactions = rows.defer("text", "sections", "retention").in_bulk(made)
        self.models = list(ModelSpec.objects.order_by("-enabled", "slug"))
        named = {row.compaction_id for row in self.receipts.values() if row.compaction_id}
        known = CompactionBalance.objects.filter(compaction__in=named)
        self.governed = set(known.values_list("compaction_id", flat=True))
        self.reversals = reversals_in({event.chat_id for event in events if event.type in ATTEMPTS})
        self.sums = Sums()

    def model(self, name: str, *, own: ModelSpec | None = None) -> ModelSpec | None:
        """Return the model that is set up under the name that its provider expects."""
        if own is not None and own.name == name:
            return own
        return next((model for model in self.models if model.name == name), None)

    def read(self, event: AuditEvent) -> None:
        """Add what the event tells."""
        day = event.at.date()
        if event.type in ATTEMPTS:
            self.attempt(event, day=day)
        elif event.type in OUTCOMES or event.type in PAID:
            self.compaction(event, day=day)
        elif event.type in BESIDE:
            self.beside(event, day=day)
        elif event.type == TITLED:
            self.calls(event, day=day)

    def attempt(self, event: AuditEvent, *, day: date) -> None:
        """Add the end of an attempt, and what its calls took."""
        turn = self.turns.get(event.turn_id) if event.turn_id else None
        group = group_of(
            day, model=turn.model if turn else None, policy=turn.effective_policy if turn else None
        )
        if event.type in ENDED:
            added = self.sums.days[group]
            added.add(BY_STATUS[event.type])
            if event.type == "turn.failed":
                added.count("failures", str(event.data.get("code") or code_of(turn)))
            if turn is not None and turn.first_token_at is not None:
                waited = (turn.first_token_at - turn.queued_at).total_seconds() * 1000
                added.count("first_tokens", bucket_of(waited))
        self.calls(event, day=day)

    def calls(self, event: AuditEvent, *, day: date) -> None:
        """Add what the calls of an event took."""
        found = [self.receipts[pk] for pk in calls_of(event) if pk in self.receipts]
        for receipt in sorted(found, key=lambda row: row.created_at):
            model = self.model(receipt.model_name, own=receipt.turn.model)
            group = group_of(day, model=model, policy=receipt.effective_policy)
            is_answered = receipt.outcome in {Receipt.Outcome.OK, Receipt.Outcome.STOPPED}
            self.call(group, receipt.usage, model=model, is_answered=is_answered)
            if receipt.purpose == "reply" and is_answered:
                is_after_reversal = self.reversal(group, receipt, model=model)
                if receipt.compaction is not None:
                    self.govern(group, receipt, model=model, is_counted=is_after_reversal)

    def call(
        self,
        group: DayGroup,
        reported: Mapping[str, int],
        *,
        model: ModelSpec | None,
        is_answered: bool,
    ) -> None:
        """Add one call: its tokens, and their price."""
        added = self.sums.days[group]
        added.add("calls")
        used = used_of(reported)
        if used is None:
            added.add("unreported", int(is_answered))
            return
        for name in ("input", "cached", "written", "output"):
            added.add(name, getattr(used, name))
        cost = cost_of(used, model.prices) if model else None
        added.add_worth("cost", cost, unpriced="unpriced")

    def reversal(self, group: DayGroup, receipt: Receipt, *, model: ModelSpec | None) -> bool:
        """Add what the first call after an undo or redo lost to the compaction that was undone.

        Returns whether this is such a call.
        """
        reversals = self.reversals.get(receipt.turn.branch_id, ())
        earlier = [each for each in reversals if each[0] <= receipt.created_at]
        found = self.receipt_before(receipt) if earlier else None
        if found is None or found.created_at >= earlier[-1][0]:
            return False
        compaction = earlier[-1][1]
        call, before = call_of(receipt, model), self.as_call(found)
        lost = broken(call, before=before) if call is not None else Effect()
        if lost.tokens:
            for added in (self.sums.days[group], self.sums.balances[compaction, group.currency]):
                added.add_effect("lost", lost)
        return True

    def govern(
        self, group: DayGroup, receipt: Receipt, *, model: ModelSpec | None, is_counted: bool
    ) -> None:
        """Add what the compaction in force saved in a call, and what the first one after it lost.

        Each call counts for the one compaction that its receipt names, so nothing counts twice.
        `is_counted`: what the cache lost in this call is counted already.
        """
        row = receipt.compaction
        assert row is not None  # noqa: S101  # the caller looked
        is_first = row.pk not in self.governed and not self.sums.knows(row.pk)
        balance = self.sums.balances[row.pk, group.currency]
        balance.add("calls")
        call = call_of(receipt, model)
        if call is None:
            balance.add("unreported")
            return
        before = self.call_before(receipt) if is_first else None
        kept_out = saved(call, freed=freed_by(row), before=before)
        lost = broken(call, before=None if is_counted else before)
        day = self.sums.days[group]
        day.add("governed")
        for added in (day, balance):
            added.add_effect("saved", kept_out)
            added.add_effect("lost", lost)

    def call_before(self, receipt: Receipt) -> PricedCall | None:
        """Return the last reported call for a reply before this one on its branch."""
        found = self.receipt_before(receipt)
        return self.as_call(found) if found is not None else None

    def receipt_before(self, receipt: Receipt) -> Receipt | None:
        """Return the receipt of the last reported call for a reply before this one."""
        turn = receipt.turn
        turns = Turn.objects.filter(branch=turn.branch_id, accepted__lte=turn.accepted)
        nearest = list(turns.order_by("-accepted").values_list("pk", flat=True)[:TURNS_BACK])
        rows = Receipt.objects.filter(turn__in=nearest, created_at__lt=receipt.created_at)
        rows = rows.exclude(step=Receipt.AFTERWARDS).exclude(call=Receipt.BESIDE)
        return rows.exclude(usage={}).select_related("turn__model").order_by("-created_at").first()

    def as_call(self, receipt: Receipt) -> PricedCall | None:
        """Return what a call took, by the model as it is set up now."""
        return call_of(receipt, self.model(receipt.model_name, own=receipt.turn.model))

    def compaction(self, event: AuditEvent, *, day: date) -> None:
        """Add what became of a compaction, and what its own calls cost."""
        row = self.compactions.get(pk) if (pk := compaction_of(event)) else None
        model = self.model(row.model_name) if row is not None and row.calls else None
        group = group_of(day, model=model, policy=row.effective_policy if row else None)
        if event.type in OUTCOMES:
            self.sums.days[group].count("compactions", OUTCOMES[event.type])
        if row is not None and is_paid_with(event, row):
            added = self.sums.days[group]
            added.add("summaries")
            added.add_worth("summary_cost", row.cost, unpriced="summaries_unpriced")

    def beside(self, event: AuditEvent, *, day: date) -> None:
        """Add a request beside all chats, passed on or tried in a preview; it has no policy."""
        data = event.data
        model = next((row for row in self.models if row.slug == data.get("model")), None)
        group = group_of(day, model=model, policy=None)
        reported = {name: data.get(f"{name}_tokens", 0) for name in UsedTokens.__slots__}
        self.call(group, reported, model=model, is_answered=data.get("outcome") == "ok")
        if data.get("code"):
            self.sums.days[group].count("failures", str(data["code"]))


def reversals_in(chats: Set[uuid.UUID | None]) -> dict[uuid.UUID, list[tuple[datetime, uuid.UUID]]]:
    """Return by branch when compactions were undone and redone, and which, the oldest first."""
    rows = AuditEvent.objects.filter(type__in=REVERSALS, chat_id__in=chats - {None}).order_by("pk")
    reversals = [(row.at, pk) for row in rows if (pk := compaction_of(row))]
    there = Compaction.objects.filter(pk__in={pk for _, pk in reversals})
    branches = dict(there.values_list("pk", "branch_id"))
    found: dict[uuid.UUID, list[tuple[datetime, uuid.UUID]]] = {}
    for at, pk in reversals:
        if pk in branches:
            found.setdefault(branches[pk], []).append((at, pk))
    return found


def sums_of(events: Sequence[AuditEvent]) -> Sums:
    """Return what events add to the rows; reads, never writes."""
    reading = EventRows(events)
    for event in events:
        reading.read(event)
    return reading.sums


def calls_of(event: AuditEvent) -> list[uuid.UUID]:
    """Return the receipts of the calls that an event ends."""
    if event.type in ATTEMPTS:
        return [uuid.UUID(call[0]) for call in event.data.get("calls", [])]
    if event.type == TITLED and "receipt" in event.data:
        return [uuid.UUID(event.data["receipt"])]
    return []


def compaction_of(event: AuditEvent) -> uuid.UUID | None:
    """Return the compaction that an event is about."""
    if event.type not in OUTCOMES and event.type not in PAID:
        return None
    named = event.data.get("compaction")
    return uuid.UUID(named) if named else None


def is_paid_with(event: AuditEvent, row: Compaction) -> bool:
    """Tell whether the event is the one with which a summary's calls are over.

    A prepared summary that is rejected by a person, or overtaken, was counted when it was prepared.
    """
    if event.type not in PAID or not row.calls:
        return False
    if event.type == "compaction.rejected":
        return event.actor == "worker"
    return event.type != "compaction.overtaken" or not row.usage


def call_of(receipt: Receipt, model: ModelSpec | None) -> PricedCall | None:
    """Return a call as the engine takes it; None where it reported nothing or has no model."""
    used = used_of(receipt.usage)
    if used is None or model is None:
        return None
    return PricedCall(used, model.prices, model=model.slug, estimate=receipt.prompt_tokens)


def freed_by(row: Compaction) -> int:
    """Return the tokens that a compaction keeps out of each prompt; 0 where nothing was counted."""
    return row.tokens_before - row.tokens_after if row.tokens_before else 0


def code_of(turn: Turn | None) -> str:
    """Return the code of a failed turn."""
    return turn.error_code if turn is not None else "unknown"
