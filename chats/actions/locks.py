"""Tells what a person may not do in a chat before they try, by the sentences of the refusals."""

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser

from chats.actions.marks import PinRoom, PinsFull, room_of_pins
from chats.compaction.people import rights
from chats.compaction.people.controls import NoSummaries
from chats.compaction.people.rights import Deed
from chats.models import Branch, Message
from chats.prompt import model_choice


@dataclass(frozen=True, slots=True)
class Locks:
    """The reason why something cannot be done; empty: it can be done.

    It is the sentence that a try would get.
    """

    compact: str = ""
    rerun: str = ""
    undo: str = ""
    edit: str = ""
    approve: str = ""
    archive: str = ""
    pins: PinRoom | None = None

    def pin(self, message: Message) -> str:
        """Say why the message cannot be pinned; empty if it can."""
        if self.pins is None or message.pinned_at is not None:
            return ""
        try:
            self.pins.check(message)
        except PinsFull as refusal:
            return str(refusal)
        return ""


def locks_on(
    branch: Branch,
    *,
    user: AbstractBaseUser,
    choice: model_choice.ChosenModel,
    pinned: int | None = None,
) -> Locks:
    """Return what the policy and this person's rights leave to them on a branch.

    `pinned`: the tokens of the pinned messages, where they are known.
    """

    def lock(deed: Deed) -> str:
        return str(rights.refusal(user=user, chat=branch.chat, choice=choice, deed=deed) or "")

    writes = choice.values.strategy == "dynamic_summary"
    compact = "" if writes else str(NoSummaries(policy=choice.effective.label))
    edit = lock("edit")
    return Locks(
        compact=compact,
        rerun=edit or compact,
        undo=lock("undo"),
        edit=edit,
        approve=lock("approve"),
        archive=str(rights.closed_archive(choice) or ""),
        pins=room_of_pins(branch, choice=choice, used=pinned),
    )


def all_locked(sentence: str) -> Locks:
    """Lock everything with one sentence.

    For a chat whose policy or model cannot be used, so that every try is refused.
    """
    return Locks(compact=sentence, rerun=sentence, undo=sentence, edit=sentence, approve=sentence)
