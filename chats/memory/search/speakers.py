"""The speakers in a chat's archive, and the messages of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from chats.models import Agent, Branch, Message
from chats.record import history
from contextpolicy.engine.team.team_view import fold_member_name

# The roles of speakers without a role of a team.
UNNAMED = {"user": Message.Role.USER, "assistant": Message.Role.ASSISTANT}
# The newest archived messages that are read for speakers, in addition to the chat's teams.
LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True, order=True)
class KnownSpeaker:
    """The name and id of a role that spoke."""

    name: str
    role_id: str


def list_known_speakers(branch: Branch, *, to: int) -> list[KnownSpeaker]:
    """Return the speakers with a role, sorted by name; empty in a chat without roles.

    These are the members of the chat's rounds, and speakers in the newest messages up to a seq.
    """
    ids = [part.branch_id for part in history.list_path_segments(branch)]
    members = Agent.objects.filter(version__rounds__branch__in=ids).order_by()
    found = {KnownSpeaker(*pair) for pair in members.values_list("name", "role_id").distinct()}
    return sorted(found | list_path_speakers(branch, after=max(to - LOOKED_AT, 0), to=to))


def list_path_speakers(branch: Branch, *, after: int, to: int) -> set[KnownSpeaker]:
    rows = history.select_path_messages(branch, after=after, before=to + 1).order_by()
    speakers = rows.filter(speaker__isnull=False).values_list("speaker", flat=True).distinct()
    return {KnownSpeaker(each["roleName"], each["roleId"]) for each in speakers if each}


def build_speaker_filter(branch: Branch, *, speaker: str, to: int) -> Q:
    """Return the filter for a speaker's messages.

    `speaker`: id or name of a role (ignoring case, spaces and hyphens), or the name of the chat's
    owner. A name covers all messages of its role, including those under other names.
    """
    name = fold_member_name(speaker)
    is_owner = name == fold_member_name(branch.chat.owner.get_username())
    roles = match_role_ids(list_known_speakers(branch, to=to), speaker=speaker)
    if not roles and not is_owner and speaker not in UNNAMED:
        # The speaker has not written for a long time, so look at the whole path.
        roles = match_role_ids(list_path_speakers(branch, after=0, to=to), speaker=speaker)
    found: Any = Q(speaker__roleId__in=sorted({speaker, *roles}))
    plain = "user" if is_owner else speaker
    if plain in UNNAMED:
        found |= Q(speaker__isnull=True, role=UNNAMED[plain])
    return Q(found)


def match_role_ids(speakers: Iterable[KnownSpeaker], *, speaker: str) -> set[str]:
    name = fold_member_name(speaker)
    return {
        each.role_id
        for each in speakers
        if each.role_id == speaker or fold_member_name(each.name) == name
    }
