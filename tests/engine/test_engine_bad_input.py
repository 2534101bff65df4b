"""Bad input causes a named error or a recorded repair, never a prompt over its limit."""

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import ComposeInput
from contextpolicy.engine.compose.partition import PartitionError
from contextpolicy.engine.messages.messages import (
    MalformedParts,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    parse_parts,
)
from contextpolicy.engine.messages.openai_chat import MalformedChatMessage, parse_chat_messages
from contextpolicy.engine.messages.ui_messages import (
    MalformedUIMessage,
    parse_ui_message,
    parse_ui_messages,
    serialize_ui_message,
)
from contextpolicy.engine.policy.budget import (
    BudgetRefusal,
    PolicyImpossible,
    QuestionTooLarge,
    TurnTooLarge,
)
from contextpolicy.engine.policy.fields.prompt import Layout
from contextpolicy.engine.policy.policy import (
    MalformedPolicy,
    PolicyValues,
    find_value_problems,
    parse_policy_values,
)
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan
from contextpolicy.engine.summaries.extractive import build_extractive_summary
from tests.engine.engine_builders import COUNTER, composed, given, message, step
from tests.support.engine_inputs import STRATEGIES

LAYOUTS: tuple[Layout, ...] = ("multi_turn", "A", "B", "C")
SMALL = PolicyValues(token_budget=1_500, reserve_tokens=300, summary_max_tokens=150)
BLOB = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUg" * 20_000
SCRIPTS = "word 日本語 кот שלום مرحبا 👩‍👩‍👧 🇩🇪 e\u0301 한 \u202e\x00\ud83d " * 400


def combined() -> list[PolicyValues]:
    return [
        replace(SMALL, strategy=strategy, layout=layout, keep_last_messages=4)
        for strategy in STRATEGIES
        for layout in LAYOUTS
    ]


def within_limit(facts: ComposeInput) -> int:
    """Compose; return the prompt's tokens, or 0 for a named refusal."""
    try:
        context = composed(facts)
    except (PolicyImpossible, QuestionTooLarge, TurnTooLarge):
        return 0
    assert context.prompt_tokens <= context.budget.limit
    return context.prompt_tokens


# --- ids


def test_an_id_that_stands_twice_is_refused_and_fifty_thousand_ids_take_no_time() -> None:
    listed = [{"id": f"m{n}", "role": "user", "parts": []} for n in range(50_000)]
    begun = time.perf_counter()
    with pytest.raises(MalformedUIMessage, match="'m49999' occurs twice") as refusal:
        parse_ui_messages([*listed, listed[-1]])
    assert refusal.value.code == "duplicate_id"
    assert time.perf_counter() - begun < 10


@pytest.mark.parametrize(
    "seqs",
    [(1, 2, 1), (1, 1), (2, 1), (3, 4), (1, 2, 4)],
    ids=lambda seqs: "-".join(map(str, seqs)),
)
def test_seqs_that_repeat_turn_back_or_have_gaps_send_nothing(seqs: tuple[int, ...]) -> None:
    history = [message(seq) for seq in seqs]
    question = (message(max(seqs) + 1, "and now?", role="user"),)
    with pytest.raises(PartitionError) as refusal:
        composed(given(history, question=question, last_seq=max(seqs) + 1))
    assert refusal.value.code == "partition_broken"


def test_messages_with_one_id_are_still_told_apart_by_their_seq() -> None:
    history = [replace(message(n), id="same") for n in range(1, 9)]
    for values in combined():
        assert within_limit(given(history, values=values)) > 0


def test_data_that_contains_itself_is_refused() -> None:
    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for wrong in (cyclic, deep, {1, 2}):
        call = {"type": "tool-t", "toolCallId": "c", "state": "input-available", "input": wrong}
        for part in (call, {**call, "input": {}, "output": wrong}):
            with pytest.raises(MalformedUIMessage) as refusal:
                parse_ui_message({"id": "m", "role": "assistant", "parts": [part]})
            assert refusal.value.code == "malformed_ui_message"


# --- calls and results


def test_results_before_their_calls_are_paired_and_lone_ones_are_noted() -> None:
    parts: tuple[Part, ...] = (
        ToolResultPart("b", "t", "early"),
        ToolResultPart("nobody", "t", "lost"),
        TextPart("so"),
        ToolCallPart("b", "t", "{}"),
        ToolCallPart("c", "t", "{}"),
    )
    history = [message(1), message(2, role="assistant", parts=parts)]
    context = composed(given(history, values=replace(SMALL, strategy="sliding_window")))
    assert [w.role for w in context.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert context.messages[3].content == "early"
    assert set(context.notes) == {"2:no_result:c", "2:stray_result:nobody"}
    read = parse_chat_messages(
        [
            {"role": "tool", "tool_call_id": "x", "content": "early"},
            {"role": "user", "content": "a"},
        ]
    )
    assert read.losses == ("stray_result:x",)


@pytest.mark.parametrize(
    "arguments", ["", "{", '{"a": NaN', "[" * 5_000, "[" * 900 + "]" * 900, "\x00", "9" * 9_000]
)
def test_broken_arguments_reach_the_prompt_as_they_were_written(arguments: str) -> None:
    parts = (ToolCallPart("c", "t", arguments), ToolResultPart("c", "t", "bad arguments"))
    stored = message(2, role="assistant", parts=parts)
    for values in combined():
        assert within_limit(given([message(1), stored], values=values)) > 0
    wide = PolicyValues(strategy="sliding_window")
    sent = composed(given([message(1), stored], values=wide)).messages
    assert [call.arguments for wire in sent for call in wire.tool_calls] == [arguments]
    written = serialize_ui_message(
        parse_ui_message({"id": "m", "role": "assistant", "parts": []})[0]
    )
    assert written["parts"] == []


# --- roles and parts


@pytest.mark.parametrize("role", ["", "tool ", "System", None, 5, ["user"], "function"])
def test_an_unknown_role_is_refused_at_each_border(role: object) -> None:
    with pytest.raises(MalformedChatMessage):
        parse_chat_messages([{"role": role, "content": "x"}])
    with pytest.raises(MalformedUIMessage):
        parse_ui_message({"id": "m", "role": role, "parts": []})


@pytest.mark.parametrize(
    "part",
    [None, "text", {}, {"type": 5}, {"type": ["text"]}, {"type": "text"}],
)
def test_a_malformed_part_is_refused_at_each_border(part: object) -> None:
    with pytest.raises(MalformedParts):
        parse_parts([part])
    with pytest.raises(MalformedUIMessage):
        parse_ui_message({"id": "m", "role": "assistant", "parts": [part]})


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "role", "parts", "type", "text", "content", "tool_calls", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@forall(json_values)
def test_whatever_comes_in_is_read_or_refused_by_name(data: object) -> None:
    with suppress(MalformedUIMessage):
        parse_ui_messages(data)
    with suppress(MalformedUIMessage):
        parse_ui_messages([data])
    with suppress(MalformedChatMessage):
        parse_chat_messages([data])
    with suppress(MalformedParts):
        parse_parts([data])
    with suppress(MalformedPolicy):
        parse_policy_values({"system_text": data})


# --- sizes


@pytest.mark.parametrize("text", [BLOB, SCRIPTS, "x", "```\n" * 3_000, "\ud83d" * 3_000])
@pytest.mark.parametrize("place", ["history", "question", "step", "pin", "summary"])
def test_a_monstrous_text_anywhere_is_cut_left_out_or_refused(text: str, place: str) -> None:
    for values in combined():
        facts = given([message(1), message(2)], values=values)
        if place == "history":
            facts = given([message(1, text), message(2, text)], values=values)
        elif place == "question":
            facts = given((), values=values, question=(message(1, text),))
        elif place == "step":
            facts = given((), values=values, steps=(step(2, text),))
        elif place == "pin":
            facts = given([replace(message(1, text), pinned=True), message(2)], values=values)
        tokens = within_limit(facts)
        assert tokens > 0 or place in ("question", "step")


def test_ten_megabytes_in_the_question_are_refused_with_what_to_do() -> None:
    asked = (message(1, "word " * 2_000_000, role="user"),)
    for values in (SMALL, replace(SMALL, layout="A")):
        with pytest.raises(BudgetRefusal, match="Shorten or split") as refusal:
            composed(given((), values=values, question=asked))
        assert refusal.value.code == "message_too_large"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fifty_thousand_messages_of_one_character(strategy: str) -> None:
    history = [message(seq, "x") for seq in range(1, 50_001)]
    values = replace(SMALL, strategy=strategy, keep_last_messages=4)
    assert within_limit(given(history, values=values)) > 0
    made = plan_compaction(
        history, previous=None, values=values, prompt_limit=1_200, fixed_tokens=9
    )
    if isinstance(made, CompactionPlan):
        text = build_extractive_summary(made.sources, None, max_tokens=150, counter=COUNTER)
        assert COUNTER.count(text) <= 150


# --- limits

NUMBERS = (
    "token_budget",
    "reserve_tokens",
    "window_size",
    "window_turns",
    "window_tokens",
    "max_chars_per_message",
    "max_bytes",
    "pins_tokens",
    "keep_last_messages",
    "summary_max_tokens",
    "compact_every_turns",
    "compact_to_tokens",
    "compact_at_tokens",
    "prepare_at_tokens",
    "turn_threshold",
    "fold_turns",
    "tool_output_limit",
    "input_length_limit",
)
ABSURD = (-(10**12), -1, 10**12)


@pytest.mark.parametrize("number", ABSURD)
@pytest.mark.parametrize("name", NUMBERS)
def test_an_absurd_limit_cannot_be_saved(name: str, number: int) -> None:
    values = parse_policy_values({name: number})
    assert "number_out_of_range" in [
        problem.code for problem in find_value_problems(values, model_window=None)
    ]


@forall(
    st.dictionaries(
        st.sampled_from(NUMBERS), st.sampled_from([*ABSURD, 0, 1, 5, 400]), min_size=1, max_size=4
    ),
    st.sampled_from(STRATEGIES),
    st.sampled_from(LAYOUTS),
    st.sampled_from([None, -5, 0, 1, 900, 10**12]),
)
def test_even_with_absurd_limits_a_prompt_fits_or_is_refused(
    fields: dict[str, int], strategy: str, layout: Layout, window: int | None
) -> None:
    values = parse_policy_values({**fields, "strategy": strategy, "layout": layout}, base=SMALL)
    history: list[Message] = [message(n, "some words " * 20) for n in range(1, 13)]
    history[3] = step(4, "r" * 900)
    if within_limit(given(history, values=values, model_window=window)):
        limit = values.token_budget - values.reserve_tokens
        plan_compaction(
            history,
            previous=None,
            values=values,
            prompt_limit=limit,
            fixed_tokens=0,
            counter=COUNTER,
        )


@pytest.mark.parametrize("name", ["prepare_at", "compact_at", "compact_to"])
@pytest.mark.parametrize("share", [-0.5, 0.0, 1.5])
def test_a_share_that_is_none_cannot_be_saved(name: str, share: float) -> None:
    assert find_value_problems(parse_policy_values({name: share}), model_window=None) != []
    for odd in (float("nan"), float("inf")):
        with pytest.raises(MalformedPolicy):
            parse_policy_values({name: odd})
