"""Erases the copies of a whole chat's content in other rows."""

from datetime import timedelta

from chats.actions.erasure_targets import (
    PAGE,
    erase_of_person,
    forget_frames,
    forget_references,
    iter_summary_texts,
)
from chats.ground import live
from chats.memory.preferences import preferences
from chats.models import (
    Chat,
    Compaction,
    Message,
    Receipt,
    Rendering,
    Turn,
    TurnReference,
)
from chats.record import idempotency, receipts
from chats.record.erasure_marks import ErasureMarks
from chats.rendering.spoken import list_rendered_texts
from chats.rendering.store import compute_rendering_digest


def erase_all_renderings(chat: Chat) -> int:
    """Delete the stored HTML of a chat's messages and summaries. Return the number of rows."""
    erased = 0
    rows = Message.objects.filter(branch__chat=chat).iterator(chunk_size=PAGE)
    texts = [compute_rendering_digest(text) for row in rows for text in list_rendered_texts(row)]
    summaries = Compaction.objects.filter(branch__chat=chat)
    texts += [
        compute_rendering_digest(text)
        for row in summaries
        for text in iter_summary_texts(row)
        if text
    ]
    for start in range(0, len(texts), PAGE):
        found = Rendering.objects.filter(digest__in=texts[start : start + PAGE])
        erased += found.delete()[0]
    return erased


def erase_all_prompt_texts(chat: Chat, *, marks: ErasureMarks) -> int:
    """Delete all texts that only the chat's prompts contain: summaries, states, system text.

    The policy's texts do not belong to the chat and stay. Returns the number of deleted texts.
    """
    rows = Receipt.objects.filter(turn__branch__chat=chat)
    return receipts.mark_erased_receipts(rows, gone=receipts.is_of_one_chat, marks=marks)[1]


def forget_all_requests(chat: Chat, *, marks: ErasureMarks) -> int:
    """Delete the body hashes of API requests that contained messages of a chat.

    Checks only messages that are newer than the lifetime of idempotency keys. The regular cleanup
    deletes the hashes of older requests. Returns the number of hashes.
    """
    since = marks.now - idempotency.KEY_LIFETIME
    new = Message.objects.filter(branch__chat=chat, created_at__gte=since)
    ids = list(new.values_list("pk", flat=True))
    pages = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)] or [[]]
    return sum(
        idempotency.delete_request_hashes(
            messages=page, chat_id=chat.pk, answers_of=chat.pk, now=marks.now
        )
        for page in pages
    )


def erase_all_preferences(chat: Chat, *, marks: ErasureMarks) -> int:
    """Delete preferences whose only evidence is in a chat, and their texts in prompts.

    Also deletes the excerpts of recent chats from the prompts of the user's other chats. Returns
    the number of preferences.
    """
    said = Message.objects.filter(branch__chat=chat)
    gone = preferences.forget_messages(said)
    since = min([chat.created_at, *(row.learned_at for row in gone)])
    texts = [row.text for row in gone]
    erase_of_person(chat.owner_id, texts=texts, since=since, recent=True, marks=marks)
    return len(gone)


def forget_all_frames(chat: Chat, *, marks: ErasureMarks) -> int:
    """Delete the live streams of the chat's turns. Return the number of turns."""
    since = marks.now - timedelta(seconds=live.TURN_SECONDS)
    turns = Turn.objects.filter(branch__chat=chat, finished_at__gte=since)
    return forget_frames(list(turns.values_list("pk", flat=True)))


def erase_all_references(chat: Chat, *, marks: ErasureMarks) -> int:
    """Delete excerpts of the chat from stored prompts of other chats. Return the count."""
    rows = TurnReference.objects.filter(message__branch__chat=chat)
    return forget_references(rows, marks=marks)
