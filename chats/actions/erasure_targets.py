"""Erases copies of message content in other rows.

A module that stores a new kind of copy adds it to `COPIES`.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from redis import Redis
from redis.exceptions import RedisError

from chats.actions.state_copies import erase_states
from chats.files import uploads
from chats.ground import live
from chats.memory.preferences import preferences
from chats.memory.search import archive
from chats.memory.search.clearing import clear_index
from chats.models import (
    Compaction,
    FileExcerpt,
    GatewayNode,
    Message,
    MessageFile,
    MessageImage,
    PromptText,
    Receipt,
    Rendering,
    ReplyLogprobs,
    ToolCall,
    ToolStep,
    Turn,
    TurnReference,
)
from chats.record import idempotency, imports, receipts
from chats.record.erasure_marks import ErasureMarks
from chats.rendering.spoken import list_rendered_texts
from chats.rendering.store import compute_rendering_digest

logger = logging.getLogger(__name__)


# Rows read at once while a whole chat is searched for copies.
PAGE = 500


def erase_renderings(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the stored HTML of the message, and of summaries and their lines.

    Returns the number of deleted rows.
    """
    del marks
    texts = {
        *list_rendered_texts(message),
        *(text for row in summaries for text in iter_summary_texts(row)),
    }
    found = Rendering.objects.filter(
        digest__in=[compute_rendering_digest(text) for text in texts if text]
    )
    return found.delete()[0]


def iter_summary_texts(row: Compaction) -> Iterator[str]:
    yield row.text
    for section in row.sections:
        for bullet in section["bullets"]:
            yield bullet["text"]


def erase_prompt_texts(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete stored prompt texts of the summaries, and the reply prefill that a client wrote.

    The receipts of these prompts can no longer be rebuilt. Returns the number of deleted texts.
    """
    erased = erase_prefill(message, marks=marks)
    ids = [row.pk for row in summaries]
    if not ids:
        return erased
    rows = Receipt.objects.filter(Q(compaction__in=ids) | Q(compaction__base__in=ids))
    return erased + receipts.mark_erased_receipts(rows, gone=is_summary, marks=marks)[1]


def erase_prefill(message: Message, *, marks: ErasureMarks) -> int:
    """Delete the turn's reply prefill from every prompt of the chat.

    Return the number of deletions.
    """
    if message.turn_id is None:
        return 0
    own = Receipt.objects.filter(turn=message.turn_id).values_list("segments", flat=True)
    digests = {segment[5] for listed in own for segment in listed if segment[0] == "prefill"}
    if not digests:
        return 0
    rows = Receipt.objects.filter(turn__branch__chat=message.branch.chat_id)
    return receipts.mark_erased_receipts(
        rows, gone=lambda segment: segment[0] == "prefill" and segment[5] in digests, marks=marks
    )[1]


def erase_in_receipts(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the message's hash from the receipts of prompts that contained it.

    Their receipts can no longer be rebuilt. Returns the number of receipts.
    """
    del summaries
    pk = str(message.pk)
    rows = Receipt.objects.filter(turn__branch__chat=message.branch.chat_id)
    # Filtered by the database: most of a chat's receipts never contained a given message.
    rows = rows.annotate(said=Cast("segments", TextField())).filter(said__contains=pk)
    return receipts.mark_erased_receipts(rows, gone=lambda segment: segment[1] == pk, marks=marks)[
        0
    ]


def is_summary(segment: receipts.Segment) -> bool:
    """Return True if a segment of a prompt was a summary."""
    return bool(segment[0] == "summary")


def is_references(segment: receipts.Segment) -> bool:
    """Return True if a segment is retrieved context, which may quote several chats."""
    return bool(segment[0] == "tail" and segment[1] == "references")


def erase_references(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete excerpts of the message from the retrieved context of all prompts.

    Returns the number of prompts, most of them in other chats of the same owner.
    """
    del summaries
    return forget_references(TurnReference.objects.filter(message=message), marks=marks)


def forget_references(rows: QuerySet[TurnReference], *, marks: ErasureMarks) -> int:
    """Delete retrieved context and its stored prompt texts. Return the number of prompts."""
    turns = set(rows.values_list("turn", flat=True))
    had = Receipt.objects.filter(turn__in=turns)
    marked, _ = receipts.mark_erased_receipts(had, gone=is_references, marks=marks)
    rows.delete()
    return marked


def forget_requests(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the body hashes of API requests that may have contained or returned the message.

    Returns the number of hashes.
    """
    del summaries
    of_clients = idempotency.forget_client_responses(chat_id=message.branch.chat_id)
    return of_clients + idempotency.delete_request_hashes(
        messages=[message.pk], chat_id=None, answers_of=message.branch.chat_id, now=marks.now
    )


def erase_partials(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the partial texts of turns that reply to or contain the message.

    Returns the count.
    """
    del summaries, marks
    turns = Turn.objects.filter(Q(pk=message.turn_id) | Q(trigger=message))
    with_text = turns.exclude(partial_text="", partial_reasoning="")
    return with_text.update(partial_text="", partial_reasoning="")


def erase_gateway_nodes(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the gateway's conversation hashes from the message's position on.

    The hashes are chained, so each later one depends on the message's text. Returns the count.
    """
    del summaries, marks
    rows = GatewayNode.objects.filter(branch__chat=message.branch.chat_id)
    return rows.filter(seq__gte=message.seq or 1).delete()[0]


def erase_logprobs(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the log probabilities of the message or of the reply to it. Return the count."""
    del summaries, marks
    turns = Turn.objects.filter(Q(pk=message.turn_id) | Q(trigger=message))
    return ReplyLogprobs.objects.filter(turn__in=turns).delete()[0]


def erase_tool_steps(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete stored replies and tool results of the message's turn, even if the turn failed.

    Returns the number of calls and replies with text.
    """
    del summaries, marks
    turns = Turn.objects.filter(Q(pk=message.turn_id) | Q(trigger=message))
    calls = ToolCall.objects.filter(turn__in=turns).exclude(content="").update(content="")
    return calls + ToolStep.objects.filter(turn__in=turns).delete()[0]


def erase_frames(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the reply's frames on the live bus after the commit. Return the number of turns."""
    del summaries, marks
    return forget_frames([message.turn_id] if message.turn_id else [])


def forget_frames(turn_ids: Collection[uuid.UUID]) -> int:
    """Delete turns' streams from the live bus after the commit. Returns the count.

    If the bus is unavailable, frames expire one minute after the end of their turn.
    """
    keys = [live.build_turn_key(turn_id) for turn_id in turn_ids]
    if keys:
        transaction.on_commit(partial(forget_keys, keys))
    return len(keys)


def forget_keys(keys: Sequence[str]) -> None:
    """Delete the streams with these keys from the live bus.

    If the bus is unavailable, a warning is logged and the frames expire later.
    """
    try:
        with Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2
        ) as client:
            for start in range(0, len(keys), PAGE):
                client.delete(*keys[start : start + PAGE])
    except (RedisError, OSError) as error:
        logger.warning("live bus unreachable, erased frames expire later: %s", type(error).__name__)


def erase_search_texts(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the search texts and vectors of the message and its summaries. Return the count."""
    del marks
    forgotten = archive.remove_indexed_messages(
        [message.pk], summaries=[row.pk for row in summaries]
    )
    if forgotten:
        transaction.on_commit(clear_index)
    return forgotten


def erase_preferences(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete preferences whose only evidence is the message, and their texts in prompts.

    This includes prompts of the user's other chats. Excerpts of the message in such prompts are
    deleted as well. Returns the number of deleted preferences and prompt texts.
    """
    del summaries
    gone = preferences.forget_messages(Message.objects.filter(pk=message.pk))
    owner_id = message.branch.chat.owner_id
    said_at = [message.created_at, *(row.learned_at for row in gone)]
    texts = [row.text for row in gone]
    erased = erase_of_person(owner_id, texts=texts, since=min(said_at), recent=True, marks=marks)
    return len(gone) + erased


def erase_of_person(
    owner_id: int,
    *,
    texts: Collection[str],
    since: datetime,
    recent: bool = False,
    marks: ErasureMarks,
) -> int:
    """Delete preference texts from those of a user's prompts that date from `since` or later.

    `recent`: also delete excerpts of recent chats from these prompts. Returns the number of deleted
    prompt texts.
    """
    names = {"preferences": bool(texts), "recent": recent}
    labels = {name for name, is_meant in names.items() if is_meant}
    rows = Receipt.objects.filter(turn__branch__chat__owner=owner_id, created_at__gte=since)
    rows = rows.annotate(said=Cast("segments", TextField()))
    wanted = Q(pk__in=[])
    for name in sorted(labels):
        wanted |= Q(said__contains=f'"{name}"')
    rows = rows.filter(wanted)
    named = {
        (segment[5], segment[1])
        for receipt in receipts.iter_erasable_receipts(rows)
        for segment in receipt.segments
        if segment[0] == "tail" and segment[1] in labels and segment[5]
    }
    gone = {digest for digest, label in named if label == "recent"}
    told = sorted(digest for digest, label in named if label == "preferences")
    for start in range(0, len(told), PAGE):
        for row in PromptText.objects.filter(digest__in=told[start : start + PAGE]):
            if any(text in row.text for text in texts):
                gone.add(row.digest)
    return receipts.mark_erased_receipts(
        rows, gone=lambda segment: segment[5] in gone, marks=marks
    )[1]


def erase_images(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the bytes of the message's images. Return the count. Other messages have copies."""
    del summaries, marks
    # Without the bytes, which a deletion would load because of the rows of the owner.
    rows = MessageImage.objects.filter(message=message).only("pk")
    return rows.delete()[1].get("chats.MessageImage", 0)


def erase_files(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete the files that only this message used: bytes, text, index, and parts in prompts."""
    del summaries
    links = MessageFile.objects.filter(message=message)
    ids = list(links.values_list("file", flat=True))
    links.delete()
    if ids:
        parts = FileExcerpt.objects.filter(
            turn__branch__chat=message.branch.chat_id, chunk__file__in=ids
        )
        had = Receipt.objects.filter(turn__in=set(parts.values_list("turn", flat=True)))
        receipts.mark_erased_receipts(had, gone=is_references, marks=marks)
        parts.delete()
    return uploads.release_files(ids, now=marks.now, record=marks.defer_event)


def erase_import_files(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete import files that may contain the message. Return the count."""
    del summaries
    return imports.release_import_files(
        message.branch.chat, now=marks.now, record=marks.defer_event
    )


# Each function deletes its copies of a message and of summaries made from it, and returns the
# number of rows.
COPIES: dict[str, Callable[[Message, list[Compaction], ErasureMarks], int]] = {
    "renderings": erase_renderings,
    "prompt_texts": erase_prompt_texts,
    "receipts": erase_in_receipts,
    "requests": forget_requests,
    "partial_texts": erase_partials,
    "logprobs": erase_logprobs,
    "tool_steps": erase_tool_steps,
    "frames": erase_frames,
    "search_texts": erase_search_texts,
    "states": erase_states,
    "preferences": erase_preferences,
    "references": erase_references,
    "gateway_nodes": erase_gateway_nodes,
    "images": erase_images,
    "files": erase_files,
    "import_files": erase_import_files,
}
