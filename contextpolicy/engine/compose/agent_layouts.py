"""An agent's prompt as a single text, in the format of its agent type (see `agent_formats`).

It equals the text that an external agent client gets, plus sections for a summary, pinned messages
and background where they exist. The policy's system text and the team's rules are sent in role
`system`. Steps of the running turn follow as separate messages, because tools need them.
"""

from collections.abc import Mapping, Sequence

from contextpolicy.engine.compose.layouts import Maker, shift_images
from contextpolicy.engine.compose.text_layouts import JOINT_TOKENS, TextMaker
from contextpolicy.engine.history.entries import Entry
from contextpolicy.engine.history.tool_rules import Stubbed
from contextpolicy.engine.messages.messages import (
    Message,
    Summary,
    WireMessage,
    extract_message_text,
)
from contextpolicy.engine.messages.segments import Block, Parts, Scale, Segment
from contextpolicy.engine.messages.tokens import MESSAGE_OVERHEAD, TokenCounter
from contextpolicy.engine.messages.transcript import SECTION_JOINT, Background
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.team.agent_formats import FORMS, PLAIN_TEXT, PromptForm
from contextpolicy.engine.team.team import format_recipients

# Each message in its own role, without a text form.
MESSAGES = "messages"
PROMPT_FORMS: Mapping[str, PromptForm] = {**FORMS, "plain": PLAIN_TEXT}
# The sections in prompt order.
SECTIONS = ("instructions", "task", "summary", "pinned", "conversation", "background", "current")
# The parts of the tail with separate sections; all others are background.
_SECTION_OF = {"agent": "instructions", "task": "task"}


def is_text_form(form: str) -> bool:
    """Return True if the form renders an agent's prompt as a single text."""
    return form in PROMPT_FORMS


class AgentMaker(TextMaker):
    """Builds the blocks of an agent's prompt and joins them into a single text of a given form."""

    def __init__(
        self,
        *,
        form: str,
        values: PolicyValues,
        counter: TokenCounter,
        scale: Scale,
        stubbed: Stubbed,
    ) -> None:
        super().__init__(values=values, counter=counter, scale=scale, stubbed=stubbed)
        self.form = PROMPT_FORMS[form]
        self._inner: list[tuple[str, str]] = []
        borders = [text for name in self._sections for text in self.form.borders(name) if text]
        self.frame = MESSAGE_OVERHEAD + sum(counter.count(text) + JOINT_TOKENS for text in borders)
        self.frame_bytes = len(SECTION_JOINT.join(borders).encode())

    def system(self, parts: Sequence[tuple[str, str]]) -> Block:
        """Build the system message, which never contains the task.

        It contains the instructions only if the form has a system option.
        """
        inner = {"task"} if self.form.has_system_option else {"agent", "task"}
        self._inner = [(name, text) for name, text in parts if name in inner]
        return super().system([(name, text) for name, text in parts if name not in inner])

    def summary(self, summary: Summary) -> Block:
        segment = Segment("summary", summary.id, 0, "user", 0)
        return self._piece(segment, self._guard(summary.text))

    def tail(self, background: Background, text: str) -> tuple[Block, ...]:
        """Build one block per instruction, task and part of the background, and one for `text`."""
        own = [
            # Instructions are trusted. Users of the chat write the task.
            (name, part if name == "agent" else self._guard(part))
            for name, part in self._inner
        ]
        known = [*self.writer.background(background), ("tail", text)]
        parts = [*own, *((name, self._guard(part)) for name, part in known)]
        return tuple(
            self._piece(Segment("tail", name, 0, "user", 0), part) for name, part in parts if part
        )

    def pin(self, message: Message) -> Block:
        """Return the block with a pinned message, in the agent's text form."""
        segment = Segment("pin", message.id, message.seq, "user", 0)
        return self._piece(
            segment, self._entry_of(message, extract_message_text(message)), note=False
        )

    def question(self, message: Message) -> Block:
        """Build the block of the uncut question, without the speaker's name."""
        made = Maker.question(self, message)
        wire = made.wires[0] if made.wires else WireMessage("user", "")
        places = tuple(
            (len(self._guard(wire.content[:place])), part) for place, part in wire.images
        )
        guarded = wire._replace(content=self._guard(wire.content), images=places)
        return self.weighed(made.segments, (guarded, *made.wires[1:]))

    def arranged(self, parts: Parts) -> tuple[Block, ...]:
        """Return the system message, the tools, the text and the steps, in wire order."""
        pieces: dict[str, list[Block]] = {name: [] for name in SECTIONS}
        for piece in parts.tail:
            pieces[_SECTION_OF.get(piece.segments[0].message_id, "background")].append(piece)
        pieces["summary"] += parts.summary
        pieces["pinned"] += parts.pins
        pieces["conversation"] += parts.history
        texts = []
        segments: list[Segment] = []
        for name in self._sections[:-1]:
            joint = "\n" if name in ("pinned", "conversation") else SECTION_JOINT
            content = joint.join(piece.wires[0].content for piece in pieces[name])
            texts.append(self.form.section(name, content))
            segments += [segment for piece in pieces[name] for segment in piece.segments]
        before, after = self.form.borders("current")
        head = SECTION_JOINT.join([*filter(None, texts), before])
        wires = [wire for block in parts.question for wire in block.wires]
        segments += [segment for block in parts.question for segment in block.segments]
        asked = SECTION_JOINT.join(wire.content for wire in wires)
        # An agent's prompt always has a question or an instruction instead of one.
        text = self._build_block(
            segments, f"{head}{asked}{after}", shift_images(wires[0].images, by=len(head))
        )
        return (*parts.system, *parts.tools, text, *parts.steps)

    @property
    def _sections(self) -> list[str]:
        return [name for name in SECTIONS if name in self.form.titles]

    def _guard(self, text: str) -> str:
        return self.form.guard(text, sections=SECTIONS)

    def _entry_of(self, message: Message, text: str) -> str:
        return self.form.entry(
            message.speaker, format_recipients(message.addressees), self._guard(text)
        )

    def _line(self, made: Entry) -> Entry:
        texts = [wire.shown() for wire in made.wires if wire.role != "tool" and wire.shown()]
        line = self._entry_of(made.message, SECTION_JOINT.join(texts))
        return self._as_line(made, line)
