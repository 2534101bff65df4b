"""Plays a recorded chat in memory with the engine, as the product does with the database.

The window moves when a prompt requires it. After each turn a summary is planned,
checked, and published when it is due.
"""

import traceback
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    ComposeInput,
    WindowNeeded,
    compose_context,
)
from contextpolicy.engine.compose.compaction_need import (
    assess_compaction_need,
    compute_compaction_threshold,
)
from contextpolicy.engine.compose.partition import PartitionError
from contextpolicy.engine.history.entries import estimate_sendable_tokens
from contextpolicy.engine.messages.messages import (
    Message,
    Part,
    Role,
    Summary,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    extract_message_text,
)
from contextpolicy.engine.messages.tokens import TokenCounter, count_uncut_tokens
from contextpolicy.engine.messages.transcript import Background
from contextpolicy.engine.policy.budget import BudgetRefusal, compute_compact_mark
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import format_state_text
from contextpolicy.engine.summaries.acceptance import check_generated_summary
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, CoverageGap
from contextpolicy.engine.summaries.extractive import build_extractive_summary
from contextpolicy.engine.summaries.prompts import select_summary_headings
from replay.faults import find_prompt_faults, has_required_prefix
from replay.recordings import RecordedStep, RecordedTurn

SYSTEM = "You are a careful assistant. Answer in the language of the question."
# The maximum number of attempts for one prompt, as in the product.
MOST_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A question and its steps, as they would be stored."""

    question: Message
    steps: tuple[Message, ...]


@dataclass(slots=True)
class Tally:
    """The counts over the prompts of one combination; `faults` by their name in `FAULTS`.

    `refused` counts prompts that were refused before any call. `breaks` counts prompts that
    did not begin with the whole previous prompt, so that the provider's cache does not
    apply.
    """

    calls: int = 0
    refused: int = 0
    largest: int = 0
    moves: int = 0
    summaries: int = 0
    rejected: int = 0
    breaks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    first_fault: str = ""

    def note(self, fault: str, detail: str) -> None:
        """Count a fault and keep the detail of the first one."""
        self.faults[fault] += 1
        self.first_fault = self.first_fault or f"{fault}: {detail}"


def convert_recorded_turns(
    turns: Sequence[RecordedTurn], *, counter: TokenCounter
) -> list[PlayedTurn]:
    """Convert a recording's turns to engine messages; the second question is pinned."""
    made: list[PlayedTurn] = []
    seq = 0
    for number, turn in enumerate(turns, start=1):
        parts: list[tuple[Role, tuple[Part, ...]]] = [("user", (TextPart(turn.text),))]
        parts += [("assistant", build_step_parts(step)) for step in turn.steps]
        question, *steps = (
            Message(
                id=f"m{place}",
                seq=place,
                role=role,
                parts=said,
                tokens=count_uncut_tokens(said, role, counter),
                turn=f"t{number}",
                pinned=number == 2 and role == "user",
            )
            for place, (role, said) in enumerate(parts, start=seq + 1)
        )
        seq += len(parts)
        made.append(PlayedTurn(question, tuple(steps)))
    return made


def is_append_only(made: AssembledContext, before: AssembledContext) -> bool:
    """Return True if a prompt only appends to the previous one."""
    return made.messages[: len(before.messages)] == before.messages


def build_step_parts(step: RecordedStep) -> tuple[Part, ...]:
    """Return a recorded reply as parts: text, calls, and existing results."""
    said: list[Part] = [TextPart(step.text)] if step.text else []
    said += [ToolCallPart(call.call_id, call.name, call.arguments) for call in step.calls]
    said += [
        ToolResultPart(call.call_id, call.name, call.result)
        for call in step.calls
        if call.result is not None
    ]
    return tuple(said)


def play_conversation(
    turns: Sequence[PlayedTurn], *, values: PolicyValues, counter: TokenCounter, tally: Tally
) -> None:
    """Play a conversation under the values; a fault is counted and ends it."""
    chat = PlayedChat(values, counter, tally)
    try:
        for turn in turns:
            chat.turn(turn)
    except (PartitionError, CoverageGap) as error:
        tally.note("partition", str(error))
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding and not the end
        tally.note("exception", traceback.format_exc())


class PlayedChat:
    def __init__(self, values: PolicyValues, counter: TokenCounter, tally: Tally) -> None:
        self.values = values
        self.counter = counter
        self.tally = tally
        self.limit = values.token_budget - values.reserve_tokens
        self.messages: list[Message] = []
        self.pinned: list[Message] = []
        self.summary: Summary | None = None
        self.window_to = 0
        self.prepared: tuple[CompactionPlan, Summary] | None = None
        # Whether each of the last three summaries came too late, as in the product.
        self.came_late: deque[bool] = deque(maxlen=3)
        self.folded: set[int] = set()
        self.before: tuple[ComposeInput, AssembledContext] | None = None

    def turn(self, turn: PlayedTurn) -> None:
        """Compose the prompt of each step, then do the work after a turn."""
        for done in range(len(turn.steps)):
            made = self.call(turn.question, turn.steps[:done])
            if made is None:
                break
        said = [turn.question, *turn.steps]
        self.messages += said
        self.pinned += [message for message in said if message.pinned]
        if self.before is not None and self.is_due(*self.before, reply=turn.steps[-1]):
            self.maintain(self.before[1])

    def call(self, question: Message, steps: tuple[Message, ...]) -> AssembledContext | None:
        """Compose and check one prompt; None if it was refused."""
        self.tally.calls += 1
        try:
            facts, made = self.composed(question, steps)
        except BudgetRefusal:
            self.tally.refused += 1
            return None
        self.tally.largest = max(self.tally.largest, made.prompt_tokens)
        for fault, detail in find_prompt_faults(facts, made, counter=self.counter):
            self.tally.note(fault, detail)
        if self.before is not None and not has_required_prefix(self.before, (facts, made)):
            self.tally.note("prefix", f"the prompt for message {question.seq}")
        self.tally.breaks += self.before is not None and not is_append_only(made, self.before[1])
        self.before = facts, made
        return made

    def composed(
        self, question: Message, steps: tuple[Message, ...]
    ) -> tuple[ComposeInput, AssembledContext]:
        """Compose a prompt as the product does.

        A prepared summary is published first. If the prompt still does not fit, the window moves.
        Raises BudgetRefusal if the prompt cannot fit, and RuntimeError if the window keeps moving.
        """
        for _ in range(MOST_ATTEMPTS):
            facts = self.facts(question, steps)
            made = compose_context(facts)
            if (
                isinstance(made, AssembledContext)
                and assess_compaction_need(facts, made).action != "swap"
            ):
                return facts, made
            if self.publish():
                continue
            if isinstance(made, AssembledContext):
                return facts, made
            self.move(made)
        raise RuntimeError("The window moved again and again and the prompt still does not fit.")

    def facts(self, question: Message, steps: tuple[Message, ...]) -> ComposeInput:
        """Return the input of the prompt; only the newest history is loaded."""
        frontier = self.summary.to_seq if self.summary else 0
        covered = max(frontier, self.window_to)
        loaded, unloaded = self.loaded(covered)
        hidden_to = unloaded[1] if unloaded else covered
        state = format_state_text(
            {"messages": len(self.messages), "question": extract_message_text(question)[:60]}
        )
        is_state = self.values.strategy == "entity_state"
        return ComposeInput(
            values=self.values,
            model_window=None,
            counter=self.counter,
            system=(("policy", SYSTEM),),
            summary=self.summary,
            window_to=self.window_to,
            history=(
                *(m for m in self.exceptions() if not m.pinned and m.seq > self.window_to),
                *loaded,
            ),
            pins=tuple(m for m in self.pinned if m.seq <= hidden_to),
            unloaded=unloaded,
            question=(question,),
            steps=steps,
            background=Background(state=state if is_state else ""),
            last_seq=question.seq + len(steps),
        )

    def exceptions(self) -> list[Message]:
        """Return the messages in the summary's range that it does not cover."""
        return [self.messages[seq - 1] for seq in (self.summary.exceptions if self.summary else ())]

    def loaded(self, covered: int) -> tuple[tuple[Message, ...], tuple[int, int] | None]:
        """Load the newest messages after `covered`, as the product does.

        Returns these messages and the range before them.
        """
        room, first = self.limit, len(self.messages) + 1
        most = self.values.window_size if self.values.strategy == "simple" else None
        while first > covered + 1 and room > 0 and len(self.messages) + 1 - first != most:
            first -= 1
            room -= estimate_sendable_tokens(self.messages[first - 1], values=self.values)
        unloaded = (covered + 1, first - 1) if first > covered + 1 else None
        return tuple(self.messages[first - 1 :]), unloaded

    def move(self, needed: WindowNeeded) -> None:
        """Store a window row; raises RuntimeError if it moves nothing."""
        if needed.to_seq <= max(self.window_to, self.summary.to_seq if self.summary else 0):
            raise RuntimeError(
                f"The window should move to {needed.to_seq}, but it is already there."
            )
        self.window_to = needed.to_seq
        self.tally.moves += 1

    def is_due(self, facts: ComposeInput, made: AssembledContext, *, reply: Message) -> bool:
        """Return True if the product would check for a compaction after this reply."""
        allowed = compute_compaction_threshold(
            assess_compaction_need(facts, made), values=self.values, limit=self.limit
        )
        return allowed is not None and reply.tokens >= allowed

    def maintain(self, context: AssembledContext) -> None:
        """Plan and check a summary unless one is pending, and publish it if it is due."""
        if self.prepared is not None:
            return
        frontier = self.summary.to_seq if self.summary else 0
        taken = context.budget
        made = plan_compaction(
            (*(m for m in self.exceptions() if not m.pinned), *self.messages[frontier:]),
            previous=self.summary,
            values=self.values,
            prompt_limit=self.limit,
            fixed_tokens=taken.system + taken.tools + taken.pins + taken.tail,
            counter=self.counter,
            came_late=bool(self.window_to) or any(self.came_late),
        )
        if isinstance(made, CompactionPlan) and self.prepare(made):
            is_full = made.tokens_before >= compute_compact_mark(
                self.values, prompt_limit=self.limit
            )
            if made.trigger == "turns" or is_full or self.window_to:
                self.publish()

    def prepare(self, made: CompactionPlan) -> bool:
        """Write the extractive summary, and keep it if it is accepted."""
        text = build_extractive_summary(
            made.sources,
            made.previous,
            max_tokens=self.values.summary_max_tokens,
            counter=self.counter,
            sections=select_summary_headings(self.values),
            cited=self.messages if made.previous else (),
        )
        checked = check_generated_summary(
            text,
            sources=made.sources,
            previous=made.previous,
            finish="stop",
            has_tool_calls=False,
            reasoning_only=False,
            values=self.values,
            counter=self.counter,
            by_model=False,
        )
        if not checked.accepted:
            self.tally.rejected += 1
            return False
        name = f"s{self.tally.summaries + 1}"
        self.prepared = made, made.summary(id=name, text=text, tokens=self.counter.count(text))
        return True

    def publish(self) -> bool:
        """Publish the prepared summary; return False if there is none.

        Raises PartitionError unless it covers exactly the planned messages.
        """
        if self.prepared is None:
            return False
        self.came_late.append(bool(self.window_to))
        (made, self.summary), self.prepared = self.prepared, None
        self.tally.summaries += 1
        self.folded |= {message.seq for message in made.sources}
        told = sorted((*self.folded, *self.summary.exceptions))
        if told != list(range(1, self.summary.to_seq + 1)):
            raise PartitionError(f"The summary up to {self.summary.to_seq} does not cover it.")
        # As in the product, the summary also replaces the window.
        self.window_to = 0
        return True
