"""Skills on demand in the engine: lines, texts, loaded and moved skills."""

import pytest

from contextpolicy.engine.compose.system_text import SkillText, build_skill_parts
from contextpolicy.engine.history.tool_rules import get_result_limit
from contextpolicy.engine.history.truncation import cut_tool_result
from contextpolicy.engine.messages import skills
from contextpolicy.engine.messages.messages import (
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WireMessage,
)
from contextpolicy.engine.policy.policy import PolicyValues

MAIL = SkillText("mail", "Mail", "Write\nmails.", "Be short.", on_demand=True)
SUMS = SkillText("sums", "Sums", "", "Add up.")
TEAM = SkillText("roles", "Roles", "Play roles.", "Play.", origin="team_skills", on_demand=True)


def call(name: str, *, call_id: str = "1", tool: str = skills.SKILL_LOAD) -> ToolCallPart:
    return ToolCallPart(call_id, tool, f'{{"name": "{name}"}}')


def loaded(name: str, content: str, **options: str) -> list[WireMessage]:
    """Return a call and its result."""
    asked = call(name, **options)
    return [
        WireMessage("assistant", "", (asked,)),
        WireMessage("tool", content, (), asked.call_id),
    ]


def test_the_list_follows_complete_texts_and_moved_texts_follow_the_list() -> None:
    parts = build_skill_parts(
        [MAIL, SUMS, TEAM], moved=("roles", "gone", "mail"), lists=True, files={}
    )
    assert parts == [
        ("skills", "Skill: Sums\nAdd up."),
        ("skills", f"{skills.LIST_OPENING}\n- mail: Write mails."),
        ("team_skills", "- roles: Play roles."),
        ("team_skills", "Skill: Roles\nPlay."),
        ("skills", "Skill: Mail\nBe short."),
    ]


def test_skills_of_mode_always_have_no_list() -> None:
    assert build_skill_parts([SUMS], moved=(), lists=True, files={}) == [
        ("skills", "Skill: Sums\nAdd up.")
    ]
    assert build_skill_parts([], moved=(), lists=True, files={}) == []


def test_without_tools_every_text_is_complete() -> None:
    parts = build_skill_parts([MAIL, TEAM], moved=("mail",), lists=False, files={})
    assert parts == [
        ("skills", "Skill: Mail\nBe short."),
        ("team_skills", "Skill: Roles\nPlay."),
    ]


def test_a_result_counts_as_loaded_if_it_is_complete() -> None:
    text = skills.format_skill_text("Mail", "Be short. " * 100)
    cut = cut_tool_result(text, limit=200).text
    wires = [
        *loaded("mail", text),
        *loaded("cut", cut),
        *loaded("gone", "There is none."),
        *loaded("other", text, tool="chat_history_search", call_id="2"),
        WireMessage("user", text),
    ]
    assert skills.find_loaded_skills(wires) == {"mail": text}


def test_of_two_calls_with_one_id_the_newest_counts() -> None:
    text = skills.format_skill_text("Mail", "Be short.")
    found = skills.find_loaded_skills([*loaded("a", text), *loaded("b", text)])
    assert tuple(found) == ("a", "b")


def test_stored_parts_name_the_loaded_skills() -> None:
    text = skills.format_skill_text("Mail", "Be short.")
    parts = (
        TextPart("I load it."),
        call("mail"),
        call("gone", call_id="2"),
        ToolResultPart("1", skills.SKILL_LOAD, text),
        ToolResultPart("2", skills.SKILL_LOAD, "There is none."),
        ToolResultPart("3", skills.SKILL_LOAD, text),
    )
    assert skills.find_stored_skills(parts) == ("mail",)


@pytest.mark.parametrize("arguments", ["", "[]", "{}", '{"name": 1}', "null"])
def test_malformed_arguments_name_no_skill(arguments: str) -> None:
    assert skills.parse_skill_slug(arguments) == ""
    asked = ToolCallPart("1", skills.SKILL_LOAD, arguments)
    assert list(skills.iter_asked_skills([asked])) == []


@pytest.mark.parametrize(
    ("given", "room", "chosen"),
    [
        ([("a", 5), ("b", 5)], 10, ("a", "b")),
        ([("a", 5), ("b", 5)], 9, ("b",)),
        ([("a", 5), ("b", 11)], 10, ()),
        ([("a", 5), ("b", 5), ("a", 5)], 10, ("b", "a")),
        ([], 10, ()),
    ],
)
def test_the_newest_texts_that_fit_move(
    given: list[tuple[str, int]], room: int, chosen: tuple[str, ...]
) -> None:
    assert skills.choose_moved_skills(given, room=room) == chosen


def test_only_a_rule_that_names_the_tool_cuts_a_text() -> None:
    plain = PolicyValues(tool_output_limit=100, tool_output_rules={"*": {"limit": 50}})
    assert get_result_limit(plain, skills.SKILL_LOAD) == skills.LONGEST_RESULT
    named = PolicyValues(tool_output_rules={skills.SKILL_LOAD: {"limit": 300}})
    assert get_result_limit(named, skills.SKILL_LOAD) == 300
