"""The config form of a package's strategy is generated from its schema."""

import json
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from contextpolicy import plugins
from contextpolicy.imports import export_policy, import_strategy
from contextpolicy.models import ContextPolicy
from contextpolicy.presets import RETRIEVED
from contextpolicy.publish import create_policy
from contextpolicy.roles import POLICY_ADMIN
from tests.contextpolicy.pages import Page, opened, submitted
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db

ADD = "/admin/contextpolicy/contextpolicy/add/"
COUNT = "config__questions_only__count"


@pytest.fixture
def browser(db: None) -> Client:
    """The browser of Ines, who administers policies."""
    return signed_in(person("ines", POLICY_ADMIN))


def values_of(policy: ContextPolicy | str) -> dict[str, Any]:
    slug = policy if isinstance(policy, str) else policy.slug
    version = ContextPolicy.objects.select_related("current").get(slug=slug).current
    assert version is not None
    values: dict[str, Any] = version.values
    return values


def page_of(slug: str) -> str:
    policy = ContextPolicy.objects.get(slug=slug)
    return reverse("admin:contextpolicy_contextpolicy_change", args=[policy.pk])


@pytest.mark.requirement("S2.6", by="admin")
@pytest.mark.usefixtures("is_installed")
class TestAnInstalledPackage:
    def test_its_config_is_a_group_of_the_form(self, browser: Client) -> None:
        html = browser.get(ADD).content.decode()
        page = Page(html)

        assert "questions_only (example-strategies 1.2.0)" in page.words
        assert "Config of questions_only" in page.words
        assert "Questions Default: 3." in page.words
        assert f'name="{COUNT}" min="1" max="50"' in html
        assert 'value="questions_only"' in html
        assert "Config of newest_pair" not in page.words
        assert page.inline == []

    def test_strategy_and_config_are_stored_as_one_choice(self, browser: Client) -> None:
        new = {"name": "Q", "slug": "q", "strategy": "questions_only", COUNT: "5"}

        assert submitted(browser, ADD, **new).status_code == 302
        chosen = {"strategy": "questions_only", "strategy_config": {"count": 5}}
        assert values_of("q") == {**RETRIEVED, **chosen}
        assert opened(browser, page_of("q")).fields[COUNT] == ["5"]

        submitted(browser, page_of("q"), strategy="simple")
        assert values_of("q") == {**RETRIEVED, "strategy": "simple"}

    def test_the_strategys_own_schema_judges_it(self, browser: Client) -> None:
        new = {"name": "Q", "slug": "q", "strategy": "questions_only", COUNT: "0"}

        answer = submitted(browser, ADD, **new)

        assert answer.status_code == 200
        (error,) = answer.context["adminform"].form.errors[COUNT]
        assert error == (
            "The config of questions_only is invalid: 'count' of the value must be at least 1."
        )

    def test_the_config_of_another_strategy_does_not_count(self, browser: Client) -> None:
        submitted(browser, ADD, name="Q", slug="q", strategy="simple", **{COUNT: "5"})

        assert values_of("q") == {**RETRIEVED, "strategy": "simple"}


def test_a_strategy_whose_package_is_gone_is_not_dropped(
    browser: Client, now: datetime, is_installed: None
) -> None:
    values = {"strategy": "questions_only", "strategy_config": {"count": 2}}
    create_policy(slug="q", name="Q", values=values, actor="system", now=now)
    plugins.load_strategy_plugins.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "entry_points", lambda group: [])
        page = opened(browser, page_of("q"))
        answer = submitted(browser, page_of("q"), fold_turns="3")

        assert "questions_only (not installed)" in page.words
        errors = answer.context["adminform"].form.errors.as_data()
        assert [each.code for each in errors["strategy"]] == ["unknown_strategy"]
        assert "questions_only" in str(errors["strategy"])
    assert values_of("q") == values


class Everything:
    """Has a config with every kind of value."""

    name = "everything"
    config_schema: ClassVar[dict[str, object]] = {
        "type": "object",
        "properties": {
            "mood": {"enum": ["calm", 3], "description": "How it feels."},
            "strict": {"type": "boolean", "default": True},
            "share": {"type": "number", "maximum": 1},
            "title": {"type": "string"},
            "words": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object"},
        },
    }

    def choose(self, view: object) -> None:
        """Not called in these tests."""


class Anything:
    """Has a config without properties."""

    name = "anything"
    config_schema: ClassVar[dict[str, object]] = {"type": "object"}

    def choose(self, view: object) -> None:
        """Not called in these tests."""


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two strategies without a package."""
    points = [
        EntryPoint("everything", f"{__name__}:Everything", plugins.GROUP),
        EntryPoint("anything", f"{__name__}:Anything", plugins.GROUP),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    plugins.load_strategy_plugins.cache_clear()
    yield
    plugins.load_strategy_plugins.cache_clear()


@pytest.mark.usefixtures("offered")
def test_each_kind_of_property_makes_the_round_trip(browser: Client) -> None:
    config = {
        "mood": 3,
        "strict": False,
        "share": 0.25,
        "title": " A: ",
        "words": ["one", "two three"],
        "map": {"a": [1, None]},
    }
    typed = {
        "mood": "3",
        "strict": "no",
        "share": "0.25",
        "title": " A: ",
        "words": "one\r\ntwo three\r\n",
        "map": '{"a": [1, null]}',
    }
    named = {f"config__everything__{key}": value for key, value in typed.items()}

    submitted(browser, ADD, name="E", slug="e", strategy="everything", **named)
    assert values_of("e")["strategy_config"] == config

    submitted(browser, page_of("e"), fold_turns="3")
    assert values_of("e")["strategy_config"] == config
    assert "How it feels." in opened(browser, page_of("e")).words


@pytest.mark.usefixtures("offered")
def test_what_no_field_shows_stays_in_the_config(browser: Client, now: datetime) -> None:
    config = {"unheard": [1], "title": "A"}
    values = {"strategy": "everything", "strategy_config": config}
    create_policy(slug="e", name="E", values=values, actor="system", now=now)

    submitted(browser, page_of("e"), config__everything__title="B")

    assert values_of("e")["strategy_config"] == {"unheard": [1], "title": "B"}


@pytest.mark.usefixtures("offered")
def test_a_schema_without_properties_is_one_field(browser: Client) -> None:
    whole = "config__anything__whole"

    submitted(browser, ADD, name="A", slug="a", strategy="anything", **{whole: '{"x": [1]}'})
    assert values_of("a")["strategy_config"] == {"x": [1]}

    refused = submitted(browser, page_of("a"), **{whole: "[1]"})
    assert whole in refused.context["adminform"].form.errors


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (r'{"x": "\u0000"}', "not_storable"),
        (r'{"x": "\ud800"}', "not_storable"),
        (r'{"\udc00": 1}', "not_storable"),
        ('{"x": NaN}', "not_storable"),
        ('{"x": 1e999}', "not_storable"),
        ('{"x": %s}' % ("[" * 29 + "]" * 29), "too_deep"),
        ('{"x": %s}' % ("[" * 300 + "]" * 300), "too_deep"),
        ("[" * 2_000, "invalid"),
    ],
    ids=range(8),
)
def test_json_that_cannot_be_stored_is_refused_in_its_field(
    text: str, code: str, browser: Client
) -> None:
    whole = "config__anything__whole"
    refused = submitted(browser, ADD, name="A", slug="a", strategy="anything", **{whole: text})
    errors = refused.context["adminform"].form.errors.as_data()
    assert [error.code for error in errors[whole]] == [code]
    assert not ContextPolicy.objects.filter(slug="a").exists()
    assert text in refused.content.decode().replace("&quot;", '"')


@pytest.mark.usefixtures("offered")
def test_a_config_with_the_most_levels_can_be_exported_and_imported(browser: Client) -> None:
    config = '{"x": %s}' % ("[" * 28 + "]" * 28)
    submitted(browser, ADD, name="A", slug="a", strategy="anything", config__anything__whole=config)
    exported = export_policy(ContextPolicy.objects.get(slug="a"), with_skills=True)
    made = import_strategy(
        text=json.dumps({**exported, "slug": "b"}), actor="system", now=timezone.now(), name="B"
    )
    assert values_of(made) == values_of("a")


def test_strategies_that_ship_have_no_config_group(browser: Client, alice: User) -> None:
    assert "Config of" not in opened(browser, ADD).words
