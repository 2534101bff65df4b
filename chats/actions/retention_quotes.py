"""Finds messages that quote expired ones, for the certificates of a retention run.

Reading a long chat takes seconds, so it happens before the erasure transactions, which block
SQLite's only writer. These compare only the messages accepted since then.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from chats.actions import retention_rules
from chats.ground.background_lock import alone
from chats.models import Chat, Message
from chats.record import holds
from chats.record.quotes import (
    JointIndex,
    build_joint_index,
    find_quoting_ids,
    flatten_message_text,
)

# Expired messages that are compared in one pass through a chat, and the limit of their tokens.
MOST, MOST_TOKENS = 500, 200_000
# Quotes of a message that its certificate names. Standard phrases occur in every message of a chat.
MOST_NAMED = 100
PAGE = 200


class ExpiredQuotes:
    """The ids of a chat's remaining messages that quote its expired ones.

    `pace` is called between pages.
    """

    def __init__(self, chat: Chat, *, pace: Callable[[], None]) -> None:
        self.chat = chat
        self.pace = pace
        self.found: dict[uuid.UUID, list[str]] = {}
        # The acceptance number of the last message that was compared.
        self.seen = 0

    def prepare(self, *, now: datetime) -> None:
        """Compare the next expired messages with the chat, unless that has been done.

        Does nothing if the messages are kept, or erased with the whole chat.
        """
        days = retention_rules.find_retention_days(self.chat)
        if days is None or holds.is_held(self.chat, now=now):
            return
        old = retention_rules.select_expired_messages([self.chat.pk], days=days, now=now)
        first = old.order_by("accepted").values_list("pk", flat=True).first()
        has_younger = retention_rules.has_younger(self.chat, days=days, now=now)
        if first is None or first in self.found or not has_younger:
            return
        index = build_joint_index(take_up_to_limit(old.order_by("accepted")[:MOST]))
        self.found, self.seen = {pk: [] for pk in index.texts}, 0
        while page := self.read_next_page():
            self.seen = page[-1].accepted
            with alone:
                self.compare(page, index=index)
            self.pace()

    def compare(self, page: Sequence[Message], *, index: JointIndex) -> None:
        """Record which of these messages quote an indexed one, at most `MOST_NAMED` for each."""
        for row in page:
            for pk in index.quoted_in(flatten_message_text(row)):
                # A message contains its own text.
                if pk != row.pk:
                    self.found[pk].append(str(row.pk))
                if len(self.found[pk]) == MOST_NAMED:
                    index.drop(pk)

    def read_next_page(self) -> list[Message]:
        """Return the next messages that are not erased, in the order of acceptance."""
        rows = Message.objects.filter(branch__chat=self.chat.pk, erased_at=None)
        return list(rows.filter(accepted__gt=self.seen).order_by("accepted")[:PAGE])

    def name(self, rows: Sequence[Message]) -> dict[uuid.UUID, list[str]]:
        """Map the ids of `rows`, which are about to be erased, to at most `MOST_NAMED` quotes each.

        Call it in the transaction of the erasure.
        """
        known = [row for row in rows if row.pk in self.found]
        new = [row for row in rows if row.pk not in self.found]
        others = Message.objects.filter(branch__chat=self.chat.pk, erased_at=None)
        others = others.exclude(pk__in=[row.pk for row in rows]).order_by("accepted")
        later = others.filter(accepted__gt=self.seen)
        quoting = find_quoting_ids(known, later) | find_quoting_ids(new, others)
        found = {row.pk: self.found.get(row.pk, []) + quoting[row.pk] for row in rows}
        # Some may have been erased since they were compared.
        named = {pk for ids in found.values() for pk in ids}
        left = {str(pk) for pk in others.filter(pk__in=named).values_list("pk", flat=True)}
        return {
            pk: [each for each in ids if each in left][:MOST_NAMED] for pk, ids in found.items()
        }


def take_up_to_limit(rows: Iterable[Message]) -> list[Message]:
    """Return the first messages, until their tokens reach `MOST_TOKENS`."""
    taken, tokens = [], 0
    for row in rows:
        taken.append(row)
        tokens += row.token_count or 0
        if tokens >= MOST_TOKENS:
            break
    return taken
