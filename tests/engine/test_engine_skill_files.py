"""Files of skills in the engine: their list, loaded parts, and parts that a compaction moved."""

import pytest

from contextpolicy.engine.compose.system_text import SkillText, build_skill_parts
from contextpolicy.engine.history.tool_rules import get_file_part_limit
from contextpolicy.engine.history.truncation import cut_tool_result
from contextpolicy.engine.messages import skill_files, skills
from contextpolicy.engine.messages.messages import ToolCallPart, ToolResultPart, WireMessage
from contextpolicy.engine.messages.skill_files import SkillFilePart
from contextpolicy.engine.policy.policy import PolicyValues

FILES = (("a.md", 1_200), ("forms/b.csv", 3))
MAIL = SkillText("mail", "Mail", "Write mails.", "Be short.", on_demand=True, files=FILES)
SUMS = SkillText("sums", "Sums", "", "Add up.", files=(("c.md", 10),))
LISTED = (
    '\n\nFiles of this skill. If you need one, load it with skill_load, the name "mail" and its'
    " path as file:\n- a.md (1,200 characters)\n- forms/b.csv (3 characters)"
)


def test_the_list_of_files_is_below_the_text_of_a_skill() -> None:
    assert skill_files.format_file_list("mail", FILES) == LISTED
    assert skill_files.format_file_list("mail", ()) == ""
    parts = build_skill_parts([MAIL, SUMS], moved=("mail",), lists=True, files={})
    assert parts[0][1].startswith("Skill: Sums\nAdd up.\n\nFiles of this skill.")
    assert "a.md" not in parts[1][1]
    assert parts[2] == ("skills", f"Skill: Mail\nBe short.{LISTED}")


def test_a_moved_part_has_the_text_that_the_file_has_now() -> None:
    texts = {("mail", "a.md"): "0123456789", ("sums", "c.md"): "new"}
    moved = ("mail/a.md#2-5", "sums/c.md#0-10", "sums/c.md#3-9", "mail/gone.md#0-5", "x/a.md#0-1")
    parts = build_skill_parts([MAIL, SUMS], moved=moved, lists=True, files=texts)
    assert parts[2:] == [
        ("skills", "Skill file: mail/a.md\n[Characters 2 to 5 of 10]\n234"),
        ("skills", "Skill file: sums/c.md\n[Characters 0 to 3 of 3]\nnew"),
    ]
    # Not a skill on demand: its text is not moved a second time.
    assert len(build_skill_parts([SUMS], moved=("sums",), lists=True, files={})) == 1
    assert len(build_skill_parts([MAIL], moved=moved, lists=False, files=texts)) == 1


@pytest.mark.parametrize(
    ("start", "limit", "end"), [(0, 6_000, 1_200), (1_100, 6_000, 1_200), (0, 160, 101), (7, 1, 8)]
)
def test_a_part_fits_its_limit(start: int, limit: int, end: int) -> None:
    text = "x" * 1_200
    part = skill_files.choose_file_part("mail", "a.md", text, start=start, limit=limit)
    assert (part.start, part.end) == (start, end)
    content = skill_files.format_file_part(part, text)
    assert len(content) <= max(limit, 60)
    assert skill_files.parse_skill_file_part(content) == part
    assert skill_files.parse_part_key(part.key) == part


@pytest.mark.parametrize(
    "content",
    ["Skill: Mail\nx", "Skill file: mail\n[Characters 0 to 1 of 1]\nx", "Skill file: m/a.md\nx"],
)
def test_other_texts_are_no_part(content: str) -> None:
    assert skill_files.parse_skill_file_part(content) is None
    assert skill_files.parse_part_key(content) is None


def test_a_part_counts_as_loaded_if_it_is_complete() -> None:
    text = "word " * 300
    part = SkillFilePart("mail", "a.md", 0, len(text))
    content = skill_files.format_file_part(part, text)
    cut = cut_tool_result(content, limit=200).text
    asked = ToolCallPart("1", skills.SKILL_LOAD, '{"name": "mail", "file": "a.md"}')
    for result, found in ((content, {part.key: content}), (cut, {})):
        wires = [WireMessage("assistant", "", (asked,)), WireMessage("tool", result, (), "1")]
        assert skills.find_loaded_skills(wires) == found
        stored = (asked, ToolResultPart("1", skills.SKILL_LOAD, result))
        assert skills.find_stored_skills(stored) == tuple(found)


def test_a_part_is_not_longer_than_other_tool_results() -> None:
    assert get_file_part_limit(PolicyValues()) == skill_files.MOST_PART_CHARACTERS
    assert get_file_part_limit(PolicyValues(tool_output_limit=500)) == 500
    rules = {skills.SKILL_LOAD: {"limit": 300}, "*": {"limit": 50}}
    assert get_file_part_limit(PolicyValues(tool_output_rules=rules)) == 300
