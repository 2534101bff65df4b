"""Compose: rows, effective policy and model → engine → what is sent, and the account of it.

The engine decides; this room fetches the facts it decides on and turns its answer into a request
and a receipt. It writes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from chats import answering, history, receipts
from chats.models import Branch, Chat, ChatState, Compaction, Message, Turn
from chats.providers.base import ContextFacts, ProviderRequest
from chats.providers.registry import ProviderAccountValue as Account
from chats.tools import registry as tools
from contextpolicy import plugins, prepared
from contextpolicy.engine import messages as engine
from contextpolicy.engine import scripts
from contextpolicy.engine.assembly import (
    AssembledContext,
    CompactionNeed,
    ComposeInput,
    WindowNeeded,
    need,
    was_compressed,
)
from contextpolicy.engine.assembly import compose as assemble
from contextpolicy.engine.budget import (
    in_our_count,
    prepare_mark,
    prompt_limit,
)
from contextpolicy.engine.calibration import Factors
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import EntityState, state_text
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.transcript import Background
from contextpolicy.models import EffectivePolicy, ModelSpec

CONTINUE_INSTRUCTION = (
    "Continue your last message exactly where it stopped. Do not repeat any of it."
)


@dataclass(frozen=True, slots=True)
class Move:
    """The window has to move before a prompt fits: what `compaction.window.move` writes down."""

    needed: WindowNeeded
    effective: EffectivePolicy


@dataclass(frozen=True, slots=True)
class TailDue:
    """The turn's tail has to be built before its first prompt: what `turns.state` does."""

    choice: answering.Choice


@dataclass(frozen=True, slots=True)
class Prompt:
    """A composed call: the request, and everything its receipt will say."""

    request: ProviderRequest
    account: Account
    effective: EffectivePolicy
    compaction: Compaction | None
    prompt_limit: int
    prompt_tokens: int
    calibration: float
    factors: Factors
    shares: Mapping[str, float]
    reserve: int
    texts: Sequence[tuple[str, str, str]]
    receipt_fields: Mapping[str, Any]
    compressed: Mapping[str, int | None]
    need: CompactionNeed
    fold_from: int | None
    strategy: str


def compose(
    *,
    turn: Turn,
    counter: TokenCounter,
    window_limit: int | None = None,
    branch: Branch | None = None,
) -> Prompt | Move | TailDue:
    """The prompt of the turn's next call, or the order to build its tail or move the window first.

    `window_limit` is the smaller window that an overflow error taught, `branch` the turn's branch
    where it was read just now. Raises the refusals of `answering.choose` and the engine's
    `BudgetRefusal`.
    """
    chat = turn.branch.chat
    choice = answering.choose_again(chat=chat, turn=turn)
    if turn.tail is None and choice.values.strategy == EntityState.name:
        return TailDue(choice=choice)
    branch = governed(branch or read_branch(turn))
    given = gather(
        branch=branch,
        choice=choice,
        asked=asked_by(turn, branch=branch, values=choice.values, counter=counter),
        counter=counter,
        window_limit=window_limit,
    )
    assembled = assemble(given)
    if isinstance(assembled, WindowNeeded):
        return Move(needed=assembled, effective=choice.effective)
    return prompt_of(assembled, given=given, choice=choice, branch=branch, turn=turn)


_BRANCH = prepared.Select(lambda at: Branch.objects.filter(pk=at("branch")))


def read_branch(turn: Turn) -> Branch:
    """The turn's branch as it is now."""
    branch = _BRANCH.first(branch=turn.branch_id)
    if branch is None:
        raise Branch.DoesNotExist
    branch.chat = turn.branch.chat
    return branch


def governed(branch: Branch) -> Branch:
    """The branch with the compaction that is in force, read only where there is one.

    Most chats have none, and the join of seventy columns costs more than all the rest here.
    """
    if branch.active_compaction_id is not None:
        rows = Compaction.objects.select_related("base")
        branch.active_compaction = rows.get(pk=branch.active_compaction_id)
    return branch


@dataclass(frozen=True, slots=True)
class Asked:
    """What a prompt answers, and what goes with it.

    Either `question` or, for a reply that goes on, `continues` (its id). History ends before the
    seq `before`; the branch then ends at `last_seq`.
    """

    question: tuple[engine.Message, ...]
    before: int
    last_seq: int
    steps: tuple[engine.Message, ...] = ()
    continues: str = ""
    background: Background = field(default_factory=Background)


def asked_by(turn: Turn, *, branch: Branch, values: PolicyValues, counter: TokenCounter) -> Asked:
    """What the prompt of a turn's next call answers."""
    question, steps = turn_messages(turn, branch=branch)
    first = (*question, *steps)
    return Asked(
        question=history.load_all(question, counter=counter),
        before=(first[0].seq or 1) if first else branch.last_seq + 1,
        last_seq=branch.last_seq,
        steps=history.load_all(steps, counter=counter),
        continues=str(turn.continues.reply_id) if turn.continues else "",
        background=background(turn, values=values),
    )


def gather(
    *,
    branch: Branch,
    choice: answering.Choice,
    asked: Asked,
    counter: TokenCounter,
    window_limit: int | None = None,
) -> ComposeInput:
    """Every fact the engine needs for a prompt, in a number of queries that does not grow."""
    active = governing(branch.active_compaction, values=choice.values)
    summary, window_to = in_force(active, counter=counter)
    covered = max(summary.to_seq if summary else 0, window_to)
    known = [size for size in (choice.model.window, window_limit) if size]
    model_window = min(known) if known else None
    limit = prompt_limit(choice.values, model_window=model_window)
    loaded = history.load(
        branch,
        after=covered,
        before=asked.before,
        values=choice.values,
        counter=counter,
        tokens=max(in_our_count(limit, calibration=choice.model.factors.lowest), 1),
        most=choice.values.window_size if choice.values.strategy == "simple" else None,
    )
    pins, exceptions = never_folded(
        branch,
        summary=summary,
        hidden_to=max(covered, loaded.unloaded[1] if loaded.unloaded else 0),
        window_to=window_to,
        counter=counter,
    )
    given = ComposeInput(
        values=choice.values,
        model_window=model_window,
        counter=counter,
        system=system_of(branch.chat, values=choice.values),
        tools=tools.offered(branch=branch, values=choice.values, model=choice.model),
        summary=summary,
        window_to=window_to,
        history=(*exceptions, *continued(asked.continues, loaded.messages)),
        pins=pins,
        unloaded=loaded.unloaded,
        question=asked.question,
        steps=asked.steps,
        instruction="" if asked.question else CONTINUE_INSTRUCTION,
        background=asked.background,
        last_seq=asked.last_seq,
        strict_roles=choice.model.strict_roles,
        strategy=plugins.find_strategy(choice.values.strategy),
    )
    return replace(given, calibration=choice.model.factors.of(shares_of(given)))


def shares_of(given: ComposeInput) -> dict[str, float]:
    """The share of each script in what a prompt may hold."""
    texts = [text for _, text in given.system]
    texts += [given.summary.text] if given.summary else []
    told = words_of((*given.history, *given.question, *given.steps))
    return scripts.shares((*texts, *told))


def words_of(messages: Iterable[engine.Message]) -> Iterator[str]:
    """The texts of messages, those of tools too, as far as they tell the script."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, engine.TextPart):
                yield part.text
            elif isinstance(part, engine.ToolResultPart):
                yield part.content


# Messages by which the script of a chat is told where its prompt is not composed.
NEWEST = 20


def calibration_of(branch: Branch, *, model: ModelSpec) -> float:
    """The factor of a model for what is written in a chat, by its newest messages."""
    if not model.calibration_by_script:
        return model.calibration
    rows = history.on_path(branch, after=0, before=branch.last_seq + 1).order_by("-seq")
    parts = (part for row in rows[:NEWEST] for part in engine.parts_from_json(row.parts))
    told = (part.text for part in parts if isinstance(part, engine.TextPart))
    return model.factors.of(scripts.shares(told))


def system_of(chat: Chat, *, values: PolicyValues) -> tuple[tuple[str, str], ...]:
    """The system text by origin: the policy's and the chat's own, as far as there are any."""
    parts = (("policy", values.system_text), ("chat", chat.system_text))
    return tuple((origin, text) for origin, text in parts if text)


def governing(active: Compaction | None, *, values: PolicyValues) -> Compaction | None:
    """The compaction that the policy lets govern a prompt, of the one that is in force.

    The strategy `simple` counts messages and nothing else: no summary or window of another policy
    stands in for what it would send. They stay in force for the policies that know them.
    """
    return None if values.strategy == "simple" else active


def background(turn: Turn, *, values: PolicyValues) -> Background:
    """What is known beside the chat; the same in every step of the turn."""
    state_id = (turn.tail or {}).get("state")
    row = ChatState.objects.get(pk=state_id) if state_id else None
    # The day of the question: a turn that is queued again after midnight keeps it.
    asked_at = turn.trigger.created_at if turn.trigger else turn.queued_at
    return Background(
        state=state_text(row.values) if row else "",
        date=f"{asked_at:%Y-%m-%d}" if values.show_date else "",
    )


def in_force(
    active: Compaction | None, *, counter: TokenCounter
) -> tuple[engine.Summary | None, int]:
    """The published summary and the seq up to which a window leaves messages out (0: none)."""
    if active is None:
        return None, 0
    row = active.base if active.kind == Compaction.Kind.WINDOW else active
    window_to = active.to_seq if active.kind == Compaction.Kind.WINDOW else 0
    if row is None:
        return None, window_to
    summary = engine.Summary(
        id=str(row.pk),
        text=row.text,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        exceptions=tuple(row.exceptions),
        tokens=counter.count(row.text),
    )
    return summary, window_to


def never_folded(
    branch: Branch,
    *,
    summary: engine.Summary | None,
    hidden_to: int,
    counter: TokenCounter,
    window_to: int = 0,
) -> tuple[tuple[engine.Message, ...], tuple[engine.Message, ...]]:
    """The pinned messages up to `hidden_to`, and what a summary's range holds that is no source.

    A message is sent as a pin wherever it stands: folded, behind a window, or not even loaded. Of
    the others those that a window leaves out are passed over.
    """
    pins: tuple[engine.Message, ...] = ()
    if hidden_to:
        hidden = history.on_path(branch, after=0, before=hidden_to + 1)
        pinned = hidden.filter(pinned_at__isnull=False).order_by("seq")
        pins = history.load_all(pinned, counter=counter)
    if summary is None or not summary.exceptions:
        return pins, ()
    rows = history.on_path(branch, after=summary.from_seq - 1, before=summary.to_seq + 1)
    found = rows.filter(seq__in=summary.exceptions, seq__gt=window_to, pinned_at=None)
    return pins, history.load_all(found.order_by("seq"), counter=counter)


def continued(reply_id: str, messages: tuple[engine.Message, ...]) -> tuple[engine.Message, ...]:
    """The history of a continuation: the reply that was cut counts, whatever cut it."""
    return tuple(
        replace(message, incomplete=False) if message.id == reply_id else message
        for message in messages
    )


_OWN = prepared.Select(lambda at: Message.objects.filter(turn=at("turn"), seq__isnull=False))


def turn_messages(turn: Turn, *, branch: Branch) -> tuple[list[Message], list[Message]]:
    """The question of a turn, and what stands after it: its steps and what was taken up since.

    The question is the newest user message that the turn had before its first step; earlier ones
    are history. A continuation has no question, only an instruction.
    """
    # By the turn alone and sorted here: with the branch beside it, SQLite walks the whole branch.
    own = sorted(_OWN.rows(turn=turn.pk), key=lambda row: row.seq or 0)
    first_step = next((row.seq for row in own if row.role == Message.Role.ASSISTANT), None)
    asked = [
        row
        for row in own
        if row.role == Message.Role.USER and (first_step is None or (row.seq or 0) < first_step)
    ]
    if not asked and turn.trigger is not None:
        asked = [turn.trigger]
    if not asked:
        return [], own
    question = asked[-1]
    if question.seq == branch.last_seq:
        return [question], []
    rows = Message.objects.filter(branch=branch, seq__gt=question.seq, seq__lte=branch.last_seq)
    return [question], list(rows.order_by("seq"))


def prompt_of(
    assembled: AssembledContext,
    *,
    given: ComposeInput,
    choice: answering.Choice,
    branch: Branch,
    turn: Turn,
) -> Prompt:
    """The request and the receipt of an assembled context."""
    values = choice.values
    chat_id = branch.chat_id
    refs = [
        receipts.own_ref(s.text_ref, origin=s.origin, label=s.message_id, chat_id=chat_id)
        for s in assembled.segments
    ]
    named = list(zip(assembled.segments, refs, strict=True))
    active = governing(branch.active_compaction, values=values)
    needed = need(given, assembled)
    return Prompt(
        request=ProviderRequest(
            model=choice.model.name,
            messages=assembled.messages,
            tools=assembled.tools,
            max_output_tokens=min(values.reserve_tokens, choice.model.max_output or 10**9),
            facts=facts(assembled, given=given, choice=choice),
        ),
        account=answering.account_for(choice.model),
        effective=choice.effective,
        compaction=active,
        prompt_limit=assembled.budget.prompt_limit,
        prompt_tokens=assembled.prompt_tokens,
        calibration=given.calibration,
        factors=choice.model.factors,
        shares=shares_of(given),
        reserve=assembled.budget.reserve,
        texts=[(ref, s.origin, assembled.texts[s.text_ref]) for s, ref in named if ref],
        receipt_fields={
            "segments": [
                [s.origin, s.message_id, s.seq, s.tokens, s.cut_to, ref, s.result_limit]
                for s, ref in named
            ],
            "left_out": [[out.from_seq, out.to_seq, out.reason] for out in assembled.left_out],
            "budget": asdict(assembled.budget),
            "prompt_tokens": assembled.prompt_tokens,
            "prompt_sha256": assembled.prompt_sha256,
            "last_seq": given.last_seq,
            "notes": [*assembled.adjusted, *assembled.notes, *tail_notes(turn)],
            "compaction_need": asdict(needed),
        },
        compressed=compressed(assembled, values=values),
        need=needed,
        fold_from=fold_from(needed, values=values, limit=assembled.budget.prompt_limit),
        strategy=values.strategy,
    )


def tail_notes(turn: Turn) -> list[str]:
    """Why the tail is not what it should be, if it is not."""
    note = (turn.tail or {}).get("note")
    return [note] if note else []


def fold_from(needed: CompactionNeed, *, values: PolicyValues, limit: int) -> int | None:
    """How long the reply may be before folding is due, in tokens; None where nothing folds."""
    if needed.reason == "strategy":
        return None
    threshold = values.turn_threshold
    if needed.action != "none" or (threshold is not None and needed.turns + 1 > threshold):
        return 0
    return max(prepare_mark(values, prompt_limit=limit) - needed.tokens, 0)


def compressed(assembled: AssembledContext, *, values: PolicyValues) -> dict[str, int | None]:
    """The data of `context.compressed`; empty when nothing was left out or cut (S0.5)."""
    if not was_compressed(assembled):
        return {}
    return {
        "original_count": assembled.original_count,
        "compressed_count": assembled.compressed_count,
        "truncated_count": assembled.truncated_count,
        "max_messages": values.window_size,
        "max_chars_per_message": values.max_chars_per_message,
    }


def facts(
    assembled: AssembledContext, *, given: ComposeInput, choice: answering.Choice
) -> ContextFacts:
    """What was done to the context, in numbers."""
    sent = {segment.seq for segment in assembled.segments if segment.seq}
    summary = given.summary
    return ContextFacts(
        messages_sent=len(sent),
        messages_total=given.last_seq,
        prompt_tokens=assembled.prompt_tokens,
        prompt_limit=assembled.budget.prompt_limit,
        summary_present=summary is not None,
        summary_range=(summary.from_seq, summary.to_seq) if summary else None,
        left_out=tuple((out.from_seq, out.to_seq, out.reason) for out in assembled.left_out),
        cut=sum(1 for segment in assembled.segments if segment.cut_to is not None),
        policy=choice.effective.label,
        strategy=choice.values.strategy,
        window=choice.values.window_size,
        has_state=bool(given.background.state),
    )
