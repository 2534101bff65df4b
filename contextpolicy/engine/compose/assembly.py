"""Composes one prompt from policy, summary, history, question and steps.

`compose_context` is pure and linear in its input. It returns the assembled context or
`WindowNeeded`; in that case the caller stores a `window` row and composes again. Then
`assess_compaction_need` decides whether a summary should be prepared or swapped in.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from contextpolicy.engine.compose.cache_breakpoints import NEW, place_cache_breakpoints
from contextpolicy.engine.compose.partition import (
    Account,
    LeftOut,
    account_for_messages,
    check_order,
    check_partition,
    classify_loaded_messages,
    is_covered_by_summary,
)
from contextpolicy.engine.compose.pieces import Pieces, PromptFacts
from contextpolicy.engine.compose.trimming import get_pin_seq, select_newest_pins
from contextpolicy.engine.history.entries import Entries
from contextpolicy.engine.messages.messages import Message, ToolSpec, WireMessage
from contextpolicy.engine.messages.segments import (
    Block,
    Segment,
    compute_text_ref,
    count_block_tokens,
    format_prompt_json,
    sum_block_costs,
)
from contextpolicy.engine.policy.budget import (
    Budget,
    PolicyImpossible,
    compute_prompt_marks,
    convert_provider_tokens,
)
from contextpolicy.engine.policy.checks import find_number_clashes
from contextpolicy.engine.strategies.contract import STRATEGIES, Strategy, choose_history_window
from contextpolicy.engine.window import (
    NO_CEILING,
    HistoryView,
    MoveReason,
    Room,
    WindowChoice,
    WindowMove,
)

# The notes of a context: changes of the whole prompt, repairs of single messages, and the reasons
# why a strategy was replaced by the fallback.
CHANGES = ("opening_added", "messages_joined")
REPAIRS = (
    "no_result",
    "stray_result",
    "call_id_renamed",
    "tool_part_in_user_message",
    "results_left_out",
    "tool_parts_left_out",
)
FALLBACKS = ("missing", "failed", "changed_tools", "unsound")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeInput(PromptFacts):
    """The input of `compose_context`.

    Fields other than history are described in `PromptFacts`. `window_to`: the seq up to
    which an active `window` row omits messages; 0 if there is no window. `history`:
    messages of finished turns, ascending by seq, after the window and the summary. If it
    contains only the newest part, `unloaded` is the range before it. It begins with the
    summary's exceptions that are not pinned, unless the window omits them. Covered messages
    and messages before the window are skipped. `last_seq`: the branch's highest seq.
    `skipped`: ranges of seqs that a package's history provider omitted. `notes`: the
    caller's notes for the receipt. `strategy`: replaces the built-in strategy that
    `values.strategy` names.
    """

    last_seq: int
    window_to: int = 0
    history: tuple[Message, ...] = ()
    unloaded: tuple[int, int] | None = None
    skipped: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    strategy: Strategy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledContext:
    """The messages and tools that are sent, and their accounting.

    `segments` are in prompt order and add up to `prompt_tokens`, local tokens. `texts` maps SHA-256
    to each text that is not a stored message. `original_count` counts the history messages that are
    neither covered by a summary nor excluded. `compressed_count` counts those that are sent, and
    `truncated_count` those sent and cut. `adjusted` lists deviations from the policy. `notes` lists
    changes, repairs as `seq:repair[:call]`, and `strategy:fallback`. `prefix` is the prefix before
    the tail and the question: its number of messages and of segments. `cache_marks` are message
    counts after which a cache breakpoint is placed (see `cache_breakpoints`).
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
    prefix: tuple[int, int] = (0, 0)
    cache_marks: tuple[int, ...] = ()

    @property
    def prompt_sha256(self) -> str:
        """SHA-256, in hex, of the canonical JSON of messages and tools."""
        return compute_text_ref(format_prompt_json(self.messages, self.tools))


@dataclass(frozen=True, slots=True)
class WindowNeeded:
    """The history must be shortened: store a `window` row up to `to_seq`, then compose again.

    The token counts are the local tokens of history before and after the move. Messages that were
    not loaded are not counted.
    """

    to_seq: int
    tokens_before: int
    tokens_after: int
    reason: MoveReason


def compose_context(given: ComposeInput) -> AssembledContext | WindowNeeded:
    """Compose a prompt within the prompt limit that accounts for every message of the branch.

    Raises PolicyImpossible, QuestionTooLarge or TurnTooLarge if the required parts do not fit, and
    PartitionError if the input does not account for every message of the branch. Policy numbers out
    of range, which a saved policy cannot have, also raise PolicyImpossible.
    """
    for _, _, sentence in find_number_clashes(given.values):
        raise PolicyImpossible(sentence)
    prompt = _Prompt(given)
    choice, fallback = prompt.choose()
    if isinstance(choice, WindowMove) and prompt.excerpts:
        # Steps of the turn now need the room: excerpts are removed before history is.
        prompt = _Prompt(drop_retrieved_context(given))
        choice, fallback = prompt.choose()
    if isinstance(choice, WindowMove):
        return prompt.window_needed(choice)
    return prompt.assemble(choice, fallback)


def drop_retrieved_context(given: ComposeInput) -> ComposeInput:
    """Return the input without its retrieved context."""
    return replace(given, background=replace(given.background, references=()))


def is_compressed(context: AssembledContext) -> bool:
    """Return True if messages were omitted or cut.

    The ledger records this as `context.compressed`.
    """
    return context.compressed_count < context.original_count or context.truncated_count > 0


class _Prompt:
    """One composition: first the parts other than history, then the history, then the layout."""

    def __init__(self, given: ComposeInput) -> None:
        self.given = given
        self.marks = compute_prompt_marks(
            given.values, model_window=given.model_window, calibration=given.calibration
        )
        found = classify_loaded_messages(
            history=given.history,
            pins=given.pins,
            summary=given.summary,
            window_to=given.window_to,
            goes_on=bool(given.instruction),
        )
        self.pieces = Pieces(given, found, limit=self.marks.limit, low=self.marks.low)
        self.maker, self.fixed = self.pieces.maker, self.pieces.fixed
        self.sorted = self.pieces.sorted
        self.entries = Entries(self.sorted.live, make=self.pieces.history)
        # Tokens of retrieved context that uses only free room.
        self.excerpts = 0
        if given.values.reference_share:
            self.excerpts = sum(count_excerpt_tokens(block.segments) for block in self.fixed.tail)

    def choose(self) -> tuple[WindowChoice | WindowMove, str]:
        """Return the decision to use, and the reason if the fallback decided, else ""."""
        given, taken = self.given, self.fixed.cost
        limit = self.marks.limit - taken
        ceiling = given.values.window_tokens
        view = HistoryView(
            values=given.values,
            room=Room(
                limit,
                # Excerpts use free room up to the limit. The marks apply to everything else.
                min(self.marks.high - taken + self.excerpts, max(limit, self.marks.high - taken)),
                min(self.marks.low - taken + self.excerpts, max(limit, self.marks.low - taken)),
                NO_CEILING
                if ceiling is None
                else convert_provider_tokens(ceiling, calibration=given.calibration),
            ),
            entries=self.entries,
            pin_tokens=lambda message: self.maker.pin(message).cost,
            is_complete=given.unloaded is None or given.unloaded[1] <= given.window_to,
            system_prompt="".join(wire.content for wire in self.pieces.system.wires),
            tools=given.tools,
            retrieved="\n".join(item.text for item in given.background.references),
        )
        return choose_history_window(given.strategy or STRATEGIES.get(given.values.strategy), view)

    def window_needed(self, move: WindowMove) -> WindowNeeded:
        """Convert a move from indexes to seqs of the branch."""
        to_seq = self.given.unloaded[1] if self.given.unloaded else 0
        if move.start > 0:
            to_seq = max(to_seq, self.sorted.live[move.start - 1].seq)
        return WindowNeeded(to_seq, move.tokens_before, move.tokens_after, move.reason)

    def assemble(self, choice: WindowChoice, fallback: str) -> AssembledContext:
        """Return the prompt of the chosen parts, with each message sent or left out for a reason.

        Drops the oldest entries if it exceeds the limit. Raises PartitionError if a message is
        neither sent nor left out. `fallback`: the reason the fallback chose the window, or empty.
        """
        kept = [*(self.entries[place] for place in choice.kept), *self.pieces.continued]
        pins, left = self._pins_beside(choice)
        blocks, notes = self.pieces.laid_out(pins, kept)
        tokens = count_block_tokens(blocks)
        while tokens > self.marks.limit and len(kept) > len(self.pieces.continued):
            # The text may count more tokens than its pieces: then drop the oldest entry.
            left.append((kept.pop(0).message.seq, "budget"))
            blocks, notes = self.pieces.laid_out(pins, kept)
            tokens = count_block_tokens(blocks)
        segments = tuple(segment for block in blocks for segment in block.segments)
        told = self._account(segments, left)
        sent = len(kept) + self._count_uncovered(pins)
        found = (note for item in (*kept, *self.fixed.steps) for note in item.notes)
        messages = tuple(wire for block in blocks for wire in block.wires)
        return AssembledContext(
            messages=messages,
            tools=self.given.tools,
            segments=segments,
            left_out=told.left_out,
            budget=self._budget(segments),
            prompt_tokens=tokens,
            original_count=sent + told.limited,
            compressed_count=sent,
            truncated_count=sum(1 for item in kept if item.cut_to or item.result_limit),
            adjusted=("strategy",) if fallback else (),
            notes=(*([f"strategy:{fallback}"] if fallback else []), *found, *notes),
            texts={s.text_ref: self.maker.texts[s.text_ref] for s in segments if s.text_ref},
            prefix=_prefix(blocks),
            cache_marks=place_cache_breakpoints(
                [(b.segments, len(b.wires)) for b in blocks], messages
            ),
        )

    def _pins_beside(self, choice: WindowChoice) -> tuple[tuple[Block, ...], list[tuple[int, str]]]:
        """Return the pins that fit next to the history, and (seq, reason) of omitted messages."""
        out = [(self.sorted.live[place], reason) for place, reason in choice.left]
        left = [(message.seq, reason) for message, reason in out if not message.pinned]
        left = [*self.sorted.left, *self.fixed.left, *left]
        moved = (self.maker.pin(message) for message, _ in out if message.pinned)
        pins = (*self.fixed.pins, *moved)
        if not pins:
            return pins, left
        history = sum(self.entries[place].cost for place in choice.kept)
        others = self.fixed.cost - sum_block_costs(self.fixed.pins) + history
        room = min(self.marks.limit - others, self.pieces.pins_room)
        pins, dropped = select_newest_pins(pins, room=room)
        return pins, [*left, *dropped]

    def _count_uncovered(self, pins: tuple[Block, ...]) -> int:
        return sum(
            1 for pin in pins if not is_covered_by_summary(self.given.summary, get_pin_seq(pin))
        )

    def _account(self, segments: tuple[Segment, ...], left: list[tuple[int, str]]) -> Account:
        """Account for each message of the branch; raises PartitionError."""
        given = self.given
        check_order(segment.seq for segment in segments if segment.origin == "history")
        sent = sorted(segment.seq for segment in segments if segment.seq)
        told = account_for_messages(
            sent=sent,
            left=left,
            summary=given.summary,
            summary_is_sent=bool(self.fixed.summary),
            window_to=given.window_to,
            unloaded=given.unloaded,
            skipped=given.skipped,
        )
        check_partition(last_seq=given.last_seq, sent=sent, left_out=told.left_out)
        return told

    def _budget(self, segments: tuple[Segment, ...]) -> Budget:
        return Budget(
            token_budget=self.given.values.token_budget,
            reserve=self.given.values.reserve_tokens,
            prompt_limit=self.marks.prompt_limit,
            calibration=self.given.calibration,
            limit=self.marks.limit,
            **count_tokens_by_part(segments),
        )


def _prefix(blocks: Sequence[Block]) -> tuple[int, int]:
    """Count the messages and the segments of the prefix, before all new content."""
    before = list(takewhile(lambda b: all(s.origin not in NEW for s in b.segments), blocks))
    return sum(len(b.wires) for b in before), sum(len(b.segments) for b in before)


def extract_shared_prefix(context: AssembledContext) -> AssembledContext | None:
    """Return the part of a prompt that the next prompt shares, with its own token counts.

    Returns None if this part contains neither a message nor a summary of the chat.
    """
    messages, count = context.prefix
    segments = context.segments[:count]
    if not any(s.seq or s.origin == "summary" for s in segments):
        return None
    taken = dict.fromkeys(_ALL_PARTS, 0) | count_tokens_by_part(segments)
    return replace(
        context,
        messages=context.messages[:messages],
        segments=segments,
        budget=replace(context.budget, **taken),
        prompt_tokens=sum(segment.tokens for segment in segments),
        texts={s.text_ref: context.texts[s.text_ref] for s in segments if s.text_ref},
        cache_marks=(),
    )


_ALL_PARTS = ("system", "tools", "summary", "pins", "history", "tail", "question", "steps")
# Origins whose part of the budget has a different name.
_PARTS = {
    "opening": "system",
    "pin": "pins",
    "day": "history",
    "continue": "question",
    "step": "steps",
    "prefill": "question",
}


def count_tokens_by_part(segments: Sequence[Segment]) -> dict[str, int]:
    """Count the local tokens of each budget part, by part name."""
    taken: Counter[str] = Counter()
    for place, segment in enumerate(segments):
        is_of_pin = segment.origin == "day" and segments[place + 1].origin == "pin"
        taken["pins" if is_of_pin else _PARTS.get(segment.origin, segment.origin)] += segment.tokens
    return taken


def count_excerpt_tokens(segments: Iterable[Segment]) -> int:
    return sum(s.tokens for s in segments if s.origin == "tail" and s.message_id == "references")
