"""Permissions to change the summaries of a chat, as set by its policy."""

from collections.abc import Mapping
from typing import Literal

from django.contrib.auth.models import AbstractBaseUser, User
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.prompt import model_choice
from contextpolicy.engine.policy.fields.summaries import Right
from contextpolicy.engine.policy.policy import PolicyValues

EDITS_POLICIES = "contextpolicy.change_contextpolicy"
Deed = Literal["undo", "edit", "approve"]
WORDS: Mapping[Deed, Promise] = {
    "undo": gettext_lazy("undo or redo a compaction"),
    "edit": gettext_lazy("change a summary"),
    "approve": gettext_lazy("approve a summary"),
}


class NotAllowedByPolicy(Refusal):
    """The policy reserves this action for the owner or for administrators, or forbids it."""

    code = "not_allowed_by_policy"
    status = 403
    sentence = gettext_noop(
        "The policy {policy} does not allow you to {action}. Ask your administrator."
    )


class ArchiveClosed(Refusal):
    """The policy does not allow searching the original messages."""

    code = "archive_closed"
    status = 403
    sentence = gettext_noop(
        "The policy {policy} does not allow you to search or open the originals in the chat. You "
        "can read them on each compaction’s page."
    )


def check_summary_permission(
    *, user: AbstractBaseUser, chat: Chat, action: Deed
) -> model_choice.ChosenModel:
    """Return the chat's policy and model if the user may do `action` with its summaries.

    Raises `NotAllowedByPolicy` and the errors of `model_choice.choose_chat_model`.
    """
    choice = model_choice.choose_chat_model(chat=chat)
    if found := find_permission_refusal(user=user, chat=chat, choice=choice, action=action):
        raise found
    return choice


def get_archive_refusal(choice: model_choice.ChosenModel) -> ArchiveClosed | None:
    """Return the error for a search in the originals; None if the policy allows it."""
    return None if choice.values.archive else ArchiveClosed(policy=choice.effective.label)


def archive_lock(chat: Chat) -> Refusal | None:
    """Return the refusal of a search in a chat's originals, or None if the archive is open.

    A policy that cannot be resolved does not close the archive.
    """
    try:
        return get_archive_refusal(model_choice.choose_chat_model(chat=chat))
    except Refusal:
        return None


def find_permission_refusal(
    *, user: AbstractBaseUser, chat: Chat, choice: model_choice.ChosenModel, action: Deed
) -> NotAllowedByPolicy | None:
    """Return the refusal that the action would raise. None if this user may do it."""
    right = get_required_right(action, values=choice.values)
    by_owner = right == "owner" and chat.owner_id == user.pk
    by_admin = right == "admins" and isinstance(user, User) and user.has_perm(EDITS_POLICIES)
    if by_owner or by_admin:
        return None
    return NotAllowedByPolicy(policy=choice.effective.label, action=WORDS[action])


def get_required_right(action: Deed, *, values: PolicyValues) -> Right:
    """Return the permission that the policy requires for the action: `owner`, `admins` or `nobody`.

    If the policy no longer requires approval, the owner decides about pending summaries.
    """
    if action == "undo":
        return values.undo_right
    if action == "edit":
        return values.edit_right
    return values.approval if values.approval != "nobody" else "owner"
