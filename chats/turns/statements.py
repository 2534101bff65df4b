"""Prepared statements of the reply pipeline."""

from functools import cache

from django.contrib.auth.models import User
from django.db.models import (
    Case,
    CharField,
    DateTimeField,
    DurationField,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
)

from chats.ground import leases
from chats.models import Chat, Message, Receipt, Turn
from chats.models.turns import UNFINISHED
from speed import placeholders, prepared


def select_overdue_turns(at: placeholders.At) -> QuerySet[Turn]:
    """Select turns that have waited too long, or that a worker released."""
    since = leases.subtract_from_now(at("age", DurationField()))
    # Filter by status twice: SQLite uses the partial index of unfinished turns only if the query
    # repeats the index condition. Otherwise it would scan all turns.
    waiting = Turn.objects.filter(
        status__in=UNFINISHED, status=Turn.Status.QUEUED, awaits_consent=False
    )
    return filter_free_turns(waiting.filter(Q(queued_at__lt=since) | Q(handed_back=True)))


def filter_free_turns(turns: QuerySet[Turn]) -> QuerySet[Turn]:
    """Select turns whose branch runs no other turn, except for other lanes of the same round.

    A turn that waits for consent counts as running.
    """
    running = Turn.objects.filter(
        Q(status=Turn.Status.RUNNING) | Q(awaits_consent=True, status=Turn.Status.QUEUED),
        branch=OuterRef("branch"),
    )
    others = running.exclude(lane__gt=0, round=OuterRef("round"))
    return turns.filter(~Exists(running) | Q(lane__gt=0) & ~Exists(others))


OVERDUE = prepared.Select(
    lambda at: select_overdue_turns(at).order_by("queued_at").values_list("pk")[:1000]
)


# These statements repeat the index condition too.
BUSY_SERVER = prepared.Select(
    lambda at: Turn.objects.filter(
        status__in=UNFINISHED, model__provider=at("provider")
    ).values_list("pk")[:1]
)


QUEUED_BEFORE = prepared.Select(
    lambda at: (
        Turn.objects.filter(
            status__in=UNFINISHED,
            status=Turn.Status.QUEUED,
            queued_at__lt=at("queued_at", DateTimeField()),
        )
        .exclude(pk=at("turn"))
        .values_list("pk")
    )
)


SERVED = prepared.Select(
    lambda at: (
        Turn.objects.filter(
            leases.match_held_leases(), status__in=UNFINISHED, status=Turn.Status.RUNNING
        )
        .exclude(pk=at("turn"))
        .values_list("pk")[:1]
    )
)


WAITING = prepared.Select(
    lambda at: Message.objects.filter(branch=at("branch"), seq=None, erased_at=None).values_list(
        "pk"
    )
)


PERSON_LOCK = prepared.Lock(
    lambda at: User.objects.select_for_update(no_key=True).filter(pk=at("owner")).values_list("pk")
)


BUSY_BRANCHES = prepared.Select(
    lambda at: (
        Turn.objects.filter(status__in=UNFINISHED, api_key=None)
        .exclude(branch=at("branch"))
        # Checked per turn, since there are few. A query that starts from the user would read all
        # of their turns.
        .filter(Exists(Chat.objects.filter(branches=OuterRef("branch"), owner=at("owner"))))
        .values_list("branch")
        .distinct()
    )
)


BUSY_BRANCHES_OF_KEY = prepared.Select(
    lambda at: (
        Turn.objects.filter(status__in=UNFINISHED, api_key=at("key"))
        .exclude(branch=at("branch"))
        .values_list("branch")
        .distinct()
    )
)


OWN_STEPS = prepared.Select(
    lambda at: Message.objects.filter(turn=at("turn"), role=Message.Role.ASSISTANT).values_list(
        "pk"
    )
)


BOOKED_CALLS = prepared.Select(
    lambda at: Receipt.objects.filter(
        turn=at("turn"), attempt=at("attempt"), step=at("step"), call=at("call")
    ).values_list("pk")
)


OPEN_RECEIPT = prepared.Update(
    lambda at: Receipt.objects.filter(pk=at("receipt"), outcome=Receipt.Outcome.OPEN),
    ("outcome", "usage", "error_code", "finished_at"),
    # After an erasure, a hash of the whole body would allow guessing the erased text.
    lambda at: {
        "body_sha256": Case(When(erased_at=None, then=at("body", CharField())), default=Value(""))
    },
)


NEXT_TURNS = prepared.Select(
    lambda at: (
        Turn.objects.filter(branch=at("branch"), status=Turn.Status.QUEUED)
        .order_by("accepted")
        .values_list("pk")[:1]
    )
)


def select_claimable_turn(at: placeholders.At) -> QuerySet[Turn]:
    """Select the turn if it is queued and its branch is free.

    A running turn is not selected, so a second task for it does nothing. If its lease has expired,
    a due job releases it and counts the loss.
    """
    waiting = Turn.objects.filter(pk=at("turn"), status=Turn.Status.QUEUED, awaits_consent=False)
    # In a round, a turn without an agent waits until the current reply ends.
    waiting = waiting.filter(Q(round=None) | Q(agent__isnull=False))
    return filter_free_turns(waiting)


CLAIMED_FIELDS = (
    "status",
    "lease_token",
    "worker",
    "handed_back",
    "started_at",
    "waiting_until",
    "partial_text",
    "partial_reasoning",
)


CLAIM = prepared.Update(
    select_claimable_turn,
    CLAIMED_FIELDS,
    lambda at: {
        "attempt": F("attempt") + 1,
        "lease_until": leases.add_to_now(at("length", DurationField())),
    },
)


def select_leased_turn(at: placeholders.At) -> QuerySet[Turn]:
    """Select the turn if its lease is held with this token."""
    return Turn.objects.filter(pk=at("turn"), status=Turn.Status.RUNNING, lease_token=at("token"))


@cache
def write_held(fields: tuple[str, ...]) -> prepared.Update:
    return prepared.Update(select_leased_turn, fields)


HELD_AND_LOCKED = prepared.Select(
    lambda at: (
        select_leased_turn(at).select_for_update(of=("self",), no_key=True).select_related("branch")
    )
)


TURN = prepared.Select(
    lambda at: Turn.objects.select_related("branch__chat", "model", "trigger", "continues").filter(
        pk=at("turn")
    )
)


def select_unstopped_turn(at: placeholders.At) -> QuerySet[Turn]:
    """Select the held turn unless it was asked to stop."""
    return select_leased_turn(at).filter(stop_requested_at=None)


RENEW = prepared.Update(
    select_unstopped_turn,
    (),
    lambda at: {"lease_until": leases.add_to_now(at("length", DurationField()))},
)


# Filters by step, so that late text does not overwrite the next step's.
SAVE_TEXT = prepared.Update(
    lambda at: select_unstopped_turn(at).filter(step=at("step"), begun_anew=at("begun_anew")),
    ("partial_text", "partial_reasoning"),
)
