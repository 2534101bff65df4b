"""The branches with which a request is compared, the likeliest first."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import F, QuerySet

from chats.gateway.matching.conversation import Item
from chats.gateway.matching.hashes import (
    Hashes,
    normalise_reply,
)
from chats.models import Branch, Chat, GatewayNode, Message
from contextpolicy.engine.messages.messages import parse_parts

# Maximum number of candidate branches. With more, the deepest ones are compared.
CANDIDATES = 30


# Maximum replies of a request, the newest ones, that are compared with the ends of branches.
MOST_ENDS = 50


@dataclass(frozen=True, slots=True)
class Request:
    """A request to match: its messages with their hashes.

    `room`: its scope key (see `hashes.build_room_key`). `is_named`: it has a conversation id or
    names a chat.
    """

    items: Sequence[Item]
    hashes: Sequence[Hashes]
    room: str
    is_named: bool

    @property
    def answered(self) -> int:
        """Number of messages up to and including the last reply. 0 if there is no reply."""
        places = range(len(self.items), 0, -1)
        return next((n for n in places if self.items[n - 1].role == "assistant"), 0)


def iter_candidate_branches(
    request: Request, nodes: QuerySet[GatewayNode], *, within: uuid.UUID | None
) -> Iterator[list[Branch]]:
    """Yield lists of candidate branches, the most likely first.

    The first list has the branches with the client's own messages. Some clients later remove a
    reminder that they appended to a message. For these clients, the second list has the branches
    with the same first lines, and the third list has the branches that end with the last reply of
    the request. `within`: a branch that the first list always includes.
    """
    wanted = [each.found for each in request.hashes if each.found]
    yield list_node_branches(nodes.filter(found__in=wanted), within=within)
    begun = [each.loose for each in request.hashes if each.loose]
    yield list_node_branches(nodes.filter(loose__in=begun))
    yield list_answered_branches(request, nodes)


def list_node_branches(
    nodes: QuerySet[GatewayNode], *, within: uuid.UUID | None = None
) -> list[Branch]:
    """Return at most `CANDIDATES` branches of these nodes, the deepest first, and `within`.

    Up to `CANDIDATES` of their child branches follow, the newest first.
    """
    rows = nodes.order_by("-seq", "-pk").values_list("branch", flat=True)
    ids = dict.fromkeys(rows[: CANDIDATES * 10])
    known = dict.fromkeys((*list(ids)[:CANDIDATES], *([within] if within else [])))
    branches = load_branches_in_order(list(known))
    # Branches that fork later share the messages of their parent.
    children = Branch.objects.filter(parent__in=list(ids)).exclude(pk__in=list(known))
    more = children.select_related("chat", "parent").order_by("-created_at")
    return [*branches, *more[:CANDIDATES]]


def list_answered_branches(request: Request, nodes: QuerySet[GatewayNode]) -> list[Branch]:
    """Return the newest branches in the scope that end with the request's last reply."""
    return list_ended_branches(request, nodes, lengths=[request.answered])


def list_ended_branches(
    request: Request, nodes: QuerySet[GatewayNode], *, lengths: Sequence[int]
) -> list[Branch]:
    """Return the newest branches of these lengths that end with a reply of the request."""
    replies = {length: normalise_reply(request.items[length - 1].parts) for length in lengths}
    ends = nodes.filter(
        seq=F("branch__last_seq") - 1,
        branch__last_seq__in=lengths,
        branch__chat__gateway__room=request.room,
    )
    known = dict(ends.order_by("-pk").values_list("branch", "branch__last_seq")[:CANDIDATES])
    rows = Message.objects.filter(branch__in=known, seq=F("branch__last_seq"), turn__isnull=False)
    ended = {
        row.branch_id
        for row in rows
        if normalise_reply(parse_parts(row.parts)) == replies[known[row.branch_id]]
    }
    return load_branches_in_order([pk for pk in known if pk in ended])


def select_chat_nodes(owner_id: int, *, chat: Chat | None) -> QuerySet[GatewayNode]:
    """Return the message hashes of one chat, or of all of a user's chats.

    Deleted chats and chats with a team are left out.
    """
    rows = GatewayNode.objects.filter(
        branch__chat__owner=owner_id, branch__chat__deleted_at=None, branch__chat__team=None
    )
    return rows.filter(branch__chat=chat) if chat else rows


def load_branches_in_order(ids: Sequence[uuid.UUID]) -> list[Branch]:
    rows = Branch.objects.select_related("chat", "parent").in_bulk(list(ids))
    return [rows[pk] for pk in ids if pk in rows]
