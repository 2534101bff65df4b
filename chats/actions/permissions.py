"""Predicts which actions on a chat would be refused, and gives the sentence of each refusal."""

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser

from chats.actions.marks import PinRoom, PinsFull, calculate_pin_room
from chats.compaction.people import summary_permissions
from chats.compaction.people.controls import NoSummaries
from chats.compaction.people.summary_permissions import Deed
from chats.ground.refusals import Refusal
from chats.models import Branch, Message
from chats.prompt import model_choice


@dataclass(frozen=True, slots=True)
class Locks:
    """Localized reasons why actions on a chat are unavailable.

    Each is the error message of the action; empty if the action is allowed.
    """

    compact: str = ""
    rerun: str = ""
    undo: str = ""
    edit: str = ""
    approve: str = ""
    archive: str = ""
    pins: PinRoom | None = None

    def pin(self, message: Message) -> str:
        """Return the reason why the message cannot be pinned. Empty if it can be."""
        if self.pins is None or message.pinned_at is not None:
            return ""
        try:
            self.pins.check(message)
        except PinsFull as refusal:
            return refusal.localized
        return ""


def build_action_locks(
    branch: Branch,
    *,
    user: AbstractBaseUser,
    choice: model_choice.ChosenModel,
    pinned: int | None = None,
) -> Locks:
    """Return, for each action on a branch, why the policy or the user's role forbids it.

    The reason is a sentence; empty if the action is allowed. `pinned`: the token count of the
    pinned messages, if known.
    """

    def lock(action: Deed) -> str:
        return format_refusal(
            summary_permissions.find_permission_refusal(
                user=user, chat=branch.chat, choice=choice, action=action
            )
        )

    writes = choice.values.strategy == "dynamic_summary"
    compact = "" if writes else NoSummaries(policy=choice.effective.label).localized
    edit = lock("edit")
    return Locks(
        compact=compact,
        rerun=edit or compact,
        undo=lock("undo"),
        edit=edit,
        approve=lock("approve"),
        archive=format_refusal(summary_permissions.get_archive_refusal(choice)),
        pins=calculate_pin_room(branch, choice=choice, used=pinned),
    )


def format_refusal(refusal: Refusal | None) -> str:
    """Return the sentence of a refusal; empty if there is no refusal."""
    return refusal.localized if refusal else ""


def lock_all_actions(sentence: str) -> Locks:
    """Lock every action on summaries with the same sentence.

    Used if the chat's policy or model is unusable, so that every such action would be refused. The
    archive stays open.
    """
    return Locks(compact=sentence, rerun=sentence, undo=sentence, edit=sentence, approve=sentence)
