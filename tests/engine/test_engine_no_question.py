"""A question without parts: a client sent only a system text, so the prompt has no user message."""

from dataclasses import replace
from typing import Any

import pytest

from contextpolicy.engine.compose.assembly import AssembledContext, compose_context
from contextpolicy.engine.compose.layouts import OPENING
from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.messages.transcript import Background
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import accounted, given, message

SYSTEM = (("chat", "Write a poem."),)


def made(layout: Any, **facts: Any) -> AssembledContext:
    asked = replace(message(1, parts=()), day="2023-05-08")
    values = PolicyValues(strategy="sliding_window", layout=layout)
    context = compose_context(given((), values=values, question=(asked,), system=SYSTEM, **facts))
    assert isinstance(context, AssembledContext)
    # The receipt still names the message.
    assert accounted(context) == [1]
    assert sum(s.tokens for s in context.segments) == context.prompt_tokens
    return context


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B", "C"])
def test_only_the_system_text_is_sent(layout: str) -> None:
    assert made(layout).messages == (WireMessage("system", "Write a poem."),)


@pytest.mark.parametrize("layout", ["A", "B", "C"])
def test_a_text_layout_sends_other_sections_without_a_question_prefix(layout: str) -> None:
    context = made(layout, background=Background(preferences="tea"))
    assert [wire.role for wire in context.messages] == ["system", "user"]
    assert context.messages[-1].content.endswith("tea")


@pytest.mark.parametrize("layout", ["multi_turn", "A"])
def test_a_strict_provider_gets_a_user_message(layout: str) -> None:
    context = made(layout, strict_roles=True)
    assert [wire.content for wire in context.messages] == ["Write a poem.", OPENING]
    assert context.notes == ("opening_added",)
