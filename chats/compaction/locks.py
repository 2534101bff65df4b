"""What a person may do in a chat, told before they try: the sentences of the refusals to come."""

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser

from chats import answering
from chats.compaction import rights
from chats.compaction.controls import NoSummaries
from chats.compaction.marks import PinRoom, PinsFull, room_of_pins
from chats.compaction.rights import Deed
from chats.models import Branch, Message


@dataclass(frozen=True, slots=True)
class Locks:
    """Why something cannot be done, in the sentence that a try would get; empty: it can be done."""

    compact: str = ""
    rerun: str = ""
    undo: str = ""
    edit: str = ""
    approve: str = ""
    archive: str = ""
    pins: PinRoom | None = None

    def pin(self, message: Message) -> str:
        """Why the message cannot be pinned."""
        if self.pins is None or message.pinned_at is not None:
            return ""
        try:
            self.pins.check(message)
        except PinsFull as refusal:
            return str(refusal)
        return ""


def locks_on(
    branch: Branch, *, user: AbstractBaseUser, choice: answering.Choice, pinned: int | None = None
) -> Locks:
    """What the policy and this person's rights leave to them on a branch.

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
    """Where the chat's policy or model cannot be used, and every try is refused for that."""
    return Locks(compact=sentence, rerun=sentence, undo=sentence, edit=sentence, approve=sentence)
