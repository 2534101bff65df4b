"""Finds messages of a team by speaker, time or id."""

import re
from datetime import datetime

from django.db.models import Q, QuerySet

from chats.memory.search.speakers import UNNAMED
from chats.models import Chat, Message
from chats.record import history
from chats.turns.start import get_active_branch

# Messages read per query when listing all.
PART = 100
_NUMBERED = re.compile(r"msg-([0-9]{1,15})")


def select_team_messages(
    chat: Chat,
    *,
    id: str = "",  # noqa: A002 - the field's name
    speaker: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[Message]:
    """Return matching messages of the active branch, unordered.

    `id` is the team's id of a message (`msg-N`), `speaker` the id of a role. `since` is inclusive,
    `until` exclusive.
    """
    branch = get_active_branch(chat)
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
    if id:
        number = _NUMBERED.fullmatch(id)
        is_meant = Q(metadata__team_id=id)
        if number:
            place = Q(seq=int(number[1]) - branch.team_id_offset)
            is_meant |= place & Q(metadata__team_id__isnull=True)
        rows = rows.filter(is_meant)
    if speaker:
        is_theirs = Q(speaker__roleId=speaker)
        if speaker in UNNAMED:
            is_theirs |= Q(speaker__isnull=True, role=UNNAMED[speaker])
        rows = rows.filter(is_theirs)
    if since is not None:
        rows = rows.filter(created_at__gte=since)
    return rows.filter(created_at__lt=until) if until is not None else rows


def load_next_messages(rows: QuerySet[Message], *, after: int) -> list[Message]:
    """Return the next batch of messages after a seq, in order.

    The batch size is limited to save memory, and no transaction stays open between batches.
    """
    return list(rows.filter(seq__gt=after).order_by("seq")[:PART])
