"""Ceilings in turns, tokens and bytes, the adaptive low mark, the room of pins, tool rules."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import AssembledContext, WindowNeeded, compose_context
from contextpolicy.engine.history.tool_rules import find_stubbed_results, format_result_stub
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WireMessage,
)
from contextpolicy.engine.messages.segments import (
    Scale,
    count_image_bytes,
    count_tool_bytes,
    count_wire_bytes,
)
from contextpolicy.engine.policy.budget import PolicyImpossible, QuestionTooLarge
from contextpolicy.engine.policy.policy import (
    PolicyValues,
    find_value_problems,
    parse_policy_values,
)
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan
from contextpolicy.engine.window import compute_adaptive_low
from tests.engine.engine_builders import COUNTER, Player, chat, composed, given, left, message, step
from tests.support.full_prompts import TOOLS


def sliding(**fields: Any) -> PolicyValues:
    return PolicyValues(strategy="sliding_window", **fields)


def sent(context: AssembledContext) -> list[int]:
    return [s.seq for s in context.segments if s.origin == "history"]


def asked_to_move(history: Any, values: PolicyValues) -> WindowNeeded:
    made = compose_context(given(history, values=values))
    assert isinstance(made, WindowNeeded)
    return made


@pytest.mark.requirement("S0.6")
def test_a_ceiling_in_turns_moves_the_window_in_a_batch() -> None:
    values = sliding(window_turns=6)
    assert sent(composed(given(chat(12), values=values))) == list(range(1, 13))
    move = asked_to_move(chat(14), values)
    assert (move.reason, move.to_seq) == ("turns", 10)


@pytest.mark.requirement("S0.6")
def test_a_ceiling_in_tokens_moves_the_window_in_a_batch() -> None:
    history = chat(40, lambda seq: f"message {seq} " * 20)
    each = history[0].tokens
    values = sliding(window_tokens=10 * each)
    move = asked_to_move(history, values)
    assert move.reason == "tokens"
    assert move.tokens_after <= 4.5 * each
    assert sent(composed(given(history[:8], values=values))) == list(range(1, 9))


def test_a_ceiling_in_tokens_is_one_of_the_providers_tokens() -> None:
    history = chat(8, lambda seq: f"message {seq} " * 20)
    values = sliding(window_tokens=sum(m.tokens for m in history) + 1)
    assert isinstance(compose_context(given(history, values=values)), AssembledContext)
    assert isinstance(compose_context(given(history, values=values, calibration=1.5)), WindowNeeded)


def test_the_simple_strategy_keeps_every_ceiling_and_moves_by_one() -> None:
    history = chat(12, lambda seq: f"message {seq} " * 20)
    simple = PolicyValues(strategy="simple")
    by_turns = composed(given(history, values=replace(simple, window_turns=2)))
    assert (sent(by_turns), left(by_turns)) == ([9, 10, 11, 12], [(1, 8, "window")])
    by_tokens = composed(given(history, values=replace(simple, window_tokens=130)))
    assert left(by_tokens) == [(1, 10, "window")]
    assert sent(composed(given(history, values=replace(simple, window_turns=6)))) == [*range(1, 13)]


@pytest.mark.parametrize(
    ("tokens", "turns", "every", "low"),
    [
        ([100] * 10, 5, 2, 600),
        ([100] * 10, 5, 20, 100),
        ([1] * 10, 5, 1, 900),
        ([], 0, 3, 900),
    ],
    ids=["fits", "floor", "top", "empty"],
)
def test_the_adaptive_low_mark_leaves_room_for_so_many_turns(
    tokens: list[int], turns: int, every: int, low: int
) -> None:
    assert compute_adaptive_low(1_000, tokens, turns=turns, every=every) == low


@pytest.mark.parametrize("every", [3, 8])
def test_with_an_adaptive_low_mark_the_window_moves_about_every_so_many_turns(every: int) -> None:
    player = Player(sliding(token_budget=2_600, reserve_tokens=100, compact_every_turns=every))
    moved = []
    for number in range(60):
        player.turn(f"question {number} " * 15, "answer " * 25)
        moved.append(len(player.moves))
    places = [turn for turn in range(1, 60) if moved[turn] > moved[turn - 1]]
    gaps = {later - earlier for earlier, later in pairwise(places)}
    assert gaps <= {every - 1, every, every + 1}
    assert len(places) > 3


@pytest.mark.parametrize("field", ["window_turns", "window_tokens", "compact_every_turns"])
def test_a_summary_is_planned_by_the_same_ceilings(field: str) -> None:
    history = chat(60, lambda seq: f"message {seq} " * 20)
    total = sum(m.tokens for m in history)
    size = {"window_turns": 30, "window_tokens": total, "compact_every_turns": 8}[field]
    values = PolicyValues(keep_last_messages=2, summary_max_tokens=200, **{field: size})  # type: ignore[arg-type]  # a number
    limit = int(total * 1.1) if field == "compact_every_turns" else 100_000
    made = plan_compaction(
        history, previous=None, values=values, prompt_limit=limit, fixed_tokens=100
    )
    assert isinstance(made, CompactionPlan)
    kept = 60 - len(made.sources)
    if field == "compact_every_turns":
        freed = sum(m.tokens for m in made.sources)
        assert abs(freed - 8 * total // 30) < 400
    else:
        assert 20 <= kept <= 27


@pytest.mark.requirement("S3.4")
@forall(
    st.integers(400, 4_000),
    st.sampled_from(["simple", "sliding_window", "dynamic_summary"]),
    st.booleans(),
)
def test_a_prompt_is_within_its_bytes_beside_its_tokens(
    max_bytes: int, strategy: str, has_tools: bool
) -> None:
    history = chat(30, lambda seq: "日本語" * seq if seq % 3 else "x" * 40 * seq)
    values = PolicyValues(strategy=strategy, max_bytes=max_bytes)
    tools = TOOLS if has_tools else ()
    context = composed(given(history, values=values, tools=tools))
    assert count_wire_bytes(context.messages) + count_tool_bytes(context.tools) <= max_bytes
    assert context.messages[-1].content == "and now?"


@pytest.mark.requirement("S3.4")
def test_inv_09_what_must_be_sent_and_is_over_the_bytes_is_refused() -> None:
    values = sliding(max_bytes=500)
    with pytest.raises(QuestionTooLarge, match="takes 600 bytes"):
        compose_context(given((), values=values, question=(message(1, "日" * 200),)))
    with pytest.raises(PolicyImpossible, match="max_bytes is 500"):
        compose_context(given((), values=values, system=(("policy", "日" * 200),)))


def build_image_message(seq: int, image: Image, text: str = "Look.") -> Message:
    """Return a message of the user with a text and an image."""
    parts = (TextPart(text), FilePart("image/png", "", image.reference))
    return replace(message(seq, text), parts=parts)


STORED = Image(85, sha256="a" * 64, size=30_000)
LINKED = Image(85, url=f"https://example.com/{'b' * 480}")


@pytest.mark.requirement("S3.4")
@pytest.mark.parametrize(("image", "size"), [(STORED, 40_000), (LINKED, 500)])
def test_images_count_as_they_are_sent(image: Image, size: int) -> None:
    wires = [
        WireMessage("user", "Look.", images=((0, FilePart("image/png", "", image.reference)),))
    ]
    assert count_image_bytes(wires) == size
    assert Scale(100, 1_000).measure(wires) == len("Look.")
    assert Scale(100, 1_000, image_limit=1_000).measure(wires) == len("Look.") + size
    # With a lower limit of texts, images still share the limit of both.
    assert Scale(100, 10, image_limit=1_000).measure(wires) == -(-(len("Look.") + size) // 100)
    assert Scale(100, 500, image_limit=10**9).measure(wires) == len("Look.")
    assert Scale(100, None, image_limit=1_000).measure(wires) == len("Look.")


@pytest.mark.requirement("S3.4")
def test_a_prompt_with_images_is_within_its_bytes() -> None:
    history = tuple(
        build_image_message(seq, STORED) if seq % 2 else message(seq, "Nice.", role="assistant")
        for seq in range(1, 9)
    )
    values = sliding(max_bytes=100_000)
    facts = given(history, values=values)
    assert len(sent(composed(facts))) == 8
    context = composed(replace(facts, image_limit=100_000))
    assert count_wire_bytes(context.messages) + count_image_bytes(context.messages) <= 100_000
    assert count_image_bytes(context.messages) > 0
    # The images of the question take room from the history.
    asked = (build_image_message(9, replace(STORED, size=38_000)),)
    context = composed(replace(given(history, values=values, question=asked), image_limit=100_000))
    assert count_wire_bytes(context.messages) + count_image_bytes(context.messages) <= 100_000
    question = (build_image_message(1, replace(STORED, size=90_000)),)
    large = replace(given((), values=values, question=question), image_limit=100_000)
    with pytest.raises(QuestionTooLarge, match="allow more bytes"):
        compose_context(large)


@pytest.mark.requirement("S2.2")
def test_pins_have_a_room_of_their_own_and_the_oldest_goes_first() -> None:
    pins = [message(seq, "pin " * 50, pinned=True) for seq in (1, 3, 5)]
    others = [message(seq, excluded=True) for seq in (2, 4, 6)]
    history = sorted([*others, message(7), message(8)], key=lambda m: m.seq)
    room = 2 * 110
    context = composed(given(history, values=sliding(pins_tokens=room), pins=tuple(pins)))
    assert [s.seq for s in context.segments if s.origin == "pin"] == [3, 5]
    assert (1, 1, "budget") in left(context)


def test_pins_that_leave_the_window_share_the_room_of_pins() -> None:
    history = [
        message(seq, "word " * 60, pinned=seq in (1, 3), role="user" if seq % 2 else "assistant")
        for seq in range(1, 13)
    ]
    values = sliding(token_budget=700, reserve_tokens=50, pins_tokens=130)
    context = composed(given(history, values=values))
    assert [s.seq for s in context.segments if s.origin == "pin"] == [3]
    assert (1, 1, "budget") in left(context)


def result(context: AssembledContext, call_id: str) -> str:
    return next(w.content for w in context.messages if w.tool_call_id == call_id)


@pytest.mark.requirement("S0.6")
@pytest.mark.requirement("S4.2")
def test_each_tool_has_its_own_rule_on_the_prompts_view_only() -> None:
    def used(seq: int, name: str) -> Message:
        parts = (ToolCallPart(f"c{seq}", name, "{}"), ToolResultPart(f"c{seq}", name, "r" * 900))
        return message(seq, role="assistant", parts=parts)

    rules = {"read": {"limit": 100}, "grep": {"keep_newest": 0}, "*": {"limit": 300}}
    history = [message(1), used(2, "read"), used(3, "grep"), used(4, "other")]
    history.append(message(5, role="assistant"))
    context = composed(given(history, values=sliding(tool_output_rules=rules)))
    assert len(result(context, "c2")) <= 100
    assert (
        result(context, "c3")
        == format_result_stub("grep", 900)
        == ("[The result of grep, 900 characters, is left out here.]")
    )
    assert 200 < len(result(context, "c4")) <= 300
    assert '3:results_left_out:["c3"]' in context.notes
    assert context.truncated_count == 3
    assert isinstance(history[1].parts[1], ToolResultPart)
    assert len(history[1].parts[1].content) == 900


def test_a_result_shorter_than_its_stub_stays_and_a_running_turn_sees_its_results() -> None:
    values = sliding(tool_output_rules={"look_up": {"keep_newest": 0}})
    history = [message(1), step(2, "ok"), message(3, role="assistant")]
    context = composed(given(history, values=values, steps=(step(5, "r" * 500),)))
    assert result(context, "c2-0") == "ok"
    assert result(context, "c5-0") == "r" * 500


def test_inv_59_results_are_left_out_in_batches_so_the_prompt_only_grows_between_two() -> None:
    values = sliding(token_budget=60_000, tool_output_rules={"look_up": {"keep_newest": 3}})
    history: list[Message] = []
    before: list[str] = []
    breaks = []
    for number in range(40):
        seq = len(history) + 1
        asked = message(seq, f"question {number}", role="user")
        context = composed(given(history, values=values, question=(asked,)))
        now = [repr(wire) for wire in context.messages[:-1]]
        if now[: len(before)] != before:
            breaks.append(number)
        standing = [w for w in context.messages if w.role == "tool" and w.content == "r" * 500]
        assert min(3, number) <= len(standing) <= 6
        before = now
        history += [asked, step(seq + 1, "r" * 500), message(seq + 2, "so", role="assistant")]
    gaps = [later - earlier for earlier, later in pairwise(breaks)]
    assert set(gaps) == {4}


def test_the_newest_results_stay_and_the_oldest_of_twice_as_many_go() -> None:
    rules: Any = {"look_up": {"keep_newest": 2}}
    history = [step(seq, "r" * 90) for seq in range(1, 6)]
    values = sliding(tool_output_rules=rules)
    assert find_stubbed_results(history[:4], values=values) == {}
    assert find_stubbed_results(history, values=values) == {
        seq: frozenset({f"c{seq}-0"}) for seq in (1, 2, 3)
    }
    assert (
        find_stubbed_results(history, values=sliding(tool_output_rules={"x": {"limit": 1}})) == {}
    )
    other = replace(values, tool_output_rules={"x": {"keep_newest": 1}})
    assert find_stubbed_results([*history, message(6, parts=(TextPart("hi"),))], values=other) == {}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"max_bytes": 999}, "max_bytes_too_small"),
        ({"window_tokens": 999}, "window_too_small"),
        ({"pins_tokens": 11_500}, "pins_too_large"),
        ({"references": True, "reference_tokens": 11_500}, "references_too_large"),
        ({"reference_count": 301}, "too_many_references"),
        ({"reference_share": 0.95}, "reference_share_out_of_range"),
        ({"reference_share": -0.1}, "reference_share_out_of_range"),
        ({"question_prefix": "x" * 201}, "question_prefix_too_long"),
        ({"retention_days": 36_501}, "retention_too_long"),
        ({"summary_sections": tuple(f"Part {n}" for n in range(11))}, "headings_refused"),
        ({"summary_sections": ("Orders", "ORDERS")}, "headings_refused"),
        ({"summary_sections": ("# Orders",)}, "headings_refused"),
        ({"summary_sections": ("x" * 61,)}, "headings_refused"),
        (
            {"summary_sections": ("长" * 60, "短" * 60), "summary_max_tokens": 200},
            "headings_too_large",
        ),
        ({"window_turns": 10, "keep_last_messages": 21}, "keep_last_exceeds_window"),
        ({"window_turns": 10, "turn_threshold": 10}, "window_below_threshold"),
        ({"tool_output_rules": {"a": {"limit": 0}}}, "number_out_of_range"),
        ({"tool_output_rules": {"a": {"keep_newest": -1}}}, "number_out_of_range"),
        ({"compact_every_turns": 0}, "number_out_of_range"),
    ],
    ids=range(19),
)
def test_inv_22_new_limits_that_cannot_work_are_named(fields: dict[str, object], code: str) -> None:
    values = parse_policy_values({"keep_last_messages": 8, **fields})
    found = find_value_problems(values, model_window=None)
    assert [problem.code for problem in found] == [code]
    assert set(found[0].fields) & set(fields)


def test_new_limits_that_work_are_no_problem() -> None:
    fields: dict[str, object] = {
        "max_bytes": 1_000,
        "window_tokens": 1_000,
        "window_turns": 20,
        "turn_threshold": 10,
        "keep_last_messages": 8,
        "pins_tokens": 2_000,
        "compact_every_turns": 5,
        "tool_output_rules": {"a": {"limit": 10, "keep_newest": 0}},
        "pinned_kinds": ["url", "number"],
        "layout": "A",
        "chat_system": "ignore",
        "question_prefix": "",
    }
    values = parse_policy_values(fields)
    assert find_value_problems(values, model_window=None) == []
    assert parse_policy_values(values.to_json()) == values
    assert values.pinned_kinds == ("url", "number")


def test_policies_stored_before_a_field_existed_are_read_with_its_default() -> None:
    new = {
        "layout",
        "question_prefix",
        "chat_system",
        "state_schema",
        "window_turns",
        "window_tokens",
        "max_bytes",
        "pins_tokens",
        "compact_every_turns",
        "pinned_kinds",
        "tool_output_rules",
    }
    older = {name: value for name, value in PolicyValues().to_json().items() if name not in new}
    assert parse_policy_values(older) == PolicyValues()
    assert COUNTER.count(PolicyValues().question_prefix) > 0
