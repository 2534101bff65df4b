"""A user's usage by day, model and key."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import ApiKey, Compaction, Receipt, Turn
from chats.record.usage import GROUPS
from contextpolicy.models import EffectivePolicy
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code

Called = Callable[..., None]


@pytest.fixture
def policy(db: None) -> EffectivePolicy:
    """The effective policy of all calls."""
    return EffectivePolicy.objects.create(digest="d" * 64, values={}, sources={})


@pytest.fixture
def called(turn: Turn, policy: EffectivePolicy) -> Called:
    """Store one call of Alice's turn."""

    def store(at: datetime, *, model: str = "m", usage: Any = None, outcome: str = "ok") -> None:
        Receipt.objects.create(
            turn=turn,
            attempt=1,
            step=Receipt.objects.count() + 1,
            effective_policy=policy,
            model_name=model,
            segments=[],
            left_out=[],
            budget={},
            prompt_tokens=1,
            last_seq=1,
            outcome=outcome,
            usage=usage or {},
            created_at=at,
        )

    return store


@pytest.fixture
def folded(turn: Turn, policy: EffectivePolicy) -> Called:
    """Store one summary of Alice's chat that a model wrote."""

    def store(at: datetime, *, model: str = "m", cost: str | None = None, **fields: Any) -> None:
        Compaction.objects.create(
            branch=turn.branch,
            kind="summary",
            status="superseded",
            from_seq=1,
            to_seq=1,
            text="x",
            trigger="test",
            effective_policy=policy,
            cost=Decimal(cost) if cost else None,
            created_at=at,
            model_name=model,
            **{"usage": {"input": 1000, "output": 100}, **fields},
        )

    return store


def asked(program: Program, now: datetime, **query: str) -> list[dict[str, Any]]:
    """Return the usage of the previous month, without empty values."""
    until = query.pop("until", now.isoformat())
    answer = program.get("usage", until=until, **query)
    assert answer.status_code == 200, answer.content
    kept: list[dict[str, Any]] = answer.json()["data"]
    return [{name: value for name, value in row.items() if value} for row in kept]


def test_calls_and_summaries_are_added_up(
    of_alice: Program, of_charlie: Program, called: Called, folded: Called, now: datetime
) -> None:
    yesterday, before = now - timedelta(days=1), now - timedelta(minutes=1)
    called(yesterday, usage={"input": 10, "output": 2, "cached": 4})
    called(before, usage={"input": 20, "output": 3})
    called(before, model="n", outcome="lost")
    called(now - timedelta(days=31), usage={"input": 999})
    called(now, usage={"input": 999})
    folded(before, cost="0.25")
    folded(before, cost="0.5")
    folded(yesterday, model="n")
    nothing_known = {"summary_input_tokens": 1000, "summary_output_tokens": 100, "summaries": 1}
    both = {"summary_input_tokens": 2000, "summary_output_tokens": 200, "summaries": 2}
    price = {"summary_cost": "0.75000000"}
    free = {"summary_cost": "0.00000000"}
    first = {"calls": 1, "input_tokens": 10, "cached_tokens": 4, "output_tokens": 2}
    assert asked(of_alice, now) == [
        {"group": "2026-11-19", **first, **nothing_known},
        {
            "group": "2026-11-20",
            "calls": 2,
            "failed": 1,
            "input_tokens": 20,
            "output_tokens": 3,
            **both,
            **price,
        },
    ]
    tokens = {"input_tokens": 30, "cached_tokens": 4, "output_tokens": 5}
    assert asked(of_alice, now, by="model") == [
        {"group": "m", "calls": 2, **tokens, **both, **price},
        {"group": "n", "calls": 1, "failed": 1, **nothing_known},
    ]
    assert asked(of_alice, now, since=before.isoformat(), by="model") == [
        {"group": "m", "calls": 1, "input_tokens": 20, "output_tokens": 3, **both, **price},
        {"group": "n", "calls": 1, "failed": 1, **free},
    ]
    for by in GROUPS:
        assert asked(of_charlie, now, by=by) == []


@pytest.mark.parametrize("count", [2**64 - 1, 2**63 - 1, 10**9 + 1, -5, "many"], ids=str)
def test_impossible_counts_of_a_server_are_not_added_up(
    of_alice: Program, called: Called, now: datetime, count: Any
) -> None:
    for tokens in (count, count, 7):
        called(now - timedelta(minutes=1), usage={"input": tokens, "output": tokens, "cached": 1})
    for by in GROUPS:
        (row,) = asked(of_alice, now, by=by)
        assert (row["calls"], row["output_tokens"], row["cached_tokens"]) == (3, 7, 3)


def test_each_key_has_its_own(of_alice: Program, called: Called, turn: Turn, now: datetime) -> None:
    called(now - timedelta(minutes=1), usage={"input": 7})
    free = {"summary_cost": "0.00000000"}
    assert asked(of_alice, now, by="key") == [{"calls": 1, "input_tokens": 7, **free}]
    Turn.objects.filter(pk=turn.pk).update(api_key=ApiKey.objects.get())
    assert asked(of_alice, now, by="key") == [
        {"group": "a program", "calls": 1, "input_tokens": 7, **free}
    ]


@pytest.mark.parametrize(
    "query",
    [
        {"by": "person"},
        {"since": "yesterday"},
        {"since": "2026-11-21T00:00:00Z", "until": "2026-11-20T00:00:00Z"},
        {"since": "2025-11-01T00:00:00Z", "until": "2026-11-20T00:00:00Z"},
        {"chat": "x"},
    ],
)
def test_what_cannot_be_asked_is_refused(of_alice: Program, query: dict[str, str]) -> None:
    status, name = read_status_and_code(of_alice.get("usage", **query))
    assert (status, name) in {(400, "invalid_value"), (400, "unknown_field")}


def test_calls_without_reported_usage_are_counted_as_such(
    of_alice: Program, called: Called, folded: Called, now: datetime
) -> None:
    at = now - timedelta(hours=1)
    called(at, usage={"input": 30, "output": 4})
    called(at)
    called(at, outcome="stopped", usage={"input": 0, "output": 0})
    # A failed call reports no usage, an open one not yet.
    called(at, outcome="failed")
    called(at, outcome="open")
    folded(at, cost="0.5")
    folded(at, usage={}, calls=[{"from": 1}], summary_tokens=9)
    # The built-in extractor calls no model, and the other attempt produced no output.
    folded(at, usage={}, summary_tokens=9)
    folded(at, usage={}, calls=[{"from": 1}])

    (row,) = asked(of_alice, now, by="model")
    assert (row["calls"], row["unreported"], row["input_tokens"]) == (5, 2, 30)
    assert (row["summaries"], row["summaries_unreported"]) == (2, 1)
    assert "summary_cost" not in row


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"until": "0001-01-05T00:00:00Z"}, "until"),
        ({"until": "0001-01-01T00:00:00Z", "since": "0001-01-01T00:00:00Z"}, "since"),
        ({"since": "0001-01-01T00:00:00+14:00"}, "since"),
        ({"since": "9999-12-31T23:59:59-14:00"}, "since"),
    ],
)
def test_dates_at_the_ends_of_the_calendar_are_invalid(
    query: dict[str, str], param: str, of_alice: Program
) -> None:
    answer = of_alice.get("usage", **query)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", param)


def test_early_days_of_counts_are_invalid(of_alice: Program, alice: User) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True, is_superuser=True)
    of_alice.client.force_login(User.objects.get(pk=alice.pk))
    answer = of_alice.get("counts", until="0001-01-05")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "until")
    assert of_alice.get("counts", until="0001-01-05", since="0001-01-01").status_code == 200
