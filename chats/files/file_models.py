"""The models that may get files, as the policy field `file_models` limits them."""

import uuid

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from chats.models import Branch, Message
from chats.models.parts import DEFLATED
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


def has_branch_files(branch: Branch, *, before: int) -> bool:
    """Return True if a message of the branch's path has a file that is part of prompts.

    Examines the messages with a seq below `before`, also those that a summary covers, because the
    summary contains facts of their files. Results of tools can have images.
    """
    return contains_files(history.select_path_messages(branch, after=0, before=before))


def contains_files(rows: QuerySet[Message]) -> bool:
    """Return True if one of the messages has a file, and is not excluded from prompts."""
    # In stored JSON, quotation marks of texts are escaped, so hardly any other row is read.
    written = Q(stored__contains='"file"') | Q(stored__contains=f'"{DEFLATED}"')
    rows = rows.filter(excluded=False).annotate(stored=Cast("parts", TextField())).filter(written)
    return any(row.has_files for row in rows.only("parts").iterator(chunk_size=100))
