"""The prefix shared with the next prompt: everything before the tail and the question."""

import pytest

from contextpolicy.engine.compose.assembly import extract_shared_prefix
from contextpolicy.engine.compose.partition import check_partition
from contextpolicy.engine.messages.transcript import Background
from contextpolicy.engine.policy.fields.prompt import Layout
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import chat, message
from tests.support.full_prompts import SUMMARY, TOOLS, assemble, assemble_full_prompt


def test_the_lead_ends_before_the_tail_and_accounts_for_itself() -> None:
    whole = assemble_full_prompt()
    prefix = extract_shared_prefix(whole)
    assert prefix is not None
    assert prefix.messages == whole.messages[: len(prefix.messages)]
    left_out = [s.origin for s in whole.segments[len(prefix.segments) :]]
    assert left_out == ["tail", "question"]
    assert prefix.tools == whole.tools
    assert prefix.prompt_tokens == sum(s.tokens for s in prefix.segments) == prefix.budget.used
    assert (prefix.budget.tail, prefix.budget.question) == (0, 0)
    assert prefix.budget.history == whole.budget.history
    assert set(prefix.texts) == {s.text_ref for s in prefix.segments if s.text_ref}
    sent = [s.seq for s in prefix.segments if s.seq]
    check_partition(last_seq=12, sent=sent, left_out=prefix.left_out)


def test_another_question_and_another_day_begin_alike() -> None:
    short = extract_shared_prefix(assemble_full_prompt())
    assert short is not None
    other = assemble(
        chat(12)[6:],
        summary=SUMMARY,
        pins=(message(3, "pin me", pinned=True),),
        tools=TOOLS,
        question=(message(13, "something else entirely"),),
        background=Background(date="2027-01-01", preferences="tea"),
    )
    assert other.messages[: len(short.messages)] == short.messages


def test_for_a_strict_provider_what_was_joined_to_the_question_is_not_in_it() -> None:
    history = (*chat(2), message(3, "nobody answered this"))
    whole = assemble(
        history, strict_roles=True, question=(message(4, "and this?", role="user"),), last_seq=4
    )
    prefix = extract_shared_prefix(whole)
    assert prefix is not None
    assert [s.seq for s in prefix.segments if s.seq] == [1, 2]
    assert prefix.messages == whole.messages[:-1]


def test_a_history_that_is_one_text_of_its_own_is_a_lead() -> None:
    values = PolicyValues(strategy="sliding_window", layout="B")
    prefix = extract_shared_prefix(assemble(chat(6), values=values))
    other = (message(7, "something else", role="user"),)
    assert prefix is not None
    assert assemble(chat(6), values=values, question=other).messages[:-1] == prefix.messages


@pytest.mark.parametrize("layout", ["A", "C"])
def test_a_layout_of_one_text_has_no_lead(layout: Layout) -> None:
    values = PolicyValues(strategy="sliding_window", layout=layout)
    assert extract_shared_prefix(assemble(chat(6), values=values)) is None


def test_a_prompt_in_which_nothing_was_said_has_no_lead() -> None:
    assert extract_shared_prefix(assemble(())) is None
