"""Finds messages older than their retention period, for retention runs and their preview.

A message's age counts from when it was written. If several policies apply to a chat, the shortest
period wins.
"""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser, User
from django.db.models import Count, F, Min, QuerySet

from chats.actions.retention_schedule import FIELD, is_limited
from chats.models import Agent, Chat, Message
from chats.prompt.model_choice import get_client_policy
from contextpolicy import holds, resolution
from contextpolicy.models import ContextPolicy, PolicyAssignment

# Chats examined together.
PAGE = 200
# Limits of a preview: chats examined, and people listed.
MOST_CHATS = 20_000
MOST_PEOPLE = 100


@dataclass(frozen=True, slots=True)
class PersonDue:
    """A user with messages past their retention period.

    `chats` and `messages` are numbers; `oldest` is the time of the oldest message.
    """

    username: str
    chats: int
    messages: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class RetentionPreview:
    """The messages that a run would erase if it started now.

    `looked_at`: number of chats examined. `is_all`: True if every chat was examined. `people` lists
    the users with the most due messages first; `more_people` counts the users beyond that list.
    `held_chats` and `held_messages` are kept by legal holds and not part of the other numbers.
    """

    looked_at: int
    is_all: bool
    chats: int
    messages: int
    oldest: datetime | None
    held_chats: int
    held_messages: int
    people: Sequence[PersonDue]
    more_people: int


def find_retention_days(chat: Chat) -> int | None:
    """Return a chat's retention period in days. None: messages are kept.

    In a team chat, the shortest period of its agents applies to all messages.
    """
    assigned = resolution.list_assigned_policies(
        user_id=chat.owner_id, group_ids=None, chat_id=chat.pk
    )
    policies = [get_client_policy(chat), *list_team_policies(chat)]
    found = [
        resolution.resolve_field_value(
            FIELD,
            resolution.parse_assignment_layers(
                resolution.insert_agent_policy(assigned, policy=policy)
            ),
        )
        for policy in policies
    ]
    return min((days for days in found if isinstance(days, int)), default=None)


def list_team_policies(chat: Chat) -> list[ContextPolicy]:
    """Return the policies of the agents of the chat's team, each once."""
    if chat.team_id is None:
        return []
    agents = Agent.objects.filter(version=F("version__team__current"), version__team=chat.team_id)
    policies = ContextPolicy.objects.select_related("current").filter(retired=False)
    return list(policies.filter(pk__in=agents.values("policy")).order_by("pk"))


def find_new_chat_days(user: AbstractBaseUser, *, now: datetime) -> int | None:
    """Return the retention period in days for a user's new chat.

    None: messages are kept, because no policy limits their age or a legal hold covers the user.
    """
    if not is_limited() or holds.load_held_targets(now=now).covers(owner_id=user.pk, chats=[]):
        return None
    found = resolution.resolve_field_value(
        FIELD, resolution.list_chat_layers(user_id=user.pk, chat_id=None)
    )
    return found if isinstance(found, int) else None


def map_retention_days(chats: Sequence[Chat]) -> dict[uuid.UUID, int]:
    ids = [chat.pk for chat in chats]
    own = set(PolicyAssignment.objects.filter(chat_id__in=ids).values_list("chat_id", flat=True))
    of_people: dict[int, int | None] = {}
    found: dict[uuid.UUID, int] = {}
    for chat in chats:
        if chat.pk in own or chat.policy_id is not None or chat.team_id is not None:
            days = find_retention_days(chat)
        elif chat.owner_id in of_people:
            days = of_people[chat.owner_id]
        else:
            days = of_people[chat.owner_id] = find_retention_days(chat)
        if days is not None:
            found[chat.pk] = days
    return found


def select_expired_messages(
    chats: Collection[uuid.UUID], *, days: int, now: datetime
) -> QuerySet[Message]:
    """Return the chats' messages that are at least `days` days old and not erased."""
    until = now - timedelta(days=days)
    return Message.objects.filter(branch__chat__in=chats, erased_at=None, created_at__lte=until)


def has_younger(chat: Chat, *, days: int, now: datetime) -> bool:
    """Return True if a chat has messages that are not older than `days`."""
    since = now - timedelta(days=days)
    rows = Message.objects.filter(branch__chat=chat, erased_at=None, created_at__gt=since)
    return rows.exists()


def list_next_chats(place: uuid.UUID | None) -> list[Chat]:
    """Return the next chats after a position, in order of their ids."""
    rows = Chat.objects.order_by("pk").only("pk", "owner", "policy", "team")
    return list((rows.filter(pk__gt=place) if place else rows)[:PAGE])


def count_due_messages(
    chats: Sequence[Chat], *, now: datetime
) -> dict[uuid.UUID, tuple[int, datetime]]:
    """Map the id of each chat with due messages to their number and the oldest time."""
    by_days: dict[int, list[uuid.UUID]] = {}
    for pk, days in map_retention_days(chats).items():
        by_days.setdefault(days, []).append(pk)
    due: dict[uuid.UUID, tuple[int, datetime]] = {}
    for days, ids in by_days.items():
        grouped = select_expired_messages(ids, days=days, now=now).order_by().values("branch__chat")
        counted = grouped.annotate(messages=Count("pk"), oldest=Min("created_at"))
        due |= {row["branch__chat"]: (row["messages"], row["oldest"]) for row in counted}
    return due


def iter_retention_pages() -> Iterator[list[Chat]]:
    """Yield pages of all chats, by id. Yields nothing if no policy limits the age of messages."""
    place = None
    while is_limited() and (page := list_next_chats(place)):
        yield page
        place = page[-1].pk


def preview_retention(*, now: datetime) -> RetentionPreview:
    """Count what a run would erase. Content under a legal hold is counted separately."""
    held = holds.load_held_targets(now=now)
    looked_at, held_chats, held_messages = 0, 0, 0
    of_people: dict[int, list[tuple[int, datetime]]] = {}
    is_all = True
    for page in iter_retention_pages():
        if looked_at >= MOST_CHATS:
            is_all = False
            break
        looked_at += len(page)
        owners = {chat.pk: chat.owner_id for chat in page}
        for pk, (messages, oldest) in count_due_messages(page, now=now).items():
            if held.covers(owner_id=owners[pk], chats=[pk]):
                held_chats, held_messages = held_chats + 1, held_messages + messages
            else:
                of_people.setdefault(owners[pk], []).append((messages, oldest))
    people = rank_affected_people(of_people)
    found = [each for chats in of_people.values() for each in chats]
    return RetentionPreview(
        looked_at=looked_at,
        is_all=is_all,
        chats=len(found),
        messages=sum(messages for messages, _ in found),
        oldest=min((oldest for _, oldest in found), default=None),
        held_chats=held_chats,
        held_messages=held_messages,
        people=people,
        more_people=len(of_people) - len(people),
    )


def rank_affected_people(found: Mapping[int, Sequence[tuple[int, datetime]]]) -> list[PersonDue]:
    """Return the users with the most due messages, at most `MOST_PEOPLE`.

    `found`: for each owner id, the number of due messages and the oldest time of each chat.
    """
    counted = {owner: sum(messages for messages, _ in chats) for owner, chats in found.items()}
    most = sorted(found, key=lambda owner: (-counted[owner], owner))[:MOST_PEOPLE]
    names = dict(User.objects.filter(pk__in=most).values_list("pk", "username"))
    return [
        PersonDue(
            username=names.get(owner, f"user {owner}"),
            chats=len(found[owner]),
            messages=counted[owner],
            oldest=min(oldest for _, oldest in found[owner]),
        )
        for owner in most
    ]
