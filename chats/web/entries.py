"""What a thread shows, piece by piece. Each piece names its partial and knows its words."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

from django.utils import timezone
from django.utils.safestring import SafeString

from chats.models import Message, Turn
from chats.outlook import Outlook
from chats.web.seams import Seam
from chats.web.versions import Versions
from chats.web.words import counted, cut_words, grouped

# What the line beside a message says about it: the attribute's value, and the words for it.
SENT = {
    "full": "sent in full",
    "pinned": "always sent",
    "summary": "sent as part of the summary",
    "none": "not sent",
    "cut": "sent",
    "unknown": "",
}
REASONS = {
    "window": "not sent: older than the window",
    "budget": "not sent: no room left",
    "state": "not sent: the state stands for it",
    "turn_split": "not sent: no room left in its turn",
    "excluded": "not sent: excluded",
    "incomplete": "not sent: incomplete",
    "empty": "not sent: nothing in it",
    "tool_parts": "not sent: only tool calls",
    "strategy": "not sent: left out by the strategy",
}

# Seconds that a turn may wait for a worker before the page says what is wrong.
LATE = 30
PLACES = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made within a message, and what came back."""

    name: str
    arguments: str
    result: str | None


@dataclass(frozen=True, slots=True)
class DayMark:
    """A line between two days."""

    partial: ClassVar[str] = "chats/_daymark.html"
    day: date
    name: str


@dataclass(frozen=True, slots=True)
class MessageEntry:
    """One message with the rail beside it."""

    partial: ClassVar[str] = "chats/_message.html"
    message: Message
    html: SafeString
    sent: str
    reason: str
    is_last: bool = False
    can_continue: bool = False
    versions: Versions | None = None
    # Why it cannot be pinned.
    pin_lock: str = ""
    # By how much it is cut, in words.
    cuts: Sequence[str] = ()

    @property
    def rail(self) -> str:
        """The value of `data-sent`."""
        return "full" if self.sent == "pinned" else self.sent

    @property
    def meta(self) -> str:
        """Numbers and words under the message."""
        message = self.message
        if message.erased_at:
            return "erased"
        usage = message.turn.usage if message.turn and is_reply(message) else {}
        if "output" in usage:
            sizes = f"{grouped(usage.get('input', 0))} in · {grouped(usage['output'])} out"
        else:
            sizes = counted(message.token_count, "token") if message.token_count else ""
        where = sent_words(self.sent, reason=self.reason, cuts=self.cuts)
        return " · ".join(part for part in (sizes, where) if part)

    @property
    def tools(self) -> list[ToolCall]:
        """The calls of the message, in order."""
        return tool_calls(self.message.parts)

    @property
    def reasoning(self) -> str:
        """What the model thought before it answered."""
        return "\n\n".join(p["text"] for p in self.message.parts if p["type"] == "reasoning")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A turn that ended without a whole reply: what happened, and the way on."""

    partial: ClassVar[str] = "chats/_outcome.html"
    turn: Turn
    can_retry: bool

    @property
    def is_failure(self) -> bool:
        """Failed, not stopped."""
        return self.turn.status == Turn.Status.FAILED


@dataclass(frozen=True, slots=True)
class Queue:
    """How a turn waits for a worker: how long already, how many are before it, is one alive."""

    seconds: int
    before: int
    is_served: bool

    @property
    def is_late(self) -> bool:
        """Whether it is time to say that nobody comes."""
        return self.seconds >= LATE

    @property
    def late_in(self) -> int:
        """Seconds until it is time."""
        return max(LATE - self.seconds, 1)

    @property
    def title(self) -> str:
        """What is the matter."""
        what = "every worker is busy" if self.is_served else "no worker is running"
        return f"Waiting: {what}."

    @property
    def place(self) -> str:
        """The place in the line: second in line."""
        word = PLACES[self.before] if self.before < len(PLACES) else f"number {self.before + 1:,}"
        return f"{word} in line"


@dataclass(frozen=True, slots=True)
class Live:
    """The reply that is being written."""

    partial: ClassVar[str] = "chats/_live.html"
    turn: Turn
    html: SafeString

    queue: Queue | None = None

    @property
    def waits(self) -> bool:
        """Whether the provider asked for a pause that is not over."""
        until = self.turn.waiting_until
        return until is not None and until > timezone.now()


Entry = DayMark | MessageEntry | Outcome | Live | Seam


def sent_as(message: Message, *, outlook: Outlook | None) -> tuple[str, str, Sequence[str]]:
    """What the model gets of a message with the next one, why not all of it, and its cuts."""
    if outlook is None:
        return "unknown", "", ()
    fate = outlook.fate(message.seq or 0)
    sent = "pinned" if fate.sent == "full" and message.pinned_at else fate.sent
    return sent, fate.reason, cut_words(fate.cut_to, fate.results_to)


def sent_words(sent: str, *, reason: str, cuts: Sequence[str]) -> str:
    """What the line beside a message says, in words."""
    return ", ".join([REASONS.get(reason, SENT.get(sent, "")), *cuts])


def is_reply(message: Message) -> bool:
    """Whether the message is the reply that ended its turn, not a step on the way."""
    return message.turn is not None and message.turn.reply_id == message.pk


def tool_calls(parts: Sequence[dict[str, str]]) -> list[ToolCall]:
    """The calls among a message's parts, each with its result."""
    results = {part["call_id"]: part["content"] for part in parts if part["type"] == "tool_result"}
    return [
        ToolCall(part["name"], part["arguments"], results.get(part["call_id"]))
        for part in parts
        if part["type"] == "tool_call"
    ]
