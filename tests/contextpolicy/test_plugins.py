"""Strategies of packages: an installed one composes a prompt; broken ones do no harm."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from contextpolicy import packages, plugins
from contextpolicy.engine.compose.assembly import AssembledContext, compose_context
from contextpolicy.engine.messages.messages import ToolSpec
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.contract import call_turn_hook
from contextpolicy.engine.window import WindowChoice
from tests.engine.engine_builders import chat, given, left

TOOLS = (ToolSpec("look_up", "Looks things up.", {"type": "object"}),)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Fake entry points of packages."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    plugins.load_strategy_plugins.cache_clear()
    yield points
    plugins.load_strategy_plugins.cache_clear()


def under(strategy: str, **facts: Any) -> AssembledContext:
    values = PolicyValues(strategy=strategy, strategy_config=facts.pop("config", {}))
    made = compose_context(
        given(chat(10), values=values, strategy=plugins.find_strategy(strategy), **facts)
    )
    assert isinstance(made, AssembledContext)
    return made


@pytest.mark.requirement("S2.6")
@pytest.mark.usefixtures("is_installed")
def test_an_installed_package_adds_its_strategies() -> None:
    assert plugins.list_strategy_names() == (
        "simple",
        "sliding_window",
        "dynamic_summary",
        "entity_state",
        "newest_pair",
        "questions_only",
    )
    assert (
        plugins.load_strategy_plugins().found["questions_only"].package
        == "example-strategies 1.2.0"
    )
    assert plugins.load_strategy_plugins().faults == {}


@pytest.mark.requirement("S2.6")
@pytest.mark.usefixtures("is_installed")
def test_its_strategy_and_config_govern_a_prompt() -> None:
    context = under("questions_only", config={"count": 2})
    assert [s.seq for s in context.segments if s.origin == "history"] == [7, 9]
    assert context.adjusted == ()
    assert left(context)[0] == (1, 6, "no_question")


@pytest.mark.requirement("S2.1")
@pytest.mark.usefixtures("is_installed")
def test_a_composing_strategy_gets_system_history_tools_and_gives_a_payload() -> None:
    context = under("newest_pair", tools=TOOLS)
    assert [s.seq for s in context.segments if s.origin == "history"] == [9, 10]
    assert context.messages[0].content == "Be brief."
    assert context.tools == TOOLS
    assert context.adjusted == ()


@pytest.mark.requirement("S2.1")
@pytest.mark.usefixtures("is_installed")
def test_a_strategy_hears_of_complete_turns() -> None:
    strategy: Any = plugins.find_strategy("newest_pair")
    assert call_turn_hook(strategy, history=chat(2)) == ""
    assert strategy.inner.turns == 1


@pytest.mark.requirement("S2.6")
@pytest.mark.usefixtures("is_installed")
def test_a_config_is_checked_by_the_strategys_own_schema() -> None:
    assert plugins.find_strategy_problems("questions_only", {"count": 5}) == []
    assert plugins.get_config_schema("questions_only")["title"] == "Questions only"
    found = plugins.find_strategy_problems("questions_only", {"count": 0, "colour": "red"})
    assert [problem.code for problem in found] == ["config_invalid", "config_invalid"]
    assert found[0].sentence == (
        "The config of questions_only is invalid: 'count' of the value must be at least 1."
    )
    assert [problem.fields for problem in found] == [("strategy_config",)] * 2


@pytest.mark.requirement("S2.6")
def test_strategies_that_ship_take_no_config() -> None:
    assert plugins.find_strategy_problems("simple", {}) == []
    assert plugins.find_strategy_problems("simple", {"a": 1})[0].code == "config_invalid"


@pytest.mark.requirement("S2.6")
def test_a_missing_plugin_is_a_clear_error_at_save_time_and_a_fallback_at_run_time() -> None:
    (problem,) = plugins.find_strategy_problems("questions_only", {})
    assert (problem.code, problem.fields) == ("unknown_strategy", ("strategy",))
    assert problem.sentence.startswith(
        "The strategy 'questions_only' does not exist. Choose one of"
    )
    context = under("questions_only")
    assert [s.seq for s in context.segments if s.origin == "history"] == list(range(1, 11))
    assert context.adjusted == ("strategy",)
    assert "strategy:missing" in context.notes


class Nameless:
    """Its name differs from its entry point."""

    name = "other"

    def choose(self, view: object) -> WindowChoice:
        raise NotImplementedError


class Useless:
    """Neither chooses nor composes."""

    name = "useless"


class Unchecked(Nameless):
    """Needs a config that cannot be validated."""

    name = "unchecked"
    config_schema: ClassVar[dict[str, object]] = {"type": "object", "patternProperties": {}}


class Failing(Nameless):
    """Its constructor fails."""

    name = "failing"

    def __init__(self) -> None:
        raise RuntimeError("secret")


class Good(Nameless):
    """A valid strategy."""

    name = "good"


made_already = Good()


@pytest.mark.requirement("S2.6")
@pytest.mark.parametrize(
    ("name", "target", "why"),
    [
        ("simple", "Good", plugins.NAME_TAKEN),
        ("nameless", "Nameless", packages.OTHER_NAME),
        ("useless", "Useless", plugins.NO_METHOD),
        ("unchecked", "Unchecked", "config_schema"),
        ("failing", "Failing", "cannot be used: RuntimeError."),
        ("gone", "Gone", "cannot be used: AttributeError."),
    ],
    ids=lambda value: value.split()[0],
)
def test_a_broken_plugin_is_named_and_harms_nobody(
    name: str, target: str, why: str, offered: list[EntryPoint]
) -> None:
    offered.append(EntryPoint(name, f"{__name__}:{target}", plugins.GROUP))
    offered.append(EntryPoint("good", f"{__name__}:made_already", plugins.GROUP))
    assert why in plugins.load_strategy_plugins().faults[name]
    assert "secret" not in plugins.load_strategy_plugins().faults[name]
    assert plugins.find_strategy("good") is made_already
    if name != "simple":
        assert why in plugins.find_strategy_problems(name, {})[0].sentence


@pytest.mark.requirement("S2.6")
def test_of_two_plugins_with_one_name_the_second_is_refused(offered: list[EntryPoint]) -> None:
    offered.append(EntryPoint("good", f"{__name__}:Good", plugins.GROUP))
    offered.append(EntryPoint("good", f"{__name__}:made_already", plugins.GROUP))
    assert packages.OFFERED_TWICE in plugins.load_strategy_plugins().faults["good"]
    assert isinstance(plugins.find_strategy("good"), Good)


@pytest.mark.requirement("S2.4")
@pytest.mark.requirement("S2.6")
@pytest.mark.parametrize(
    ("form", "fields"),
    [
        (
            {
                "id": "my-complex-agent",
                "contextStrategy": {
                    "type": "plugin",
                    "pluginId": "std-summarization-strategy",
                    "config": {"compressionModel": "gemini-1.5-flash", "threshold": 20},
                },
            },
            {
                "strategy": "dynamic_summary",
                "summarization_model": "gemini-1.5-flash",
                "turn_threshold": 20,
            },
        ),
        ({"type": "plugin", "pluginId": "simple"}, {"strategy": "simple"}),
        (
            {"type": "plugin", "pluginId": "entity_state", "config": {"schema": {"a": 1}}},
            {"strategy": "entity_state", "state_schema": {"a": 1}},
        ),
    ],
    ids=["summary", "simple", "state"],
)
def test_the_import_form_names_policy_fields(form: object, fields: dict[str, object]) -> None:
    assert plugins.parse_imported_strategy(form) == fields


@pytest.mark.requirement("S2.6")
@pytest.mark.usefixtures("is_installed")
def test_the_import_form_keeps_the_config_of_a_plugin_whole() -> None:
    form = {"type": "plugin", "pluginId": "questions_only", "config": {"count": 2}}
    assert plugins.parse_imported_strategy(form) == {
        "strategy": "questions_only",
        "strategy_config": {"count": 2},
    }


@pytest.mark.requirement("S2.6")
@pytest.mark.parametrize(
    ("form", "reason", "named"),
    [
        (None, "wrong_form", "pluginId"),
        ({"contextStrategy": "x"}, "wrong_form", "pluginId"),
        ({"type": "builtin"}, "wrong_form", "pluginId"),
        ({"type": "plugin", "pluginId": 5}, "wrong_types", "pluginId"),
        ({"type": "plugin", "pluginId": "simple", "config": []}, "wrong_types", "config"),
        ({"type": "plugin", "pluginId": "unheard-of"}, "unknown_strategy", "'unheard-of'"),
        ({"type": "plugin", "pluginId": "simple", "config": {"mood": 1}}, "wrong_keys", "'mood'"),
        (
            {"type": "plugin", "pluginId": "simple", "config": {"strategy": "x"}},
            "wrong_keys",
            "'strategy'",
        ),
    ],
    ids=range(8),
)
def test_another_import_form_is_refused_by_name(form: object, reason: str, named: str) -> None:
    with pytest.raises(plugins.MalformedImport, match=named) as refusal:
        plugins.parse_imported_strategy(form)
    assert refusal.value.reason == reason
    assert refusal.value.code == "malformed_strategy_import"
