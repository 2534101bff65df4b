"""Keep-alives of streams, which are comments and no events."""

import json
from typing import Any

import pytest

from chats.gateway.merge_choices import MergedReplies, split_events
from chats.gateway.watch import PING


def test_a_ping_ends_no_event() -> None:
    # The decoder of openai-go reports an empty event at each blank line.
    assert PING.startswith(":")
    assert PING.count("\n") == 1


@pytest.mark.parametrize(
    ("piece", "events"),
    [
        (PING, [PING]),
        ("data: a\n\n", ["data: a\n\n"]),
        ("data: a\n\ndata: b\n\n", ["data: a\n\n", "data: b\n\n"]),
        (f"data: a\n\n{PING}", ["data: a\n\n", PING]),
        ("", []),
    ],
)
def test_pieces_of_a_stream_are_split_into_events(piece: str, events: list[str]) -> None:
    assert list(split_events(piece)) == events


def test_a_ping_of_one_choice_is_passed_on_between_events() -> None:
    merged = MergedReplies(2, is_stream=True)
    chunk: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "x"}}]}
    event = f"data: {json.dumps(chunk)}\n\n"
    body = merged.add(1, PING) + merged.add(1, event) + merged.add(0, PING)
    lines = [line for line in body.split("\n") if line]
    assert [line[:1] for line in lines] == [":", "d", ":"]
    assert json.loads(lines[1].removeprefix("data: "))["choices"][0]["index"] == 1
