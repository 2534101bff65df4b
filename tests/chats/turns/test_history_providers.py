"""History providers of packages: the documented example, and broken ones."""

import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.checks import run_checks

from chats.admin.policies.line_formats import BUILT_IN
from chats.models import Message, Receipt
from chats.prompt.reconstruction import rebuild_request
from contextpolicy import history_providers, plugins
from contextpolicy.history_providers import HistoryQuery
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.roles import POLICY_ADMIN
from tests.contextpolicy.people import person, signed_in
from tests.support.model_requests import Ask, list_sent_messages

pytestmark = [pytest.mark.requirement("S0.2"), pytest.mark.usefixtures("built_again")]
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "history_provider"


class Changing:
    """A provider that changes a message."""

    name = "changing"

    def get_history(self, query: HistoryQuery) -> list[Any]:
        return [replace(message, parts=()) for message in query.newest()][::-1]


class Shuffling(Changing):
    """A provider that returns the newest message first."""

    name = "shuffling"

    def get_history(self, query: HistoryQuery) -> list[Any]:
        return list(query.newest())


class Failing(Changing):
    """A provider that raises an error."""

    name = "failing"

    def get_history(self, query: HistoryQuery) -> list[Any]:
        raise OSError("no disk")


class Nothing:
    """A class without the provider interface."""

    name = "nothing"


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """The entry points of the installed packages. Starts with those of the example."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    group = project["entry-points"][history_providers.GROUP]
    points = [EntryPoint(name, value, history_providers.GROUP) for name, value in group.items()]
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    monkeypatch.setattr(history_providers, "entry_points", lambda group: points)
    history_providers.load_history_providers.cache_clear()
    yield points
    history_providers.load_history_providers.cache_clear()


def write_on(day: datetime, *, first: int, last: int = 100) -> None:
    """Move messages to a given day, because the worker uses the real time."""
    Message.objects.filter(seq__gte=first, seq__lte=last).update(created_at=day)


def own(name: str, kind: type) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{kind.__name__}", history_providers.GROUP)


@pytest.mark.parametrize("strategy", ["simple", "sliding_window", "dynamic_summary"])
def test_the_example_sends_messages_of_one_day_only(
    offered: list[EntryPoint],
    govern: Callable[..., None],
    ask: Ask,
    now: datetime,
    strategy: str,
) -> None:
    govern(strategy=strategy, history_provider="same_day")
    for number in (1, 2):
        ask(f"Q{number}", f"A{number}")
    write_on(now, first=3)
    write_on(now - timedelta(days=1), first=1, last=2)

    assert [content for _, content in list_sent_messages(ask("Q3"))] == ["Q2", "A2", "Q3"]
    receipt = Receipt.objects.order_by("-last_seq")[0]
    assert receipt.left_out == [[1, 2, "history_provider"]]
    assert receipt.notes == []
    assert rebuild_request(receipt).fault == ""


def test_a_pinned_message_is_sent_although_the_provider_leaves_it_out(
    offered: list[EntryPoint], govern: Callable[..., None], ask: Ask, now: datetime
) -> None:
    govern(strategy="sliding_window", history_provider="same_day")
    for number in (1, 2):
        ask(f"Q{number}", f"A{number}")
    write_on(now, first=3)
    write_on(now - timedelta(days=1), first=1, last=2)
    Message.objects.filter(seq=1).update(pinned_at=now)
    assert "Q1" in list_sent_messages(ask("Q3"))[0][1]
    receipt = Receipt.objects.order_by("-last_seq")[0]
    assert receipt.left_out == [[2, 2, "history_provider"]]


def test_the_newest_messages_that_fit_are_kept_of_a_long_answer(
    offered: list[EntryPoint], govern: Callable[..., None], ask: Ask, now: datetime
) -> None:
    govern(strategy="simple", window_size=2, history_provider="same_day")
    for number in (1, 2, 3):
        ask(f"Q{number}", f"A{number}")
    write_on(now, first=1)
    assert [content for _, content in list_sent_messages(ask("Q4"))] == ["Q3", "A3", "Q4"]
    assert Receipt.objects.order_by("-last_seq")[0].left_out == [[1, 4, "window"]]


@pytest.mark.parametrize(
    ("name", "kind", "note"),
    [
        ("changing", Changing, "history_provider:failed"),
        ("shuffling", Shuffling, "history_provider:failed"),
        ("failing", Failing, "history_provider:failed"),
        ("gone", None, "history_provider:missing"),
    ],
)
def test_a_provider_that_fails_is_replaced_and_the_receipt_says_so(
    offered: list[EntryPoint],
    govern: Callable[..., None],
    ask: Ask,
    name: str,
    kind: type | None,
    note: str,
) -> None:
    offered += [own(name, kind)] if kind else []
    govern(strategy="sliding_window", history_provider=name)
    ask("Q1", "A1")
    assert [content for _, content in list_sent_messages(ask("Q2"))] == ["Q1", "A1", "Q2"]
    assert note in Receipt.objects.order_by("-last_seq")[0].notes


def test_a_package_that_cannot_be_used_is_named_at_start_and_when_a_policy_is_saved(
    offered: list[EntryPoint],
) -> None:
    offered += [own("nothing", Nothing), own("renamed", Failing), own("nowhere", Nothing)]
    offered[-1] = EntryPoint("nowhere", "no_such_module:Nothing", history_providers.GROUP)
    history_providers.load_history_providers.cache_clear()
    warnings = [message.msg for message in run_checks() if message.id == "palimpsest.W009"]
    assert warnings == [
        "The history provider 'nothing' cannot be used: it has no get_history method.",
        "The history provider 'nowhere' cannot be used: ModuleNotFoundError.",
        "The history provider 'renamed' cannot be used: its name differs from that of its"
        " entry point.",
    ]
    (problem,) = find_policy_errors({"history_provider": "nothing"})
    assert problem.code == "unknown_history_provider"
    assert "no get_history" in problem.sentence
    assert "choose an installed provider: same_day" in problem.sentence
    assert find_policy_errors({"history_provider": "same_day"}) == []
    assert find_policy_errors({"history_provider": ""}) == []


def test_a_strategy_and_a_provider_with_the_same_name_are_both_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strategies = SimpleNamespace(faults={"both": "strategy"})
    providers = SimpleNamespace(faults={"both": "provider"})
    monkeypatch.setattr(plugins, "load_strategy_plugins", lambda: strategies)
    monkeypatch.setattr(history_providers, "load_history_providers", lambda: providers)
    warnings = [one.msg for one in run_checks() if one.id == "palimpsest.W009"]
    assert warnings == ["strategy", "provider"]


def test_the_policy_form_offers_it(offered: list[EntryPoint], db: None) -> None:
    admin = signed_in(person("paula", POLICY_ADMIN))
    answer = admin.get("/admin/contextpolicy/contextpolicy/add/")
    assert 'value="same_day"' in answer.content.decode()
    choices = answer.context["adminform"].form.fields["history_provider"].choices
    assert {BUILT_IN, "same_day"} <= {key for key, _ in choices}
