"""The speakers in the archive of a chat, and the messages of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from chats.models import Agent, Branch, Message
from chats.record import history
from contextpolicy.engine.team_view import folded

# The roles of those who speak under none.
UNNAMED = {"user": Message.Role.USER, "assistant": Message.Role.ASSISTANT}
# So many of the newest archived messages say who speaks in a chat, beside its teams.
LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True, order=True)
class KnownSpeaker:
    """The name and the id of a role in which somebody spoke."""

    name: str
    role_id: str


def known(branch: Branch, *, to: int) -> list[KnownSpeaker]:
    """Return those who spoke under a role, by their names; none in a chat without roles.

    They are the members of the chat's rounds, and whoever spoke in the newest messages up to a seq.
    """
    ids = [part.branch_id for part in history.segments(branch)]
    members = Agent.objects.filter(version__rounds__branch__in=ids).order_by()
    found = {KnownSpeaker(*pair) for pair in members.values_list("name", "role_id").distinct()}
    return sorted(found | spoke(branch, after=max(to - LOOKED_AT, 0), to=to))


def spoke(branch: Branch, *, after: int, to: int) -> set[KnownSpeaker]:
    """Return those who spoke under a role in a part of a branch's path."""
    rows = history.on_path(branch, after=after, before=to + 1).order_by()
    said = rows.filter(speaker__isnull=False).values_list("speaker", flat=True).distinct()
    return {KnownSpeaker(each["roleName"], each["roleId"]) for each in said if each}


def messages_of(branch: Branch, *, speaker: str, to: int) -> Q:
    """Return the condition of the messages that a speaker said.

    `speaker` is the id or the name of a role, whatever its case, spaces and hyphens, or the name of
    the chat's owner. A name stands for all that its role said, also under other names.
    """
    name = folded(speaker)
    is_owner = name == folded(branch.chat.owner.get_username())
    roles = called(known(branch, to=to), speaker=speaker)
    if not roles and not is_owner and speaker not in UNNAMED:
        # Somebody who was silent for long.
        roles = called(spoke(branch, after=0, to=to), speaker=speaker)
    found: Any = Q(speaker__roleId__in=sorted({speaker, *roles}))
    plain = "user" if is_owner else speaker
    if plain in UNNAMED:
        found |= Q(speaker__isnull=True, role=UNNAMED[plain])
    return Q(found)


def called(speakers: Iterable[KnownSpeaker], *, speaker: str) -> set[str]:
    """Return the ids of the roles that have the id or the name."""
    name = folded(speaker)
    return {
        each.role_id for each in speakers if each.role_id == speaker or folded(each.name) == name
    }
