"""Cache breakpoints at the prefixes that later prompts share."""

from dataclasses import replace

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import AssembledContext, extract_shared_prefix
from contextpolicy.engine.messages.messages import ToolSpec
from contextpolicy.engine.messages.transcript import Background
from contextpolicy.engine.policy.fields.prompt import Layout
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import chat, message, step
from tests.support.full_prompts import SUMMARY, TOOLS, assemble, assemble_full_prompt

TODAY = Background(date="2026-11-20")


def ends(context: AssembledContext) -> list[str]:
    """The messages with a breakpoint after them."""
    return [context.messages[place - 1].content for place in context.cache_marks]


def test_marks_stand_behind_the_system_text_the_last_question_the_lead_and_the_end() -> None:
    assert ends(assemble(chat(4))) == ["Be brief.", "message 3", "message 4", "and now?"]


def test_a_first_question_has_the_system_text_and_itself() -> None:
    assert ends(assemble()) == ["Be brief.", "and now?"]
    assert ends(assemble(system=())) == ["and now?"]


def test_a_tail_changes_so_nothing_behind_it_is_marked_without_tools() -> None:
    plain = assemble(chat(4), background=TODAY)
    assert ends(plain) == ["Be brief.", "message 3", "message 4"]
    # With tools the next step has the same tail.
    with_tools = assemble(chat(4), background=TODAY, tools=TOOLS)
    assert ends(with_tools) == ["Be brief.", "message 3", "message 4", "and now?"]


def test_the_next_step_of_a_turn_begins_with_all_of_the_one_before() -> None:
    steps = (step(6, calls=2),)
    first = assemble(chat(4), tools=TOOLS, question=(message(5),), background=TODAY)
    second = assemble(chat(4), tools=TOOLS, question=(message(5),), steps=steps, background=TODAY)
    end = first.cache_marks[-1]
    assert end == len(first.messages)
    assert second.messages[:end] == first.messages
    assert second.cache_marks[-1] == len(second.messages)


def test_a_summary_alone_ends_the_lead() -> None:
    summary = replace(SUMMARY, exceptions=())
    context = assemble(summary=summary, question=(message(7),), last_seq=7)
    assert len(context.cache_marks) == 3
    assert "Ann lives in Oslo" in ends(context)[1]


@pytest.mark.parametrize("layout", ["A", "B", "C"])
def test_one_text_is_another_one_each_time(layout: Layout) -> None:
    values = PolicyValues(strategy="sliding_window", layout=layout)
    context = assemble(chat(4), values=values, background=TODAY)
    assert len(context.cache_marks) <= 2
    assert all(place < len(context.messages) for place in context.cache_marks)


def test_what_is_read_ahead_needs_no_marks() -> None:
    prefix = extract_shared_prefix(assemble_full_prompt())
    assert prefix is not None
    assert prefix.cache_marks == ()


@examples(
    count=st.integers(0, 12),
    has_tail=st.booleans(),
    tools=st.sampled_from([(), TOOLS]),
    strict=st.booleans(),
    system=st.sampled_from([(), (("policy", "Be brief."),)]),
)
def test_there_are_at_most_four_ascending_and_the_next_prompt_has_each_before_its_tail(
    count: int,
    has_tail: bool,
    tools: tuple[ToolSpec, ...],
    strict: bool,
    system: tuple[tuple[str, str], ...],
) -> None:
    facts = {
        "background": TODAY if has_tail else Background(),
        "tools": tools,
        "strict_roles": strict,
        "system": system,
    }
    now = assemble(chat(count * 2), **facts)
    marks = now.cache_marks
    assert len(marks) <= 4
    assert list(marks) == sorted(set(marks))
    assert all(0 < place <= len(now.messages) for place in marks)
    later = assemble(chat(count * 2 + 2, lambda n: text_at(n, count * 2)), **facts)
    kept = [place for place in marks if place <= now.prefix[0] or not has_tail]
    assert all(later.messages[:place] == now.messages[:place] for place in kept)


def text_at(seq: int, before: int) -> str:
    """The text of a message; for the question of `given`, the question's text."""
    return "and now?" if seq == before + 1 else f"message {seq}"
