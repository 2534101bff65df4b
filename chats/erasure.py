"""Hard erasure: the words of a message or a chat leave every place that has them.

What stays are ids, places and hashes: that something was said, when, and that it was erased. The
certificate in the ledger lists what was reached. A copy that a new room keeps is added to `COPIES`.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet

from chats import messages
from chats.compaction.force import branches_of, contains, locked_chat, made_of, withdraw
from chats.library import delete_chat
from chats.models import Branch, Chat, Compaction, Message, PromptText, Receipt, Rendering, Turn
from chats.refusals import Refusal
from chats.rendering.store import digest_of
from chats.turns.start import UNFINISHED, title_from
from contextpolicy import ledger

# Rows read at once while a whole chat is searched for copies.
PAGE = 500


class StillAnswering(Refusal):
    """The message is part of a turn that is not over."""

    code = "turn_not_over"
    status = 409
    sentence = "A reply to this message is still being written. Stop it first, then erase."


def erase_message(*, user: AbstractBaseUser, message: Message, now: datetime) -> Message:
    """Erase what a message said, for good. Erasing twice is erasing once.

    Summaries that were made of it lose their text and go out of use, and the originals around it
    are sent again. Raises `StillAnswering`.
    """
    with transaction.atomic():
        chat = locked_chat(message.branch.chat_id)
        message = Message.objects.select_related("branch").get(pk=message.pk)
        if message.erased_at is not None:
            return message
        check_over(message)
        by = f"user:{user.pk}"
        text = message.text
        withdrawn, changed = withdraw(
            message, chat=chat, reason="message_erased", now=now, actor=by
        )
        raise_revision(message, chat=chat, already=changed)
        summaries = made_of(message, branches=branches_of(chat)) if message.seq else []
        counted = {name: reach(message, summaries, now) for name, reach in COPIES.items()}
        blank(summaries, now=now)
        counted["title"] = forget_title(chat, text=text)
        digest = messages.erase(message, now=now)
        certify(
            "message.erased",
            chat_id=chat.pk,
            actor=by,
            now=now,
            data={
                "message": str(message.pk),
                "seq": message.seq,
                "sha256": digest,
                "summaries": [str(row.pk) for row in summaries],
                "withdrawn": withdrawn,
                "copies": counted,
                "prefix_break": "erase",
            },
        )
    return message


def raise_revision(message: Message, *, chat: Chat, already: list[Branch]) -> None:
    """Every branch that has the message is another context now, whatever stood for it there."""
    for branch in branches_of(chat):
        if branch not in already and contains(branch, message):
            branch.context_revision += 1
            branch.save(update_fields=["context_revision"])


def check_over(message: Message) -> None:
    """Raise `StillAnswering` while a turn that has the message is not over."""
    busy = Turn.objects.filter(status__in=UNFINISHED).filter(
        Q(pk=message.turn_id) | Q(trigger=message)
    )
    if busy.exists():
        raise StillAnswering


def blank(rows: Iterable[Compaction], *, now: datetime) -> None:
    """Take the words out of summaries; ranges, numbers and hashes stay."""
    Compaction.objects.filter(pk__in=[row.pk for row in rows]).update(
        text="", sections=[], retention={}, focus="", remark="", erased_at=now
    )


def forget_title(chat: Chat, *, text: str) -> int:
    """Take back a title that was made of the message."""
    if not text.strip() or chat.title != title_from(text):
        return 0
    return Chat.objects.filter(pk=chat.pk).update(title="")


def erase_renderings(message: Message, summaries: list[Compaction], now: datetime) -> int:
    """The stored HTML of the message, and of summaries and their lines."""
    del now
    texts = {message.text, *(text for row in summaries for text in texts_of(row))}
    found = Rendering.objects.filter(digest__in=[digest_of(text) for text in texts if text])
    return found.delete()[0]


def texts_of(row: Compaction) -> Iterator[str]:
    """The text of a summary and of each of its lines."""
    yield row.text
    for section in row.sections:
        for bullet in section["bullets"]:
            yield bullet["text"]


def erase_prompt_texts(message: Message, summaries: list[Compaction], now: datetime) -> int:
    """The summaries as prompts had them: every receipt names these by hash alone."""
    del message
    ids = [row.pk for row in summaries]
    if not ids:
        return 0
    receipts = Receipt.objects.filter(Q(compaction__in=ids) | Q(compaction__base__in=ids))
    digests = set(digests_in(receipts, origins={"summary"}))
    return erase_texts(digests, now=now)


def digests_in(receipts: QuerySet[Receipt], *, origins: set[str]) -> Iterator[str]:
    """The hashes of the texts of some origins that receipts name."""
    for segments in receipts.values_list("segments", flat=True).iterator(chunk_size=PAGE):
        for origin, _message, _seq, _tokens, _cut, digest, *_more in segments:
            if origin in origins and digest:
                yield digest


def erase_texts(digests: set[str], *, now: datetime) -> int:
    """Take the words out of stored prompt texts; their hashes stay."""
    return PromptText.objects.filter(digest__in=digests, erased_at=None).update(
        text="", erased_at=now
    )


def erase_partials(message: Message, summaries: list[Compaction], now: datetime) -> int:
    """The text so far of turns that had to do with the message."""
    del summaries, now
    turns = Turn.objects.filter(Q(pk=message.turn_id) | Q(trigger=message))
    with_text = turns.exclude(partial_text="", partial_reasoning="")
    return with_text.update(partial_text="", partial_reasoning="")


# Each takes what it can find of a message and of the summaries made of it; returns how many rows.
COPIES: dict[str, Callable[[Message, list[Compaction], datetime], int]] = {
    "renderings": erase_renderings,
    "prompt_texts": erase_prompt_texts,
    "partial_texts": erase_partials,
}


def erase_chat(*, user: AbstractBaseUser, chat: Chat, now: datetime) -> None:
    """Erase a whole chat: its rows, and the copies of its words that other rows keep.

    Raises `StillAnswering` while one of its replies is being written.
    """
    with transaction.atomic():
        chat = locked_chat(chat.pk)
        if Turn.objects.filter(branch__chat=chat, status__in=UNFINISHED).exists():
            raise StillAnswering
        chat_id, by = chat.pk, f"user:{user.pk}"
        counted = {
            "messages": Message.objects.filter(branch__chat=chat).count(),
            "summaries": Compaction.objects.filter(branch__chat=chat).exclude(text="").count(),
            "renderings": erase_all_renderings(chat),
            "prompt_texts": erase_all_prompt_texts(chat, now=now),
        }
        delete_chat(chat=chat, actor=by, now=now)
        certify("chat.erased", chat_id=chat_id, actor=by, now=now, data={"copies": counted})


def erase_all_renderings(chat: Chat) -> int:
    """The stored HTML of everything said and summed up in a chat."""
    erased = 0
    rows = Message.objects.filter(branch__chat=chat).iterator(chunk_size=PAGE)
    texts = [digest_of(row.text) for row in rows]
    summaries = Compaction.objects.filter(branch__chat=chat)
    texts += [digest_of(text) for row in summaries for text in texts_of(row) if text]
    for start in range(0, len(texts), PAGE):
        found = Rendering.objects.filter(digest__in=texts[start : start + PAGE])
        erased += found.delete()[0]
    return erased


def erase_all_prompt_texts(chat: Chat, *, now: datetime) -> int:
    """The chat's summaries and its own system text, as its prompts had them.

    The policy's texts are no words of the chat and stay.
    """
    receipts = Receipt.objects.filter(turn__branch__chat=chat)
    erased = erase_texts(set(digests_in(receipts, origins={"summary"})), now=now)
    if chat.system_text:
        system = set(digests_in(receipts, origins={"system", "opening"}))
        own = PromptText.objects.filter(digest__in=system, text__contains=chat.system_text)
        erased += erase_texts(set(own.values_list("digest", flat=True)), now=now)
    return erased


def certify(
    event: str, *, chat_id: uuid.UUID, actor: str, now: datetime, data: dict[str, object]
) -> None:
    """The certificate: what was erased, by hashes and counts."""
    ledger.record(event, actor=actor, now=now, chat_id=chat_id, data=data)
