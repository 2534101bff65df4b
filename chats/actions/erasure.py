"""Permanent erasure: deletes the content of a message or chat wherever it is stored.

Ids and positions stay. They show that a message existed, when, and that it was erased.
No hash remains with which a guess at the content could be verified. The certificate in
the ledger lists the copies and commits to the erased content. The salt of this
commitment is given to the person who erases and is not stored.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.actions import chat_copies, erasure_targets
from chats.actions.deletion import delete_chat
from chats.actions.expiry import select_expired_chats
from chats.actions.running_replies import (
    StillAnswering,
    StillReferred,
    check_chat_over,
    check_over,
)
from chats.compaction.coverage import (
    is_message_on_path,
    list_covering_summaries,
    load_locked_branches,
    retire_covering_summaries,
)
from chats.files import uploads
from chats.ground.commitments import compute_iterable_commitment, new_salt
from chats.memory.preferences.memory_settings import lock_memory_settings
from chats.memory.search import archive
from chats.memory.search.clearing import clear_index, truncate_log
from chats.models import (
    Branch,
    Chat,
    ChatState,
    Compaction,
    KeptText,
    Message,
    MessageFile,
    PendingErasure,
    Receipt,
)
from chats.record import holds, imports, message_erasure, title_sources
from chats.record.erasure_marks import ErasureMarks
from chats.record.holds import UnderHold
from chats.record.locking import lock_chat_for_erasure
from chats.record.message_erasure import Proof
from chats.record.quotes import Quote, find_quotes, find_quoting_ids
from chats.turns.derived_titles import get_title_text, is_derived_title
from chats.turns.stop import end_turns_waiting_on, end_waiting_turns
from contextpolicy import ledger
from contextpolicy.models import AuditEvent


@dataclass(frozen=True, slots=True)
class Erased:
    """An erased message, and the messages that still quote it.

    `proofs` has one proof per message erased by this call. They are shown only once.
    """

    message: Message
    quoted_by: Sequence[Quote]
    proofs: Mapping[Message, Proof] = field(default_factory=dict)


def erase_message(
    *,
    user: AbstractBaseUser,
    message: Message,
    now: datetime,
    also: Collection[uuid.UUID] = (),
    with_quotes: bool = False,
) -> Erased:
    """Erase a message's content permanently. Idempotent.

    Summaries made from the message lose their text and are withdrawn. Their other originals
    are then sent again. The certificate names the messages that quote it.

    `also`: ids of quoting messages to erase as well; ids of other messages are ignored.
    `with_quotes`: erase all quoting messages. Both also work on a message that is already
    erased.

    Raises `StillAnswering`, `StillReferred`, `ChatErased` for a chat that was erased in the
    meantime, and `UnderHold`, which stores a pending erasure.
    """
    rows: list[Message] = []
    try:
        with transaction.atomic():
            chat = lock_for_erasure(message.branch.chat_id)
            message = Message.objects.select_related("branch").get(pk=message.pk)
            quotes = list_quotes(message)
            chosen = [quote.message for quote in quotes if with_quotes or quote.message.pk in also]
            left = [quote for quote in quotes if quote.message not in chosen]
            rows = chosen if message.erased_at else [message, *chosen]
            for row in rows:
                check_over(row)
            quoting = find_remaining_quotes(chosen, gone=rows)
            more: dict[Message, dict[str, object]] = {
                row: {"quotes": str(message.pk), "quoted_by": quoting[row.pk]}
                if row in chosen
                else {"quoted_by": [str(quote.message.pk) for quote in left]}
                for row in rows
            }
            proofs = erase_locked_messages(more, chat=chat, by=f"user:{user.pk}", now=now)
    except UnderHold:
        with transaction.atomic():
            lock_for_erasure(message.branch.chat_id)
            for row in rows:
                holds.keep_pending_erasure(owner_id=int(user.pk), message=row, now=now)
        raise UnderHold(meanwhile=holds.MESSAGE_STAYS) from None
    return Erased(message, left, proofs)


def lock_for_erasure(chat_id: uuid.UUID) -> Chat:
    """Return the chat, locked with all rows that its erasures may delete later.

    Those are the owner's memory settings, and the pending erasures of the chat and its messages. A
    reply that ends and a cancelled erasure lock them before the ledger's head, so an erasure does
    too. Raises `ChatErased`.
    """
    chat = lock_chat_for_erasure(chat_id)
    lock_memory_settings(chat.owner_id)
    holds.lock_pending_erasures_of(chat)
    return chat


def list_quotes(message: Message) -> list[Quote]:
    """Return the messages that quote this one and are not erased.

    For an erased message, these are the ones named in its certificate.
    """
    if message.erased_at is None:
        return find_quotes(message)
    certificates = AuditEvent.objects.filter(
        scope=f"chat:{message.branch.chat_id}",
        type="message.erased",
        data__message=str(message.pk),
    )
    named = [pk for event in certificates for pk in event.data.get("quoted_by", ())]
    rows = Message.objects.filter(pk__in=named, erased_at=None).select_related("branch")
    return [Quote(row, words="") for row in rows.order_by("accepted")]


def find_remaining_quotes(
    rows: Sequence[Message], *, gone: Sequence[Message]
) -> dict[uuid.UUID, list[str]]:
    """Map the id of each message to the ids of the messages that quote it, except `gone`."""
    others = Message.objects.filter(branch__chat__in={row.branch.chat_id for row in rows})
    others = others.exclude(pk__in=[row.pk for row in gone]).filter(erased_at=None)
    others = others.order_by("accepted")
    return find_quoting_ids(rows, others.iterator(chunk_size=erasure_targets.PAGE))


def erase_locked_messages(
    rows: Mapping[Message, Mapping[str, object]], *, chat: Chat, by: str, now: datetime
) -> dict[Message, Proof]:
    """Erase messages of a chat locked by `lock_for_erasure`, and certify each.

    The values of `rows` are added to the certificates. Returns the proofs. Raises `UnderHold`.
    """
    holds.check_legal_hold(owner_id=chat.owner_id, chats=[chat.pk], now=now)
    marks = ErasureMarks(now)
    proofs = {
        row: erase_with_copies(row, chat=chat, by=by, marks=marks, more=more)
        for row, more in rows.items()
    }
    marks.record_deferred()
    transaction.on_commit(truncate_log)
    return proofs


def erase_with_copies(
    message: Message, *, chat: Chat, by: str, marks: ErasureMarks, more: Mapping[str, object]
) -> Proof:
    """Erase one message of a locked chat with all copies, and certify it.

    The caller has checked the legal holds, and writes the deferred entries of `marks`.
    """
    now = marks.now
    PendingErasure.objects.filter(message=message).delete()
    end_turns_waiting_on(message=message, actor=by, now=now)
    title_text = get_title_text(message)
    withdrawn, changed = retire_covering_summaries(
        message, chat=chat, reason="message_erased", now=now, actor=by
    )
    raise_revision(message, chat=chat, already=changed)
    summaries = (
        list_covering_summaries(message, branches=load_locked_branches(chat)) if message.seq else []
    )
    counted = {
        name: reach(message, summaries, marks) for name, reach in erasure_targets.COPIES.items()
    }
    clear_summary_texts(summaries, now=now)
    counted["title"] = forget_title(chat, message=message, text=title_text)
    proof = message_erasure.erase_message_content(message, now=now)
    marked = marks.take(chat.pk)
    marks.record(actor=by, erased="message", source=message.pk)
    record_certificate(
        "message.erased",
        chat_id=chat.pk,
        actor=by,
        now=now,
        data={
            "message": str(message.pk),
            "seq": message.seq,
            "commitment": proof.commitment,
            "summaries": [str(row.pk) for row in summaries],
            "receipts": marked,
            "withdrawn": withdrawn,
            "copies": counted,
            "prefix_break": "erase",
            **more,
        },
    )
    return proof


def raise_revision(message: Message, *, chat: Chat, already: list[Branch]) -> None:
    """Increment the context revision of each branch that contains the message.

    Branches in `already` are skipped.
    """
    for branch in load_locked_branches(chat):
        has_it = branch.pk == message.branch_id or is_message_on_path(branch, message)
        if branch not in already and has_it:
            branch.context_revision += 1
            branch.save(update_fields=["context_revision"])


def clear_summary_texts(rows: Iterable[Compaction], *, now: datetime) -> None:
    """Delete the text of summaries and the salt of their commitments. Numbers stay."""
    Compaction.objects.filter(pk__in=[row.pk for row in rows]).update(
        text="",
        sections=[],
        retention={},
        focus="",
        remark="",
        salt="",
        bodies=[],
        made_of={},
        text_commitment="",
        erased_at=now,
    )


def forget_title(chat: Chat, *, message: Message, text: str) -> int:
    """Clear the chat's title if it was derived from the message. Return 1, or 0 if it was not.

    This includes titles made of the message's first words or file name (`text`), and titles that a
    model wrote.
    """
    is_first_words = bool(text.strip()) and is_derived_title(chat.title, text=text)
    if not is_first_words and not (chat.titled_by_model and title_sources.is_title_source(message)):
        return 0
    return Chat.objects.filter(pk=chat.pk).update(title="", titled_by_model=False)


def erase_chat(*, user: AbstractBaseUser, chat: Chat, now: datetime) -> Proof:
    """Erase a whole chat: its rows, and the copies of its content in other rows.

    Returns a commitment to all messages, and its salt, which is not stored. Raises `StillAnswering`
    while one of its replies is being written, `StillReferred` while a reply in another chat uses
    its text, `ChatErased` if it was erased in the meantime, and `UnderHold`, which hides the chat
    and stores a pending erasure.
    """
    by = f"user:{user.pk}"
    try:
        with transaction.atomic():
            return erase_locked_chat(lock_for_erasure(chat.pk), by=by, reason="asked", now=now)
    except UnderHold:
        with transaction.atomic():
            lock_for_erasure(chat.pk)
            holds.keep_pending_erasure(owner_id=int(user.pk), chat=chat, now=now)
            delete_chat(chat=chat, actor=by, now=now)
        raise UnderHold(meanwhile=holds.CHAT_HIDDEN) from None


def erase_expired(*, chat_id: uuid.UUID, now: datetime) -> bool:
    """Erase an expired chat. Returns True if it was erased.

    The chat stays while one of its replies is being written or a legal hold covers it. The
    next due job tries again. The expiry is checked again under the chat's lock, because the
    chat may have been restored or continued.
    """
    left = (Chat.DoesNotExist, StillAnswering, StillReferred, UnderHold)
    with suppress(*left), transaction.atomic():
        chat = lock_for_erasure(chat_id)
        if select_expired_chats(now=now).filter(pk=chat_id).exists():
            reason = "temporary" if chat.temporary else "deleted"
            erase_locked_chat(chat, by="system", reason=reason, now=now)
            return True
    return False


def erase_locked_chat(chat: Chat, *, by: str, reason: str, now: datetime, **more: object) -> Proof:
    """Erase a chat locked by `lock_for_erasure`, and certify it in the ledger.

    `more` is added to the certificate. Raises `StillAnswering`, `StillReferred` and `UnderHold`.
    """
    end_waiting_turns(chat=chat, actor=by, now=now)
    check_chat_over(chat)
    holds.check_legal_hold(owner_id=chat.owner_id, chats=[chat.pk], now=now)
    chat_id, marks = chat.pk, ErasureMarks(now)
    counted = {
        "messages": Message.objects.filter(branch__chat=chat).count(),
        "summaries": Compaction.objects.filter(branch__chat=chat).exclude(text="").count(),
        "renderings": chat_copies.erase_all_renderings(chat),
        "prompt_texts": chat_copies.erase_all_prompt_texts(chat, marks=marks),
        "requests": chat_copies.forget_all_requests(chat, marks=marks),
        "frames": chat_copies.forget_all_frames(chat, marks=marks),
        "preferences": chat_copies.erase_all_preferences(chat, marks=marks),
        "references": chat_copies.erase_all_references(chat, marks=marks),
        "import_files": imports.release_import_files(chat, now=now, record=marks.defer_event),
        # Deleted with the chat's rows.
        "states": ChatState.objects.filter(branch__chat=chat).count(),
        "receipts": Receipt.objects.filter(turn__branch__chat=chat).count(),
        "kept_texts": KeptText.objects.filter(chat=chat).count(),
    }
    proof = build_chat_proof(chat)
    files = list(MessageFile.objects.filter(message__branch__chat=chat).values_list("file"))
    Chat.objects.filter(pk=chat_id).update(active_branch=None)
    archive.remove_indexed_chat(chat_id)
    chat.delete()
    counted["files"] = uploads.release_files(
        {pk for (pk,) in files}, now=now, record=marks.defer_event
    )
    marks.discard(chat_id)
    marks.record(actor=by, erased="chat", source=chat_id)
    data: dict[str, object] = {
        "copies": counted,
        "commitment": proof.commitment,
        "reason": reason,
        **more,
    }
    record_certificate("chat.erased", chat_id=chat_id, actor=by, now=now, data=data)
    marks.record_deferred()
    transaction.on_commit(clear_index)
    transaction.on_commit(truncate_log)
    return proof


def build_chat_proof(chat: Chat) -> Proof:
    """Return a commitment to all messages of a chat, and its salt.

    It covers one line per message, in order of acceptance: the id and the parts as canonical JSON.
    """
    rows = Message.objects.filter(branch__chat=chat).order_by("accepted")
    salt = new_salt()
    lines = (
        f"{row.pk} {message_erasure.format_canonical_parts(row.parts)}\n"
        for row in rows.only("parts").iterator(chunk_size=erasure_targets.PAGE)
    )
    return Proof(salt, compute_iterable_commitment(lines, salt=salt))


def record_certificate(
    event: str, *, chat_id: uuid.UUID, actor: str, now: datetime, data: dict[str, object]
) -> None:
    """Record the certificate: ids, counts and a commitment to the erased content."""
    ledger.record_event(event, actor=actor, now=now, chat_id=chat_id, data=data)
