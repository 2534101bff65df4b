"""Records in the ledger which receipts an erasure marked, in the chain of each affected chat.

Verification accepts a mark only if an event in the receipt's own chain names it.
"""

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from contextpolicy import ledger

EVENT = "receipt.erased"
# Receipts per event. An erasure that marks more writes several events.
MOST = 500


@dataclass(slots=True)
class ErasureMarks:
    """The receipts that can no longer be rebuilt after an erasure, by chat.

    Each chat gets one ledger entry for up to `MOST` receipts.
    """

    now: datetime
    by_chat: dict[uuid.UUID, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, receipt_id: uuid.UUID, *, chat_id: uuid.UUID) -> None:
        self.by_chat[chat_id].append(str(receipt_id))

    def take(self, chat_id: uuid.UUID) -> list[str]:
        """Remove and return up to `MOST` receipts of a chat, to be named in its certificate."""
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
        caller holds the owner's lock, because two erasures of one person affect the same chains.
        """
        for chat_id, marked in sorted(self.by_chat.items()):
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
