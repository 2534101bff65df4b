"""Decides which models may get files, according to the policy field `file_models`."""

import uuid

from django.db.models import Exists, OuterRef, QuerySet

from chats.models import Branch, Chat, Message
from chats.record import history
from contextpolicy.engine.policy.policy import PolicyValues


def may_get_files(model_slug: str, *, values: PolicyValues) -> bool:
    """Return True if the policy lets this model get files."""
    return values.file_models is None or model_slug in values.file_models


def may_get_branch(model_slug: str, *, branch: Branch, values: PolicyValues) -> bool:
    """Return True if the policy lets this model get all messages of a branch with their files."""
    return may_get_files(model_slug, values=values) or not has_branch_files(
        branch, before=branch.last_seq + 1
    )


def may_get_chat(model_slug: str, *, chat_id: uuid.UUID, values: PolicyValues) -> bool:
    """Return True if the policy lets this model get the messages of all branches of a chat."""
    return may_get_files(model_slug, values=values) or not contains_files(
        Message.objects.filter(branch__chat=chat_id)
    )


def exclude_chats_with_files(
    chats: QuerySet[Chat], *, model_slug: str, values: PolicyValues
) -> QuerySet[Chat]:
    """Return the chats whose messages the policy lets this model get."""
    if may_get_files(model_slug, values=values):
        return chats
    rows = Message.objects.filter(branch__chat=OuterRef("pk"))
    return chats.exclude(Exists(select_file_messages(rows)))


def has_branch_files(branch: Branch, *, before: int) -> bool:
    """Return True if a message of the branch's path has a file that is part of prompts.

    Examines the messages with a seq below `before`, also those that a summary covers, because the
    summary contains facts of their files. Results of tools can have images.
    """
    return contains_files(history.select_path_messages(branch, after=0, before=before))


def contains_files(rows: QuerySet[Message]) -> bool:
    """Return True if one of the messages has a file, and is not excluded from prompts."""
    return select_file_messages(rows).exists()


def select_file_messages(rows: QuerySet[Message]) -> QuerySet[Message]:
    """Return the messages that have files, and are not excluded from prompts."""
    return rows.filter(excluded=False, contains_files=True)
