"""Versions of a message and branches of a chat."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q

from chats.models import Branch, Chat, Message
from chats.record.history import PathSegment, list_path_segments
from chats.rendering.spoken import extract_displayed_text
from chats.web.words import truncate_line


@dataclass(frozen=True, slots=True)
class MessageVersions:
    """Number of versions, position of the displayed one, and the branches of its neighbours."""

    number: int
    count: int
    previous: uuid.UUID | None
    following: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class BranchLink:
    """A branch in the chat's menu. `words` is the beginning of its newest message."""

    pk: uuid.UUID
    words: str
    fork_seq: int
    last_seq: int
    created_at: datetime
    is_current: bool


def load_message_versions(
    branch: Branch, messages: Sequence[Message]
) -> dict[uuid.UUID, MessageVersions]:
    """Return the versions of messages that have several, by message ID.

    Versions share a seq and the previous message. They are on the branch that contains the previous
    message and on branches that fork there. At most two queries.
    """
    rows = Branch.objects.filter(chat=branch.chat_id, parent__isnull=False)
    forks = list(rows.values_list("pk", "parent_id", "fork_seq"))
    path = list_path_segments(branch) if forks else []
    groups: dict[uuid.UUID, tuple[int, set[uuid.UUID]]] = {}
    for message in messages if forks else ():
        seq = message.seq or 0
        holder = find_holding_branch(path, seq=seq - 1)
        children = {pk for pk, parent, fork in forks if parent == holder and fork == seq - 1}
        if children:
            groups[message.pk] = seq, {holder, *children}
    if not groups:
        return {}
    wanted = Q()
    for seq, ids in groups.values():
        wanted |= Q(seq=seq, branch__in=ids)
    found = Message.objects.filter(wanted).order_by("accepted")
    places = list(found.values_list("pk", "seq", "branch_id"))
    numbered = {}
    for pk, (seq, ids) in groups.items():
        group = [(key, place) for key, at, place in places if at == seq and place in ids]
        if len(group) > 1:
            numbered[pk] = build_message_versions(pk, group)
    return numbered


def find_holding_branch(path: Sequence[PathSegment], *, seq: int) -> uuid.UUID:
    """Return the branch of a path that contains a seq; the root if none does, as for seq 0."""
    held = (part.branch_id for part in path if part.after < seq <= part.to)
    return next(held, path[-1].branch_id)


def build_message_versions(
    pk: uuid.UUID, group: Sequence[tuple[uuid.UUID, uuid.UUID]]
) -> MessageVersions:
    index = [key for key, _ in group].index(pk)
    return MessageVersions(
        number=index + 1,
        count=len(group),
        previous=group[index - 1][1] if index else None,
        following=group[index + 1][1] if index + 1 < len(group) else None,
    )


def list_branch_links(chat: Chat) -> list[BranchLink]:
    """Return the branches of a chat, newest first; empty if it has only one."""
    rows = list(Branch.objects.filter(chat=chat).order_by("-created_at", "pk"))
    if len(rows) < 2:
        return []
    ends = Message.objects.filter(branch__chat=chat, seq=F("branch__last_seq"))
    words = {
        message.branch_id: truncate_line(extract_displayed_text(message).own, 60)
        for message in ends
    }
    return [
        BranchLink(
            pk=row.pk,
            words=words.get(row.pk, ""),
            fork_seq=row.fork_seq,
            last_seq=row.last_seq,
            created_at=row.created_at,
            is_current=row.pk == chat.active_branch_id,
        )
        for row in rows
    ]
