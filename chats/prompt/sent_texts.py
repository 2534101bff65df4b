"""The texts of a prompt by segment, recreated from stored data with their cuts."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from chats.models import Message, PromptText, Receipt
from chats.prompt.agents import AgentView
from chats.record.history import build_engine_message
from contextpolicy.engine.history.entries import build_prompt_entry
from contextpolicy.engine.messages.messages import WireMessage, convert_parts_to_wires
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.policy.policy import PolicyValues

# A segment in the receipt's format: origin, label, `seq`, tokens, cut, digest, cut of tool results.
Row = Sequence[object]


@dataclass(frozen=True, slots=True)
class SegmentSources:
    """The stored data of segments: texts by digest, messages by id."""

    texts: Mapping[str, str]
    messages: Mapping[str, Message]
    # The agent that received the prompts.
    view: AgentView | None = None


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
        return recreate_message_text(message, segment, values=values, view=sources.view)
    text = sources.texts.get(str(digest or label), "")
    # In text forms, an agent's instructions and the task are sections of the text.
    is_system = origin == "system" or (origin == "tail" and label in ("agent", "task"))
    if values.hide_system_text and is_system and label != "chat":
        return SentText("", len(text), hidden=True)
    return SentText(text, len(text))


def recreate_message_text(
    message: Message, segment: Row, *, values: PolicyValues, view: AgentView | None = None
) -> SentText:
    """Return the text of a message as a segment sent it.

    `view`: how the receiving agent sees the chat.

    A cut is a pure function of the message, the limit and the policy's style, so it can be
    recreated. An erased message has no text.
    """
    wires, whole = recreate_wire_messages(message, segment, values=values, view=view)
    return SentText(format_wire_messages(wires), whole)


def recreate_wire_messages(
    message: Message, segment: Row, *, values: PolicyValues, view: AgentView | None = None
) -> tuple[Sequence[WireMessage], int]:
    """Return the wire messages of a segment, and the message's uncut length in characters."""
    origin, _, _, _, cut_to, _, *rest = segment
    results_to = rest[0] if rest else None
    value = build_engine_message(message, counter=ApproximateCounter())
    if view is not None:
        value = view.seen(value, counter=ApproximateCounter())
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
    )
    return made.wires, whole


def format_wire_messages(wires: Sequence[WireMessage]) -> str:
    """Return the text of wire messages, with their tool calls and results."""
    pieces = []
    for wire in wires:
        pieces.append(wire.shown(by_hash=True))
        pieces += [f"{call.name}({call.arguments})" for call in wire.tool_calls]
    return "\n".join(piece for piece in pieces if piece)
