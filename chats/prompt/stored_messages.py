"""Verifies stored messages against commitments in the ledger and against sent prompts.

The event that stored a message has a commitment to it (`message_commitments`). Messages of older
versions have none. Prompts are compared too: a receipt has the hash of its prompt, and the ledger
commits to the receipt. The prompt is rebuilt from the current messages. Receipts of a chat are
checked newest first, and only if they have a message that was not checked yet. A message without a
commitment that no prompt contained cannot be compared. Such messages are counted.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from django.utils.translation import gettext_noop

from chats.ground import databases
from chats.ground.background_lock import give_way
from chats.models import Chat, Message, Receipt
from chats.prompt.reconstruction import rebuild_request
from chats.record.commitment_check import SCOPE, iter_ledger_chat_pages
from chats.record.message_commitments import verify_message_commitments
from contextpolicy.ledger import CONTENTS, Break
from contextpolicy.models import LedgerReader

PAGE = 100
# The reading position of the check that visits all chats in turn: the first 63 bits of a chat id.
READER = "messages"
DROPPED = 65
LIMIT = 2**63
# Seconds between two chats, to let other users of the database proceed.
REST = 0.001
COMPARED = gettext_noop("Chats whose messages were compared with sent prompts")
LATE = gettext_noop(
    "Time limits reached before all messages were compared; the next run continues with the next "
    "chat"
)
FITS = gettext_noop("Prompts rebuilt from stored messages that equal the prompts as sent")
MESSAGES_ABSENT = gettext_noop(
    "had messages that are missing or erased without an entry in the audit log"
)
DIFFERS = "differs from its stored messages"
MATCHED = gettext_noop("Messages that equal their commitments in the audit log or the sent prompts")
NOT_COMPARABLE = gettext_noop(
    "Messages stored by older versions that could not be compared, because no sent prompt "
    "contained them"
)
NOT_BUILT = gettext_noop("Prompts that could not be rebuilt, so their messages were not compared")


def verify_stored_messages(*, scope: str | None, tally: Counter[str]) -> Iterator[Break]:
    """Yield the first prompt or message of each chat that differs from the ledger."""
    for page in iter_ledger_chat_pages(scope):
        for chat_id in page:
            yield from verify_chat_messages(chat_id, tally=tally)


def verify_some(
    *, scopes: Sequence[str | None], tally: Counter[str], is_late: Callable[[], bool]
) -> Iterator[Break]:
    """Verify the chats of some scopes until the time limit. Yield the first fault of each chat.

    A scope of None means all chats: each run continues where the previous one ended, until every
    chat has been checked.
    """
    for scope in scopes:
        chats = (
            iter_chats_in_rotation()
            if scope is None
            else (one for page in iter_ledger_chat_pages(scope) for one in page)
        )
        while not is_late():
            chat_id = next(chats, None)
            if chat_id is None:
                break
            tally[COMPARED] += 1
            yield from verify_chat_messages(chat_id, tally=tally)
            give_way(REST)
        else:
            tally[LATE] = 1
            return


def iter_chats_in_rotation() -> Iterator[uuid.UUID]:
    """Yield every chat once, starting after the last one that the previous run yielded.

    Stores the position before each chat, if the database allows it.
    """
    place = LedgerReader.objects.filter(pk=READER).first()
    chats = Chat.objects.order_by("pk")
    begin = uuid.UUID(int=(place.last if place else 0) << DROPPED)
    for some in (chats.filter(pk__gte=begin), chats.filter(pk__lt=begin)):
        for chat_id in some.values_list("pk", flat=True).iterator(chunk_size=PAGE):
            # Stored first, so that the next run skips a chat that crashes this one.
            last = ((chat_id.int >> DROPPED) + 1) % LIMIT
            databases.write_if_possible(
                "the position of the message check", partial(store_reading_position, last)
            )
            yield chat_id


def store_reading_position(last: int) -> None:
    """Store the position at which the next run continues.

    `last`: the first 63 bits of the current chat's id, plus 1.
    """
    LedgerReader.objects.update_or_create(name=READER, defaults={"last": last})


def verify_chat_messages(chat_id: uuid.UUID, *, tally: Counter[str]) -> Iterator[Break]:
    """Yield the first prompt or message of one chat that differs from the ledger."""
    rows = Receipt.objects.filter(turn__branch__chat=chat_id, erased_at=None)
    rows = rows.exclude(commitment="").order_by("-created_at", "-pk").only("segments")
    shown: set[str] = set()
    for row in rows.iterator(chunk_size=PAGE):
        ids = {str(segment[1]) for segment in row.segments if is_id(segment[1])}
        if ids <= shown:
            continue
        fault = find_prompt_fault(row.pk, ids=ids)
        if fault == "":
            shown |= ids
            tally[FITS] += 1
        elif fault == "missing":
            tally[NOT_BUILT] += 1
        elif fault != "erased":
            yield Break(f"{SCOPE}{chat_id}", 0, f"the prompt of receipt {row.pk} {fault}")
            return
    found, comparison = verify_message_commitments(chat_id, shown=shown)
    if found is not None:
        yield found
        return
    counts = Counter({MATCHED: comparison.compared, NOT_COMPARABLE: comparison.not_comparable})
    # The plus sign drops counts of 0.
    tally.update(+counts)


def is_id(text: object) -> bool:
    """Return True if the text is a UUID, which shows that a segment contains a message."""
    try:
        uuid.UUID(str(text))
    except ValueError:
        return False
    return True


def find_prompt_fault(receipt_id: uuid.UUID, *, ids: set[str]) -> str:
    """Return the fault of a prompt's messages; empty if there is none.

    This is `erased`, `missing`, or the end of a sentence about the prompt.
    """
    related = ("effective_policy", "turn__branch__chat__owner")
    receipt = Receipt.objects.select_related(*related).filter(pk=receipt_id).first()
    if receipt is None:
        return "erased"
    found = rebuild_request(receipt).fault
    if found in {"", "erased"}:
        return found
    # A concurrent erasure marks the receipt in its own transaction.
    if not Receipt.objects.filter(pk=receipt_id, erased_at=None).exists():
        return "erased"
    there = Message.objects.filter(pk__in=ids, erased_at=None).count()
    if there < len(ids):
        return MESSAGES_ABSENT
    return DIFFERS if found == "differs" else found


CONTENTS.append(verify_some)
