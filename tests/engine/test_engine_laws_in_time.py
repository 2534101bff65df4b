"""Invariants over time: windows move, summaries follow summaries, models change."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import assume
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput, compose_context
from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from contextpolicy.engine.messages.tokens import count_uncut_tokens
from contextpolicy.engine.messages.turn_groups import find_turn_starts, repair_tool_parts
from contextpolicy.engine.policy.budget import (
    BudgetRefusal,
    PolicyImpossible,
    compute_low_mark,
    compute_prepare_mark,
    compute_prompt_limit,
)
from contextpolicy.engine.policy.policy import PolicyValues, find_value_problems
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, CoverageGap, NotNeeded
from contextpolicy.engine.summaries.prompts import SECTIONS, build_summary_request
from tests.engine.engine_builders import (
    COUNTER,
    Player,
    chats,
    composed,
    given,
    message,
    step,
    texts,
)
from tests.support.engine_inputs import Run, inputs, played, policies

FOLDING = PolicyValues(
    token_budget=1_100, reserve_tokens=100, summary_max_tokens=150, keep_last_messages=4
)
TRIGGERS = st.sampled_from(["auto", "prepare", "manual", "overflow"])


def planned(
    messages: list[Message], *, values: PolicyValues = FOLDING, trigger: str = "auto"
) -> CompactionPlan | NotNeeded:
    return plan_compaction(
        messages,
        previous=None,
        values=values,
        prompt_limit=compute_prompt_limit(values, model_window=None),
        fixed_tokens=0,
        trigger=trigger,  # type: ignore[arg-type]  # one of its words
    )


parts = st.lists(
    st.sampled_from(
        [
            TextPart("t"),
            ReasoningPart("thought"),
            *(ToolCallPart(name, "look_up", "{}") for name in ("a", "b", "")),
            *(ToolResultPart(name, "look_up", "r") for name in ("a", "b", "")),
        ]
    ),
    max_size=9,
)


@forall(parts)
def test_inv_07_a_repair_moves_no_reasoning_away_from_the_call_it_led_to(
    broken: list[Part],
) -> None:
    def skeleton(some: list[Part] | tuple[Part, ...]) -> list[type[Part]]:
        return [type(part) for part in some if not isinstance(part, ToolResultPart)]

    repaired, _ = repair_tool_parts(broken)
    assert skeleton(repaired) == skeleton(broken)
    made = [message(1), message(2, role="assistant", parts=tuple(broken)), message(3, role="user")]
    assert find_turn_starts(made)[:1] == (0,)
    assert 1 not in find_turn_starts(made)


@forall(chats(), TRIGGERS, st.integers(0, 6))
def test_inv_08_a_turn_that_waits_for_its_tool_is_in_no_plan(
    history: tuple[Message, ...], trigger: str, keep: int
) -> None:
    asked = message(len(history) + 1, "and this? " * 40, role="user", turn="open")
    waiting = message(
        len(history) + 2, parts=(ToolCallPart("x", "t", "{}"),), role="assistant", turn="open"
    )
    values = replace(FOLDING, keep_last_messages=keep)
    found = planned([*history, asked, waiting], values=values, trigger=trigger)
    if isinstance(found, CompactionPlan):
        assert found.to_seq <= len(history)


@forall(chats(), st.integers(200, 1_500), st.sampled_from(["sliding_window", "dynamic_summary"]))
def test_inv_10_the_last_turn_stays_whole_wherever_it_fits(
    history: tuple[Message, ...], budget: int, strategy: str
) -> None:
    values = PolicyValues(strategy=strategy, token_budget=budget, reserve_tokens=20)
    plain = [replace(m, pinned=False, excluded=False, incomplete=False) for m in history]
    plain = [m for m in plain if m.tokens]
    plain = [replace(m, seq=seq) for seq, m in enumerate(plain, start=1)]
    assume(plain)
    context = composed(given(plain, values=values))
    sent = {s.seq for s in context.segments if s.origin == "history"}
    spent = sum(s.tokens for s in context.segments if s.origin == "history")
    last = plain[find_turn_starts(plain)[-1] :]
    if context.prompt_tokens - spent + sum(m.tokens for m in last) <= budget - 20:
        assert {m.seq for m in last} <= sent


@forall(inputs())
def test_inv_15_composing_and_planning_change_nothing_they_are_given(facts: ComposeInput) -> None:
    before = replace(deepcopy(facts), counter=facts.counter)
    with suppress(BudgetRefusal):
        composed(facts)
    # A summary of absent messages can be used in a prompt, but not in a plan.
    if facts.unloaded is None and facts.summary is None:
        planned(list(facts.history))
    assert facts == before


@forall(st.binary(max_size=500), st.sampled_from(["image/png", "application/pdf"]))
def test_inv_18_what_a_file_holds_costs_nothing(content: bytes, kind: str) -> None:
    empty = FilePart(kind, "a", "")
    full = FilePart(kind, "a", f"data:{kind};base64,{content.hex()}")
    costs = {count_uncut_tokens((part,), "user", COUNTER) for part in (empty, full)}
    assert len(costs) == 1


@st.composite
def larger_policies(draw: st.DrawFn) -> PolicyValues:
    budget = draw(st.integers(500, 40_000))
    return replace(
        draw(policies()),
        window_tokens=None,
        max_bytes=None,
        pins_tokens=None,
        token_budget=budget,
        reserve_tokens=budget // draw(st.integers(2, 9)),
        summary_max_tokens=draw(st.integers(64, 2_000)),
        system_text="Be kind. " * draw(st.integers(0, 100)),
    )


@forall(larger_policies(), st.integers(1_000, 60_000) | st.none())
def test_inv_22_a_policy_that_could_be_saved_answers_a_short_question(
    values: PolicyValues, window: int | None
) -> None:
    assume(find_value_problems(values, model_window=window, count=COUNTER.count) == [])
    system = (("policy", values.system_text),)
    context = composed(given((), values=values, model_window=window, system=system))
    assert context.messages[-1].content.endswith("and now?")


@forall(st.integers(0, 400), st.integers(60, 400))
def test_inv_23_a_system_text_is_refused_exactly_when_it_leaves_no_room(
    words: int, budget: int
) -> None:
    system = (("policy", "word " * words),)
    facts = given(system=system, values=PolicyValues(token_budget=budget, reserve_tokens=20))
    try:
        made = compose_context(facts)
    except PolicyImpossible:
        made = None
    except BudgetRefusal:
        return
    if isinstance(made, AssembledContext):
        assert made.prompt_tokens <= budget - 20
    else:
        assert COUNTER.count(system[0][1]) + 4 >= budget - 20


@forall(played())
def test_inv_24_after_a_compaction_nothing_is_due_until_the_chat_grows(run: Run) -> None:
    values, turns = run
    player = Player(replace(values, strategy="dynamic_summary", window_size=None))
    mark = compute_prepare_mark(
        values, prompt_limit=compute_prompt_limit(values, model_window=None)
    )
    for question, reply, _ in turns:
        player.turn(question, reply)
        made = player.fold()
        if made is not None and made.tokens_after < mark:
            assert player.fold() is None


@forall(played())
def test_inv_25_a_plan_reaches_the_low_mark_or_leaves_as_little_as_it_may(run: Run) -> None:
    values, turns = run
    values = replace(values, strategy="dynamic_summary", window_size=None, keep_last_messages=0)
    player = Player(replace(values, max_chars_per_message=None))
    low = compute_low_mark(values, prompt_limit=compute_prompt_limit(values, model_window=None))
    for question, reply, _ in turns:
        player.turn(question, reply)
        made = player.fold()
        if made is not None and made.tokens_after > low:
            assert len(find_turn_starts(player.messages[made.to_seq :])) <= 1


@forall(inputs(), st.integers(40, 2_000))
def test_inv_28_with_any_smaller_window_the_next_prompt_fits_it(
    facts: ComposeInput, window: int
) -> None:
    try:
        context = composed(replace(facts, model_window=window))
    except BudgetRefusal:
        return
    assert context.prompt_tokens * facts.calibration <= window - facts.values.reserve_tokens


@forall(played())
def test_inv_33_a_summary_has_each_heading_once_or_none_and_no_summary_inside(run: Run) -> None:
    values, turns = run
    player = Player(replace(values, strategy="dynamic_summary"))
    for question, reply, _ in turns:
        player.turn(question, reply)
        player.fold(trigger="overflow")
    for summary in player.summaries:
        lines = summary.text.splitlines()
        headings = [line for line in lines if line.startswith("#")]
        # A small one has only bullets.
        assert headings in ([f"## {name}" for name in SECTIONS], [])


@forall(st.lists(st.tuples(texts(), st.sampled_from(["Ann", "Bob <b>"])), min_size=1, max_size=6))
def test_inv_35_each_message_reaches_the_summariser_with_its_number_speaker_and_time(
    said: list[tuple[str, str]],
) -> None:
    spoken = [
        replace(message(n, text), speaker=name, created_at=f"2026-01-0{n}T10:00Z")
        for n, (text, name) in enumerate(said, start=1)
    ]
    _, data = build_summary_request(messages=spoken, previous=None, values=PolicyValues())
    for made in spoken:
        name = made.speaker.replace("<", "&lt;").replace(">", "&gt;")
        assert (
            f'<message number="{made.seq}" from="{made.role} {name}" at="{made.created_at}">'
            in data.content
        )


@forall(st.integers(1, 25), st.integers(1, 120), st.integers(300, 2_000))
def test_inv_61_a_giant_turn_is_folded_or_named_and_its_prompt_fits(
    steps: int, size: int, budget: int
) -> None:
    turn = [message(1, "do it", role="user", turn="t")]
    turn += [replace(step(n, "word " * size), turn="t") for n in range(2, steps + 2)]
    turn += [message(steps + 2, "done", role="assistant", turn="t")]
    values = replace(FOLDING, token_budget=budget, summary_max_tokens=budget // 8)
    found = planned(turn, values=values)
    if isinstance(found, NotNeeded):
        assert found.reason in ("below_threshold", "no_gain")
    else:
        assert 1 <= found.to_seq < len(turn)
    assert composed(given(turn, values=values)).prompt_tokens <= budget - 100


@forall(played())
def test_inv_64_the_frontier_moves_forward_and_the_range_begins_at_the_first_message(
    run: Run,
) -> None:
    values, turns = run
    player = Player(replace(values, strategy="dynamic_summary"))
    frontier = 0
    for question, reply, pinned in turns:
        player.turn(question, reply, pinned=pinned)
        made = player.fold(trigger="overflow")
        if made is not None:
            assert made.from_seq == 1
            assert made.to_seq > frontier
            frontier = made.to_seq


@forall(played(), st.integers(1, 40))
def test_inv_65_and_66_no_limit_of_a_message_touches_system_text_pins_or_summary(
    run: Run, characters: int
) -> None:
    values, turns = run
    player = Player(
        replace(
            values,
            strategy="dynamic_summary",
            token_budget=6_000,
            max_chars_per_message=characters,
        ),
        system="Be brief and kind. " * 4,
    )
    player.turn("remember the door code 4711 " * 3, pinned=True)
    for question, reply, _ in turns:
        context = player.turn(question, reply)
        assert context.messages[0].content == "Be brief and kind. " * 4
        whole = [wire.content for wire in context.messages]
        if any(s.origin == "pin" for s in context.segments):
            assert any("remember the door code 4711 " * 3 in text for text in whole)
        if player.summary is not None:
            assert any(player.summary.text in text for text in whole)
        player.fold(trigger="overflow")


@forall(st.integers(1, 30), TRIGGERS)
def test_inv_68_a_message_that_was_not_loaded_is_covered_by_no_plan(gap: int, trigger: str) -> None:
    talk = [message(n, "word " * 30) for n in range(1, 31) if n != gap]
    try:
        found = planned(talk, trigger=trigger)
    except CoverageGap:
        return
    assert isinstance(found, NotNeeded) or found.to_seq < gap


def test_the_words_of_a_gap_name_the_message_that_is_missing() -> None:
    talk = [message(n, "word " * 30) for n in range(1, 31) if n != 3]
    with pytest.raises(CoverageGap, match="Message 3 is missing between the summary and message 4"):
        planned(talk)
