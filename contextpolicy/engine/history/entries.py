"""One stored message in its wire form under a policy: repaired, cut, counted."""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple

from contextpolicy.engine.history.tool_rules import (
    Stubbed,
    apply_tool_rules,
    format_stub_note,
    get_result_limit,
)
from contextpolicy.engine.history.truncation import cut_texts
from contextpolicy.engine.messages.files import LONGEST_FRAME
from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WireMessage,
)
from contextpolicy.engine.messages.tokens import TokenCounter, count_image_tokens, count_wire_tokens
from contextpolicy.engine.messages.turn_groups import convert_message_to_wires
from contextpolicy.engine.policy.policy import PolicyValues

_NONE_STUBBED: Stubbed = MappingProxyType({})


class Entry(NamedTuple):
    """A message as sent: wire messages, tokens, and the limits that cut it (None: uncut).

    `weight`: tokens of the prompt limit that it uses, if bytes are limited too; None: `tokens`
    applies. `extra`: tokens of the day line before the message.
    """

    message: Message
    wires: tuple[WireMessage, ...]
    tokens: int
    cut_to: int | None = None
    result_limit: int | None = None
    notes: tuple[str, ...] = ()
    weight: int | None = None
    extra: int = 0

    @property
    def cost(self) -> int:
        """Number of tokens of the prompt limit that the message uses."""
        return self.extra + (self.tokens if self.weight is None else self.weight)


def build_prompt_entry(
    message: Message,
    *,
    values: PolicyValues,
    counter: TokenCounter,
    whole: bool = False,
    result_limit: int | None = None,
    stubbed: Stubbed = _NONE_STUBBED,
) -> Entry:
    """Build the entry of a message.

    `whole` leaves its texts uncut (the question, the steps of the running turn). Tool results are
    always cut to the policy's rules, or to `result_limit` if that is smaller; those in `stubbed`
    are replaced by a stub. The stored token count is used unless something was cut or repaired.
    """
    wires, repairs = convert_message_to_wires(message)
    texts = None if whole else values.max_chars_per_message
    if len(wires) == 1 and not repairs and (texts is None or len(wires[0].content) <= texts):
        # The common case: one text, sent unchanged.
        return Entry(message, tuple(wires), message.tokens)
    gone = stubbed.get(message.seq, frozenset())
    results = apply_tool_rules(wires, values=values, most=result_limit, stubbed=gone)
    sent = cut_texts(results, max_chars=texts, style=values.cut_style)
    result_cut = any(a is not b for a, b in zip(wires, results, strict=True))
    text_cut = any(a is not b for a, b in zip(results, sent, strict=True))
    tokens = message.tokens
    if text_cut or result_cut or repairs:
        tokens = sum(count_wire_tokens(wire, counter=counter) for wire in sent)
    limit = values.tool_output_limit
    notes = (*repairs, format_stub_note(message, gone)) if gone else repairs
    return Entry(
        message,
        sent,
        tokens,
        texts if text_cut else None,
        (limit if result_limit is None else min(limit, result_limit)) if result_cut else None,
        tuple(f"{message.seq}:{note}" for note in notes),
    )


class Entries(Sequence[Entry]):
    """The entries of messages, built on first access.

    A strategy walks back from the newest message and stops when the room is used up. Messages that
    it does not access are neither cut nor counted, so the cost depends on the window, not the
    history.
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
        """Return the token count of an entry: as sent if it is already built, else as stored."""
        made = self._made.get(place)
        return self.messages[place].tokens if made is None else made.cost


def estimate_sendable_tokens(message: Message, *, values: PolicyValues) -> int:
    """Return an upper bound for the message's tokens after the policy's truncation.

    The estimate is never more than the stored count.
    """
    shows_tools = values.layout == "multi_turn"
    characters = 0
    for part in message.parts:
        if isinstance(part, TextPart):
            characters += min(len(part.text), values.max_chars_per_message or len(part.text))
        elif isinstance(part, FilePart):
            characters += len(part.text) and LONGEST_FRAME + len(part.text)
        elif not shows_tools:
            continue
        elif isinstance(part, ToolResultPart):
            characters += min(len(part.content), get_result_limit(values, part.name))
        elif isinstance(part, ToolCallPart):
            characters += len(part.name) + len(part.arguments)
    # A character has at most three tokens, and each part has its own overhead.
    most = 3 * characters + 16 * len(message.parts) + count_image_tokens(message.parts)
    return min(message.tokens, most)
