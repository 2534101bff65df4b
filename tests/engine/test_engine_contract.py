"""The strategy contract: whatever a strategy does, the prompt is valid and complete."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from contextpolicy.engine.compose.assembly import AssembledContext, compose_context
from contextpolicy.engine.messages.messages import Message, ToolSpec
from contextpolicy.engine.messages.transcript import Background, TextEntry
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.contract import (
    Composing,
    Payload,
    call_turn_hook,
    has_turn_hook,
)
from contextpolicy.engine.window import HistoryView, WindowChoice, WindowMove
from tests.engine.engine_builders import chat, given, message

TOOLS = (ToolSpec("look_up", "Looks things up.", {"type": "object", "properties": {}}),)


class Choosing:
    """A strategy with a scripted choice."""

    name = "any"

    def __init__(self, choose: Callable[[HistoryView], Any]) -> None:
        self.choose = choose


class Payer:
    """A composing strategy with a scripted payload."""

    name = "payer"

    def __init__(self, pay: Callable[..., Payload]) -> None:
        self.pay = pay
        self.heard: list[Any] = []

    def compose(
        self, system_prompt: str, history: Any, tools: Any, retrieved: str = "", **more: Any
    ) -> Payload:
        self.heard.append((system_prompt, retrieved, more))
        return self.pay(system_prompt, history, tools)

    def on_turn_complete(self, history: Any) -> None:
        raise RuntimeError("no matter")


def assembled(strategy: Any, **facts: Any) -> AssembledContext:
    values = PolicyValues(strategy="any", strategy_config={"a": 1})
    made = compose_context(given(chat(6), values=values, tools=TOOLS, strategy=strategy, **facts))
    assert isinstance(made, AssembledContext)
    return made


def everything(context: AssembledContext) -> list[int]:
    return [s.seq for s in context.segments if s.origin == "history"]


def break_tools(view: HistoryView) -> WindowChoice:
    view.tools[0].parameters["properties"] = {"evil": {}}  # type: ignore[index]  # what a plugin might do
    return WindowChoice(tuple(range(len(view.entries))))


def fail(view: HistoryView) -> WindowChoice:
    raise ZeroDivisionError


@pytest.mark.requirement("S2.1")
@pytest.mark.parametrize(
    ("choose", "why"),
    [
        (break_tools, "changed_tools"),
        (fail, "failed:ZeroDivisionError"),
        (lambda view: None, "failed:AttributeError"),
        (lambda view: WindowChoice((0,)), "unsound"),
        (lambda view: WindowChoice((1, 0, 2, 3, 4, 5)), "unsound"),
        (lambda view: WindowMove(0, 0, 0, "tokens"), "unsound"),
    ],
    ids=["tools", "raises", "nothing", "incomplete", "unordered", "empty_move"],
)
def test_a_strategy_that_breaks_the_contract_falls_back_and_the_prompt_is_what_it_was(
    choose: Callable[[HistoryView], Any], why: str
) -> None:
    context = assembled(Choosing(choose))
    assert everything(context) == [1, 2, 3, 4, 5, 6]
    assert context.messages[0].content == "Be brief."
    assert context.tools[0].parameters == {"type": "object", "properties": {}}
    assert context.adjusted == ("strategy",)
    assert context.notes == (f"strategy:{why}",)


@pytest.mark.requirement("S2.6")
def test_a_strategy_that_is_not_there_falls_back() -> None:
    context = assembled(None)
    assert everything(context) == [1, 2, 3, 4, 5, 6]
    assert context.notes == ("strategy:missing",)


@pytest.mark.requirement("S2.1")
def test_a_composing_strategy_hears_everything_and_its_payload_is_obeyed() -> None:
    payer = Payer(lambda system, history, tools: Payload(system, tools, history[-2:]))
    references = (TextEntry("user", "my cat likes fish"),)
    context = assembled(Composing(payer), background=Background(references=references))
    assert everything(context) == [5, 6]
    assert context.adjusted == ()
    ((system, retrieved, more),) = payer.heard
    assert (system, retrieved, more["config"]) == ("Be brief.", "my cat likes fish", {"a": 1})
    assert more["room"] > 1_000


def stranger() -> tuple[Message, ...]:
    return (replace(message(3), id="stranger"),)


@pytest.mark.requirement("S2.1")
@pytest.mark.parametrize(
    "pay",
    [
        lambda system, history, tools: Payload(f"{system} Obey.", tools, history),
        lambda system, history, tools: Payload(system, (), history),
        lambda system, history, tools: Payload(system, tools, stranger()),
    ],
    ids=["system", "tools", "stranger"],
)
def test_a_payload_with_another_system_text_or_other_tools_is_refused(
    pay: Callable[..., Payload],
) -> None:
    context = assembled(Composing(Payer(pay)))
    assert context.notes == ("strategy:failed:PayloadRefused",)
    assert everything(context) == [1, 2, 3, 4, 5, 6]
    assert context.messages[0].content == "Be brief."


@pytest.mark.requirement("S2.1")
def test_what_fails_after_a_turn_touches_nothing() -> None:
    def pay(*_: Any) -> Payload:
        raise NotImplementedError

    assert call_turn_hook(Composing(Payer(pay)), history=chat(2)) == "RuntimeError"
    assert call_turn_hook(Choosing(fail), history=chat(2)) == ""


@pytest.mark.requirement("S2.1")
def test_a_strategy_that_wants_to_is_told_of_each_complete_turn() -> None:
    told: list[Any] = []
    strategy = Choosing(fail)
    assert not has_turn_hook(strategy)
    strategy.on_turn_complete = told.append  # type: ignore[attr-defined]  # an optional hook
    assert has_turn_hook(strategy)
    assert call_turn_hook(strategy, history=chat(2)) == ""
    assert told == [chat(2)]
