"""Actions on a message: the table of all actions, and those that a message offers.

A page has one action bar. The page's script moves it under the message with the pointer or the
focus and replaces the placeholder IDs. Without scripts, each message links to a page with the same
actions.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext_lazy
from django_stubs_ext import StrOrPromise

from chats.actions.branching import is_owner_message
from chats.models import Message

# Placeholder IDs in the action bar. No row has them.
ANY_MESSAGE = uuid.UUID(int=0)
ANY_TURN = uuid.UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class Act:
    """An action: URL, label, and presentation.

    `way`: "post" sends a form, "box" opens a form in place of the message, "page" links to another
    page. `key` is the prefix of the control's ID, which opposite actions share.
    """

    name: str
    route: str
    icon: str
    label: StrOrPromise
    more: StrOrPromise = ""
    way: str = "post"
    key: str = ""
    title: StrOrPromise = ""
    pressed: str = ""
    of_turn: bool = False

    @property
    def control(self) -> str:
        """First part of the HTML ID of the action's control."""
        return self.key or self.name


EDIT = Act("edit", "chats:message-edit", "edit", gettext_lazy("Edit and branch"), way="box")
REGENERATE = Act(
    "regenerate", "chats:message-regenerate", "retry", gettext_lazy("Regenerate reply")
)
PLAY_ON = Act(
    "play-on",
    "chats:message-play-on",
    "retry",
    gettext_lazy("Regenerate, then continue round"),
    gettext_lazy("Regenerates this reply and the later replies of its round, on a new branch"),
)
PIN = Act("pin", "chats:message-pin", "pin", gettext_lazy("Pin message"), pressed="false")
UNPIN = Act(
    "unpin",
    "chats:message-unpin",
    "pin",
    gettext_lazy("Pin message"),
    key="pin",
    title=gettext_lazy("Unpin message"),
    pressed="true",
)
BRANCH = Act(
    "branch",
    "chats:message-branch",
    "branch",
    gettext_lazy("Branch from here"),
    gettext_lazy(
        "Continues after this message on a new branch. Later messages stay on their branch."
    ),
)
EXCLUDE = Act(
    "exclude",
    "chats:message-exclude",
    "x",
    gettext_lazy("Exclude from prompts"),
    gettext_lazy("The message remains visible here, but is left out of prompts and summaries"),
)
INCLUDE = Act(
    "include",
    "chats:message-include",
    "plus",
    gettext_lazy("Include in prompts again"),
    key="exclude",
)
ERASE = Act("erase", "chats:message-erase", "x", gettext_lazy("Erase permanently…"), way="page")
RECEIPT = Act(
    "receipt", "chats:receipt", "eye", gettext_lazy("Prompt receipt"), way="page", of_turn=True
)

QUICK = (EDIT, REGENERATE, PIN, UNPIN)
IN_MENU = (PLAY_ON, BRANCH, EXCLUDE, INCLUDE)


@dataclass(frozen=True, slots=True)
class MessageActs:
    """The actions that a message offers, or all of them for the bar's template."""

    message_id: uuid.UUID
    turn_id: uuid.UUID | None
    offered: frozenset[str] | None

    def among(self, acts: Sequence[Act]) -> list[Act]:
        """Return the given actions that the message offers, in the given order."""
        return [act for act in acts if self.offered is None or act.name in self.offered]

    @property
    def quick(self) -> list[Act]:
        """Actions shown directly in the bar."""
        return self.among(QUICK)

    @property
    def in_menu(self) -> list[Act]:
        return self.among(IN_MENU)

    @property
    def erase(self) -> list[Act]:
        """The irreversible action, shown apart from the others."""
        return self.among((ERASE,))

    @property
    def receipt(self) -> list[Act]:
        """The link to the prompt receipt of a reply."""
        return self.among((RECEIPT,))

    @property
    def all(self) -> list[Act]:
        """All actions that the message offers, for its own page."""
        return self.among((*QUICK, *IN_MENU, RECEIPT, ERASE))


PATTERN = MessageActs(ANY_MESSAGE, ANY_TURN, None)


def list_message_actions(message: Message, *, pin_lock: str) -> tuple[str, ...]:
    """Return the names of the actions that a message offers. `pin_lock` disables pinning."""
    if message.erased_at:
        return ("receipt",) if has_receipt(message) else ()
    names = ["copy"]
    if message.seq:
        if is_owner_message(message):
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
    """Return True if the message has a prompt receipt."""
    return message.role == Message.Role.ASSISTANT and message.turn_id is not None
