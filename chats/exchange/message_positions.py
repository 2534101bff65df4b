"""Assigns branches and positions to imported messages."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Max

from chats.actions.branching import BRANCHES_PER_CHAT, TooManyBranches
from chats.exchange.drafts import ChatDraft, Node
from chats.models import Branch, Chat, Message, Turn
from chats.record import message_erasure
from chats.record.message_commitments import Sealed

PAGE = 500


@dataclass(slots=True)
class Places:
    """The branch and seq of a chat's messages, by original id."""

    known: dict[str, tuple[Branch, int]]
    branches: list[Branch]
    # Existing branches that may be continued; new messages after the end of any other one start a
    # branch.
    open_ends: set[Any]
    accepted: int
    # The messages written so far, with the commitments for the ledger.
    stored: list[Sealed] = field(default_factory=list)

    def put(self, node: Node, *, chat: Chat, now: datetime) -> tuple[Branch, int, int]:
        """Assign branch, seq and order of acceptance to a message. Raises `TooManyBranches`.

        The first child continues its parent's branch; each further one starts a branch.
        """
        branch, seq = self.branches[0], 0
        if node.parent is not None:
            branch, seq = self.known[node.parent]
        if branch.last_seq != seq or branch.pk not in self.open_ends:
            if len(self.branches) >= BRANCHES_PER_CHAT:
                raise TooManyBranches(limit=BRANCHES_PER_CHAT)
            branch = Branch(chat=chat, parent=branch, fork_seq=seq, last_seq=seq, created_at=now)
            self.branches.append(branch)
            self.open_ends.add(branch.pk)
        branch.last_seq = seq + 1
        self.accepted += 1
        self.known[node.id] = (branch, seq + 1)
        return branch, seq + 1, self.accepted


def load_message_positions(chat: Chat, draft: ChatDraft) -> tuple[Places, bool]:
    """Return the positions of a locked chat's messages, and True if it was not continued here.

    Only in a chat that was not continued here are new messages added to the end of a branch.
    """
    branches = list(Branch.objects.filter(chat=chat).order_by("created_at", "pk"))
    branches.sort(key=lambda branch: branch.parent_id is not None)
    by_id = {branch.pk: branch for branch in branches}
    known: dict[str, tuple[Branch, int]] = {}
    is_untouched = not Turn.objects.filter(branch__chat=chat).exists()
    digests = {message_erasure.digest_of_id(node.id): node.id for node in draft.nodes}
    rows = Message.objects.filter(branch__chat=chat).order_by("branch", "seq")
    for branch_id, seq, metadata in rows.values_list("branch", "seq", "metadata").iterator(PAGE):
        own = (metadata.get("source") or {}).get("id")
        own = own or digests.get(metadata.get(message_erasure.ERASED_ID, ""))
        if own and seq:
            known[str(own)] = (by_id[branch_id], seq)
        elif message_erasure.ERASED_ID not in metadata:
            is_untouched = False
    ends = set(by_id) if is_untouched else set()
    accepted = rows.aggregate(most=Max("accepted"))["most"] or 0
    return Places(known, branches, ends, max(accepted, chat.accepted_count)), is_untouched
