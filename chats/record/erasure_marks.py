"""Records in the ledger which receipts an erasure marked, in the chain of each affected chat.

Verification accepts a mark only if an event in the receipt's own chain lists the receipt.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from contextpolicy import ledger

EVENT = "receipt.erased"
# Receipts per event. An erasure that marks more writes several events.
MOST = 500


@dataclass(slots=True)
class ErasureMarks:
    """The receipts that can no longer be rebuilt after an erasure, by chat.

    Each chat gets one ledger entry for up to `MOST` receipts. Entries of the instance's chain come
    last: a reply that fails locks its chat's chain before the instance's.
    """

    now: datetime
    by_chat: dict[uuid.UUID, list[str]] = field(default_factory=lambda: defaultdict(list))
    deferred: list[Callable[[], object]] = field(default_factory=list)

    def add(self, receipt_id: uuid.UUID, *, chat_id: uuid.UUID) -> None:
        self.by_chat[chat_id].append(str(receipt_id))

    def take(self, chat_id: uuid.UUID) -> list[str]:
        """Remove and return up to `MOST` receipts of a chat, to be listed in its certificate."""
        marked = self.by_chat.pop(chat_id, [])
        if marked[MOST:]:
            self.by_chat[chat_id] = marked[MOST:]
        return marked[:MOST]

    def discard(self, chat_id: uuid.UUID) -> None:
        """Remove the receipts of a chat that is deleted as a whole."""
        self.by_chat.pop(chat_id, None)

    def record(self, *, actor: str, erased: str, source: uuid.UUID) -> None:
        """Write the ledger entries of all remaining chats.

        `erased` is the kind of the erased object (message, chat, preference), `source` its id. The
        caller holds the owner's lock, because two erasures of one user affect the same chains.
        """
        by_chat = sorted(self.by_chat.items())
        self.by_chat.clear()
        for chat_id, marked in by_chat:
            for start in range(0, len(marked), MOST):
                ledger.record_event(
                    EVENT,
                    actor=actor,
                    now=self.now,
                    chat_id=chat_id,
                    data={
                        "erased": erased,
                        "source": str(source),
                        "receipts": marked[start : start + MOST],
                    },
                )

    def defer_event(
        self, event: str, *, actor: str, now: datetime, data: Mapping[str, Any]
    ) -> None:
        """Write an entry of the instance's chain later, in `record_deferred`."""
        self.deferred.append(
            partial(ledger.record_event, event, actor=actor, now=now, data=dict(data))
        )

    def record_deferred(self) -> None:
        """Write the deferred entries. The erasure then writes nothing to the chain of a chat."""
        deferred, self.deferred = self.deferred, []
        for write in deferred:
            write()
