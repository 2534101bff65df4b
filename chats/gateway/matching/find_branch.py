"""Matches a request to a branch among the chats with the same end user and conversation id.

Hashes of the client's own messages lead to candidate branches. A candidate matches only if the
request contains one of our replies, and only up to the first message that differs. Nothing is
written here.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from django.db.models import QuerySet

from chats.gateway import statements
from chats.gateway.matching.candidate_branches import (
    CANDIDATES,
    MOST_ENDS,
    Request,
    iter_candidate_branches,
    list_ended_branches,
    list_node_branches,
    load_branches_in_order,
    select_chat_nodes,
)
from chats.gateway.matching.conversation import Item
from chats.gateway.matching.hashes import (
    hash_item,
    join_item_texts,
    normalise_hash_text,
    normalise_images,
    normalise_reply,
)
from chats.gateway.matching.reminders import (
    is_reminded_text,
    is_text_with_tags,
    iter_additions,
)
from chats.models import Branch, Chat, GatewayNode, Message
from chats.record import history
from contextpolicy.engine.messages.messages import parse_parts

# Equal messages required to match a truncated history without a conversation id.
EQUAL_WITHOUT_ID = 8


Sameness = Literal["", "same", "reply", "open"]


OURS = ("reply", "open")


@dataclass(frozen=True, slots=True)
class PathMatch:
    """The messages that a request shares with a branch.

    `shared`: number of shared messages, counted from the first of the request. The message at
    position `n` has the seq `n + offset` on the branch. `unmatched`: number of messages at the
    start that are not on the branch. `replies`: number of our own replies among the shared
    messages. `is_open`: the last shared message is a reply whose calls receive their results now.
    """

    branch: Branch
    shared: int
    replies: int
    is_open: bool
    offset: int = 0
    unmatched: int = 0

    @property
    def seq(self) -> int:
        return self.shared + self.offset

    @property
    def is_at_end(self) -> bool:
        """True if the branch ends with the last shared message."""
        return self.seq == self.branch.last_seq


def find_best_match(
    request: Request, *, owner_id: int, chat: Chat | None = None, within: uuid.UUID | None = None
) -> PathMatch | None:
    """Return the best match of a request, optionally within one chat, or None.

    The match with the most replies wins, then the longest, then one at the end of its branch.
    `within`: a branch that is always compared. Default: the active branch of `chat`.
    """
    if not request.answered:
        # The request has no reply that could match, however many chats start with the same
        # messages.
        return None
    nodes = select_chat_nodes(owner_id, chat=chat)
    within = within or (chat.active_branch_id if chat else None)
    branches: dict[uuid.UUID, Branch] = {}
    matches: list[PathMatch] = []
    for listed in iter_candidate_branches(request, nodes, within=within):
        new = {branch.pk: branch for branch in listed if branch.pk not in branches}
        branches |= new
        found = [compare_with_branch(branch, request) for branch in new.values()]
        matches += [match for match in found if match.replies]
        if any(match.shared >= request.answered for match in matches):
            break
    else:
        if drops_additions(request, branches, owner_id=owner_id):
            again = [
                compare_with_branch(branch, request, drops_additions=True)
                for branch in branches.values()
            ]
            matches += [match for match in again if match.replies]
    best = max(matches, key=lambda m: (m.replies, m.shared, m.is_at_end), default=None)
    return best or find_tail(request, nodes)


def drops_additions(
    request: Request, branches: Mapping[uuid.UUID, Branch], *, owner_id: int
) -> bool:
    """Return True if the client removes additions from its newest message in the next request.

    Two consecutive questions prove it: each was stored with an addition, and the next stored
    request had it without. A user who removes a part of a question does so only once. `branches`:
    those that were compared with the request.
    """
    nodes = select_chat_nodes(owner_id, chat=None)
    begun = [each.loose for each in request.hashes if each.loose]
    replies = [
        place + 1
        for place, item in enumerate(request.items)
        if item.role == "assistant" and not item.results
    ]
    more = [
        *list_node_branches(nodes.filter(loose__in=begun)),
        *list_ended_branches(request, nodes, lengths=replies[-MOST_ENDS:]),
    ]
    known = {**branches, **{branch.pk: branch for branch in more}}
    dropped: set[int] = set()
    pairs: set[tuple[int, int]] = set()
    for branch in known.values():
        found = list_dropped_additions(branch, request)
        dropped |= set(found)
        pairs |= set(found.items())
    return any(before in dropped for _, before in pairs)


def list_dropped_additions(branch: Branch, request: Request) -> dict[int, int]:
    """Return the questions of a request that a branch has with an addition.

    Maps the index of each question to the index of the previous question if both are equal,
    otherwise to -1.
    """
    said = BranchPath(branch, first=1, last=len(request.items))
    found: dict[int, int] = {}
    before = -1
    for place, item in enumerate(request.items[: request.answered]):
        if said.sameness(place + 1, request, place):
            before = place if item.role == "user" else before
        elif said.has_addition(place + 1, request, place):
            found[place] = before
            before = -1
        else:
            break
    return found


def compare_with_branch(
    branch: Branch,
    request: Request,
    *,
    offset: int = 0,
    start: int = 0,
    drops_additions: bool = False,
) -> PathMatch:
    """Compare a request from index `start` with the path of a branch, shifted by `offset`.

    `drops_additions`: the client removes additions from questions (see the function
    `drops_additions`).
    """
    said = BranchPath(branch, first=start + offset + 1, last=len(request.items) + offset)
    shared, replies, is_open = start, 0, False
    for place in range(start, len(request.items)):
        same = said.sameness(place + 1 + offset, request, place)
        seq = place + 1 + offset
        if not same and (
            said.is_reminded(seq, request, place)
            or (drops_additions and said.has_addition(seq, request, place))
        ):
            same = "same"
        if not same:
            # The same calls with other results: a different message, but it contains our reply.
            replies += said.comes_back(place + 1 + offset, request.items[place])
            break
        shared, is_open = place + 1, same == "open"
        replies += same in OURS
        if is_open:
            break
    return PathMatch(branch, shared, replies, is_open, offset=offset, unmatched=start)


class BranchPath:
    """The messages of a branch in a range of seqs, and their hashes as the client sent them."""

    def __init__(self, branch: Branch, *, first: int, last: int) -> None:
        self.branch = branch
        rows = history.select_path_messages(branch, after=first - 1, before=last + 1)
        self.rows: Mapping[int, Message] = {row.seq or 0: row for row in rows}
        self.nodes = dict(iter_path_nodes(branch, first=first, last=last))

    def sameness(self, seq: int, request: Request, place: int) -> Sameness:
        """Compare a message of the request with the stored message at a seq.

        Returns `same`, `reply` for our own reply, `open` for our own reply whose calls have no
        results yet, or an empty string if they differ. Our own reply is compared with the form in
        which the client first sent it back. Until the client has done so, it is compared with our
        text, ignoring reasoning and whitespace.
        """
        item, row = request.items[place], self.rows.get(seq)
        if row is None or row.role != item.role or row.erased_at or row.is_incomplete:
            return ""
        is_ours = item.role == "assistant" and row.turn_id is not None
        known = self.nodes.get(seq)
        if known == request.hashes[place].item:
            return "reply" if is_ours else "same"
        parts = parse_parts(row.parts)
        is_alike = item.role == "assistant" and normalise_reply(parts) == normalise_reply(
            item.parts
        )
        if known is None and is_ours:
            return ("open" if item.results else "reply") if is_alike else ""
        if known is None and hash_item(parts, room=request.room) == request.hashes[place].item:
            return "same"
        # The client sends a reply once with its reasoning and once without.
        if item.results or not is_alike:
            return ""
        return "reply" if is_ours else "same"

    def is_reminded(self, seq: int, request: Request, place: int) -> bool:
        """Return True if a message differs from the stored one at a seq only by a reminder.

        Some clients add a reminder to their latest message, and later send the message without it
        or with another one. Either the reminder is in tagged blocks, or the latest message has the
        same reminder or one of the same kind. Our reply must follow the message. Otherwise the user
        changed the message.
        """
        item = request.items[place]
        texts = self.get_compared_texts(seq, request, place)
        if texts is None:
            return False
        stored, text = texts
        if is_text_with_tags(text, stored):
            return True
        newest = next(each for each in reversed(request.items) if each.role == "user")
        return newest is not item and is_reminded_text(
            stored, text=text, newest=join_item_texts(newest)
        )

    def has_addition(self, seq: int, request: Request, place: int) -> bool:
        """Return True if the stored message is the request's message plus added words.

        `seq` is the stored message, `place` the request's. The next stored message must be our
        reply.
        """
        texts = self.get_compared_texts(seq, request, place)
        return texts is not None and any(iter_additions(texts[0], text=texts[1]))

    def get_compared_texts(self, seq: int, request: Request, place: int) -> tuple[str, str] | None:
        """Return the texts of a user message, as stored at a seq and as in the request.

        None if the images differ, or if our reply does not follow.
        """
        row, item = self.rows.get(seq), request.items[place]
        if row is None or item.role != "user" or row.role != "user" or row.erased_at:
            return None
        text, stored = join_item_texts(item), normalise_hash_text(row.text)
        if not text or normalise_images(item.parts) != normalise_images(parse_parts(row.parts)):
            return None
        has_next = place + 1 < len(request.items)
        is_ours = has_next and self.sameness(seq + 1, request, place + 1) in OURS
        return (stored, text) if is_ours else None

    def comes_back(self, seq: int, item: Item) -> bool:
        """Return True if a message has the same calls as our reply at a seq.

        Their results may differ.
        """
        row = self.rows.get(seq)
        if row is None or row.turn_id is None or not item.results or row.erased_at:
            return False
        return normalise_reply(parse_parts(row.parts)) == normalise_reply(item.parts)


def iter_path_nodes(branch: Branch, *, first: int, last: int) -> Iterator[tuple[int, str]]:
    """Yield the seqs and hashes of messages that the client sent on this path."""
    for branch_id, above, to in history.list_path_pieces(branch, after=first - 1, before=last + 1):
        yield from statements.NODES.tuples(branch=branch_id, above=above, last=to)


def find_tail(request: Request, nodes: QuerySet[GatewayNode]) -> PathMatch | None:
    """Match a request whose beginning the client removed or summarised.

    The end of a conversation cannot prove its start. A match therefore needs a conversation id or
    many equal messages, one of our replies, the end of a branch, and a single matching chat. None
    if there is no match.
    """
    hashes = [each.item for each in request.hashes]
    rows = nodes.filter(item__in=hashes).order_by("-seq", "-pk")
    offsets: dict[uuid.UUID, set[int]] = {}
    for branch_id, seq, item in rows.values_list("branch", "seq", "item")[:2000]:
        offsets.setdefault(branch_id, set()).add(seq - 1 - hashes.index(item))
    found = [
        match
        for branch in load_branches_in_order(list(offsets)[:CANDIDATES])
        for offset in sorted(offsets[branch.pk], reverse=True)[:3]
        if (match := match_tail(branch, request, offset=offset)) is not None
    ]
    best = max(found, key=lambda m: (m.replies, m.shared - m.unmatched), default=None)
    if best is None or len({match.branch.chat_id for match in found}) > 1:
        return None
    return best


def match_tail(branch: Branch, request: Request, *, offset: int) -> PathMatch | None:
    """Return the longest run of matching messages up to the end of the branch or request.

    None if the run is too short, has no reply, or begins at the start of both.
    """
    last = min(len(request.items), branch.last_seq - offset)
    first_row = max(0, -offset)
    if last <= first_row:
        return None
    said = BranchPath(branch, first=first_row + offset + 1, last=last + offset)
    start = last
    while start > first_row and said.sameness(start + offset, request, start - 1):
        start -= 1
    match = compare_with_branch(branch, request, offset=offset, start=start)
    enough = request.is_named or match.shared - start >= EQUAL_WITHOUT_ID
    is_cut = offset > 0 or start > 0
    if not (enough and is_cut and match.replies and match.shared == last):
        return None
    return match
