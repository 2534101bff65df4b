"""The text of a message as a prompt had it: made again from what is stored, with its cuts."""

from collections.abc import Sequence
from dataclasses import replace

from chats.models import Message
from chats.prompt.agents import AgentView
from chats.record.history import to_engine
from chats.web.words import cut_words, grouped
from contextpolicy.engine.entries import entry
from contextpolicy.engine.messages import WireMessage, wires_of
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import ApproximateCounter


def text_sent(
    message: Message,
    segment: Sequence[object],
    *,
    values: PolicyValues,
    view: AgentView | None = None,
) -> tuple[str, Sequence[str]]:
    """Return what a segment sent of a message, and by how much it was cut, in words.

    `view`: of the agent to whom it was sent.

    A cut is a pure function of the message, the limit and the policy's style, so it comes out as it
    was. An erased message has no text any more, only the words about its cut.
    """
    origin, _, _, _, cut_to, _, results_to = segment
    value = to_engine(message, counter=ApproximateCounter())
    if view is not None:
        value = view.seen(value, counter=ApproximateCounter())
    whole = told(wires_of(value.role, value.parts))
    if cut_to is None and results_to is None:
        return whole, ()
    limits = [limit if isinstance(limit, int) else None for limit in (cut_to, results_to)]
    made = entry(
        value,
        values=replace(values, max_chars_per_message=limits[0]),
        counter=ApproximateCounter(),
        whole=origin != "history",
        result_limit=limits[1],
    )
    text = told(made.wires)
    words = cut_words(limits[0], limits[1])
    if len(text) < len(whole):
        words.append(f"{grouped(len(text))} of {grouped(len(whole))} characters sent")
    return text, words


def told(wires: Sequence[WireMessage]) -> str:
    """Return the text of wire messages, with their calls and results."""
    pieces = []
    for wire in wires:
        pieces.append(wire.content)
        pieces += [f"{call.name}({call.arguments})" for call in wire.tool_calls]
    return "\n".join(piece for piece in pieces if piece)
