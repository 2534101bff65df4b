"""Long results of tools of servers in prompts, and what several allow-lists allow together."""

import pytest

from contextpolicy.engine.history.tool_rules import (
    apply_tool_rules,
    format_stub_note,
    list_omittable_results,
    parse_stub_notes,
)
from contextpolicy.engine.messages.messages import ToolCallPart, ToolResultPart, WireMessage
from contextpolicy.engine.messages.tool_outputs import OUTPUT_READ, is_server_tool
from contextpolicy.engine.policy.allow_lists import intersect_allow_lists
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import message

LONG = "The ferry leaves at nine. " * 200


def cut_result(name: str, *, limit: int, tools: tuple[str, ...]) -> str:
    """Return the long result of a tool in a prompt with this limit in characters."""
    wires = [
        WireMessage("assistant", "", (ToolCallPart("c1", name, "{}"),)),
        WireMessage("tool", LONG, (), "c1"),
    ]
    values = PolicyValues(tools=tools, tool_output_rules={name: {"limit": limit}})
    return apply_tool_rules(wires, values=values, most=None, stubbed=frozenset())[1].content


@pytest.mark.requirement("S0.6")
@pytest.mark.parametrize("server", ["files", "our__files", "files_"])
def test_a_cut_result_of_a_server_ends_with_its_id(server: str) -> None:
    text = cut_result(f"{server}__read", limit=500, tools=(f"{server}/*",))
    assert OUTPUT_READ in text
    assert '"c1"' in text
    assert f"{len(LONG):,}" in text
    assert len(text) <= 500
    assert text.startswith("The ferry")


@pytest.mark.parametrize(
    ("name", "tools"),
    [("files__read", ()), ("files__read", ("mail/*",)), ("files", ("files/*",))],
)
def test_results_that_cannot_be_read_have_no_id(name: str, tools: tuple[str, ...]) -> None:
    text = cut_result(name, limit=500, tools=tools)
    assert OUTPUT_READ not in text
    assert len(text) <= 500


def test_a_small_limit_leaves_no_room_for_the_id() -> None:
    text = cut_result("files__read", limit=100, tools=("files/read",))
    assert OUTPUT_READ not in text
    assert len(text) <= 100


def test_a_name_with_a_separator_is_that_of_a_server_tool() -> None:
    assert is_server_tool("files__read")
    assert not is_server_tool("files")


def test_notes_name_the_omitted_results() -> None:
    results = tuple(ToolResultPart(call, "files__read", "text") for call in ("c1", "c:2", "c3"))
    note = format_stub_note(message(4, parts=results), frozenset({"c1", "c:2"}))
    assert parse_stub_notes([f"4:{note}", "6:results_left_out", "5:repaired", "text"]) == {
        4: frozenset({"c1", "c:2"}),
        6: None,
    }


def test_only_results_with_a_rule_for_the_newest_can_be_omitted() -> None:
    values = PolicyValues(
        tool_output_rules={"files__read": {"keep_newest": 1}, "mail__send": {"limit": 500}}
    )
    results = (
        ToolCallPart("c1", "files__read", "{}"),
        ToolResultPart("c1", "files__read", "text"),
        ToolResultPart("c2", "mail__send", "text"),
    )
    assert list_omittable_results(message(4, parts=results), values=values) == {"c1"}


@pytest.mark.parametrize(
    ("lists", "allowed"),
    [
        ([], []),
        ([["files/*", "mail/send"]], ["files/*", "mail/send"]),
        ([["files/*", "mail/send"], ["files/read", "files/*"]], ["files/*", "files/read"]),
        ([["files/*"], ["files/read", "mail/send"]], ["files/read"]),
        ([["files/read"], []], []),
        # Only a whole name of a server stands for its tools.
        ([["files"], ["files/read"]], []),
    ],
)
def test_levels_allow_what_each_of_them_allows(lists: list[list[str]], allowed: list[str]) -> None:
    assert intersect_allow_lists(lists) == allowed
