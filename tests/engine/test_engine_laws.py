"""Invariants of every composed prompt, tested on generated chats. Numbers refer to the law list."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import (
    CHANGES,
    FALLBACKS,
    REPAIRS,
    AssembledContext,
    ComposeInput,
    WindowNeeded,
    compose_context,
)
from contextpolicy.engine.compose.partition import REASONS
from contextpolicy.engine.messages.messages import Message, Summary, TextPart
from contextpolicy.engine.messages.segments import count_tool_bytes, count_wire_bytes
from contextpolicy.engine.messages.tokens import count_tool_tokens, count_wire_tokens
from contextpolicy.engine.policy.budget import BudgetRefusal, PolicyImpossible
from contextpolicy.engine.policy.fields.prompt import Layout
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import (
    COUNTER,
    Player,
    accounted,
    chats,
    composed,
    given,
    message,
    step,
    texts,
)
from tests.support.engine_inputs import STRATEGIES, Run, inputs, played

DATA = ("summary", "pin", "tail")


def _composed_or_refused(facts: ComposeInput) -> AssembledContext | None:
    try:
        return composed(facts)
    except BudgetRefusal:
        return None


@forall(inputs())
def test_inv_01_each_message_is_sent_or_left_out_exactly_once(facts: ComposeInput) -> None:
    context = _composed_or_refused(facts)
    if context is not None:
        assert accounted(context) == list(range(1, facts.last_seq + 1))


@forall(inputs())
def test_the_account_of_a_prompt_uses_the_closed_lists(facts: ComposeInput) -> None:
    context = _composed_or_refused(facts)
    if context is not None:
        assert {out.reason for out in context.left_out} <= set(REASONS)
        known = {*CHANGES, *REPAIRS, *(f"strategy:{kind}" for kind in FALLBACKS)}
        assert {re.sub(r"^\d+:(\w+).*", r"\1", note) for note in context.notes} <= known


@forall(inputs())
def test_inv_21_the_prompt_with_all_its_parts_never_exceeds_its_limit(facts: ComposeInput) -> None:
    context = _composed_or_refused(facts)
    if context is not None:
        recounted = sum(count_wire_tokens(wire, COUNTER) for wire in context.messages)
        recounted += count_tool_tokens(context.tools, COUNTER)
        assert recounted == context.prompt_tokens == sum(s.tokens for s in context.segments)
        limit = facts.values.token_budget - facts.values.reserve_tokens
        assert recounted * facts.calibration <= limit
        assert context.budget.used == recounted
        if facts.values.max_bytes is not None:
            taken = count_wire_bytes(context.messages) + count_tool_bytes(context.tools)
            assert taken <= facts.values.max_bytes


@forall(inputs())
def test_inv_09_the_question_is_sent_word_for_word_or_refused(facts: ComposeInput) -> None:
    context = _composed_or_refused(facts)
    if context is not None:
        sent = [wire.content for wire in context.messages if wire.role == "user"]
        asked = [*facts.question, *(s for s in facts.steps if s.role == "user")]
        words = [part.text for m in asked for part in m.parts if isinstance(part, TextPart)]
        if facts.strict_roles:
            assert all(any(word in text for text in sent) for word in words)
            return
        assert sent[-len(words)].endswith(words[0])
        assert sent[len(sent) - len(words) + 1 :] == words[1:]
        if facts.values.layout == "multi_turn":
            assert sent[-len(words)] == words[0]


@forall(inputs())
def test_inv_04_messages_keep_their_order(facts: ComposeInput) -> None:
    context = _composed_or_refused(facts)
    if context is not None:
        order = [
            "system",
            "tools",
            "opening",
            "summary",
            "pin",
            "history",
            "tail",
            "question",
            "step",
        ]
        segments = [s for s in context.segments if s.message_id != "preferences"]
        places = [(order.index(segment.origin), segment.seq) for segment in segments]
        assert places == sorted(places)


@forall(inputs())
def test_inv_05_every_result_follows_its_call_and_every_call_has_its_result(
    facts: ComposeInput,
) -> None:
    context = _composed_or_refused(facts)
    if context is not None:
        waiting: list[str] = []
        for wire in context.messages:
            if wire.role == "tool":
                assert wire.tool_call_id in waiting
                waiting.remove(wire.tool_call_id)
            else:
                assert waiting == []
                waiting = [call.call_id for call in wire.tool_calls]
        assert waiting == []


@forall(inputs())
def test_inv_06_what_follows_the_system_text_is_no_tool_result(facts: ComposeInput) -> None:
    context = _composed_or_refused(facts)
    if context is not None:
        assert next(w.role for w in context.messages if w.role != "system") != "tool"


@forall(inputs())
def test_inv_06_for_a_strict_provider_the_user_comes_first_and_roles_alternate(
    facts: ComposeInput,
) -> None:
    context = _composed_or_refused(replace(facts, strict_roles=True))
    if context is not None:
        roles = [wire.role for wire in context.messages if wire.role != "system"]
        assert roles[0] == "user"
        assert all(one != other or one == "tool" for one, other in pairwise(roles))


@forall(inputs())
def test_inv_60_the_same_input_gives_the_same_prompt(facts: ComposeInput) -> None:
    first, second = _composed_or_refused(facts), _composed_or_refused(facts)
    assert first == second


def _history_bytes(context: AssembledContext) -> list[str]:
    """The wire messages up to the last history entry."""
    fixed = sum(1 for s in context.segments if s.origin in ("question", "tail", "step"))
    messages = context.messages[: len(context.messages) - fixed]
    return [repr(wire) for wire in messages]


@forall(played())
def test_inv_59_between_two_moves_each_prompt_begins_with_the_one_before(run: Run) -> None:
    values, turns = run
    player = Player(values)
    before: list[str] = []
    for question, reply, pinned in turns:
        state = (player.window_to, player.summary)
        context = player.turn(question, reply, pinned=pinned)
        now = _history_bytes(context)
        # With such long pins the summary may not fit before a long question. It is then left out of
        # that call, and is back in the next.
        has_room = player.summary is None or any(s.origin == "summary" for s in context.segments)
        if (player.window_to, player.summary) != state:
            before = []
        if has_room:
            assert now[: len(before)] == before
            before = now
        if player.fold() is not None:
            before = []


@forall(
    st.lists(st.tuples(texts(), st.booleans()), min_size=2, max_size=20),
    st.integers(150, 600),
    st.sampled_from(STRATEGIES),
)
def test_inv_59_within_a_turn_each_call_begins_with_the_one_before_until_steps_leave(
    turn: list[tuple[str, bool]], budget: int, strategy: str
) -> None:
    values = PolicyValues(strategy=strategy, token_budget=budget, reserve_tokens=10)
    steps: list[Message] = []
    before: AssembledContext | None = None
    for text, is_step in turn:
        seq = 2 + len(steps)
        steps.append(step(seq, text) if is_step else message(seq, text, role="user"))
        context = _composed_or_refused(given((), values=values, steps=tuple(steps)))
        if context is None:
            return
        if before and before.left_out == context.left_out and not _has_cut_results(before):
            assert context.messages[: len(before.messages)] == before.messages
        before = context


@forall(
    st.lists(st.tuples(st.integers(1, 300), st.sampled_from([True, True, False])), max_size=12),
    st.tuples(*[st.integers(0, 120)] * 4),
    st.sampled_from(["multi_turn", "A"]),
)
def test_inv_59_what_had_to_leave_for_one_call_of_a_turn_stays_out_of_the_later_ones(
    turn: list[tuple[int, bool]], sizes: tuple[int, int, int, int], layout: Layout
) -> None:
    *pinned, told, tail = sizes
    facts = given(
        (),
        values=PolicyValues(token_budget=600, reserve_tokens=100, layout=layout),
        summary=Summary("s", "word " * told, 1, 4, (2, 4), told),
        pins=tuple(message(2 * n, "pin " * size) for n, size in enumerate(pinned, start=1)),
        tail="tea " * tail,
        question=(message(5, "and now?"),),
    )
    before: set[str] | None = None
    for done in range(len(turn) + 1):
        steps = tuple(
            step(seq, "word " * size) if is_step else message(seq, "word " * size, role="user")
            for seq, (size, is_step) in enumerate(turn[:done], start=6)
        )
        context = _composed_or_refused(replace(facts, steps=steps, last_seq=5 + done))
        if context is None:
            return
        data = {s.text_ref or s.message_id for s in context.segments if s.origin in DATA}
        assert before is None or data <= before
        before = data


def _has_cut_results(context: AssembledContext) -> bool:
    return any(segment.result_limit for segment in context.segments)


@forall(played())
def test_inv_02_no_message_is_lost_over_many_compactions(run: Run) -> None:
    values, turns = run
    player = Player(replace(values, strategy="dynamic_summary"))
    for question, reply, pinned in turns:
        context = player.turn(question, reply, pinned=pinned)
        last = len(player.messages) - 1
        assert accounted(context) == list(range(1, last + 1))
        player.fold()
    covered_to = 0
    for summary in player.summaries:
        assert summary.from_seq == 1
        assert summary.to_seq > covered_to
        covered_to = summary.to_seq


@forall(played())
def test_inv_11_pinned_messages_survive_any_number_of_compactions(run: Run) -> None:
    values, turns = run
    player = Player(
        replace(
            values,
            strategy="dynamic_summary",
            token_budget=6_000,
            max_chars_per_message=None,
        )
    )
    player.turn("remember the door code 4711", pinned=True)
    for question, reply, _ in turns:
        context = player.turn(question, reply)
        assert any("door code 4711" in wire.content for wire in context.messages)
        player.fold(trigger="overflow")


@forall(chats(), st.integers(300, 3_000))
def test_inv_12_one_oversized_message_cannot_hold_the_prompt_over_its_limit(
    history: tuple[Message, ...], budget: int
) -> None:
    big = message(len(history) + 1, "word " * 5_000, role="user")
    reply = message(len(history) + 2, "noted", role="assistant")
    for strategy in STRATEGIES:
        values = PolicyValues(strategy=strategy, token_budget=budget, reserve_tokens=100)
        context = composed(given([*history, big, reply], values=values))
        assert context.prompt_tokens <= budget - 100


def test_inv_10_the_last_complete_turn_stays_when_it_fits() -> None:
    history = [message(n, "word " * 100) for n in range(1, 41)]
    values = PolicyValues(strategy="sliding_window", token_budget=500, reserve_tokens=20)
    first = compose_context(given(history, values=values))
    assert isinstance(first, WindowNeeded)
    assert first.to_seq == 38
    context = composed(given(history, values=values))
    assert [s.seq for s in context.segments if s.origin == "history"] == [39, 40]


def test_inv_66_the_system_text_and_the_tools_are_the_same_after_a_compaction() -> None:
    player = Player(PolicyValues(token_budget=1_400, reserve_tokens=200, summary_max_tokens=150))
    contexts = []
    for number in range(30):
        contexts.append(player.turn(f"question {number} " * 20))
        player.fold()
    assert len(player.summaries) >= 2
    assert {context.messages[0].content for context in contexts} == {"Be brief."}
    assert all(context.segments[0].origin == "system" for context in contexts)


def test_inv_65_a_character_limit_cuts_neither_system_text_nor_pins_nor_summary() -> None:
    player = Player(
        PolicyValues(max_chars_per_message=40, token_budget=6_000, keep_last_messages=0),
        system="Be brief and kind. " * 10,
    )
    player.turn("pinned words " * 20, pinned=True)
    for number in range(6):
        player.turn(f"On 2026-03-0{number + 1} we decided to pay {number + 10} euros to Ann. " * 3)
    player.fold(trigger="overflow")
    context = player.turn("and now?")
    assert player.summary is not None
    assert context.messages[0].content == "Be brief and kind. " * 10
    assert player.summary.text in context.messages[1].content
    assert "pinned words " * 20 in context.messages[2].content


def test_inv_23_a_system_text_beyond_the_limit_is_refused_with_its_numbers() -> None:
    with pytest.raises(PolicyImpossible) as refusal:
        compose_context(given(system=(("policy", "word " * 20_000),)))
    assert refusal.value.code == "policy_impossible"
    assert "12,000" in str(refusal.value)


def test_inv_15_composing_changes_no_message() -> None:
    history = tuple(message(n, "x" * 500) for n in range(1, 9))
    copy = tuple(Message(**{f: getattr(m, f) for f in Message.__slots__}) for m in history)
    compose_context(
        given(history, values=PolicyValues(strategy="simple", max_chars_per_message=50))
    )
    assert history == copy
