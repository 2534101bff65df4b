"""Searches that exceeded their time limit are counted for operators."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.counts.searches import FEWEST, count_searches
from chats.models import Chat, Message, Turn
from contextpolicy.roles import OPERATOR
from tests.contextpolicy.people import person, signed_in


@pytest.fixture
def searched(alice: User, chat: Chat) -> Callable[..., None]:
    """Store completed turns whose searches ended with this note."""

    def storing(*notes: str, minutes: int = 1) -> None:
        branch, taken = chat.active_branch, Turn.objects.count()
        assert branch is not None
        asked = Message.objects.create(
            branch=branch,
            accepted=1_000 + taken,
            role=Message.Role.USER,
            parts=[],
            created_at=timezone.now(),
        )
        Turn.objects.bulk_create(
            Turn(
                branch=branch,
                accepted=1_000 + taken + number,
                trigger=asked,
                status=Turn.Status.COMPLETED,
                queued_at=timezone.now() - timedelta(minutes=minutes),
                tail={"references": note},
            )
            for number, note in enumerate(notes)
        )

    return storing


@pytest.mark.parametrize(
    ("notes", "late"),
    [
        ([""] * 30, 0),
        (["none", "below_floor", *[""] * 28], 0),
        (["late", "failed", *[""] * 28], 2),
    ],
)
def test_late_and_failed_searches_are_counted(
    searched: Callable[..., None], notes: list[str], late: int, client: Client
) -> None:
    searched(*notes)
    count = count_searches(now=timezone.now())
    assert (count.total, count.late) == (30, late)
    warnings = client.get("/readyz").json()["warnings"]
    assert any("Retrieved context was missing" in each for each in warnings) == bool(late)
    operator = signed_in(person("olga", OPERATOR))
    page = operator.get("/admin/chats/dailycount/").content.decode()
    # The share is that of the warning.
    assert f"{late / 30:.1%} of 30 searches in the last hour" in page


def test_old_and_few_searches_warn_nobody(searched: Callable[..., None]) -> None:
    searched(*["late"] * (FEWEST - 1))
    assert count_searches(now=timezone.now()).warning == ""
    searched(*["late"] * FEWEST, minutes=61)
    assert count_searches(now=timezone.now()).total == FEWEST - 1
