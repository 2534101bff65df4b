"""The pieces of a thread. Each piece names its partial and knows its words."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar
from zlib import adler32, crc32

from django.utils import timezone
from django.utils.safestring import SafeString

from chats.models import Message, Preference, Turn
from chats.prompt.outlook import Outlook
from chats.turns.rounds import is_passed
from chats.web.reasons import LEFT_OUT, SENT
from chats.web.thread.compaction_marker import CompactionMarker
from chats.web.thread.message_acts import offered_by
from chats.web.thread.versions import MessageVersions
from chats.web.words import counted, cut_words, grouped
from contextpolicy.engine.costs import used_of
from contextpolicy.engine.images import image_in

# Seconds that a turn may wait for a worker before the page says what is wrong.
LATE = 30
# The colours and shapes in `chat.css` by which members of a team are told apart.
SHAPES = 6
PLACES = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made within a message, and its result."""

    name: str
    arguments: str
    result: str | None


@dataclass(frozen=True, slots=True)
class ShownImage:
    """An image of a message: its hash here, or its address elsewhere, from where nothing is loaded.

    `words` stand in its place for who does not see it.
    """

    words: str
    sha256: str = ""
    url: str = ""


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
    versions: MessageVersions | None = None
    # Why it cannot be pinned.
    pin_lock: str = ""
    # By how much it is cut, in words.
    cuts: Sequence[str] = ()
    # The page has its words already: only what may have changed is told.
    stands: bool = False
    # What an agent said in the name of a mate; nobody is sent it.
    for_others: str = ""
    # What its turn noted of the person.
    noted: Sequence[Preference] = ()

    @property
    def passes(self) -> bool:
        """True for an agent's reply without a word: it had nothing to add."""
        message = self.message
        return bool(message.speaker) and not self.stands and is_passed(message)

    @property
    def shape(self) -> str:
        """The colour and shape of a member of a team; empty for others."""
        speaker = self.message.speaker
        return f"who who--{shape_of(speaker['roleId'])}" if speaker else ""

    @property
    def rail(self) -> str:
        """The value of `data-sent`."""
        return "full" if self.sent == "pinned" else self.sent

    @property
    def sizes(self) -> str:
        """The numbers under the message, up to the words that say where it is sent."""
        message = self.message
        if message.erased_at:
            return ""
        usage = message.turn.usage if message.turn and is_reply(message) else {}
        used = used_of(usage)
        if used is not None:
            sizes = f"{grouped(used.input)} in · {grouped(used.output)} out"
        else:
            sizes = counted(message.token_count, "token") if message.token_count else ""
        return f"{sizes} · " if sizes and self.where else sizes

    @property
    def where(self) -> str:
        """The words that say whether the next message sends it."""
        if self.message.erased_at:
            return "erased"
        return sent_words(self.sent, reason=self.reason, cuts=self.cuts)

    @property
    def marks(self) -> str:
        """The marks that a person set on the message; a page that shows others asks for it anew."""
        message = self.message
        found = {
            "pinned": message.pinned_at,
            "excluded": message.excluded,
            "kept": message.kept,
            "erased": message.erased_at,
        }
        return " ".join(name for name, is_set in found.items() if is_set)

    @property
    def checksum(self) -> str:
        """The Adler-32 of what a person typed; empty for others.

        A page that was left while words were on their way tells by it that they arrived.
        """
        if self.stands or self.message.role != Message.Role.USER:
            return ""
        return f"{adler32(self.message.text.strip().encode('utf-8', 'replace')):x}"

    @property
    def offered(self) -> Sequence[str]:
        """The names of the acts that it offers."""
        return offered_by(self.message, pin_lock=self.pin_lock)

    @property
    def tools(self) -> list[ToolCall]:
        """The calls of the message, in order."""
        return tool_calls(self.message.parts)

    @property
    def images(self) -> list[ShownImage]:
        """The images of the message, in their order."""
        files = [part for part in self.message.parts if part["type"] == "file"]
        found = [(part["media_type"], image_in(part["reference"])) for part in files]
        return [
            ShownImage(
                f"Image {n}, {kind}" if image.sha256 else f"Image {n}",
                sha256=image.sha256,
                url=image.url,
            )
            for n, (kind, image) in enumerate(found, start=1)
            if image is not None
        ]

    @property
    def reasoning(self) -> str:
        """The model's thoughts before it replied."""
        return "\n\n".join(p["text"] for p in self.message.parts if p["type"] == "reasoning")


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn that ended without a whole reply: what happened, and the way on."""

    partial: ClassVar[str] = "chats/_outcome.html"
    turn: Turn
    can_retry: bool

    @property
    def name(self) -> str:
        """The agent whose reply it was; empty where the chat's model replies."""
        return self.turn.agent.name if self.turn.agent else ""

    @property
    def is_failure(self) -> bool:
        """True if it failed, False if it was stopped."""
        return self.turn.status == Turn.Status.FAILED


@dataclass(frozen=True, slots=True)
class Queue:
    """The wait of a turn for a worker: how long already, how many are before it, is one alive."""

    seconds: int
    before: int
    is_served: bool

    @property
    def is_late(self) -> bool:
        """True if the page should say that no worker comes."""
        return self.seconds >= LATE

    @property
    def late_in(self) -> int:
        """The seconds until then."""
        return max(LATE - self.seconds, 1)

    @property
    def title(self) -> str:
        """The reason of the wait."""
        what = "every worker is busy" if self.is_served else "no worker is running"
        return f"Waiting: {what}."

    @property
    def place(self) -> str:
        """The place in the line: second in line."""
        word = PLACES[self.before] if self.before < len(PLACES) else f"number {self.before + 1:,}"
        return f"{word} in line"


@dataclass(frozen=True, slots=True)
class Live:
    """A reply that is being written. `is_last`: it has the button that stops all of them."""

    partial: ClassVar[str] = "chats/_live.html"
    turn: Turn
    html: SafeString

    queue: Queue | None = None
    is_last: bool = True

    @property
    def name(self) -> str:
        """The one who replies."""
        return self.turn.agent.name if self.turn.agent else "Assistant"

    @property
    def shape(self) -> str:
        """The colour and shape of an agent."""
        agent = self.turn.agent
        return f"who who--{shape_of(agent.role_id)}" if agent else ""

    @property
    def waits(self) -> bool:
        """True if the provider asked for a pause that is not over."""
        until = self.turn.waiting_until
        return until is not None and until > timezone.now()


Entry = DayMark | MessageEntry | TurnEnd | Live | CompactionMarker


def shape_of(role_id: str) -> int:
    """Return the number of a role's colour and shape; the same in every chat."""
    return crc32(role_id.encode("utf-8", "replace")) % SHAPES


def sent_as(message: Message, *, outlook: Outlook | None) -> tuple[str, str, Sequence[str]]:
    """Return what the next message sends of a message, why not all of it, and its cuts."""
    if outlook is None:
        return "unknown", "", ()
    fate = outlook.fate(message.seq or 0)
    sent = "pinned" if fate.sent == "full" and message.pinned_at else fate.sent
    return sent, fate.reason, cut_words(fate.cut_to, fate.results_to)


def sent_words(sent: str, *, reason: str, cuts: Sequence[str]) -> str:
    """Put into words what the line beside a message says."""
    words = LEFT_OUT[reason].beside if reason in LEFT_OUT else SENT.get(sent, "")
    return ", ".join([words, *cuts])


def is_reply(message: Message) -> bool:
    """Tell whether the message is the reply that ended its turn, not a step on the way."""
    return message.turn is not None and message.turn.reply_id == message.pk


def tool_calls(parts: Sequence[dict[str, str]]) -> list[ToolCall]:
    """Return the calls among a message's parts, each with its result."""
    results = {part["call_id"]: part["content"] for part in parts if part["type"] == "tool_result"}
    return [
        ToolCall(part["name"], part["arguments"], results.get(part["call_id"]))
        for part in parts
        if part["type"] == "tool_call"
    ]
