"""Builds all parts of a prompt except its history, and fits them to the limit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from contextpolicy.engine.compose.agent_layouts import AgentMaker
from contextpolicy.engine.compose.layouts import (
    JOINT_BYTES,
    OPENING,
    Maker,
    build_entry_block,
    enforce_strict_roles,
)
from contextpolicy.engine.compose.partition import (
    SortedOut,
    exclude_hidden_messages,
    exclude_oversized_messages,
    explain_unsendable_message,
)
from contextpolicy.engine.compose.system_text import filter_system_parts
from contextpolicy.engine.compose.text_layouts import TextMaker
from contextpolicy.engine.compose.trimming import (
    Fixed,
    fit_fixed_parts,
    require_prompt_bytes,
    require_prompt_room,
    select_newest_pins,
)
from contextpolicy.engine.history.entries import Entry
from contextpolicy.engine.history.tool_rules import Stubbed, find_stubbed_results
from contextpolicy.engine.messages.days import find_day_starts
from contextpolicy.engine.messages.messages import FilePart, Message, Summary, ToolSpec, WireMessage
from contextpolicy.engine.messages.segments import (
    Block,
    Parts,
    Scale,
    count_block_tokens,
    count_image_bytes,
    count_tool_bytes,
    count_wire_bytes,
)
from contextpolicy.engine.messages.tokens import TokenCounter, count_wire_tokens
from contextpolicy.engine.messages.transcript import Background
from contextpolicy.engine.policy.policy import PolicyValues


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFacts:
    """The parts of a prompt other than its history.

    `system`: ordered (origin, text). `summary`: the active published one. `pins`: pinned messages
    that are not in the history. `question`: the user messages to answer. `steps`: the turn's steps
    and the user messages that arrived since, ascending. `instruction`: replaces the question when a
    truncated reply is continued. `prefill`: the beginning of the reply, which the model continues.
    `background`: knowledge from outside the chat; with `tail`, any further text, it makes one user
    block. `calibration`: provider's tokens per local token. `strict_roles`: the provider requires
    alternating roles, user first. `form`: the text form of an agent's prompt, instead of the
    policy's layout; empty for none. `image_limit`: the limit of texts and images together in
    bytes; None: images have no limit in bytes.
    """

    values: PolicyValues
    model_window: int | None
    counter: TokenCounter
    system: tuple[tuple[str, str], ...]
    tools: tuple[ToolSpec, ...] = ()
    summary: Summary | None = None
    pins: tuple[Message, ...] = ()
    question: tuple[Message, ...] = ()
    steps: tuple[Message, ...] = ()
    instruction: str = ""
    prefill: str = ""
    background: Background = field(default_factory=Background)
    tail: str = ""
    calibration: float = 1.0
    strict_roles: bool = False
    form: str = ""
    image_limit: int | None = None


def build_prompt_maker(
    *, values: PolicyValues, form: str, counter: TokenCounter, scale: Scale, stubbed: Stubbed
) -> Maker:
    """Return the maker of a prompt: for an agent's text form if given, else for the layout."""
    if form:
        return AgentMaker(form=form, values=values, counter=counter, scale=scale, stubbed=stubbed)
    kind = Maker if values.layout == "multi_turn" else TextMaker
    return kind(values=values, counter=counter, scale=scale, stubbed=stubbed)


class Pieces:
    """The blocks of one prompt. `limit` and `low` are in local tokens.

    Older steps of the turn are omitted in batches down to `low`. Raises PolicyImpossible,
    QuestionTooLarge or TurnTooLarge if the required parts do not fit.
    """

    def __init__(self, facts: PromptFacts, found: SortedOut, *, limit: int, low: int) -> None:
        self.facts = facts
        self.limit = limit
        self.low = low
        values = facts.values
        self.pins_room = limit if values.pins_tokens is None else values.pins_tokens
        self.maker = build_prompt_maker(
            values=values,
            form=facts.form,
            counter=facts.counter,
            scale=Scale(limit, values.max_bytes, facts.image_limit),
            stubbed=find_stubbed_results(found.live, values=values),
        )
        self.system = self.maker.system(filter_system_parts(facts.system, values=values))
        self.tools = self.maker.tools(facts.tools)
        self.most = limit - self.system.cost - self.tools.cost
        self.sorted = exclude_oversized_messages(
            exclude_hidden_messages(found, shows=self.maker.shows),
            is_oversized=self._is_oversized,
        )
        self.question = self._question()
        self.prefill = self._prefill()
        self.continued = [self.maker.continued(m) for m in (found.continued,) if m]
        self.days = find_day_starts((*self.sorted.live, *facts.question))
        self.fixed = self._build_fixed()

    def history(self, message: Message) -> Entry:
        """Build the entry of a history message, with room for a day line if a day begins there."""
        made = self.maker.history(message)
        if message.seq not in self.days:
            return made
        return made._replace(extra=self.maker.day_cost(message))

    def laid_out(
        self, pins: tuple[Block, ...], kept: Sequence[Entry]
    ) -> tuple[tuple[Block, ...], tuple[str, ...]]:
        """Return the blocks in wire order, and notes on changes for the provider's roles."""
        question, history = self.question, [build_entry_block("history", item) for item in kept]
        if self.maker.has_days:
            # Only now is it known which messages are sent. The first of them begins with its day.
            asked = self.facts.question
            days = find_day_starts((*(item.message for item in kept), *asked))
            history = [
                self.maker.dated(block, item.message) if item.message.seq in days else block
                for block, item in zip(history, kept, strict=True)
            ]
            dated = (
                self.maker.dated(block, message) if message.seq in days else block
                for block, message in zip(question, asked, strict=False)
            )
            question = (*dated, *question[len(asked) :])
        parts = Parts(
            system=(self.system,),
            tools=(self.tools,),
            summary=self.fixed.summary,
            pins=pins,
            history=tuple(history),
            tail=self.fixed.tail,
            question=question,
            steps=tuple(build_entry_block("step", item) for item in self.fixed.steps),
        )
        blocks = (*self.maker.arranged(parts), *self.prefill)
        if not self.facts.strict_roles:
            return blocks, ()
        return enforce_strict_roles(blocks, maker=self.maker)

    def _is_oversized(self, message: Message) -> bool:
        """Return True if a message does not fit into any prompt, not even as the question.

        Entries are built only for messages that may be too large, so that the others need not
        be counted.
        """
        has_few_tokens = message.tokens <= self.most and self.facts.values.max_bytes is None
        return not has_few_tokens and self.maker.history(message).cost > self.most

    def _question(self) -> tuple[Block, ...]:
        asked = tuple(self.maker.question(message) for message in self.facts.question)
        if not self.facts.instruction:
            return asked
        return (*asked, self.maker.data("continue", WireMessage("user", self.facts.instruction)))

    def _prefill(self) -> tuple[Block, ...]:
        text = self.facts.prefill
        return (self.maker.data("prefill", WireMessage("assistant", text)),) if text else ()

    def _build_fixed(self) -> Fixed:
        """Build the fixed parts and fit them to the limit.

        Raises PolicyImpossible, QuestionTooLarge or TurnTooLarge if the required parts do not fit.
        """
        facts, make = self.facts, self.maker
        pins, dropped = select_newest_pins(
            tuple(make.pin(message) for message in self.sorted.pins),
            room=self.pins_room,
        )
        left = {
            step.seq: reason for step in facts.steps if (reason := explain_unsendable_message(step))
        }
        fixed = Fixed(
            required=self._measure_required(),
            summary=(make.summary(facts.summary),) if facts.summary else (),
            pins=pins,
            tail=make.tail(facts.background, facts.tail),
            steps=tuple(make.whole(step) for step in facts.steps if step.seq not in left),
            left=(*left.items(), *dropped),
        )
        return fit_fixed_parts(
            fixed,
            limit=self.limit,
            low=self.low,
            shorter=lambda step, characters: make.whole(step.message, characters),
        )

    def _measure_required(self) -> int:
        """Return the weight of all required parts, including the layout's frame.

        These are system text, tools, question, prefill and the truncated reply that is continued.
        Raises PolicyImpossible or QuestionTooLarge if they do not fit.
        """
        facts, scale, continued = self.facts, self.maker.scale, self.continued
        opening = [WireMessage("user", OPENING)] if facts.strict_roles else []
        frame = self.maker.frame + sum(count_wire_tokens(wire, facts.counter) for wire in opening)
        # The first message of the history and the question may each begin with their day.
        frame += 2 * max((self.maker.day_cost(m) for m in facts.question), default=0)
        required = (*self.question, *self.prefill)
        asked = [wire for block in required for wire in block.wires]
        asked += [wire for item in continued for wire in item.wires]
        system_bytes = count_wire_bytes((*self.system.wires, *opening)) + count_tool_bytes(
            facts.tools
        )
        system_bytes += self.maker.frame_bytes + JOINT_BYTES * len(asked)
        asked_bytes = count_wire_bytes(asked)
        for most, size in (
            (facts.values.max_bytes, asked_bytes),
            (facts.image_limit, asked_bytes + count_image_bytes(asked)),
        ):
            require_prompt_bytes(max_bytes=most, system=system_bytes, question=size)
        tokens = require_prompt_room(
            limit=self.limit,
            system=self.system.tokens + frame,
            tools=self.tools.tokens,
            question=count_block_tokens(required) + sum(item.tokens for item in continued),
            has_files=any(isinstance(p, FilePart) for m in facts.question for p in m.parts),
        )
        return scale.weight(tokens, system_bytes + scale.measure(asked))
