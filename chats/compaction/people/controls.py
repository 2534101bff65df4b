"""User requests for compaction: compact now, regenerate from the originals, or cancel.

A request is stored on the branch, so it survives a lost task, and two identical requests count as
one. Only workers count tokens and write summaries.
"""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Max
from django.utils.translation import gettext_noop

from chats.compaction.coverage import close_attempt, get_active_summary, load_locked_active_branch
from chats.compaction.people import summary_permissions
from chats.compaction.plan import may_write_summaries
from chats.ground import queue
from chats.ground.refusals import NotFound, Refusal
from chats.models import Branch, Chat, Compaction
from chats.prompt import model_choice
from chats.record import quotas
from chats.record.locking import lock_chat
from chats.record.message_text import check_characters
from contextpolicy import ledger
from contextpolicy.models import ModelSpec

FOCUS_LENGTH = 500


class NoSummaries(Refusal):
    """The chat's policy does not use summaries."""

    code = "no_summaries"
    status = 409
    sentence = gettext_noop(
        "The policy {policy} does not use summaries, so this chat cannot be compacted."
    )


class FocusTooLong(Refusal):
    """The focus has more than 500 characters. It is never truncated."""

    code = "focus_too_long"
    status = 422
    sentence = gettext_noop(
        "The focus has {length} characters. The limit is {limit}. Shorten the focus by {over}."
    )
    param = "focus"


class SummaryNotActive(Refusal):
    """The summary is not the active one. Only the active summary can be changed."""

    code = "not_in_force"
    status = 409
    sentence = gettext_noop("This summary is no longer active. Reload the chat.")


class UnknownSummariser(Refusal):
    """The summarising model does not exist, is disabled, or is not allowed by the policy, or the
    policy does not let it get the chat's files."""

    code = "unknown_summariser"
    status = 422
    sentence = gettext_noop(
        "The model “{model}” cannot write summaries in this chat. Choose another model."
    )
    param = "model"


class NotBeingWritten(Refusal):
    """The summary is no longer being written, so it cannot be cancelled."""

    code = "not_being_written"
    status = 409
    sentence = gettext_noop(
        "This summary is no longer running, so it cannot be cancelled. Reload the chat to see the "
        "result."
    )


@transaction.atomic
def compact_now(
    *, user: AbstractBaseUser, chat: Chat, now: datetime, focus: str = "", model: str | None = None
) -> Branch:
    """Request a compaction of the chat's active branch, regardless of the policy's thresholds.

    `focus`: the details to keep. `model`: the slug of another summariser, "" for the
    extractive summary. The outcome is stored at the branch's last turn and in the ledger.
    Raises `NoSummaries`, `FocusTooLong`, `UnknownSummariser`, `InvalidCharacter`,
    `quotas.QuotaExceeded`, and the errors of `model_choice.choose_chat_model`.
    """
    chat = lock_chat(chat.pk)
    branch = load_locked_active_branch(chat)
    choice = model_choice.choose_chat_model(chat=branch.chat)
    check_summary_options(choice, branch=branch, focus=focus, model=model)
    check_summary_quota(choice, branch=branch, model=model, now=now)
    store_compaction_request(branch, user=user, now=now, focus=focus, model=model)
    return branch


@transaction.atomic
def request_summary_rerun(
    *,
    user: AbstractBaseUser,
    compaction: Compaction,
    now: datetime,
    focus: str = "",
    model: str | None = None,
) -> Branch:
    """Request that the active summary be regenerated from its originals.

    The new summary replaces the active one, which stays readable. Raises `SummaryNotActive`,
    `NotAllowedByPolicy`, and the errors of `compact_now`.
    """
    branch = load_locked_active_branch(lock_chat(compaction.branch.chat_id))
    choice = summary_permissions.check_summary_permission(
        user=user, chat=branch.chat, action="edit"
    )
    check_summary_options(choice, branch=branch, focus=focus, model=model)
    check_summary_quota(choice, branch=branch, model=model, now=now)
    if get_active_summary(branch.active_compaction) != compaction:
        raise SummaryNotActive
    store_compaction_request(
        branch, user=user, now=now, focus=focus, model=model, compaction=str(compaction.pk)
    )
    return branch


def check_summary_options(
    choice: model_choice.ChosenModel, *, branch: Branch, focus: str, model: str | None
) -> None:
    """Validate the options of a summary request.

    Raises `NoSummaries`, `FocusTooLong`, `InvalidCharacter` or `UnknownSummariser`.
    """
    if choice.values.strategy != "dynamic_summary":
        raise NoSummaries(policy=choice.effective.label)
    if len(focus) > FOCUS_LENGTH:
        over = len(focus) - FOCUS_LENGTH
        raise FocusTooLong(length=len(focus), limit=FOCUS_LENGTH, over=over)
    check_characters(focus)
    if model and not may_write_summaries(model, branch=branch, values=choice.values):
        raise UnknownSummariser(model=model[:120])


def check_summary_quota(
    choice: model_choice.ChosenModel, *, branch: Branch, model: str | None, now: datetime
) -> None:
    """Raise `quotas.QuotaExceeded` if the request would call a model over a quota of the owner."""
    slug = choice.values.summarization_model if model is None else model
    spec = ModelSpec.objects.filter(slug=slug).first() if slug else None
    if spec is not None:
        quotas.check_policy_quota(
            owner_id=branch.chat.owner_id, values=choice.values, prices=spec.prices, now=now
        )


def store_compaction_request(
    branch: Branch,
    *,
    user: AbstractBaseUser,
    now: datetime,
    focus: str,
    model: str | None,
    compaction: str = "",
) -> None:
    """Store the request on its branch, where it replaces any earlier request."""
    by = f"user:{user.pk}"
    branch.asked = {
        "by": by,
        "focus": focus,
        "model": model,
        "compaction": compaction,
        "after": branch.turns.aggregate(last=Max("accepted"))["last"] or 0,
    }
    branch.asked_at = now
    branch.save(update_fields=["asked", "asked_at"])
    ledger.record_event(
        "compaction.asked",
        actor=by,
        now=now,
        chat_id=branch.chat_id,
        data={"branch": str(branch.pk), "compaction": compaction, "model": model or ""},
    )
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=branch.chat_id)


@transaction.atomic
def cancel_summary(*, user: AbstractBaseUser, compaction: Compaction, now: datetime) -> Compaction:
    """Cancel a summary in progress: only the attempt's row changes.

    Raises `NotBeingWritten` and `NotFound`.
    """
    lock_chat(compaction.branch.chat_id)
    rows = Compaction.objects.select_related("branch")
    rows = rows.select_for_update(of=("self",), no_key=True)
    row = rows.filter(pk=compaction.pk).first()
    if row is None:
        raise NotFound
    if row.status != Compaction.Status.PREPARING:
        raise NotBeingWritten
    by = f"user:{user.pk}"
    close_attempt(row=row, status=Compaction.Status.FAILED, reason="cancelled", now=now, actor=by)
    row.refresh_from_db()
    return row
