"""Sets a user's marks on a message (pinned, excluded, kept) and updates summaries.

A pinned message is always sent in full. An excluded message is never sent: summaries made from it
are withdrawn, and their other originals are sent again. The context revision increases only if the
message is covered by a summary, because only then do earlier prompts change.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Sum
from django.utils.translation import gettext_noop

from chats.compaction.coverage import (
    get_active_summary,
    is_message_on_path,
    load_locked_active_branch,
    load_locked_branches,
    retire_covering_summaries,
)
from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.memory.search import archive
from chats.models import Branch, Chat, Message
from chats.prompt import model_choice, prompt_facts
from chats.record import history, messages
from chats.record.locking import lock_chat
from contextpolicy.engine.policy.budget import compute_prompt_limit, convert_provider_tokens


class NotTakenUp(Refusal):
    """The message is still queued. Retry when its turn runs."""

    code = "not_taken_up"
    status = 409
    sentence = gettext_noop(
        "This message is waiting for its reply to start. Pin or exclude it once the reply has "
        "started."
    )


class PinsFull(Refusal):
    """The pinned messages would exceed the token limit for pins. Unpin one first."""

    code = "pins_full"
    status = 409
    sentence = gettext_noop(
        "Pinned messages use {used:,} of {limit:,} tokens, and this message needs {needed:,}. "
        "Unpin another message, or pin a shorter one."
    )


class MessageErased(Refusal):
    """The message was erased, so it cannot be pinned, excluded or kept."""

    code = "message_erased"
    status = 409
    sentence = gettext_noop("This message was erased and cannot be pinned or excluded.")


class NothingToKeep(Refusal):
    """The message is not an incomplete reply."""

    code = "nothing_to_keep"
    status = 409
    sentence = gettext_noop("This message is complete. You can keep only incomplete replies.")


@dataclass(frozen=True, slots=True)
class PinRoom:
    """The token count of a chat's pinned messages and its limit, in local tokens."""

    used: int
    limit: int

    def check(self, message: Message) -> None:
        """Raise `PinsFull` if the message does not fit."""
        needed = message.token_count or 0
        if self.used + needed > self.limit:
            raise PinsFull(used=self.used, limit=self.limit, needed=needed)


def load_pin_room(*, chat: Chat) -> PinRoom:
    """Return the token count of the pinned messages on a chat's active branch, and its limit.

    The limit is the policy's `pins_tokens`, or half of the prompt limit if that is not set.
    Raises the refusals of `model_choice.choose_chat_model`.
    """
    return calculate_pin_room(
        load_locked_active_branch(chat), choice=model_choice.choose_chat_model(chat=chat)
    )


def calculate_pin_room(
    branch: Branch, *, choice: model_choice.ChosenModel, used: int | None = None
) -> PinRoom:
    """Return the token count of a branch's pinned messages, and the policy's limit for it.

    `used` saves a query if the caller already knows the pinned tokens.
    """
    limit = choice.values.pins_tokens
    if limit is None:
        limit = compute_prompt_limit(choice.values, model_window=choice.model.window) // 2
    if used is None:
        rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
        used = rows.filter(pinned_at__isnull=False).aggregate(total=Sum("token_count"))["total"]
    factor = prompt_facts.get_calibration_factor(branch, model=choice.model)
    return PinRoom(used or 0, convert_provider_tokens(limit, calibration=factor))


@transaction.atomic
def pin_message(*, message: Message, actor: str, now: datetime) -> Message:
    """Pin a message, so that each prompt contains its full text. Idempotent.

    Raises `NotTakenUp`, `MessageErased`, `PinsFull`, and the refusals of
    `model_choice.choose_chat_model`.
    """
    chat, message = lock_for_marking(message)
    if message.pinned_at is not None:
        return message
    load_pin_room(chat=chat).check(message)
    data = raise_context_revisions(message, chat=chat, cause="pin")
    event = "message.pinned"
    return messages.mark_message(
        message, actor=actor, event=event, now=now, pinned_at=now, data=data
    )


@transaction.atomic
def unpin_message(*, message: Message, actor: str, now: datetime) -> Message:
    """Unpin a message, so that summaries may cover it. Raises `NotTakenUp` and `MessageErased`."""
    chat, message = lock_for_marking(message)
    if message.pinned_at is None:
        return message
    data = raise_context_revisions(message, chat=chat, cause="pin")
    event = "message.unpinned"
    return messages.mark_message(
        message, actor=actor, event=event, now=now, pinned_at=None, data=data
    )


@transaction.atomic
def exclude_message(*, message: Message, actor: str, now: datetime) -> Message:
    """Exclude a message from prompts and search, and withdraw all summaries made from it.

    The message stays visible with a mark. Raises `NotTakenUp` and `MessageErased`.
    """
    chat, message = lock_for_marking(message)
    if message.excluded:
        return message
    ids, branches = retire_covering_summaries(
        message, chat=chat, reason="message_excluded", now=now, actor=actor
    )
    if not branches:
        data = raise_context_revisions(message, chat=chat, cause="exclude")
    else:
        data = {"prefix_break": "exclude", "summaries": ids}
    archive.remove_indexed_messages([message.pk])
    event = "message.excluded"
    return messages.mark_message(
        message, actor=actor, event=event, now=now, excluded=True, data=data
    )


@transaction.atomic
def include_message(*, message: Message, actor: str, now: datetime) -> Message:
    """Include an excluded message in prompts again. Raises `NotTakenUp` and `MessageErased`."""
    chat, message = lock_for_marking(message)
    if not message.excluded:
        return message
    data = raise_context_revisions(message, chat=chat, cause="include")
    event = "message.included"
    included = messages.mark_message(
        message, actor=actor, event=event, now=now, excluded=False, data=data
    )
    archive.restore_search_text(included)
    return included


@transaction.atomic
def keep_incomplete_reply(*, message: Message, actor: str, now: datetime) -> Message:
    """Include an incomplete reply in later prompts.

    Raises `NothingToKeep`, `NotTakenUp` and `MessageErased`.
    """
    if message.finish != Message.Finish.INCOMPLETE:
        raise NothingToKeep
    chat, message = lock_for_marking(message)
    if message.kept:
        return message
    data = raise_context_revisions(message, chat=chat, cause="keep")
    event = "message.kept"
    return messages.mark_message(message, actor=actor, event=event, now=now, kept=True, data=data)


def lock_for_marking(message: Message) -> tuple[Chat, Message]:
    """Lock the message's chat, and return the reloaded chat and message.

    Raises `NotTakenUp` and `MessageErased`.
    """
    chat = lock_chat(message.branch.chat_id)
    message = Message.objects.select_related("branch").get(pk=message.pk)
    if message.seq is None:
        raise NotTakenUp
    if message.erased_at is not None:
        raise MessageErased
    return chat, message


def raise_context_revisions(message: Message, *, chat: Chat, cause: str) -> dict[str, object]:
    """Increase the revision of each branch whose active summary spans the message.

    A message that the summary lists as an exception counts too. A summary in preparation on such a
    branch becomes outdated, and a cache warm-up is enqueued. Returns the data for the ledger.
    """
    touched = []
    for branch in load_locked_branches(chat):
        row = get_active_summary(branch.active_compaction)
        inside = row is not None and row.from_seq <= (message.seq or 0) <= row.to_seq
        if inside and is_message_on_path(branch, message):
            branch.context_revision += 1
            branch.save(update_fields=["context_revision"])
            touched.append(str(branch.pk))
            queue.enqueue(queue.WARM_UP, branch_id=branch.pk, cause="swap")
    return {"prefix_break": cause, "branches": touched} if touched else {}
