"""Parts of UI messages: a record of their other data restores the given parts."""

from typing import Any

import pytest

from contextpolicy.engine.messages.given_parts import (
    build_kept_parts,
    restore_given_parts,
    write_stored_parts,
)
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

TEXT = {"type": "text", "text": "The ferry leaves at nine."}
STORED: tuple[Part, ...] = (TextPart(TEXT["text"]),)
CALL: tuple[Part, ...] = (
    ToolCallPart("c1", "timetable", '{"line":"A"}'),
    ToolResultPart("c1", "timetable", "nine"),
)


def restore_parts(given: list[Any], parts: tuple[Part, ...]) -> Any:
    """Return the parts that the record of these given parts restores. None without a record."""
    kept = build_kept_parts(given, parts)
    return restore_given_parts(write_stored_parts(parts), kept, count=len(parts))


def test_equal_parts_need_no_record() -> None:
    assert build_kept_parts([TEXT], STORED) == {}
    assert build_kept_parts([], STORED) == {}
    assert restore_parts([TEXT], STORED) is None


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ([{**TEXT, "state": "done"}], STORED),
        ([{"type": "data-weather", "data": {"rain": [1, None, "ü"]}}, TEXT], STORED),
        ([TEXT, {"type": "source-url", "url": "https://example.org/", "sourceId": "s"}], STORED),
        ([TEXT, TEXT], STORED),
        ([TEXT, "text", 7, None], STORED),
        ([{"type": "step-start"}], ()),
        (
            [
                {
                    "type": "tool-timetable",
                    "toolCallId": "c1",
                    "state": "output-available",
                    "input": {"line": "A"},
                    "output": {"at": 9},
                    "providerExecuted": True,
                }
            ],
            CALL,
        ),
        ([{"type": "tool-timetable", "toolCallId": 7, "state": "input-streaming"}], CALL),
    ],
)
def test_given_parts_are_restored(given: list[Any], parts: tuple[Part, ...]) -> None:
    assert restore_parts(given, parts) == given


def test_a_restored_file_has_the_stored_address_and_text() -> None:
    stored = (FilePart("text/plain", "a.txt", "file:1", text="nine"),)
    given = {
        "type": "file",
        "mediaType": "text/plain",
        "filename": "a.txt",
        "url": "data:text/plain;base64,bmluZQ==",
        "providerMetadata": {"custom": {"page": 2}},
    }
    (restored,) = restore_parts([given], stored)
    assert restored == {**given, "url": "file:1", "text": "nine"}


def test_each_stored_part_restores_one_given_part() -> None:
    parts = tuple(TextPart(text) for text in ("a", "b", "a"))
    given = [
        {"type": "text", "text": "a", "state": "done"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    kept = build_kept_parts(given, parts)
    assert kept == {"of": 3, "parts": [[0, '{"state":"done"}'], 2, 1]}
    assert restore_parts(given, parts) == given


@pytest.mark.parametrize("kept", [None, "text", {}, {"of": 2, "parts": [0]}])
def test_a_record_of_other_parts_is_not_used(kept: object) -> None:
    assert restore_given_parts([TEXT], kept, count=1) is None


def test_a_record_that_names_a_missing_part_is_not_used() -> None:
    assert restore_given_parts([TEXT], {"of": 1, "parts": [1]}, count=1) is None
