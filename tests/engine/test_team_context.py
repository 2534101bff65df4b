"""The context of one agent of a team: window, markers, duplicate, addressees."""

import logging
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.team.markers import parse_next_names, strip_markers
from contextpolicy.engine.team.team import (
    MAX_BYTES,
    ContextMessage,
    NegativeWindow,
    Speaker,
    TeamMessage,
    format_recipients,
    select_agent_context,
)
from contextpolicy.engine.team.team_state import TeamState
from tests.engine import contract_texts
from tests.engine.team_builders import said, team


def shown(state: TeamState, **options: object) -> list[str]:
    made = state.context_for_agent("max", "claude", **options)  # type: ignore[arg-type]  # options of a test
    return [message.content for message in made.context_messages]


@pytest.mark.requirement("S3.4")
def test_returns_empty_context_when_no_messages() -> None:
    state = TeamState()
    state.set_team_task("Build a boat")
    made = state.context_for_agent("max", "claude", system_instruction="Be kind.")
    assert made.to_json() == {
        "contextMessages": [],
        "currentMessage": "",
        "teamTask": "Build a boat",
        "systemInstruction": "Be kind.",
        "instructionFileText": None,
        "maxBytes": 786_432,
    }


@pytest.mark.requirement("S3.4")
@pytest.mark.requirement("S0.7")
def test_applies_context_window_size_limit() -> None:
    state = team(*(f"message {n}" for n in range(1, 9)))
    made = state.context_for_agent("max", "claude")
    assert [m.content for m in made.context_messages] == [f"message {n}" for n in range(3, 8)]
    assert made.current_message == "message 8"
    assert made.left_out == (("msg-2", "window"),)


@pytest.mark.requirement("S3.4")
def test_respects_window_size_override() -> None:
    state = team(*(f"message {n}" for n in range(1, 9)))
    assert shown(state, window_size_override=2) == ["message 6", "message 7"]
    assert len(shown(state, window_size_override=100)) == 7


@pytest.mark.requirement("S3.4")
def test_a_window_of_zero_shows_no_earlier_message() -> None:
    state = team("one", "two", "three")
    assert shown(state, window_size_override=0) == []
    assert state.context_for_agent("max", "x", window_size_override=0).current_message == "three"


@pytest.mark.requirement("S3.4")
def test_a_negative_window_is_refused() -> None:
    with pytest.raises(NegativeWindow, match="window is -1") as refusal:
        shown(team("one"), window_size_override=-1)
    assert refusal.value.code == "negative_window"


@pytest.mark.requirement("S3.4")
def test_messages_to_others_are_shown_too_and_carry_no_id() -> None:
    state = TeamState()
    state.add_message(said("psst", to=("sarah",)))
    state.add_message(said("now"))
    made = state.context_for_agent("max", "claude")
    assert made.context_messages == (ContextMessage("Ann", "sarah", "psst"),)
    assert made.to_json()["contextMessages"] == [{"from": "Ann", "to": "sarah", "content": "psst"}]


@pytest.mark.requirement("S3.5")
def test_strips_markers_from_context_messages() -> None:
    assert shown(team("[FROM:ann] Hello [NEXT:max]", "now")) == ["Hello"]


@pytest.mark.requirement("S3.5")
def test_strips_markers_from_current_message() -> None:
    made = team("Look  here [next:max]").context_for_agent("max", "claude")
    assert made.current_message == "Look here"


@pytest.mark.requirement("S3.5")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[FROM:ann] hi", "hi"),
        ("[FROM:] hi", "[FROM:] hi"),
        ("[NEXT:] hi [NEXT:a]", "hi"),
        ("[NEXT：a]hi［NEXT：a］ 【next:】", "hi"),
        ("hi 【NEXT:a] ［b］", "hi 【NEXT:a] ［b］"),
        ("[from:Ann][Next:bob]hi", "hi"),
        ("[TEAM_TASK] build\na boat [NEXT:max] go", "go"),
        ("before [team_task]all the rest\n\n", "before"),
        ("[TEAM_TASK]x[TEAM_TASK]y[other]", "[other]"),
        ("a\u00a0\ufeffb", "a b"),
        ("\ufeffa\u3000", "a"),
        ("a\x1c\x1cb\x85\x85c", "a\x1c\x1cb\x85\x85c"),
        ("a\tb", "a\tb"),
        ("a \t b", "a b"),
        (" one \r\n\r\n two ", "one\ntwo"),
        ("[FROM:a\nb]x", "x"),
        ("[FR[FROM:x]OM:y]", "[FROM:y]"),
        ("[\u017fROM:x] [NE\u212aT:y]", "[\u017fROM:x] [NE\u212aT:y]"),
        ("no marker]", "no marker]"),
        ("open [NEXT:max", "open [NEXT:max"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_markers_go_in_their_order_and_white_space_is_tidied(text: str, kept: str) -> None:
    assert strip_markers(text) == kept


@pytest.mark.requirement("S3.5")
def test_lines_of_fenced_code_keep_their_spaces() -> None:
    text = "look  here\n```py\ndef f():\n    x  =  1\n\n    return x\n```\n\nso  far"
    assert strip_markers(text) == (
        "look here\n```py\ndef f():\n    x  =  1\n\n    return x\n```\nso far"
    )


_JS_SPACE = "[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
bricks = ["[FROM:a]", "[FROM:]", "[NEXT:]", "[NEXT:b]", "[TEAM_TASK]", "[", "]", "word", " ", "  "]
bricks += ["\n", "\t", "\ufeff", "\u2028", "\x85"]


@pytest.mark.requirement("S3.5")
@given(st.lists(st.sampled_from(bricks), max_size=25).map("".join))
def test_stripping_does_to_the_letter_what_the_three_patterns_of_the_document_do(text: str) -> None:
    expected = re.sub(r"(?i)\[FROM:[^\]]+\]", "", text)
    expected = re.sub(r"(?i)\[TEAM_TASK\][\s\S]*?(?=\[|\Z)", "", expected)
    expected = re.sub(r"(?i)\[NEXT:[^\]]*\]", "", expected)
    lines = [re.sub(f"{_JS_SPACE}{{2,}}", " ", line) for line in expected.split("\n")]
    trimmed = [re.sub(rf"\A{_JS_SPACE}+|{_JS_SPACE}+\Z", "", line) for line in lines]
    assert strip_markers(text) == "\n".join(line for line in trimmed if line)


def test_openings_without_an_end_cost_no_more_than_their_length() -> None:
    began = time.perf_counter()
    strip_markers("[FROM:" * 100_000 + "[NEXT:" * 100_000)
    assert time.perf_counter() - began < 2


@pytest.mark.requirement("S3.5")
def test_a_message_that_is_nothing_but_markers_is_left_out_with_a_reason() -> None:
    state = team("one", "[NEXT:max]", "now")
    made = state.context_for_agent("max", "claude")
    assert [message.content for message in made.context_messages] == ["one"]
    assert made.left_out == (("msg-2", "markers_only"),)


@pytest.mark.requirement("S3.5")
def test_the_store_keeps_the_markers() -> None:
    state = team("Hello [NEXT:max]", "now")
    shown(state)
    assert state.messages()[0].content == "Hello [NEXT:max]"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("go [NEXT:max]", ("max",)),
        ("[NEXT:max, sarah] and [next: Ann ]", ("max", "sarah", "Ann")),
        ("[NEXT:]", ()),
        ("[NEXT:max", ()),
    ],
    ids=str,
)
def test_the_names_that_come_next_are_read_in_their_order(
    text: str, names: tuple[str, ...]
) -> None:
    assert parse_next_names(text) == names


@pytest.mark.requirement("S3.6")
@pytest.mark.requirement("S3.13")
def test_deduplicates_ai_to_ai_context(caplog: pytest.LogCaptureFixture) -> None:
    state = team("one")
    state.add_message(said("done  [NEXT:sarah]", by="max", kind="ai"))
    state.add_message(said("done", by="max", kind="ai"))
    with caplog.at_level(logging.DEBUG, logger="contextpolicy.engine"):
        made = state.context_for_agent("sarah", "claude")
    assert [message.content for message in made.context_messages] == ["one"]
    assert made.current_message == "done"
    assert made.left_out == (("msg-2", "duplicate_of_current"),)
    assert contract_texts.DEDUPLICATED in caplog.messages


@pytest.mark.requirement("S3.6")
def test_only_the_last_duplicate_is_removed_and_the_window_is_not_refilled() -> None:
    state = team("one", "two")
    for _ in range(3):
        state.add_message(said("done", by="max", kind="ai"))
    assert shown(state, window_size_override=2) == ["done"]


@pytest.mark.requirement("S3.6")
def test_the_same_id_is_a_duplicate_whatever_it_says() -> None:
    messages = [
        TeamMessage("msg-1", "one", Speaker("max", "Max", "ai")),
        TeamMessage("msg-1", "two", Speaker("ann", "Ann", "ai")),
    ]
    made = select_agent_context(messages, agent_id="sarah", agent_type="claude")
    assert made.context_messages == ()


@pytest.mark.requirement("S3.6")
def test_does_not_deduplicate_human_messages() -> None:
    state = team("done", "done")
    assert shown(state) == ["done"]
    state.add_message(said("done", by="ann", kind="ai"))
    assert shown(state) == ["done"]


@pytest.mark.requirement("S3.6")
def test_two_agents_with_one_name_are_two() -> None:
    state = TeamState()
    state.add_message(said("done", by="max-1", name="Max", kind="ai"))
    state.add_message(said("done", by="max-2", name="Max", kind="ai"))
    assert shown(state) == ["done"]


@pytest.mark.requirement("S3.4")
def test_passes_system_instruction_and_instruction_file_text() -> None:
    made = team("Hi").context_for_agent(
        "max", "claude", system_instruction="Be kind.", instruction_file_text="# Rules"
    )
    assert made.system_instruction == "Be kind."
    assert made.instruction_file_text == "# Rules"


@pytest.mark.requirement("S3.4")
def test_passes_max_bytes_to_output() -> None:
    assert team("Hi").context_for_agent("max", "claude").max_bytes == MAX_BYTES == 786_432
    small = TeamState(max_bytes=1_000)
    assert small.context_for_agent("max", "claude").max_bytes == 1_000


@pytest.mark.requirement("S3.7")
@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "all"),
        (("max",), "max"),
        (("max", "sarah"), "max, sarah"),
        (("max", "sarah", "carol"), "max, sarah, carol"),
    ],
    ids=str,
)
def test_addressees_are_written_as_the_table_says(names: tuple[str, ...], words: str) -> None:
    assert format_recipients(names) == words
