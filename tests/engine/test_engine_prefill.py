"""The beginning of a reply: the last message of the prompt, within its limits."""

from typing import Any

import pytest

from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.policy.budget import QuestionTooLarge
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import chat, composed, given, step


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B"])
def test_it_follows_the_steps(layout: Any) -> None:
    values = PolicyValues(strategy="sliding_window", layout=layout)
    facts = given(chat(2), values=values, steps=(step(4),), prefill="It is")
    context = composed(facts)
    assert context.messages[-1] == WireMessage("assistant", "It is")
    assert context.segments[-1].origin == "prefill"
    assert context.texts[context.segments[-1].text_ref] == "It is"
    assert sum(segment.tokens for segment in context.segments) == context.prompt_tokens


def test_it_counts_as_a_part_of_the_question() -> None:
    values = PolicyValues(strategy="sliding_window", token_budget=1_000, reserve_tokens=100)
    with pytest.raises(QuestionTooLarge):
        composed(given((), values=values, prefill="word " * 2_000))
