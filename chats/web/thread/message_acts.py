"""The acts on a message: the table of all that a person may do, and those that one message offers.

A page has one bar of them. It stands under the message that has the pointer or the focus, and the
page's script writes that message's ids in place of the pattern's. Without scripts each message
leads to a page of its own with the same acts.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from chats.actions.branching import is_own
from chats.models import Message

# The ids in the bar's pattern; no row has them.
ANY_MESSAGE = uuid.UUID(int=0)
ANY_TURN = uuid.UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class Act:
    """One act: its address, its words, and how it is asked for.

    `way`: "post" sends a form, "box" opens a form in place of the message, "page" leads to another
    page. `key` begins the id of its control; two acts that take each other back share one.
    """

    name: str
    route: str
    icon: str
    label: str
    more: str = ""
    way: str = "post"
    key: str = ""
    title: str = ""
    pressed: str = ""
    of_turn: bool = False

    @property
    def control(self) -> str:
        """The beginning of its control's id."""
        return self.key or self.name


EDIT = Act("edit", "chats:message-edit", "edit", "Edit and branch", way="box")
REGENERATE = Act("regenerate", "chats:message-regenerate", "retry", "Regenerate")
PLAY_ON = Act(
    "play-on",
    "chats:message-play-on",
    "retry",
    "Regenerate and play on",
    "This agent replies again, and then those who followed it",
)
PIN = Act("pin", "chats:message-pin", "pin", "Pin message", pressed="false")
UNPIN = Act(
    "unpin",
    "chats:message-unpin",
    "pin",
    "Pin message",
    key="pin",
    title="Unpin message",
    pressed="true",
)
BRANCH = Act(
    "branch",
    "chats:message-branch",
    "branch",
    "Branch from here",
    "Goes on behind this message; the rest stays on its own branch",
)
EXCLUDE = Act(
    "exclude",
    "chats:message-exclude",
    "x",
    "Exclude",
    "Stays here, is sent in no prompt and no summary",
)
INCLUDE = Act("include", "chats:message-include", "plus", "Include again", key="exclude")
ERASE = Act("erase", "chats:message-erase", "x", "Erase for ever…", way="page")
RECEIPT = Act("receipt", "chats:receipt", "eye", "What the model saw", way="page", of_turn=True)

QUICK = (EDIT, REGENERATE, PIN, UNPIN)
IN_MENU = (PLAY_ON, BRANCH, EXCLUDE, INCLUDE)


@dataclass(frozen=True, slots=True)
class MessageActs:
    """The acts that a message offers, or all of them for the bar's pattern."""

    message_id: uuid.UUID
    turn_id: uuid.UUID | None
    offered: frozenset[str] | None

    def among(self, acts: Sequence[Act]) -> list[Act]:
        """Return those of the acts that are offered, in their order."""
        return [act for act in acts if self.offered is None or act.name in self.offered]

    @property
    def quick(self) -> list[Act]:
        """The acts that stand in the bar itself."""
        return self.among(QUICK)

    @property
    def in_menu(self) -> list[Act]:
        """The acts behind the dots."""
        return self.among(IN_MENU)

    @property
    def erase(self) -> list[Act]:
        """The act that nothing takes back, apart from the others."""
        return self.among((ERASE,))

    @property
    def receipt(self) -> list[Act]:
        """The way to what was sent for a reply."""
        return self.among((RECEIPT,))

    @property
    def all(self) -> list[Act]:
        """Every act that is offered, for the message's own page."""
        return self.among((*QUICK, *IN_MENU, RECEIPT, ERASE))


PATTERN = MessageActs(ANY_MESSAGE, ANY_TURN, None)


def offered_by(message: Message, *, pin_lock: str) -> tuple[str, ...]:
    """Return the names of the acts that a message offers; `pin_lock` keeps it from being pinned."""
    if message.erased_at:
        return ("receipt",) if has_receipt(message) else ()
    names = ["copy"]
    if message.seq:
        if is_own(message):
            names.append("edit")
        elif message.role != Message.Role.USER and message.turn_id:
            names.append("regenerate")
            if message.turn and message.turn.agent_id is not None:
                names.append("play-on")
        if message.pinned_at:
            names.append("unpin")
        elif not pin_lock:
            names.append("pin")
        names += ["branch", "include" if message.excluded else "exclude", "erase"]
    return (*names, "receipt") if has_receipt(message) else tuple(names)


def has_receipt(message: Message) -> bool:
    """Tell whether what was sent for a message is written down."""
    return message.role == Message.Role.ASSISTANT and message.turn_id is not None
