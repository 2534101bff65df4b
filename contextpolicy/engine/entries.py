"""How one stored message goes on the wire under a policy: repaired, cut, counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextpolicy.engine.groups import to_wire
from contextpolicy.engine.messages import Message, WireMessage
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter, wire_tokens
from contextpolicy.engine.truncation import cut_wires


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as sent: wire messages, tokens, and the limits that cut it (None: uncut)."""

    message: Message
    wires: tuple[WireMessage, ...]
    tokens: int
    cut_to: int | None = None
    result_limit: int | None = None
    notes: tuple[str, ...] = ()


def entry(
    message: Message,
    *,
    values: PolicyValues,
    counter: TokenCounter,
    whole: bool = False,
    result_limit: int | None = None,
) -> Entry:
    """Make the entry of a message.

    `whole` leaves its texts uncut (the question, the steps of the running turn); tool results are
    always cut to `tool_output_limit`, or to `result_limit` if that is smaller. The stored count is
    used unless something was cut or repaired, so the cost of an untouched message is constant.
    """
    wires, repairs = to_wire(message)
    results = values.tool_output_limit
    if result_limit is not None:
        results = min(results, result_limit)
    texts = None if whole else values.max_chars_per_message
    sent = cut_wires(wires, max_chars=texts, style=values.cut_style, tool_output_limit=results)
    text_cut = any(a is not b for a, b in zip(wires, sent, strict=True) if a.role != "tool")
    result_cut = any(a is not b for a, b in zip(wires, sent, strict=True) if a.role == "tool")
    tokens = message.tokens
    if text_cut or result_cut or repairs:
        tokens = sum(wire_tokens(wire, counter=counter) for wire in sent)
    return Entry(
        message,
        sent,
        tokens,
        texts if text_cut else None,
        results if result_cut else None,
        tuple(f"{message.seq}:{note}" for note in repairs),
    )


class Entries(Sequence[Entry]):
    """The entries of messages, each made when first asked for.

    A strategy walks back from the newest message and stops where the room ends; what it never asks
    for is never cut nor counted, so the cost follows the window and not the history.
    """

    def __init__(self, messages: Sequence[Message], *, make: Callable[[Message], Entry]) -> None:
        self.messages = messages
        self._make = make
        self._made: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, place: int) -> Entry:  # type: ignore[override]  # slices are not offered
        made = self._made.get(place)
        if made is None:
            made = self._made[place] = self._make(self.messages[place])
        return made

    def known_tokens(self, place: int) -> int:
        """The tokens of an entry: as sent if it was made already, else the stored count."""
        made = self._made.get(place)
        return self.messages[place].tokens if made is None else made.tokens
