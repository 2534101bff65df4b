"""The text of an agent, during streaming and after the reply is stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.models import Message
from chats.rendering.spoken import SpokenSoFar, extract_displayed_text

TEXTS = [
    "Hello.",
    "Max: Hello.",
    "[FROM:Max]\nHello. [NEXT:Critic]",
    "**Max**: Hello\nthere [NEXT:]",
    "Maximum effort [1] and [link](x)",
    "One.\n[FROM:Critic]\nTwo.",
    "[NEXT:Critic]",
    "你好。【NEXT：Critic】",
    "Hi［NEXT:Critic］and[NEXT：Max]on",
    "",
]


def whole(text: str) -> str:
    """Return the text that the page shows for a stored reply."""
    speaker = {"roleId": "max", "roleName": "Max", "type": "ai"}
    return extract_displayed_text(
        Message(parts=[{"type": "text", "text": text}], speaker=speaker)
    ).own


@pytest.mark.requirement("S3.5")
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_no_label_or_marker_is_seen_while_a_reply_grows(text: str, size: int) -> None:
    words = SpokenSoFar("Max")
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    found = "".join(words.take(piece) for piece in pieces)
    assert found.strip() == whole(text).strip()


@given(st.text(alphabet="[]:NEXT \na：【】［］", max_size=60), st.data())
def test_whatever_comes_in_pieces_is_what_comes_at_once(text: str, data: st.DataObject) -> None:
    at_once = SpokenSoFar("Max").take(text)
    cut = data.draw(st.integers(0, len(text)))
    words = SpokenSoFar("Max")
    assert words.take(text[:cut]) + words.take(text[cut:]) == at_once


def test_a_page_that_comes_back_goes_on_in_the_middle() -> None:
    words = SpokenSoFar("Max", at_start=False)
    assert words.take("Max: it is. [NEXT:x]") == "Max: it is."
