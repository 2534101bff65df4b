"""The entries of a thread, each with its template and labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar
from zlib import adler32, crc32

from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from chats.models import Message, Preference, Turn
from chats.prompt.next_prompt import Outlook
from chats.turns.consents import WaitingCall
from chats.turns.rounds import is_passed
from chats.web.reasons import LEFT_OUT, SENT
from chats.web.thread.attachments import ShownFile, list_documents
from chats.web.thread.compaction_marker import CompactionMarker
from chats.web.thread.message_acts import list_message_actions
from chats.web.thread.versions import MessageVersions
from chats.web.words import cut_words, format_number, format_token_count
from contextpolicy.engine.messages.messages import FilePart, parse_result_image
from contextpolicy.engine.policy.costs import parse_reported_usage
from contextpolicy.wording import join_items

# Seconds a turn may be queued before the page reports a problem.
LATE = 30
# Number of colour and shape combinations for team members in `chat.css`.
SHAPES = 6
PLACES = (
    gettext_lazy("next in the queue"),
    gettext_lazy("second in the queue"),
    gettext_lazy("third in the queue"),
    gettext_lazy("fourth in the queue"),
    gettext_lazy("fifth in the queue"),
)


@dataclass(frozen=True, slots=True)
class ShownImage:
    """An image in a message: a stored hash, or an external URL, which is never loaded.

    `words` is the alternative text. `call_id`: the tool call whose result contains the image.
    """

    words: str
    sha256: str = ""
    url: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ShownToolCall:
    """A tool call within a message, its result, and the images in the result."""

    name: str
    arguments: str
    result: str | None
    images: Sequence[ShownImage] = ()


@dataclass(frozen=True, slots=True)
class DayMark:
    partial: ClassVar[str] = "chats/_daymark.html"
    day: date
    name: str


@dataclass(frozen=True, slots=True)
class MessageEntry:
    """A message in the thread.

    `sent` is the message's disposition in the next prompt, shown by a rail beside the message.
    `reason` explains an omission.
    """

    partial: ClassVar[str] = "chats/_message.html"
    message: Message
    html: SafeString
    sent: str
    reason: str
    is_last: bool = False
    can_continue: bool = False
    versions: MessageVersions | None = None
    # The reason why the message cannot be pinned; empty if it can be.
    pin_lock: str = ""
    # Labels for the cuts of the message.
    cuts: Sequence[str] = ()
    # The page already has the text, so only parts that may change are rendered.
    is_known: bool = False
    # Text an agent wrote as another agent. It is never sent.
    for_others: str = ""
    # Preferences saved from this turn.
    preferences: Sequence[Preference] = ()

    @property
    def label(self) -> str:
        """Name of the message for screen readers: its number and its author."""
        message, seq = self.message, self.message.seq
        if message.speaker:
            words = gettext("Message {seq} from {name}") if seq else gettext("Message from {name}")
        elif message.role == Message.Role.USER:
            words = gettext("Message {seq} from you") if seq else gettext("Message from you")
        else:
            words = gettext("Message {seq}, reply") if seq else gettext("Message, reply")
        return words.format(seq=seq, name=message.said_by)

    @property
    def acts_label(self) -> str:
        seq = self.message.seq
        return gettext("Actions for message {seq}").format(seq=seq) if seq else gettext("Actions")

    @property
    def passes(self) -> bool:
        """True if an agent passed: its reply contains only markers."""
        message = self.message
        return bool(message.speaker) and not self.is_known and is_passed(message)

    @property
    def shape(self) -> str:
        """CSS classes for a team member's colour and shape; empty for others."""
        speaker = self.message.speaker
        return f"who who--{get_role_shape(speaker['roleId'])}" if speaker else ""

    @property
    def rail(self) -> str:
        """The value of `data-sent`: how the next prompt sends the message."""
        return "full" if self.sent == "pinned" else self.sent

    @property
    def sizes(self) -> str:
        """Localized size under the message: the usage reported for a reply, or its tokens.

        Empty for an erased message, or if neither is known. Ends with a separator if `where`
        follows.
        """
        message = self.message
        if message.erased_at:
            return ""
        usage = message.turn.usage if message.turn and is_reply(message) else {}
        used = parse_reported_usage(usage)
        if used is not None:
            words = gettext("{input} input · {output} output")
            sizes = words.format(input=format_number(used.input), output=format_number(used.output))
        else:
            sizes = format_token_count(message.token_count) if message.token_count else ""
        return f"{sizes} · " if sizes and self.where else sizes

    @property
    def where(self) -> str:
        """The label that describes how the next prompt sends the message."""
        if self.message.erased_at:
            return gettext("erased")
        return describe_disposition(self.sent, reason=self.reason, cuts=self.cuts)

    @property
    def marks(self) -> str:
        """The user's marks as text. A page that shows other marks reloads the message."""
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
        """Adler-32 of a user's text. Empty for other messages.

        A page that was reloaded while sending compares it with its own text, to detect that the
        message was stored.
        """
        if self.is_known or self.message.role != Message.Role.USER:
            return ""
        return f"{adler32(self.message.text.strip().encode('utf-8', 'replace')):x}"

    @property
    def offered(self) -> Sequence[str]:
        return list_message_actions(self.message, pin_lock=self.pin_lock)

    @property
    def tools(self) -> list[ShownToolCall]:
        return build_tool_calls(self.message.parts)

    @property
    def images(self) -> list[ShownImage]:
        """The images in the message. Those in tool results belong to the calls."""
        answered = {part["call_id"] for part in self.message.parts if part["type"] == "tool_result"}
        return [each for each in list_images(self.message.parts) if each.call_id not in answered]

    @property
    def documents(self) -> list[ShownFile]:
        return list_documents(self.message.parts)

    @property
    def reasoning(self) -> str:
        """The model's reasoning before the reply."""
        return "\n\n".join(p["text"] for p in self.message.parts if p["type"] == "reasoning")


def list_images(parts: Sequence[Mapping[str, str]]) -> list[ShownImage]:
    """Return the images in a message in order, with their alternative texts.

    An image in a tool result has no name.
    """
    files = [
        FilePart(part["media_type"], part["name"], part["reference"])
        for part in parts
        if part["type"] == "file"
    ]
    found = []
    for n, file in enumerate(files, start=1):
        if (image := file.image) is None:
            continue
        call_id, _ = parse_result_image(file)
        words = gettext("Image {n}, {kind}") if image.sha256 else gettext("Image {n}")
        name = "" if call_id else file.name
        label = name or words.format(n=n, kind=file.media_type)
        found.append(ShownImage(label, sha256=image.sha256, url=image.url, call_id=call_id))
    return found


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn that ended without a complete reply."""

    partial: ClassVar[str] = "chats/_outcome.html"
    turn: Turn
    can_retry: bool

    @property
    def name(self) -> str:
        """The agent that replied; empty for the chat's model."""
        return self.turn.agent.name if self.turn.agent else ""

    @property
    def is_failure(self) -> bool:
        """True if the turn failed, False if a user stopped it."""
        return self.turn.status == Turn.Status.FAILED


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue state of a turn: waiting time, position, and whether a worker is alive."""

    seconds: int
    before: int
    is_served: bool

    @property
    def is_late(self) -> bool:
        """True if the page should report that no worker responds."""
        return self.seconds >= LATE

    @property
    def late_in(self) -> int:
        """Seconds until the page reports that the turn waits longer than usual."""
        return max(LATE - self.seconds, 1)

    @property
    def title(self) -> str:
        if self.is_served:
            return gettext("Waiting: every worker is busy.")
        return gettext("Waiting: no worker is running.")

    @property
    def place(self) -> str:
        """Position in the queue as text, such as “second in the queue”."""
        if self.before < len(PLACES):
            return str(PLACES[self.before])
        return gettext("number {n:,} in the queue").format(n=self.before + 1)


@dataclass(frozen=True, slots=True)
class Live:
    """A reply being written. `is_last`: the entry has the button that stops all running replies."""

    partial: ClassVar[str] = "chats/_live.html"
    turn: Turn
    html: SafeString

    queue: Queue | None = None
    is_last: bool = True
    # Tool calls that wait for the user's decision.
    consents: Sequence[WaitingCall] = ()

    @property
    def name(self) -> str:
        return self.turn.agent.name if self.turn.agent else gettext("Assistant")

    @property
    def shape(self) -> str:
        """CSS classes for the agent's colour and shape. Empty without an agent."""
        agent = self.turn.agent
        return f"who who--{get_role_shape(agent.role_id)}" if agent else ""

    @property
    def waits(self) -> bool:
        """True during the pause before the next attempt of a failed call."""
        until = self.turn.waiting_until
        return until is not None and until > timezone.now()


Entry = DayMark | MessageEntry | TurnEnd | Live | CompactionMarker


def get_role_shape(role_id: str) -> int:
    """Return the number of a role's colour and shape, which is the same in every chat."""
    return crc32(role_id.encode("utf-8", "replace")) % SHAPES


def get_message_disposition(
    message: Message, *, outlook: Outlook | None
) -> tuple[str, str, Sequence[str]]:
    """Return a message's disposition in the next prompt, the omission reason, and its cuts.

    The disposition is `unknown` without an outlook.
    """
    if outlook is None:
        return "unknown", "", ()
    fate = outlook.fate(message.seq or 0)
    sent = "pinned" if fate.sent == "full" and message.pinned_at else fate.sent
    return sent, fate.reason, cut_words(fate.cut_to, fate.results_to)


def describe_disposition(sent: str, *, reason: str, cuts: Sequence[str]) -> str:
    """Return the label for the way in which the next prompt sends a message."""
    words = LEFT_OUT[reason].beside if reason in LEFT_OUT else SENT.get(sent, "")
    return join_items([words, *cuts])


def is_reply(message: Message) -> bool:
    """Return True if the message is the final reply of its turn, not an intermediate step."""
    return message.turn is not None and message.turn.reply_id == message.pk


def build_tool_calls(parts: Sequence[dict[str, str]]) -> list[ShownToolCall]:
    results = {part["call_id"]: part["content"] for part in parts if part["type"] == "tool_result"}
    images = list_images(parts)
    return [
        ShownToolCall(
            part["name"],
            part["arguments"],
            results.get(part["call_id"]),
            [each for each in images if each.call_id == part["call_id"] in results],
        )
        for part in parts
        if part["type"] == "tool_call"
    ]
