"""Turns, legal cuts, and the repair of calls and results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.messages.messages import (
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WireMessage,
    convert_parts_to_wires,
)
from contextpolicy.engine.messages.turn_groups import (
    NO_RESULT,
    convert_message_to_wires,
    find_turn_starts,
    has_content,
    repair_tool_parts,
    split_open_turn,
)
from tests.engine.engine_builders import chat, message, step


def call(name: str) -> ToolCallPart:
    return ToolCallPart(name, "f", "{}")


def result(name: str, content: str = "ok") -> ToolResultPart:
    return ToolResultPart(name, "f", content)


def test_a_turn_is_a_question_with_all_its_steps_and_its_reply() -> None:
    messages = [message(1, role="user"), step(2), step(3), message(4, role="assistant")]
    messages += [message(5, role="user"), message(6, role="assistant")]
    assert find_turn_starts(messages) == (0, 4)


def test_a_message_taken_up_between_two_steps_starts_no_turn() -> None:
    messages = [message(1, role="user"), step(2), message(3, role="user")]
    assert find_turn_starts([*messages, message(4, role="assistant")]) == (0,)


def test_several_questions_in_a_row_are_one_turn() -> None:
    assert find_turn_starts([message(n, role="user") for n in (1, 2, 3)]) == (0,)


def test_turn_labels_decide_where_they_are_known() -> None:
    failed = message(1, role="user", turn="a")
    messages = [failed, message(2, role="user", turn="b"), message(3, role="user", turn="b")]
    assert find_turn_starts(messages) == (0, 1)
    unlabelled = [message(1, role="user"), message(2, role="user", turn="b")]
    assert find_turn_starts(unlabelled) == (0,)


def test_a_continued_reply_belongs_to_the_turn_before_it() -> None:
    messages = [*chat(2), message(3, role="assistant"), message(4, role="user")]
    assert find_turn_starts(messages) == (0, 3)


def test_no_messages_have_no_turns() -> None:
    assert find_turn_starts([]) == ()


def test_inv_05_a_call_without_a_result_gets_one_that_says_so() -> None:
    repaired, notes = repair_tool_parts([TextPart("a"), call("x")])
    assert repaired == (TextPart("a"), call("x"), result("x", NO_RESULT))
    assert notes == ("no_result:x",)


def test_inv_05_a_result_without_a_call_is_dropped() -> None:
    repaired, notes = repair_tool_parts([result("x"), TextPart("a")])
    assert repaired == (TextPart("a"),)
    assert notes == ("stray_result:x",)


def test_inv_05_the_first_of_two_results_wins() -> None:
    repaired, notes = repair_tool_parts([call("x"), result("x", "1"), result("x", "2")])
    assert repaired == (call("x"), result("x", "1"))
    assert notes == ("stray_result:x",)


def test_inv_05_call_ids_used_twice_become_unique_with_their_results_in_order() -> None:
    repaired, notes = repair_tool_parts([call("x"), call("x"), result("x", "1"), result("x", "2")])
    assert repaired == (call("x"), call("x-2"), result("x", "1"), result("x-2", "2"))
    assert notes == ("call_id_renamed:x",)
    thrice, _ = repair_tool_parts([call("x"), call("x"), call("x-2"), call("x")])
    assert [part.call_id for part in thrice if isinstance(part, ToolCallPart)] == [
        "x",
        "x-3",
        "x-2",
        "x-4",
    ]


def test_an_unnamed_call_gets_an_id() -> None:
    repaired, _ = repair_tool_parts([call(""), result("")])
    assert repaired == (call("call-2"), result("call-2"))


def test_inv_05_a_result_far_from_its_call_moves_next_to_it() -> None:
    repaired, notes = repair_tool_parts(
        [call("a"), call("b"), result("b"), TextPart("t"), result("a")]
    )
    assert repaired == (call("a"), call("b"), result("a"), result("b"), TextPart("t"))
    assert notes == ()


def test_tool_parts_of_a_user_message_are_not_sent() -> None:
    repaired, notes = repair_tool_parts([TextPart("a"), call("x")], role="user")
    assert repaired == (TextPart("a"),)
    assert notes == ("tool_part_in_user_message",)
    assert repair_tool_parts([TextPart("a"), TextPart("b")], role="user")[1] == ()


@pytest.mark.parametrize(
    "parts",
    [
        (TextPart("a"), ReasoningPart("b")),
        (TextPart("a"), call("x"), call("y"), result("x"), result("y"), TextPart("b")),
        (call("x"), result("x"), call("y"), result("y")),
    ],
    ids=["text", "parallel calls", "two rounds"],
)
def test_sound_parts_come_back_equal(parts: tuple[Part, ...]) -> None:
    assert repair_tool_parts(parts) == (parts, ())


ids = st.sampled_from(["", "a", "b", "a-2"])
parts = st.lists(
    st.one_of(
        st.just(TextPart("t")),
        ids.map(call),
        ids.map(result),
    ),
    max_size=9,
)


@given(parts)
def test_inv_05_repaired_parts_are_paired_and_repairing_them_again_changes_nothing(
    broken: list[Part],
) -> None:
    repaired, _ = repair_tool_parts(broken)
    waiting: list[str] = []
    for wire in convert_parts_to_wires("assistant", repaired):
        if wire.role == "tool":
            waiting.remove(wire.tool_call_id)
        else:
            assert waiting == []
            waiting = [part.call_id for part in wire.tool_calls]
    assert waiting == []
    calls = [part.call_id for part in repaired if isinstance(part, ToolCallPart)]
    assert len(calls) == len(set(calls)) == sum(isinstance(p, ToolCallPart) for p in broken)
    assert repair_tool_parts(repaired) == (repaired, ())


@given(parts, st.sampled_from(["user", "assistant"]))
def test_has_content_says_whether_something_goes_on_the_wire(broken: list[Part], role) -> None:  # type: ignore[no-untyped-def]  # a role
    made = message(1, role=role, parts=tuple(broken))
    assert has_content(made) == bool(convert_message_to_wires(made)[0])


def test_a_plain_message_becomes_one_wire_message() -> None:
    assert convert_message_to_wires(message(1, "hello")) == ([WireMessage("user", "hello")], ())
    both = message(2, parts=(TextPart("I look."), call("x")))
    assert [wire.content for wire in convert_message_to_wires(both)[0]] == ["I look.", NO_RESULT]


def test_to_wire_repairs_and_says_so_without_changing_the_message() -> None:
    made = message(2, parts=(call("x"),))
    wires, notes = convert_message_to_wires(made)
    assert [wire.role for wire in wires] == ["assistant", "tool"]
    assert notes == ("no_result:x",)
    assert made.parts == (call("x"),)


def test_inv_07_reasoning_stays_with_the_calls_of_its_step() -> None:
    parts = (
        ReasoningPart("first I look"),
        ToolCallPart("a", "t", "{}"),
        ToolResultPart("a", "t", "1"),
        ReasoningPart("then again"),
        ToolCallPart("b", "t", "{}"),
        ToolResultPart("b", "t", "2"),
    )
    assert repair_tool_parts(parts) == (parts, ())
    shuffled = (parts[0], parts[1], parts[3], parts[4], parts[5], parts[2])
    repaired, _ = repair_tool_parts(shuffled)
    assert [type(part).__name__ for part in repaired[:2]] == ["ReasoningPart", "ToolCallPart"]
    looped = [message(1), message(2, parts=parts, role="assistant"), message(3, role="user")]
    assert find_turn_starts(looped) == (0,)


def test_inv_08_a_turn_that_waits_for_a_tool_is_told_apart() -> None:
    waiting = message(4, parts=(ToolCallPart("a", "t", "{}"),), role="assistant")
    done = [message(1), message(2)]
    open_turn = [message(3), waiting]
    assert split_open_turn([*done, *open_turn]) == (done, open_turn)
    answered = [*done, message(3), step(4), message(5, role="assistant")]
    assert split_open_turn(answered) == (answered, ())
    assert split_open_turn([]) == ([], ())
    assert split_open_turn([waiting, *done]) == ([waiting, *done], ())
