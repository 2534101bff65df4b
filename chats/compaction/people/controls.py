"""A person's requests for compaction: now, again from the originals, or not at all.

A request is written at the branch and taken up by a worker, which alone counts and summarises: a
lost task loses nothing, and two requests for the same are one.
"""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Max

from chats.compaction.coverage import active_branch, close, summary_of
from chats.compaction.people import rights
from chats.ground import queue
from chats.ground.refusals import NotFound, Refusal
from chats.models import Branch, Chat, Compaction
from chats.prompt import model_choice
from chats.record.locking import locked_chat
from chats.record.messages import UNSTORABLE, InvalidCharacter
from contextpolicy import ledger
from contextpolicy.models import ModelSpec

FOCUS_LENGTH = 500


class NoSummaries(Refusal):
    """The chat's policy has no summaries."""

    code = "no_summaries"
    status = 409
    sentence = "The policy {policy} writes no summaries, so there is nothing to compact here."


class FocusTooLong(Refusal):
    """The words about what matters are over their limit; they are never cut."""

    code = "focus_too_long"
    status = 422
    sentence = "The focus has {length} characters; {limit} are allowed. Shorten it by {over}."
    param = "focus"


class NotInForce(Refusal):
    """Another summary, or none, is in force now."""

    code = "not_in_force"
    status = 409
    sentence = "This summary is not in force any more. Look at the chat again."


class UnknownSummariser(Refusal):
    """There is no such model, it is switched off, or the policy does not allow it."""

    code = "unknown_summariser"
    status = 422
    sentence = "The model “{model}” cannot write summaries here. Choose another one."
    param = "model"


class NotBeingWritten(Refusal):
    """The attempt ended already."""

    code = "not_being_written"
    status = 409
    sentence = "This summary is not being written any more."


@transaction.atomic
def compact_now(
    *, user: AbstractBaseUser, chat: Chat, now: datetime, focus: str = "", model: str | None = None
) -> Branch:
    """Ask for a compaction of the chat's active branch, whatever the marks say.

    `focus`: what is to be kept above all. `model`: the slug of another summariser, "" for the
    extractive one. The outcome stands at the branch's last turn and in the ledger. Raises
    `NoSummaries`, `FocusTooLong`, `UnknownSummariser`, `InvalidCharacter`, and what
    `model_choice.choose` raises.
    """
    chat = locked_chat(chat.pk)
    branch = active_branch(chat)
    check_wish(model_choice.choose(chat=branch.chat), focus=focus, model=model)
    ask(branch, user=user, now=now, focus=focus, model=model)
    return branch


@transaction.atomic
def rerun(
    *,
    user: AbstractBaseUser,
    compaction: Compaction,
    now: datetime,
    focus: str = "",
    model: str | None = None,
) -> Branch:
    """Ask for the summary in force to be written again from its originals.

    The new one takes its place; the old one stays readable. Raises `NotInForce`,
    `NotAllowedByPolicy`, and what `compact_now` raises.
    """
    branch = active_branch(locked_chat(compaction.branch.chat_id))
    choice = rights.check(user=user, chat=branch.chat, deed="edit")
    check_wish(choice, focus=focus, model=model)
    if summary_of(branch.active_compaction) != compaction:
        raise NotInForce
    ask(branch, user=user, now=now, focus=focus, model=model, compaction=str(compaction.pk))
    return branch


def check_wish(choice: model_choice.ChosenModel, *, focus: str, model: str | None) -> None:
    """Check a person's wishes about a summary.

    Raises `NoSummaries`, `FocusTooLong`, `InvalidCharacter` or `UnknownSummariser`.
    """
    if choice.values.strategy != "dynamic_summary":
        raise NoSummaries(policy=choice.effective.label)
    if len(focus) > FOCUS_LENGTH:
        over = len(focus) - FOCUS_LENGTH
        raise FocusTooLong(length=len(focus), limit=FOCUS_LENGTH, over=over)
    if found := UNSTORABLE.search(focus):
        raise InvalidCharacter(position=found.start())
    if not model:
        return
    allowed = choice.values.allowed_models
    known = ModelSpec.objects.filter(slug=model, enabled=True).exists()
    if not known or (allowed is not None and model not in allowed):
        raise UnknownSummariser(model=model[:120])


def ask(
    branch: Branch,
    *,
    user: AbstractBaseUser,
    now: datetime,
    focus: str,
    model: str | None,
    compaction: str = "",
) -> None:
    """Write the request at its branch; the newest one counts."""
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
    ledger.record(
        "compaction.asked",
        actor=by,
        now=now,
        chat_id=branch.chat_id,
        data={"branch": str(branch.pk), "compaction": compaction, "model": model or ""},
    )
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=branch.chat_id)


@transaction.atomic
def cancel(*, user: AbstractBaseUser, compaction: Compaction, now: datetime) -> Compaction:
    """Stop a summary that is being written: nothing changes but the record of the attempt.

    Raises `NotBeingWritten` and `NotFound`.
    """
    locked_chat(compaction.branch.chat_id)
    rows = Compaction.objects.select_related("branch")
    rows = rows.select_for_update(of=("self",), no_key=True)
    row = rows.filter(pk=compaction.pk).first()
    if row is None:
        raise NotFound
    if row.status != Compaction.Status.PREPARING:
        raise NotBeingWritten
    by = f"user:{user.pk}"
    close(row=row, status=Compaction.Status.FAILED, reason="cancelled", now=now, actor=by)
    row.refresh_from_db()
    return row
