"""The texts of a prompt by segment, recreated from stored data with their cuts."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chats.models import Message, PromptText, Receipt
from chats.prompt.agents import AgentView
from chats.record.history import build_engine_message
from contextpolicy.engine.history.entries import build_prompt_entry
from contextpolicy.engine.history.tool_rules import (
    Stubbed,
    list_omittable_results,
    parse_stub_notes,
)
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.messages import WireMessage, convert_parts_to_wires
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.policy.policy import PolicyValues

# A segment in the receipt's format: origin, label, `seq`, tokens, cut, digest, cut of tool results.
Row = Sequence[object]
# Tool results that a prompt omitted, as its notes name them (see `parse_stub_notes`).
StubbedResults = Mapping[int, frozenset[str] | None]


@dataclass(frozen=True, slots=True)
class SegmentSources:
    """The stored data of segments: texts by digest, messages by id."""

    texts: Mapping[str, str]
    messages: Mapping[str, Message]
    # The agent that received the prompts.
    view: AgentView | None = None
    # The tool results that the prompt omitted.
    stubs: StubbedResults = field(default_factory=dict)

    def with_notes(self, notes: Iterable[str]) -> "SegmentSources":
        """Return the sources for the segments of one prompt with these notes."""
        return replace(self, stubs=parse_stub_notes(notes))


@dataclass(frozen=True, slots=True)
class SentText:
    """The text of a segment as sent.

    `whole` is the message's length before the cut, in characters.
    """

    text: str
    whole: int
    hidden: bool = False


def load_receipt_sources(rows: Iterable[Receipt]) -> SegmentSources:
    return load_segment_sources(segment for row in rows for segment in row.segments)


def load_segment_sources(segments: Iterable[Row]) -> SegmentSources:
    listed = list(segments)
    digests = {str(segment[5]) for segment in listed if segment[5]}
    ids = {str(segment[1]) for segment in listed if segment[2] and is_uuid(segment[1])}
    return SegmentSources(
        texts={row.digest: row.text for row in PromptText.objects.filter(digest__in=digests)},
        messages={str(row.pk): row for row in Message.objects.filter(pk__in=ids)},
    )


def is_uuid(value: object) -> bool:
    """Return True if a segment's label is a message id. Labels of other texts are words."""
    try:
        uuid.UUID(str(value))
    except ValueError:
        return False
    return True


def recreate_sent_text(segment: Row, *, sources: SegmentSources, values: PolicyValues) -> SentText:
    """Return the text of a segment. Empty if it is no longer stored.

    If the policy hides the text, only its length is returned. A chat's own text is never hidden
    from its owner.
    """
    origin, label, _, _, _, digest, *_ = segment
    message = sources.messages.get(str(label))
    if message is not None:
        return recreate_message_text(message, segment, values=values, sources=sources)
    text = sources.texts.get(str(digest or label), "")
    # In text forms, an agent's instructions and the task are sections of the text.
    is_system = origin == "system" or (origin == "tail" and label in ("agent", "task"))
    if values.hide_system_text and is_system and label != "chat":
        return SentText("", len(text), hidden=True)
    return SentText(text, len(text))


def recreate_message_text(
    message: Message, segment: Row, *, values: PolicyValues, sources: SegmentSources
) -> SentText:
    """Return the text of a message as a segment sent it.

    If the sources have an agent, it is the text as sent to that agent. A cut is a pure function of
    the message, the limit and the policy's style, so it can be recreated. An erased message has no
    text.
    """
    wires, whole = recreate_wire_messages(message, segment, values=values, sources=sources)
    return SentText(format_wire_messages(wires), whole)


def recreate_wire_messages(
    message: Message, segment: Row, *, values: PolicyValues, sources: SegmentSources
) -> tuple[Sequence[WireMessage], int]:
    """Return the wire messages of a segment, and the message's uncut length in characters."""
    origin, _, _, _, cut_to, _, *rest = segment
    results_to = rest[0] if rest else None
    value = build_engine_message(message, counter=ApproximateCounter())
    if sources.view is not None:
        value = sources.view.seen(value, counter=ApproximateCounter())
    wires = convert_parts_to_wires(value.role, value.parts)
    whole = len(format_wire_messages(wires))
    if cut_to is None and results_to is None:
        return wires, whole
    limits = [limit if isinstance(limit, int) else None for limit in (cut_to, results_to)]
    made = build_prompt_entry(
        value,
        values=replace(values, max_chars_per_message=limits[0]),
        counter=ApproximateCounter(),
        whole=origin != "history",
        result_limit=limits[1],
        stubbed=find_message_stubs(value, values=values, sources=sources)
        if origin == "history"
        else {},
    )
    return made.wires, whole


def find_message_stubs(
    message: engine.Message, *, values: PolicyValues, sources: SegmentSources
) -> Stubbed:
    """Return the results of a message that the prompt omitted.

    If the prompt's notes do not name them, these are all results that the policy may omit.
    """
    if message.seq not in sources.stubs:
        return {}
    ids = sources.stubs[message.seq]
    return {message.seq: list_omittable_results(message, values=values) if ids is None else ids}


def format_wire_messages(wires: Sequence[WireMessage]) -> str:
    """Return the text of wire messages, with their tool calls and results."""
    pieces = []
    for wire in wires:
        pieces.append(wire.shown(by_hash=True))
        pieces += [f"{call.name}({call.arguments})" for call in wire.tool_calls]
    return "\n".join(piece for piece in pieces if piece)
