"""Compares finished turns with the prompts that an evaluated draft would have produced.

One side is the turn's receipt. The other is composed from the same messages under the draft, with
the worker's functions. No model is called, and nothing is recorded in the ledger. A missing fact
makes the result unknown, never equal. The draft has its own history (`VirtualCoverage`): messages
that it would have summarised stay summarised. Otherwise it would compact at every turn. Sizes of
summaries that were never written are estimates.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from chats.compaction.attempts import AttemptSpec
from chats.compaction.plan import plan_for
from chats.ground.refusals import Refusal
from chats.models import Branch, Compaction, Message, Receipt, Turn
from chats.prompt.model_choice import ChosenModel
from chats.prompt.next_context import build_segment_row
from chats.prompt.next_prompt import compose_next_prompt
from chats.prompt.tokenizer import O200kCounter
from chats.record import history
from chats.simulation.estimates import estimate_next_summary
from chats.simulation.preview import Side, build_side
from chats.simulation.proposals import PolicyProposal, choose_under
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import EntityState
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan
from contextpolicy.models import AuditEvent, EvaluatedTurn, Evaluation, VirtualCoverage
from contextpolicy.resolution import load_policy_values

Outcome = EvaluatedTurn.Outcome
# Events that change which messages a prompt contains, apart from the conversation.
MARKS = (
    "message.erased",
    "message.excluded",
    "message.included",
    "message.kept",
    "message.pinned",
    "message.unpinned",
)
# The origins of segments that a text layout joins with the question.
JOINED = frozenset({"summary", "pin", "history", "tail"})
# A word that every tokenizer counts as one token.
WORD = "word "


class Unknown(Exception):
    """The result under the draft cannot be determined; the code gives the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Recorded:
    """The data that the receipt of a turn's first call recorded."""

    turn: Turn
    receipt: Receipt
    values: PolicyValues
    question: engine.Message
    side: Side


@dataclass(slots=True)
class TurnEvaluation:
    """The result of one turn, and the draft's coverage after it."""

    row: EvaluatedTurn
    coverage: VirtualCoverage | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def evaluate_turn(evaluation: Evaluation, *, turn: Turn) -> TurnEvaluation:
    """Compare a finished turn with the evaluated draft; nothing is written."""
    row = EvaluatedTurn(
        evaluation=evaluation, turn_id=turn.pk, at=turn.finished_at or turn.queued_at
    )
    coverage = None
    try:
        recorded = load_recorded_turn(turn)
        coverage = find_draft_coverage(evaluation, turn.branch)
        row.tokens_now, row.full_now = recorded.side.tokens, recorded.side.full
        compaction_id = recorded.receipt.compaction_id
        is_first = coverage.pk is None
        row.compacts_now = not is_first and compaction_id != coverage.last_id
        coverage.last_id = compaction_id
        compare_with_draft(
            row, coverage, recorded=recorded, proposal=build_draft_proposal(evaluation)
        )
    except Unknown as unknown:
        row.outcome, row.reason = Outcome.UNKNOWN, unknown.code
    return TurnEvaluation(row, coverage, count_turn_totals(row))


def count_turn_totals(row: EvaluatedTurn) -> dict[str, int]:
    """Return the numbers that an evaluated turn adds to the totals of its evaluation."""
    if row.outcome == Outcome.UNKNOWN:
        return {"turns": 1, "unknown": 1}
    return {
        "turns": 1,
        "changed": int(row.outcome != Outcome.EQUAL),
        "would_refuse": int(row.outcome == Outcome.REFUSED),
        "compactions_now": int(row.compacts_now),
        "compactions_then": int(row.compacts_then),
        "tokens_now": row.tokens_now,
        "tokens_then": row.tokens_then,
    }


def build_draft_proposal(evaluation: Evaluation) -> PolicyProposal:
    policy, version = evaluation.policy, evaluation.version
    return PolicyProposal(
        slug=policy.slug,
        name=policy.name,
        version=version.number,
        values=version.values,
        locks=version.locks,
        level=evaluation.place,
    )


def load_recorded_turn(turn: Turn) -> Recorded:
    """Return the recorded data of a turn. Raises `Unknown` if it is incomplete."""
    chat = turn.branch.chat
    if turn.agent_id is not None or chat.team_id is not None:
        raise Unknown("team")
    if turn.client is not None:
        raise Unknown("program")
    if turn.continues_id is not None:
        raise Unknown("continued")
    calls = Receipt.objects.select_related("effective_policy", "compaction__base").filter(
        turn=turn, step=1, call__gt=Receipt.BESIDE
    )
    receipt = calls.order_by("-attempt", "call").first()
    if receipt is None:
        raise Unknown("no_receipt")
    if receipt.erased_at is not None:
        raise Unknown("erased")
    values = load_policy_values(receipt.effective_policy)
    if values.references and not values.reference_share:
        raise Unknown("references")
    scope = AuditEvent.objects.filter(scope=f"chat:{chat.pk}")
    if scope.filter(type__in=MARKS, at__gte=receipt.created_at).exists():
        raise Unknown("marked_since")
    return Recorded(
        turn, receipt, values, find_recorded_question(receipt), build_recorded_side(receipt)
    )


def find_recorded_question(receipt: Receipt) -> engine.Message:
    """Return the question of a receipt.

    Raises `Unknown` if the receipt does not have exactly one question, or if the question
    was erased.
    """
    asked = [segment[1] for segment in receipt.segments if segment[0] == "question"]
    if len(asked) != 1:
        raise Unknown("continued")
    row = Message.objects.filter(pk=asked[0], erased_at=None, seq__isnull=False).first()
    if row is None:
        raise Unknown("erased")
    return history.build_engine_message(row, counter=O200kCounter())


def build_recorded_side(receipt: Receipt) -> Side:
    """Return a receipt as a side of a preview, with local tokens."""
    own = [s for s in receipt.segments if s[0] != "question" and s[2]]
    cut = sum(s[4] is not None or (len(s) > 6 and s[6] is not None) for s in own)
    left: Counter[str] = Counter()
    for first, last, reason in receipt.left_out:
        left[reason] += last - first + 1
    needed = receipt.compaction_need
    return Side(
        "Now",
        tokens=receipt.prompt_tokens,
        full=len(own) - cut,
        cut=cut,
        summarised=left.pop("covered", 0),
        left_out=dict(left),
        due=(needed.get("action", "none"), needed.get("reason", "")),
    )


def compare_with_draft(
    row: EvaluatedTurn, coverage: VirtualCoverage, *, recorded: Recorded, proposal: PolicyProposal
) -> None:
    """Fill in the draft's result and update its coverage. Raises `Unknown`."""
    chat = recorded.turn.branch.chat
    try:
        choice = choose_under(chat, proposal=proposal)
    except Refusal as refusal:
        record_draft_refusal(row, refusal)
        return
    if choice.model.name != recorded.receipt.model_name:
        raise Unknown("model_changed")
    if choice.values.references and not choice.values.reference_share:
        raise Unknown("references")
    if coverage.follows and choice.values == recorded.values:
        # The draft has the same values, so it would have sent the same prompt.
        row.outcome = Outcome.EQUAL
        row.tokens_then, row.full_then = row.tokens_now, row.full_now
        row.compacts_then = row.compacts_now
        return
    if EntityState.name in (choice.values.strategy, recorded.values.strategy):
        raise Unknown("state")
    if coverage.follows:
        fork_coverage(coverage, active=recorded.receipt.compaction)
    compose_draft_prompt(row, coverage, recorded=recorded, choice=choice)


def record_draft_refusal(row: EvaluatedTurn, refusal: Refusal) -> None:
    """Record that the draft would have refused the turn."""
    row.outcome, row.reason, row.compacts_then = Outcome.REFUSED, refusal.code[:40], False


def compose_draft_prompt(
    row: EvaluatedTurn, coverage: VirtualCoverage, *, recorded: Recorded, choice: ChosenModel
) -> None:
    """Compose the turn's prompt under the draft and compare it with the recorded one.

    Also updates the draft's coverage. Raises `Unknown`.
    """
    branch = rebuild_branch(
        recorded.turn.branch, before=recorded.question.seq or 1, coverage=coverage
    )
    try:
        outlook = compose_next_prompt(
            branch,
            choice=choice,
            counter=O200kCounter(),
            now=recorded.receipt.created_at,
            said=recorded.question,
        )
    except Refusal as refusal:
        record_draft_refusal(row, refusal)
        return
    then = build_side(outlook, label="Then")
    row.tokens_then, row.full_then = outlook.sent.prompt_tokens, then.full
    segments = [build_segment_row(segment) for segment in outlook.sent.segments]
    sent = build_text_key(recorded.receipt.segments, values=recorded.values)
    is_same = build_comparison_key(then) == build_comparison_key(recorded.side)
    is_same = is_same and build_text_key(segments, values=choice.values) == sent
    row.outcome = Outcome.EQUAL if is_same else Outcome.CHANGED
    moved = outlook.given.window_to > max(coverage.window_to, coverage.to_seq)
    coverage.window_to = max(coverage.window_to, outlook.given.window_to)
    replaced = apply_draft_compaction(coverage, branch=branch, choice=choice, action=then.due[0])
    row.compacts_then = moved or replaced


def build_comparison_key(side: Side) -> tuple[object, ...]:
    """Return the values that must be equal for two sides to be the same, without token counts."""
    return (side.full, side.cut, side.summarised, sorted(side.left_out.items()), side.due[0])


def build_text_key(
    segments: Sequence[Sequence[Any]], *, values: PolicyValues
) -> tuple[object, ...]:
    """Return the comparable text and formatting that a policy adds to a prompt.

    `segments` have the format of a receipt. Text written by users is left out, because it may have
    changed since the turn.
    """
    system = [(row[1], row[5]) for row in segments if row[0] == "system" and row[1] != "chat"]
    days = [row[1] for row in segments if row[0] == "day"]
    has_date = any(row[0] == "tail" and row[1] == "date" for row in segments)
    has_block = any(row[0] in JOINED for row in segments)
    is_text = has_block and values.layout in ("A", "C")
    return (
        system,
        days,
        has_date,
        values.layout if has_block else "",
        values.question_prefix if is_text else "",
        values.cut_style if any(row[4] is not None for row in segments) else "",
    )


def find_draft_coverage(evaluation: Evaluation, branch: Branch) -> VirtualCoverage:
    """Return the draft's coverage on a branch; unsaved for a new branch.

    A new branch starts with its parent's, unless that reaches beyond the fork.
    """
    rows = VirtualCoverage.objects.filter(evaluation=evaluation)
    found = rows.filter(branch_id=branch.pk).first()
    if found is not None:
        return found
    of_parent = rows.filter(branch_id=branch.parent_id).first() if branch.parent_id else None
    made = VirtualCoverage(evaluation=evaluation, branch_id=branch.pk)
    if of_parent is not None and max(of_parent.to_seq, of_parent.window_to) <= branch.fork_seq:
        for name in ("follows", "summary_id", "from_seq", "to_seq", "tokens", "exceptions"):
            setattr(made, name, getattr(of_parent, name))
        made.window_to = of_parent.window_to
    return made


def fork_coverage(coverage: VirtualCoverage, *, active: Compaction | None) -> None:
    """Start a separate history from the compaction that was active at the turn."""
    coverage.follows = False
    if active is None:
        return
    is_window = active.kind == Compaction.Kind.WINDOW
    summary = active.base if is_window else active
    coverage.window_to = active.to_seq if is_window else 0
    if summary is not None:
        coverage.summary_id = summary.pk
        coverage.from_seq, coverage.to_seq = summary.from_seq, summary.to_seq
        coverage.exceptions = list(summary.exceptions)


def rebuild_branch(branch: Branch, *, before: int, coverage: VirtualCoverage) -> Branch:
    """Return the branch as of a question, with the draft's coverage as its compaction.

    Raises `Unknown` if a stored summary that it builds on no longer exists.
    """
    found = copy(branch)
    found.last_seq = before - 1
    base = load_coverage_summary(coverage)
    found.active_compaction = base
    if coverage.window_to > coverage.to_seq:
        found.active_compaction = Compaction(
            kind=Compaction.Kind.WINDOW, base=base, from_seq=1, to_seq=coverage.window_to
        )
    return found


def load_coverage_summary(coverage: VirtualCoverage) -> Compaction | None:
    """Return the stored summary of a coverage, or a placeholder of the estimated length.

    None if the coverage has no summary. Raises `Unknown` if the stored summary no longer exists.
    """
    if coverage.summary_id is not None:
        row = Compaction.objects.filter(pk=coverage.summary_id).select_related("base").first()
        if row is None or row.erased_at is not None:
            raise Unknown("erased")
        return row
    if not coverage.to_seq:
        return None
    return Compaction(
        kind=Compaction.Kind.SUMMARY,
        text=WORD * coverage.tokens,
        from_seq=coverage.from_seq,
        to_seq=coverage.to_seq,
        exceptions=coverage.exceptions,
        summary_tokens=coverage.tokens,
    )


def apply_draft_compaction(
    coverage: VirtualCoverage, *, branch: Branch, choice: ChosenModel, action: str
) -> bool:
    """Apply the draft's compaction after this prompt; return True if messages are summarised.

    As for real turns, a summary is prepared at the first mark and takes effect at the
    second.
    """
    if action == "none":
        return False
    if coverage.ready is None:
        found = plan_for(branch, choice=choice, attempt=AttemptSpec(), counter=O200kCounter())
        if isinstance(found, CompactionPlan):
            coverage.ready = {
                "from_seq": found.from_seq,
                "to_seq": found.to_seq,
                "exceptions": list(found.exceptions),
                "tokens": estimate_next_summary(choice.values)[0] or 0,
            }
    if action != "swap" or coverage.ready is None:
        return False
    coverage.summary_id = None
    for name, value in coverage.ready.items():
        setattr(coverage, name, value)
    coverage.ready = None
    return True


def is_in_share(branch_id: uuid.UUID, *, share: int) -> bool:
    """Return True if a branch is in the evaluated share. Deterministic for each branch."""
    return branch_id.int % 100 < share


def find_completed_turn(turn_id: uuid.UUID) -> Turn | None:
    """Return a completed turn with its chat and branch loaded; None if there is none."""
    rows = Turn.objects.select_related(
        "branch__chat__model", "branch__chat__owner", "branch__parent"
    )
    found: Turn | None = rows.filter(pk=turn_id, status=Turn.Status.COMPLETED).first()
    return found
