"""The limit of a message in a summary request applies to all of its parts together."""

import pytest

from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.message_cuts import compute_share
from contextpolicy.engine.summaries.prompts import SUMMARY_V2, build_summary_request
from tests.engine.engine_builders import message

VALUES = PolicyValues(tool_output_limit=5_000)


def request_of(parts: tuple[Part, ...], limit: int | None, *, cuts_tools: bool = True) -> str:
    """Return the transcript of one message in a summary request."""
    made: Message = message(2, role="assistant", parts=parts)
    request = build_summary_request(
        messages=[made],
        previous=None,
        values=VALUES,
        max_chars_per_message=limit,
        version=SUMMARY_V2,
        cuts_tools=cuts_tools,
    )
    return request[1].content.split("<transcript>\n")[1].split("\n</transcript>")[0]


def calls(count: int, length: int) -> tuple[Part, ...]:
    """Return calls of a search with their results."""
    asked = [ToolCallPart(f"c{n}", "search", f'{{"q": {n}}}') for n in range(count)]
    found = [ToolResultPart(f"c{n}", "search", f"<{n}> " + "r" * length) for n in range(count)]
    return (*asked, *found)


@pytest.mark.parametrize("limit", [100, 1_000, 20_000])
@pytest.mark.parametrize(
    "parts",
    [
        (
            ToolCallPart("c", "write_file", '{"path": "a.py", "text": "' + "x" * 240_000 + '"}'),
            ToolResultPart("c", "write_file", "done"),
        ),
        (TextPart("I searched."), *calls(300, 4_900)),
        (
            TextPart("long " * 9_000),
            ReasoningPart("hm"),
            FilePart("text/plain", "notes.txt", "r", "n" * 9_000),
            *calls(2, 4_900),
        ),
    ],
    ids=["one call", "many results", "all kinds"],
)
def test_a_message_fits_its_limit(parts: tuple[Part, ...], limit: int) -> None:
    text = request_of(parts, limit)
    assert len(text) < 1.6 * limit + 400
    assert "[called " in text
    assert " answered: " in text


def test_a_cut_call_keeps_its_name_its_beginning_and_its_end() -> None:
    text = request_of((ToolCallPart("c", "write_file", "{head" + "x" * 9_000 + "tail}"),), 500)
    assert "[called write_file with {headxxx" in text
    assert "characters cut …]" in text
    assert "xxxtail}]" in text


def test_calls_without_room_are_counted_by_name() -> None:
    text = request_of(calls(300, 4_900), 8_000)
    assert text.count("[called search with") == 20
    assert text.count("[search answered: ") == 20
    assert text.endswith("\n(and 280 more calls of search)\n</message>")


def test_what_fits_its_limit_is_not_changed() -> None:
    parts = (TextPart("I searched."), *calls(2, 40))
    assert request_of(parts, 4_000) == request_of(parts, None)
    long = (TextPart("word " * 2_000),)
    assert request_of(long, 700) == request_of(long, 700, cuts_tools=False)


def test_a_request_of_an_earlier_version_cuts_texts_alone() -> None:
    text = request_of((TextPart("word " * 2_000), *calls(9, 900)), 700, cuts_tools=False)
    assert len(text) > 9 * 900


@pytest.mark.parametrize(
    ("lengths", "limit", "share"),
    [([], 9, 9), ([1, 2], 9, 9), ([1, 20], 9, 8), ([9, 9, 9], 9, 3), ([5, 5], 1, 1), ([], 0, 1)],
)
def test_short_parts_leave_their_share_to_long_ones(
    lengths: list[int], limit: int, share: int
) -> None:
    assert compute_share(lengths, limit=limit) == share
