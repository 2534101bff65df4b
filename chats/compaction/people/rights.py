"""Rights of people to change the summaries of a chat, as the chat's policy says."""

from collections.abc import Mapping
from typing import Literal

from django.contrib.auth.models import AbstractBaseUser, User

from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.prompt import model_choice
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.policy_fields import Right

EDITS_POLICIES = "contextpolicy.change_contextpolicy"
Deed = Literal["undo", "edit", "approve"]
WORDS: Mapping[Deed, str] = {
    "undo": "undo or redo a compaction",
    "edit": "change a summary",
    "approve": "approve a summary",
}


class NotAllowedByPolicy(Refusal):
    """The policy leaves this to somebody else, or to nobody."""

    code = "not_allowed_by_policy"
    status = 403
    sentence = "The policy {policy} does not let you {deed} here. Ask whoever looks after it."


class ArchiveClosed(Refusal):
    """The policy keeps the originals out of every search."""

    code = "archive_closed"
    status = 403
    sentence = (
        "The policy {policy} keeps the archive closed: the originals are not searched and not "
        "opened from the chat. They stay stored, and the page of each compaction shows them."
    )


def check(*, user: AbstractBaseUser, chat: Chat, deed: Deed) -> model_choice.ChosenModel:
    """Return the chat's policy and model, if this person may do that to its summaries.

    Raises `NotAllowedByPolicy` and what `model_choice.choose` raises.
    """
    choice = model_choice.choose(chat=chat)
    if found := refusal(user=user, chat=chat, choice=choice, deed=deed):
        raise found
    return choice


def closed_archive(choice: model_choice.ChosenModel) -> ArchiveClosed | None:
    """Return the refusal of a search in the originals; None: the archive is open."""
    return None if choice.values.archive else ArchiveClosed(policy=choice.effective.label)


def archive_lock(chat: Chat) -> Refusal | None:
    """Return why a chat's originals are not searched; a policy that cannot be used closes none."""
    try:
        return closed_archive(model_choice.choose(chat=chat))
    except Refusal:
        return None


def refusal(
    *, user: AbstractBaseUser, chat: Chat, choice: model_choice.ChosenModel, deed: Deed
) -> NotAllowedByPolicy | None:
    """Return the refusal that a try would get; None: this person may."""
    right = right_to(deed, values=choice.values)
    by_owner = right == "owner" and chat.owner_id == user.pk
    by_admin = right == "admins" and isinstance(user, User) and user.has_perm(EDITS_POLICIES)
    if by_owner or by_admin:
        return None
    return NotAllowedByPolicy(policy=choice.effective.label, deed=WORDS[deed])


def right_to(deed: Deed, *, values: PolicyValues) -> Right:
    """Return to whom the policy leaves the deed.

    When it no longer asks for approval, the owner decides about summaries that still wait.
    """
    if deed == "undo":
        return values.undo_right
    if deed == "edit":
        return values.edit_right
    return values.approval if values.approval != "nobody" else "owner"
