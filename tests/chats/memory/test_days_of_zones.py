"""“Yesterday” in a search is a day of the user's time zone."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chats.memory.search import archive, index_progress
from chats.memory.search.days import parse_time_ranges
from chats.models import AccountSettings, Branch, Chat, Message, SearchPlace
from tests.support.messages_without_turns import Say, reload_first_branch

BERLIN = ZoneInfo("Europe/Berlin")
# Noon in UTC, two o'clock on the next day in Kiritimati.
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def hours(question: str, at: datetime) -> list[tuple[datetime, float]]:
    """Return the start in UTC and the hours of each range."""
    found = parse_time_ranges(question, at=at)
    return [
        (a.astimezone(UTC), (b.astimezone(UTC) - a.astimezone(UTC)).total_seconds() / 3600)
        for a, b in found
    ]


@pytest.mark.parametrize(
    ("question", "at", "start", "length"),
    [
        (
            "yesterday",
            datetime(2026, 3, 30, 9, tzinfo=BERLIN),
            datetime(2026, 3, 28, 23, tzinfo=UTC),
            23,
        ),
        (
            "yesterday",
            datetime(2026, 10, 26, 9, tzinfo=BERLIN),
            datetime(2026, 10, 24, 22, tzinfo=UTC),
            25,
        ),
        (
            "today",
            datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
            datetime(2026, 10, 24, 22, tzinfo=UTC),
            25,
        ),
        (
            "today",
            datetime(2026, 7, 1, 0, 30, tzinfo=BERLIN),
            datetime(2026, 6, 30, 22, tzinfo=UTC),
            24,
        ),
        (
            "last week",
            datetime(2026, 3, 30, 9, tzinfo=BERLIN),
            datetime(2026, 3, 22, 23, tzinfo=UTC),
            7 * 24 - 1,
        ),
        (
            "on 29 March 2026",
            datetime(2026, 7, 1, tzinfo=BERLIN),
            datetime(2026, 3, 28, 23, tzinfo=UTC),
            23,
        ),
        (
            "in October 2026",
            datetime(2026, 12, 1, tzinfo=BERLIN),
            datetime(2026, 9, 30, 22, tzinfo=UTC),
            31 * 24 + 1,
        ),
    ],
)
def test_days_begin_at_midnight_of_the_zone(
    question: str, at: datetime, start: datetime, length: int
) -> None:
    assert hours(question, at) == [(start, length)]


@pytest.fixture
def herons(chat: Chat, say: Say) -> list[str]:
    """Two messages of Alice: yesterday in UTC, then yesterday in Kiritimati."""
    rows = [say("The heron") for _ in range(2)]
    for row, ago in zip(rows, (24, 4), strict=True):
        Message.objects.filter(pk=row.pk).update(created_at=NOON - timedelta(hours=ago))
    archive.index_branch(Branch.objects.select_related("chat").get(pk=rows[0].branch_id))
    return [str(row.pk) for row in rows]


@pytest.mark.parametrize(("zone", "best"), [("", 0), ("UTC", 0), ("Pacific/Kiritimati", 1)])
def test_a_search_over_rest_uses_the_zone_of_the_account(
    alice: User,
    client: Client,
    herons: list[str],
    monkeypatch: pytest.MonkeyPatch,
    zone: str,
    best: int,
) -> None:
    AccountSettings.objects.create(owner=alice, time_zone=zone)
    monkeypatch.setattr("chats.api.chats.search.timezone", SimpleNamespace(now=lambda: NOON))
    client.force_login(alice)
    body = client.get("/api/v1/search", {"q": "heron yesterday"}).json()
    assert body["data"][0]["message"] == herons[best]


@pytest.mark.parametrize(("zone", "best"), [("", 0), ("Pacific/Kiritimati", 1)])
def test_a_search_on_the_page_uses_the_zone_of_the_account(
    alice: User,
    client: Client,
    herons: list[str],
    monkeypatch: pytest.MonkeyPatch,
    zone: str,
    best: int,
) -> None:
    AccountSettings.objects.create(owner=alice, time_zone=zone, time_zone_chosen=bool(zone))
    clock = SimpleNamespace(now=lambda: NOON, make_aware=timezone.make_aware)
    monkeypatch.setattr("chats.web.searching.timezone", clock)
    client.force_login(alice)
    page = client.get("/search", {"q": "heron yesterday"}).content.decode()
    first, second = sorted(range(2), key=lambda place: page.find(herons[place]))
    assert (first, second) == (best, 1 - best)


def test_searchable_messages_are_counted_by_the_database(
    alice: User, chat: Chat, say: Say, herons: list[str]
) -> None:
    del herons
    say("Not indexed")
    main = reload_first_branch(chat)
    for number in range(3):
        branch = Branch.objects.create(
            chat=chat, parent=main, fork_seq=1, last_seq=1 + number, created_at=NOON
        )
        SearchPlace.objects.create(branch=branch, version=number, to_seq=9)
    with CaptureQueriesContext(connection) as queries:
        found = index_progress.count_searchable_messages(alice.pk)
    assert found == (3 + 0 + 1 + 2, 1 + 0 + 1 + 2)
    (query,) = queries.captured_queries
    assert query["sql"].count("SUM(") == 2
    assert Message.objects.count() == 3


@pytest.mark.parametrize(
    ("question", "back", "length"),
    [
        ("昨天说了什么？", 1, 1),
        ("前天的会议", 2, 1),
        ("我们上周讨论的支付方案", 7, 7),
        ("上个月的预算", 31, 31),
        ("去年的报告", 366, 366),
        ("Was habe ich gestern gesagt?", 1, 1),
        ("Was war vorgestern?", 2, 1),
        ("the day before yesterday", 2, 1),
        ("Was stand letzte Woche im Plan?", 7, 7),
        ("qu’ai-je dit avant-hier", 2, 1),
        ("la semaine dernière", 7, 7),
        ("¿Qué dije ayer?", 1, 1),
        ("anteayer", 2, 1),
        ("antes de ayer", 2, 1),
        ("day before yesterday", 2, 1),
        ("cosa ho detto dell’altro ieri", 2, 1),
        ("أول من أمس", 2, 1),
        ("先週の会議", 7, 7),
        ("一昨日", 2, 1),
        ("지난주 회의", 7, 7),
    ],
)
def test_past_days_are_understood_in_many_languages(question: str, back: int, length: int) -> None:
    (found,) = parse_time_ranges(question, at=NOON)
    midnight = NOON.replace(hour=0)
    begin = midnight - timedelta(days=back)
    assert found == (begin, begin + timedelta(days=length))


@pytest.mark.parametrize(
    "question",
    [
        "Was steht hier?",
        "the hierarchy of the mayor",
        "他去年轻人那里",
        "next week",
        "أمسك",
        "지난 주제",
    ],
)
def test_other_words_are_no_days(question: str) -> None:
    assert parse_time_ranges(question, at=NOON) == []
