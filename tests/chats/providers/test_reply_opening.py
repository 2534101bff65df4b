"""The beginning of a reply that a client wrote, with servers that repeat it and others."""

import pytest

from chats.providers.prefill import ReplyOpening


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("sent", "may_repeat", "whole"),
    [
        (" you", False, "How are you"),
        (" you", True, "How are you"),
        ("How are you", True, "How are you"),
        ("How are", True, "How are"),
        # A server that never repeats it wrote these words again.
        ("How are you", False, "How areHow are you"),
        ("How", True, "How areHow"),
        ("", True, ""),
    ],
)
def test_the_text_is_whole_in_pieces_of_any_size(
    size: int, sent: str, may_repeat: bool, whole: str
) -> None:
    opening = ReplyOpening("How are", may_repeat=may_repeat)
    pieces = [opening.push(sent[n : n + size]) for n in range(0, len(sent), size)]
    assert "".join([*pieces, opening.flush()]) == whole
    assert opening.flush() == ""


def test_without_a_beginning_pieces_pass() -> None:
    assert ReplyOpening().push("Hello") == "Hello"
