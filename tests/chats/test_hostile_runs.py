"""Texts of models and files take time that grows with their length, not with its square."""

import time
from collections.abc import Callable

import pytest

from chats.exchange import citations
from chats.rendering.spoken import SpokenSoFar

LENGTH = 200_000
RUNS = [" ", "\t", "<grok:render ", "[FROM:", "[citation:1", "【1†", "\ue200a\ue202"]
READERS: dict[str, Callable[[str], str]] = {
    "cards": citations.remove_citation_cards,
    "marks": lambda text: citations.replace_citation_marks(text, [{"matched_text": "†"}]),
    "numbers": lambda text: citations.link_citation_numbers(text, []),
    "spoken": lambda text: SpokenSoFar("Ann").without_markers(text),
}
# So that no reader returns early.
OPENING = "†[citation:2]<grok:render"


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", READERS)
def test_a_long_run_is_read_in_a_second(name: str, run: str) -> None:
    text = OPENING + run * (LENGTH // len(run))
    began = time.process_time()
    READERS[name](text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("run", ["\ue202", "\ue202a", "\ue202 "])
def test_fields_of_an_open_mark_take_no_exponential_time(run: str) -> None:
    # Each field once doubled the time.
    began = time.process_time()
    assert citations.replace_citation_marks("\ue200cite" + run * 28, []) == "cite" + (run[1:] * 28)
    assert time.process_time() - began < 1
    marked = "It rained.\ue200cite\ue202turn0\ue202turn1\ue201"
    assert citations.replace_citation_marks(marked, []) == "It rained."


def test_cards_are_removed_with_the_blanks_before_them() -> None:
    text = 'A <grok:render card="1">\n<b>2</b></grok:render> and  <grok:render>x</grok:render>.'
    assert citations.remove_citation_cards(text) == "A and."
    assert citations.remove_citation_cards("A <grok:render x") == "A <grok:render x"
