"""Token counts, and the estimate without a tokenizer."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.messages.messages import (
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    WireMessage,
    convert_parts_to_wires,
)
from contextpolicy.engine.messages.tokens import (
    MESSAGE_OVERHEAD,
    ApproximateCounter,
    count_tool_tokens,
    count_uncut_tokens,
    count_wire_tokens,
)

COUNTER = ApproximateCounter()
# Counts of the public o200k vocabulary; the estimate may be higher, but not much lower.
TRUTH = {
    "prose": ("The quick brown fox jumps over the lazy dog. " * 20, 201),
    "code": ("for i in range(10):\n    total += values[i] * 2\n" * 20, 340),
    "chinese": ("今天天气很好，我们去公园散步吧。" * 20, 240),
    "german": ("Die Geschwindigkeitsbegrenzung wurde gestern aufgehoben. " * 20, 241),
    "numbers": ("12345 67890 3.14159 2026-11-20 " * 20, 360),
}


@pytest.mark.requirement("S0.6")
@pytest.mark.parametrize("kind", sorted(TRUTH))
def test_inv_17_the_estimate_is_not_below_nine_tenths_of_the_truth(kind: str) -> None:
    text, truth = TRUTH[kind]
    assert truth * 0.9 <= COUNTER.count(text) <= truth * 2.5


def test_inv_17_base64_is_not_taken_for_long_words() -> None:
    text = base64.b64encode(bytes(range(256)) * 8).decode()
    assert COUNTER.count(text) > len(text) / 2


@given(st.text(), st.text())
def test_more_text_never_counts_less(first: str, second: str) -> None:
    assert COUNTER.count(first) >= 0
    assert COUNTER.count(first + " " + second) + 1 >= COUNTER.count(first)


def test_an_empty_text_has_no_tokens() -> None:
    assert COUNTER.count("") == 0


def test_a_message_counts_its_texts_calls_results_and_frames_but_no_reasoning() -> None:
    parts = (
        ReasoningPart("a long thought " * 50),
        TextPart("look"),
        ToolCallPart("c", "look_up", "{}"),
        ToolResultPart("c", "look_up", "found"),
    )
    without = count_uncut_tokens(parts[1:], "assistant", COUNTER)
    assert count_uncut_tokens(parts, "assistant", COUNTER) == without
    wires = convert_parts_to_wires("assistant", parts)
    assert without == sum(count_wire_tokens(wire, COUNTER) for wire in wires)
    assert without > 2 * MESSAGE_OVERHEAD


def test_a_message_without_anything_to_send_counts_nothing() -> None:
    assert count_uncut_tokens((ReasoningPart("hm"),), "assistant", COUNTER) == 0


def test_tools_count_their_names_descriptions_and_schemas() -> None:
    small = ToolSpec("look_up", "Looks things up.", {})
    large = ToolSpec("look_up", "Looks things up.", {"type": "object", "required": ["query"]})
    assert count_tool_tokens((), COUNTER) == 0
    assert 0 < count_tool_tokens((small,), COUNTER) < count_tool_tokens((large,), COUNTER)
    assert count_tool_tokens((small, large), COUNTER) == sum(
        count_tool_tokens((tool,), COUNTER) for tool in (small, large)
    )


def test_a_wire_message_counts_its_frame_even_when_empty() -> None:
    assert count_wire_tokens(WireMessage("user", ""), COUNTER) == MESSAGE_OVERHEAD
