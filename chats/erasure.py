"""Hard erasure: the words of a message or a chat leave every place that has them.

What stays are ids, places and hashes: that something was said, when, and that it was erased. The
certificate in the ledger lists what was reached. A copy that a new room keeps is added to `COPIES`.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet

from chats import messages, states
from chats.compaction.force import branches_of, contains, locked_chat, made_of, withdraw
from chats.library import delete_chat
from chats.memory import archive
from chats.models import (
    Branch,
    Chat,
    ChatState,
    Compaction,
    Message,
    PromptText,
    Receipt,
    Rendering,
    Turn,
)
from chats.quotes import Quote, quotes_of
from chats.refusals import Refusal
from chats.rendering.store import digest_of
from chats.turns.start import UNFINISHED, title_from
from contextpolicy import ledger
from contextpolicy.models import AuditEvent

# Rows read at once while a whole chat is searched for copies.
PAGE = 500


class StillAnswering(Refusal):
    """The message is part of a turn that is not over."""

    code = "turn_not_over"
    status = 409
    sentence = "A reply to this message is still being written. Stop it first, then erase."


@dataclass(frozen=True, slots=True)
class Erased:
    """A message without its words, and the messages that still have some of them."""

    message: Message
    quoted_by: Sequence[Quote]


def erase_message(
    *,
    user: AbstractBaseUser,
    message: Message,
    now: datetime,
    also: Collection[uuid.UUID] = (),
    with_quotes: bool = False,
) -> Erased:
    """Erase what a message said, for good. Erasing twice is erasing once.

    Summaries that were made of it lose their text and go out of use, and the originals around it
    are sent again. Other messages that quote it are named in its certificate; those in `also`, or
    all of them `with_quotes`, are erased in the same step, now or by a later call. An id that does
    not quote it changes nothing. Raises `StillAnswering`.
    """
    with transaction.atomic():
        chat = locked_chat(message.branch.chat_id)
        message = Message.objects.select_related("branch").get(pk=message.pk)
        quotes = quoting(message)
        chosen = [quote.message for quote in quotes if with_quotes or quote.message.pk in also]
        left = [quote for quote in quotes if quote.message not in chosen]
        rows = chosen if message.erased_at else [message, *chosen]
        for row in rows:
            check_over(row)
        for row in rows:
            more: dict[str, object] = {"quotes": str(message.pk)}
            if row is message:
                more = {"quoted_by": [str(quote.message.pk) for quote in left]}
            take_words(row, chat=chat, by=f"user:{user.pk}", now=now, more=more)
    return Erased(message, left)


def quoting(message: Message) -> list[Quote]:
    """The messages that have words of this one; of an erased one those that its certificate names.

    Only those whose own words are still there.
    """
    if message.erased_at is None:
        return quotes_of(message)
    certificates = AuditEvent.objects.filter(
        scope=f"chat:{message.branch.chat_id}",
        type="message.erased",
        data__message=str(message.pk),
    )
    named = [pk for event in certificates for pk in event.data.get("quoted_by", ())]
    rows = Message.objects.filter(pk__in=named, erased_at=None).select_related("branch")
    return [Quote(row, words="") for row in rows.order_by("accepted")]


def take_words(
    message: Message, *, chat: Chat, by: str, now: datetime, more: Mapping[str, object]
) -> None:
    """Erase one message of a locked chat, with every copy, and certify it."""
    text = message.text
    withdrawn, changed = withdraw(message, chat=chat, reason="message_erased", now=now, actor=by)
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
            **more,
        },
    )


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


def check_chat_over(chat: Chat) -> None:
    """Raise `StillAnswering` while a turn of the chat is not over."""
    if Turn.objects.filter(branch__chat=chat, status__in=UNFINISHED).exists():
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


def digests_in(
    receipts: QuerySet[Receipt], *, origins: Collection[str] = (), labels: Collection[str] = ()
) -> Iterator[str]:
    """The hashes of the texts of some origins, or with some labels, that receipts name."""
    for segments in receipts.values_list("segments", flat=True).iterator(chunk_size=PAGE):
        for origin, label, _seq, _tokens, _cut, digest, *_more in segments:
            if digest and (origin in origins or label in labels):
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


def erase_search_texts(message: Message, summaries: list[Compaction], now: datetime) -> int:
    """The words by which the message is found."""
    del summaries, now
    return archive.forget([message.pk])


def erase_states(message: Message, summaries: list[Compaction], now: datetime) -> int:
    """Every value of a state that was set or changed when the message was known already.

    A state that loses something gets a new version, which overtakes an extraction that is under
    way and read the message.
    """
    del summaries
    if message.seq is None:
        return 0
    seq, erased = message.seq, 0
    branches = [branch for branch in branches_of(message.branch.chat) if contains(branch, message)]
    for branch in branches:
        erased += clear_states(branch, seq=seq, now=now)
    receipts = Receipt.objects.filter(turn__branch__in=branches, last_seq__gte=seq)
    return erased + erase_texts(set(digests_in(receipts, labels={"state"})), now=now)


def clear_states(branch: Branch, *, seq: int, now: datetime) -> int:
    """Take the values that a message may be in out of a branch's versions; how many had some."""
    cleared = 0
    for row in ChatState.objects.filter(branch=branch, to_seq__gte=seq):
        kept = {n: v for n, v in row.values.items() if row.origins.get(n, {}).get("seq", 0) < seq}
        if kept != row.values:
            row.values = kept
            row.origins = {name: row.origins[name] for name in kept}
            row.save(update_fields=["values", "origins"])
            cleared += 1
    if cleared:
        base = states.newest(branch)
        states.append(
            branch_id=branch.pk,
            base=base,
            kind=ChatState.Kind.ERASED,
            values=base.values if base else {},
            to_seq=base.to_seq if base else seq,
            now=now,
        )
    return cleared


# Each takes what it can find of a message and of the summaries made of it; returns how many rows.
COPIES: dict[str, Callable[[Message, list[Compaction], datetime], int]] = {
    "renderings": erase_renderings,
    "prompt_texts": erase_prompt_texts,
    "partial_texts": erase_partials,
    "search_texts": erase_search_texts,
    "states": erase_states,
}


def erase_chat(*, user: AbstractBaseUser, chat: Chat, now: datetime) -> None:
    """Erase a whole chat: its rows, and the copies of its words that other rows keep.

    Raises `StillAnswering` while one of its replies is being written.
    """
    with transaction.atomic():
        chat = locked_chat(chat.pk)
        check_chat_over(chat)
        chat_id, by = chat.pk, f"user:{user.pk}"
        counted = {
            "messages": Message.objects.filter(branch__chat=chat).count(),
            "summaries": Compaction.objects.filter(branch__chat=chat).exclude(text="").count(),
            "renderings": erase_all_renderings(chat),
            "prompt_texts": erase_all_prompt_texts(chat, now=now),
            # Their rows go with the chat.
            "states": ChatState.objects.filter(branch__chat=chat).count(),
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
    """The chat's summaries, its states and its own system text, as its prompts had them.

    The policy's texts are no words of the chat and stay.
    """
    receipts = Receipt.objects.filter(turn__branch__chat=chat)
    own_words = digests_in(receipts, origins={"summary"}, labels={"state", "chat"})
    erased = erase_texts(set(own_words), now=now)
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
