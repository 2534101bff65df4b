"""Images in tool results: where they are sent, and when they are left out."""

from typing import Any

from contextpolicy.engine.history.entries import build_prompt_entry
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    WireMessage,
    convert_parts_to_wires,
    name_result_image,
)
from contextpolicy.engine.messages.tokens import count_wire_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import COUNTER, composed, given, message

PICTURE = FilePart("image/png", "", Image(1000, sha256="a" * 64, size=5).reference)
CALLS = (ToolCallPart("c1", "look_up", "{}"), ToolCallPart("c2", "look_up", "{}"))


def shown(call_id: str, offset: int = 0) -> FilePart:
    return name_result_image(PICTURE, call_id=call_id, offset=offset)


def replied(*more: Part) -> tuple[Part, ...]:
    """Return a reply with two calls, whose second result has an image."""
    results = (ToolResultPart("c1", "look_up", "one"), ToolResultPart("c2", "look_up", "two"))
    return (*CALLS, results[0], shown("c2", 3), results[1], *more)


def test_each_result_has_its_own_images() -> None:
    _, first, second, last = convert_parts_to_wires("assistant", replied(TextPart("Done")))
    assert first == WireMessage("tool", "one", (), "c1")
    assert second == WireMessage("tool", "two", (), "c2", ((3, shown("c2", 3)),))
    assert second.pieces() == ["two", shown("c2", 3)]
    assert last == WireMessage("assistant", "Done")
    assert count_wire_tokens(second, COUNTER) > 1000


def test_an_image_without_its_result_is_a_line_of_the_reply() -> None:
    wires = convert_parts_to_wires("assistant", (shown("c9"), TextPart("Done")))
    assert [wire.images for wire in wires] == [()]
    assert wires[0].content.startswith("[Image: image/png")


def test_an_omitted_result_has_no_image() -> None:
    made = message(2, parts=replied(), role="assistant")
    entry = build_prompt_entry(
        made, values=PolicyValues(), counter=COUNTER, stubbed={2: frozenset({"c1", "c2"})}
    )
    assert [wire.images for wire in entry.wires] == [(), (), ()]
    assert entry.tokens < 1000 < made.tokens


def test_a_text_layout_shows_neither() -> None:
    history = [message(1), message(2, parts=replied(), role="assistant")]
    values: Any = PolicyValues(strategy="sliding_window", layout="A")
    context = composed(given(history, values=values))
    assert "Assistant:" not in context.messages[-1].content
    seen = [message(1), message(2, parts=(PICTURE,), role="assistant")]
    assert "[Image: image/png" in composed(given(seen, values=values)).messages[-1].content
