"""Who may do what to the summaries of a chat, as the chat's policy says."""

from django.contrib.auth.models import AbstractBaseUser, User

from chats import context
from chats.models import Chat
from chats.refusals import Refusal
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.policy_fields import Right

EDITS_POLICIES = "contextpolicy.change_contextpolicy"


class NotAllowedByPolicy(Refusal):
    """The policy leaves this to somebody else, or to nobody."""

    code = "not_allowed_by_policy"
    status = 403
    sentence = "The policy {policy} does not let you {deed} here. Ask whoever looks after it."


def check(*, user: AbstractBaseUser, chat: Chat, right: Right, deed: str, policy: str) -> None:
    """Raise `NotAllowedByPolicy` unless `right` includes this person."""
    by_owner = right == "owner" and chat.owner_id == user.pk
    by_admin = right == "admins" and isinstance(user, User) and user.has_perm(EDITS_POLICIES)
    if not by_owner and not by_admin:
        raise NotAllowedByPolicy(policy=policy, deed=deed)


def check_undo(*, user: AbstractBaseUser, chat: Chat) -> PolicyValues:
    """The chat's policy, if this person may undo a compaction. Raises `NotAllowedByPolicy`."""
    choice = context.choose(chat=chat)
    right = choice.values.undo_right
    check(user=user, chat=chat, right=right, deed="undo", policy=choice.effective.label)
    return choice.values


def check_edit(*, user: AbstractBaseUser, chat: Chat) -> context.Choice:
    """The chat's policy and model, if this person may correct a summary.

    Raises `NotAllowedByPolicy` and what `context.choose` raises.
    """
    choice = context.choose(chat=chat)
    right = choice.values.edit_right
    deed = "change a summary"
    check(user=user, chat=chat, right=right, deed=deed, policy=choice.effective.label)
    return choice


def check_approval(*, user: AbstractBaseUser, chat: Chat) -> None:
    """Raise `NotAllowedByPolicy` unless this person may approve a summary here.

    Where the policy asks for no approval any more, the owner decides what still waits.
    """
    choice = context.choose(chat=chat)
    right: Right = choice.values.approval if choice.values.approval != "nobody" else "owner"
    deed = "approve a summary"
    check(user=user, chat=chat, right=right, deed=deed, policy=choice.effective.label)
