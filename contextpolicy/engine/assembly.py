"""Composing one prompt: from policy, summary, history, question and steps to what is sent.

`compose` is pure and costs O(what it is given). It answers with the assembled context, or with
`WindowNeeded`: then the caller stores a `window` row and composes again. Afterwards `need` says
whether a summary should be prepared or swapped in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from contextpolicy.engine.budget import Budget, compact_mark, marks_of, prepare_mark, prompt_limit
from contextpolicy.engine.entries import Entries
from contextpolicy.engine.fitting import Fixed, fit, newest_pins, require
from contextpolicy.engine.groups import has_content, turns_of
from contextpolicy.engine.layouts import (
    Block,
    Maker,
    Parts,
    Segment,
    entry_block,
    multi_turn,
    prompt_json,
    text_ref,
    tokens_of,
)
from contextpolicy.engine.messages import Message, Summary, ToolSpec, WireMessage
from contextpolicy.engine.partition import (
    Account,
    LeftOut,
    account,
    check_partition,
    covers,
    sort_out,
)
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.prompts import summary_wire
from contextpolicy.engine.strategies.contract import STRATEGIES, Strategy
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.window import (
    Choice,
    HistoryView,
    MoveReason,
    Room,
    WindowMove,
    is_sound,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeInput:
    """Every fact a prompt is made of.

    `system`: ordered (origin, text). `summary`: the published one in force. `window_to`: the seq
    up to which an active `window` row leaves messages out, 0 for none. `history`: messages of
    finished turns, ascending by seq, that neither covers; it may be only the newest part, then
    `unloaded` is the range before it. It begins with those of the summary's exceptions that are
    not pinned, unless the window leaves them out; messages that are covered or before the window
    are passed over. `pins`: pinned messages that are not in `history`. `question`: the user
    messages now answered; `steps`: the turn's steps and the user messages taken up since,
    ascending. `instruction`: instead of a question, when a cut reply goes on. `tail`: one user
    block. `last_seq`: the branch's highest seq. `calibration`: provider's tokens per token of
    ours. `strategy`: in place of the one that `values.strategy` names among the strategies that
    ship.
    """

    values: PolicyValues
    model_window: int | None
    counter: TokenCounter
    system: tuple[tuple[str, str], ...]
    last_seq: int
    tools: tuple[ToolSpec, ...] = ()
    summary: Summary | None = None
    window_to: int = 0
    history: tuple[Message, ...] = ()
    unloaded: tuple[int, int] | None = None
    pins: tuple[Message, ...] = ()
    question: tuple[Message, ...] = ()
    steps: tuple[Message, ...] = ()
    instruction: str = ""
    tail: str = ""
    calibration: float = 1.0
    strategy: Strategy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledContext:
    """What is sent, and the account of it.

    `segments` are in prompt order and add up to `prompt_tokens` (our count). `texts` holds, by
    SHA-256, each text that is no stored message. `original_count` counts the history messages that
    no summary covers and nobody excluded, `compressed_count` those of them sent, `truncated_count`
    the ones of these that were cut. `adjusted` names what had to differ from the policy, `notes`
    the repairs for the wire as `seq:repair`.
    """

    messages: tuple[WireMessage, ...]
    tools: tuple[ToolSpec, ...]
    segments: tuple[Segment, ...]
    left_out: tuple[LeftOut, ...]
    budget: Budget
    prompt_tokens: int
    original_count: int
    compressed_count: int
    truncated_count: int
    adjusted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def prompt_sha256(self) -> str:
        """SHA-256, in hex, of the canonical JSON of messages and tools."""
        return text_ref(prompt_json(self.messages, self.tools))


@dataclass(frozen=True, slots=True)
class WindowNeeded:
    """History has to move first: store a `window` row up to `to_seq`, then compose again.

    Tokens are those of history before and after, in our count; messages never loaded are not
    counted.
    """

    to_seq: int
    tokens_before: int
    tokens_after: int
    reason: MoveReason


@dataclass(frozen=True, slots=True)
class CompactionNeed:
    """Whether a summary is due: `prepare` it in the background, `swap` it in as soon as ready.

    `tokens` is the prompt in the provider's tokens, `mark` the mark it passed (0: none), `turns`
    the finished turns that stand unfolded.
    """

    action: Literal["none", "prepare", "swap"]
    reason: Literal[
        "strategy", "below_threshold", "window", "compact_mark", "turns", "prepare_mark"
    ]
    tokens: int
    mark: int
    turns: int


def compose(given: ComposeInput) -> AssembledContext | WindowNeeded:
    """Decide what is sent, within the prompt limit and with every message accounted for.

    Raises PolicyImpossible, QuestionTooLarge or TurnTooLarge if what may not leave does not fit,
    and PartitionError if the input does not account for every message of the branch.
    """
    prompt = _Prompt(given)
    choice, adjusted = prompt.choose()
    if isinstance(choice, WindowMove):
        return prompt.window_needed(choice)
    return prompt.assemble(choice, adjusted)


def was_compressed(context: AssembledContext) -> bool:
    """Whether the turn gets an event `context.compressed`: something was left out or cut."""
    return context.compressed_count < context.original_count or context.truncated_count > 0


def need(given: ComposeInput, context: AssembledContext) -> CompactionNeed:
    """Say whether a summary should be prepared or swapped in, after `context` was composed."""
    values = given.values
    limit = prompt_limit(values, model_window=given.model_window)
    tokens = int(context.prompt_tokens * given.calibration)
    unfolded = [message for message in given.history if not covers(given.summary, message.seq)]
    turns = len(turns_of(unfolded))
    frontier = given.summary.to_seq if given.summary else 0
    high = compact_mark(values, prompt_limit=limit)
    prepare = prepare_mark(values, prompt_limit=limit)
    if values.strategy != "dynamic_summary":
        return CompactionNeed("none", "strategy", tokens, 0, turns)
    if given.window_to > frontier:
        return CompactionNeed("swap", "window", tokens, 0, turns)
    if tokens >= high:
        return CompactionNeed("swap", "compact_mark", tokens, high, turns)
    if values.turn_threshold is not None and turns > values.turn_threshold:
        return CompactionNeed("swap", "turns", tokens, 0, turns)
    if tokens >= prepare:
        return CompactionNeed("prepare", "prepare_mark", tokens, prepare, turns)
    return CompactionNeed("none", "below_threshold", tokens, 0, turns)


class _Prompt:
    """One composition: the parts beside history first, then what history stays, then the layout."""

    def __init__(self, given: ComposeInput) -> None:
        self.given = given
        self.sorted = sort_out(
            history=given.history,
            pins=given.pins,
            summary=given.summary,
            window_to=given.window_to,
            goes_on=bool(given.instruction),
        )
        self.marks = marks_of(
            given.values, model_window=given.model_window, calibration=given.calibration
        )
        self.maker = Maker(values=given.values, counter=given.counter)
        self.system = self.maker.system(given.system)
        self.tools = self.maker.tools(given.tools)
        self.question = self._question()
        continued = self.sorted.continued
        self.continued = [self.maker.whole(continued)] if continued else []
        self.fixed = self._fixed()
        self.entries = Entries(self.sorted.live, make=self.maker.cut)

    def choose(self) -> tuple[Choice | WindowMove, tuple[str, ...]]:
        """The strategy's decision and what had to be adjusted to get a sound one."""
        given, taken = self.given, self.fixed.tokens
        view = HistoryView(
            values=given.values,
            room=Room(self.marks.limit - taken, self.marks.high - taken, self.marks.low - taken),
            entries=self.entries,
            pin_tokens=lambda message: self.maker.pin(message).tokens,
            is_complete=given.unloaded is None or given.unloaded[1] <= given.window_to,
        )
        strategy = given.strategy or STRATEGIES.get(given.values.strategy)
        if strategy is not None:
            choice = strategy.choose(view)
            if is_sound(choice, view):
                return choice, ()
        return STRATEGIES["sliding_window"].choose(view), ("strategy",)

    def window_needed(self, move: WindowMove) -> WindowNeeded:
        """The move in seqs of the branch."""
        to_seq = self.given.unloaded[1] if self.given.unloaded else 0
        if move.start > 0:
            to_seq = max(to_seq, self.sorted.live[move.start - 1].seq)
        return WindowNeeded(to_seq, move.tokens_before, move.tokens_after, move.reason)

    def assemble(self, choice: Choice, adjusted: tuple[str, ...]) -> AssembledContext:
        """Lay out the chosen parts, check the partition and write the account."""
        kept = [*(self.entries[place] for place in choice.kept), *self.continued]
        pins, left = self._pins_beside(choice)
        parts = Parts(
            system=(self.system,),
            tools=(self.tools,),
            summary=self.fixed.summary,
            pins=pins,
            history=tuple(entry_block("history", item) for item in kept),
            tail=self.fixed.tail,
            question=self.question,
            steps=tuple(entry_block("step", item) for item in self.fixed.steps),
        )
        blocks = tuple(multi_turn(parts))
        segments = tuple(segment for block in blocks for segment in block.segments)
        told = self._account(segments, left)
        sent = len(kept) + self._uncovered(pins)
        return AssembledContext(
            messages=tuple(wire for block in blocks for wire in block.wires),
            tools=self.given.tools,
            segments=segments,
            left_out=told.left_out,
            budget=self._budget(parts),
            prompt_tokens=tokens_of(blocks),
            original_count=sent + told.limited,
            compressed_count=sent,
            truncated_count=sum(1 for item in kept if item.cut_to or item.result_limit),
            adjusted=adjusted,
            notes=tuple(note for item in (*kept, *self.fixed.steps) for note in item.notes),
            texts={s.text_ref: self.maker.texts[s.text_ref] for s in segments if s.text_ref},
        )

    def _question(self) -> tuple[Block, ...]:
        asked = tuple(self.maker.question(message) for message in self.given.question)
        if not self.given.instruction:
            return asked
        return (*asked, self.maker.data("continue", WireMessage("user", self.given.instruction)))

    def _fixed(self) -> Fixed:
        """The parts beside history, made to fit the limit; raises the refusals of `compose`."""
        given, make = self.given, self.maker
        summary, tail = given.summary, given.tail
        fixed = Fixed(
            required=require(
                limit=self.marks.limit,
                system=self.system.tokens,
                tools=self.tools.tokens,
                question=tokens_of(self.question) + sum(e.tokens for e in self.continued),
            ),
            summary=(make.data("summary", summary_wire(summary), label=summary.id),)
            if summary
            else (),
            pins=tuple(make.pin(message) for message in self.sorted.pins),
            tail=(make.data("tail", WireMessage("user", tail)),) if tail else (),
            steps=tuple(make.whole(step) for step in given.steps if has_content(step)),
            left=tuple((step.seq, "empty") for step in given.steps if not has_content(step)),
        )
        return fit(
            fixed,
            limit=self.marks.limit,
            low=self.marks.low,
            shorter=lambda step, characters: make.whole(step.message, characters),
        )

    def _pins_beside(self, choice: Choice) -> tuple[tuple[Block, ...], list[tuple[int, str]]]:
        """The pins that fit beside the chosen history, and what is left out: (seq, reason)."""
        out = [(self.sorted.live[place], reason) for place, reason in choice.left]
        moved = (self.maker.pin(message) for message, _ in out if message.pinned)
        history = sum(self.entries[place].tokens for place in choice.kept)
        others = self.fixed.tokens - tokens_of(self.fixed.pins) + history
        pins, dropped = newest_pins((*self.fixed.pins, *moved), room=self.marks.limit - others)
        left = [(message.seq, reason) for message, reason in out if not message.pinned]
        return pins, [*self.sorted.left, *self.fixed.left, *left, *dropped]

    def _uncovered(self, pins: tuple[Block, ...]) -> int:
        return sum(1 for pin in pins if not covers(self.given.summary, pin.segments[0].seq))

    def _account(self, segments: tuple[Segment, ...], left: list[tuple[int, str]]) -> Account:
        """Account for each message of the branch; raises PartitionError."""
        given = self.given
        sent = sorted(segment.seq for segment in segments if segment.seq)
        told = account(
            sent=sent,
            left=left,
            summary=given.summary,
            summary_is_sent=bool(self.fixed.summary),
            window_to=given.window_to,
            unloaded=given.unloaded,
        )
        check_partition(last_seq=given.last_seq, sent=sent, left_out=told.left_out)
        return told

    def _budget(self, parts: Parts) -> Budget:
        return Budget(
            token_budget=self.given.values.token_budget,
            reserve=self.given.values.reserve_tokens,
            prompt_limit=self.marks.prompt_limit,
            calibration=self.given.calibration,
            limit=self.marks.limit,
            system=tokens_of(parts.system),
            tools=tokens_of(parts.tools),
            summary=tokens_of(parts.summary),
            pins=tokens_of(parts.pins),
            history=tokens_of(parts.history),
            tail=tokens_of(parts.tail),
            question=tokens_of(parts.question),
            steps=tokens_of(parts.steps),
        )
