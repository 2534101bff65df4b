"""Derives changes to the statistics from ledger events: replies, failures, calls, compactions.

If the rows that an event names are already erased, only the event's own data is counted.
"""

import uuid
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime

from chats.counts.sums import DayGroup, Sums, build_day_group, find_histogram_bucket
from chats.models import Compaction, CompactionBalance, Receipt, Turn
from contextpolicy.engine.policy.costs import (
    Effect,
    PricedCall,
    UsedTokens,
    compute_cache_loss,
    compute_call_cost,
    compute_compaction_savings,
    parse_reported_usage,
)
from contextpolicy.models import AuditEvent, ModelSpec

ENDED = ("turn.completed", "turn.stopped", "turn.failed")
# Events that end an attempt and list its calls.
ATTEMPTS = (*ENDED, "turn.requeued", "turn.handed_back", "turn.waiting")
BY_STATUS = {
    "turn.completed": "replies",
    "turn.stopped": "stopped",
    "turn.failed": "failed",
}
# Compaction outcome by event. `window.moved` is a compaction without a summary.
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
# Events that report the cost of a summary.
PAID = ("compaction.prepared", "compaction.rejected", "compaction.failed", "compaction.overtaken")
BESIDE = ("gateway.passed_on", "summary.tried")
TITLED = "chat.titled"
# All event types that are counted.
TYPES = frozenset({*ATTEMPTS, *OUTCOMES, *PAID, *BESIDE, TITLED})
# These events change the start of the next prompt without a new compaction.
REVERSALS = ("compaction.undone", "compaction.redone")
# Number of turns searched for the last call before a compaction.
TURNS_BACK = 3

# Large columns of receipts and related rows that the statistics do not need.
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
    """Adds up the statistics of a batch of ledger events.

    Loads the rows to which the events refer in bulk. Call `read` with each event, then use `sums`.
    """

    def __init__(self, events: Sequence[AuditEvent]) -> None:
        calls = [pk for event in events for pk in list_receipt_ids(event)]
        turns = [event.turn_id for event in events if event.type in ATTEMPTS and event.turn_id]
        made = [pk for event in events if (pk := get_compaction_id(event))]
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
        self.reversals = load_branch_reversals(
            {event.chat_id for event in events if event.type in ATTEMPTS}
        )
        self.sums = Sums()

    def model(self, name: str, *, own: ModelSpec | None = None) -> ModelSpec | None:
        """Return the model with this name at its provider, preferring `own`; None if missing."""
        if own is not None and own.name == name:
            return own
        return next((model for model in self.models if model.name == name), None)

    def read(self, event: AuditEvent) -> None:
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
        """Add the end of an attempt and the usage of its calls."""
        turn = self.turns.get(event.turn_id) if event.turn_id else None
        group = build_day_group(
            day, model=turn.model if turn else None, policy=turn.effective_policy if turn else None
        )
        if event.type in ENDED:
            added = self.sums.days[group]
            added.add(BY_STATUS[event.type])
            if event.type == "turn.failed":
                added.count("failures", str(event.data.get("code") or get_turn_error_code(turn)))
            if turn is not None and turn.first_token_at is not None:
                waited = (turn.first_token_at - turn.queued_at).total_seconds() * 1000
                added.count("first_tokens", find_histogram_bucket(waited))
        self.calls(event, day=day)

    def calls(self, event: AuditEvent, *, day: date) -> None:
        found = [self.receipts[pk] for pk in list_receipt_ids(event) if pk in self.receipts]
        for receipt in sorted(found, key=lambda row: row.created_at):
            model = self.model(receipt.model_name, own=receipt.turn.model)
            group = build_day_group(day, model=model, policy=receipt.effective_policy)
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
        """Add one call: its tokens and their price."""
        added = self.sums.days[group]
        added.add("calls")
        used = parse_reported_usage(reported)
        if used is None:
            added.add("unreported", int(is_answered))
            return
        for name in ("input", "cached", "written", "output"):
            added.add(name, getattr(used, name))
        cost = compute_call_cost(used, model.prices) if model else None
        added.add_worth("cost", cost, unpriced="unpriced")

    def reversal(self, group: DayGroup, receipt: Receipt, *, model: ModelSpec | None) -> bool:
        """Charge the first call after an undo or redo to the compaction that caused the cache loss.

        Returns True if the receipt is such a call.
        """
        reversals = self.reversals.get(receipt.turn.branch_id, ())
        earlier = [each for each in reversals if each[0] <= receipt.created_at]
        found = self.receipt_before(receipt) if earlier else None
        if found is None or found.created_at >= earlier[-1][0]:
            return False
        compaction = earlier[-1][1]
        call, before = build_priced_call(receipt, model), self.as_call(found)
        lost = compute_cache_loss(call, before=before) if call is not None else Effect()
        if lost.tokens:
            for added in (self.sums.days[group], self.sums.balances[compaction, group.currency]):
                added.add_effect("lost", lost)
        return True

    def govern(
        self, group: DayGroup, receipt: Receipt, *, model: ModelSpec | None, is_counted: bool
    ) -> None:
        """Add the savings of the active compaction, and the cache loss of its first call.

        Each call counts only for the compaction that its receipt names, so nothing counts
        twice. `is_counted`: the cache loss of this call was already counted.
        """
        row = receipt.compaction
        assert row is not None  # noqa: S101  # the caller looked
        is_first = row.pk not in self.governed and not self.sums.knows(row.pk)
        balance = self.sums.balances[row.pk, group.currency]
        balance.add("calls")
        call = build_priced_call(receipt, model)
        if call is None:
            balance.add("unreported")
            for added in (self.sums.days[group], balance):
                added.add_worth("saved", None, unpriced="saved_unpriced")
            return
        before = self.call_before(receipt) if is_first else None
        kept_out = compute_compaction_savings(call, freed=count_freed_tokens(row), before=before)
        lost = compute_cache_loss(call, before=None if is_counted else before)
        day = self.sums.days[group]
        day.add("governed")
        for added in (day, balance):
            added.add_effect("saved", kept_out)
            added.add_effect("lost", lost)

    def call_before(self, receipt: Receipt) -> PricedCall | None:
        """Return the last call with usage for a reply before this one on its branch.

        None if it is not in the nearest turns, or its model is not configured.
        """
        found = self.receipt_before(receipt)
        return self.as_call(found) if found is not None else None

    def receipt_before(self, receipt: Receipt) -> Receipt | None:
        """Return the receipt of the last call with usage for a reply before this one.

        Only the nearest turns of the branch are searched. None if they have no such call.
        """
        turn = receipt.turn
        turns = Turn.objects.filter(branch=turn.branch_id, accepted__lte=turn.accepted)
        nearest = list(turns.order_by("-accepted").values_list("pk", flat=True)[:TURNS_BACK])
        rows = Receipt.objects.filter(turn__in=nearest, created_at__lt=receipt.created_at)
        rows = rows.exclude(step=Receipt.AFTERWARDS).exclude(call=Receipt.BESIDE)
        return rows.exclude(usage={}).select_related("turn__model").order_by("-created_at").first()

    def as_call(self, receipt: Receipt) -> PricedCall | None:
        """Return the usage of a call, priced by the model's current settings.

        None if no usage was reported or the model is unknown.
        """
        return build_priced_call(receipt, self.model(receipt.model_name, own=receipt.turn.model))

    def compaction(self, event: AuditEvent, *, day: date) -> None:
        """Add the outcome of a compaction and the cost of its own calls."""
        row = self.compactions.get(pk) if (pk := get_compaction_id(event)) else None
        model = self.model(row.model_name) if row is not None and row.calls else None
        group = build_day_group(day, model=model, policy=row.effective_policy if row else None)
        if event.type in OUTCOMES:
            self.sums.days[group].count("compactions", OUTCOMES[event.type])
        if row is not None and has_final_cost(event, row):
            added = self.sums.days[group]
            added.add("summaries")
            added.add_worth("summary_cost", row.cost, unpriced="summaries_unpriced")

    def beside(self, event: AuditEvent, *, day: date) -> None:
        """Add a request without a chat (pass-through or trial summary). It has no policy."""
        data = event.data
        model = next((row for row in self.models if row.slug == data.get("model")), None)
        group = build_day_group(day, model=model, policy=None)
        reported = {name: data.get(f"{name}_tokens", 0) for name in UsedTokens.__slots__}
        self.call(group, reported, model=model, is_answered=data.get("outcome") == "ok")
        if data.get("code"):
            self.sums.days[group].count("failures", str(data["code"]))


def load_branch_reversals(
    chats: Set[uuid.UUID | None],
) -> dict[uuid.UUID, list[tuple[datetime, uuid.UUID]]]:
    """Return undo and redo times with their compactions by branch, oldest first."""
    rows = AuditEvent.objects.filter(type__in=REVERSALS, chat_id__in=chats - {None}).order_by("pk")
    reversals = [(row.at, pk) for row in rows if (pk := get_compaction_id(row))]
    there = Compaction.objects.filter(pk__in={pk for _, pk in reversals})
    branches = dict(there.values_list("pk", "branch_id"))
    found: dict[uuid.UUID, list[tuple[datetime, uuid.UUID]]] = {}
    for at, pk in reversals:
        if pk in branches:
            found.setdefault(branches[pk], []).append((at, pk))
    return found


def sum_events(events: Sequence[AuditEvent]) -> Sums:
    """Return the changes that these events make to the counts. Reads rows, but writes nothing."""
    reading = EventRows(events)
    for event in events:
        reading.read(event)
    return reading.sums


def list_receipt_ids(event: AuditEvent) -> list[uuid.UUID]:
    if event.type in ATTEMPTS:
        return [uuid.UUID(call[0]) for call in event.data.get("calls", [])]
    if event.type == TITLED and "receipt" in event.data:
        return [uuid.UUID(event.data["receipt"])]
    return []


def get_compaction_id(event: AuditEvent) -> uuid.UUID | None:
    if event.type not in OUTCOMES and event.type not in PAID:
        return None
    named = event.data.get("compaction")
    return uuid.UUID(named) if named else None


def has_final_cost(event: AuditEvent, row: Compaction) -> bool:
    """Return True if the event has the final cost of a summary's calls.

    A prepared summary that is later rejected by a user or overtaken was counted when it was
    prepared.
    """
    if event.type not in PAID or not row.calls:
        return False
    if event.type == "compaction.rejected":
        return event.actor == "worker"
    return event.type != "compaction.overtaken" or not row.usage


def build_priced_call(receipt: Receipt, model: ModelSpec | None) -> PricedCall | None:
    """Return a call with prices; None if its usage or model is unknown."""
    used = parse_reported_usage(receipt.usage)
    if used is None or model is None:
        return None
    return PricedCall(used, model.prices, model=model.slug, estimate=receipt.prompt_tokens)


def count_freed_tokens(row: Compaction) -> int:
    """Return the number of tokens that a compaction removes from each prompt; 0 if not counted."""
    return row.tokens_before - row.tokens_after if row.tokens_before else 0


def get_turn_error_code(turn: Turn | None) -> str:
    """Return the error code of a failed turn. "unknown" if the turn was erased."""
    return turn.error_code if turn is not None else "unknown"
