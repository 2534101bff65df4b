"""Texts of models and files take time that grows with their length, not with its square."""

import time
from collections.abc import Callable

import pytest

from chats.exchange import assistants, bounds, citations, thoughts
from chats.rendering.spoken import SpokenSoFar

LENGTH = 200_000
RUNS = [" ", "\t", "<grok:render ", "[FROM:", "[citation:1", "【1†", "\ue200a\ue202"]
READERS: dict[str, Callable[[str], str]] = {
    "cards": citations.remove_citation_cards,
    "marks": lambda text: citations.replace_citation_marks(text, [{"matched_text": "†"}]),
    "numbers": lambda text: citations.link_citation_numbers(text, []),
    "spoken": lambda text: SpokenSoFar("Ann").without_markers(text),
}
OPEN_TAGS = ["<!--", "<![x", "<a ", "<a x='", '<a x="', "</", "<?", "<script>", "<pre> "]
BLOCKS = ["<think>a</think>", ' type="reasoning"', "`</think>", "</thinking>"]
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


@pytest.mark.parametrize("run", OPEN_TAGS)
def test_open_tags_of_html_take_linear_time(run: str) -> None:
    began = time.process_time()
    assistants.convert_html_to_markdown(f"<pre>{run * (LENGTH // len(run))}")
    assert time.process_time() - began < 2


@pytest.mark.parametrize("start", ["", "<details ", '<details type="reasoning">', "<think>"])
@pytest.mark.parametrize("run", [" ", *BLOCKS])
def test_reasoning_is_separated_in_a_few_seconds(start: str, run: str) -> None:
    text = start + run * (LENGTH // len(run))
    began = time.process_time()
    thoughts.split_leading_reasoning(text, is_first=True)
    assert time.process_time() - began < 5


def test_a_late_opening_tag_is_searched_once() -> None:
    text = f"<think>{'x' * LENGTH}<thinking>{'</thinking>' * (LENGTH // 11)}"
    began = time.process_time()
    thoughts.split_leading_reasoning(text, is_first=True)
    assert time.process_time() - began < 5


def test_links_of_short_marks_have_a_limit() -> None:
    address = f"https://example.org/{'a' * 5_000}"
    text = citations.replace_citation_marks(
        "a†" * LENGTH, [{"matched_text": "†", "url": address}] * 600
    )
    assert len(text) <= LENGTH + bounds.SEARCHED_TEXT
    numbered = citations.link_citation_numbers(
        "[citation:1]" * LENGTH, [{"cite_index": 1, "url": address}]
    )
    assert len(numbered) <= bounds.SEARCHED_TEXT


def test_html_becomes_markdown() -> None:
    html = (
        "<!-- a > b --><p>One &lt; two</p><script>if (a < b) { '<script>' }</script>"
        "<a class=\"x\" href='https://example.org/?a=1&amp;b=2'>link</a>"
        "<pre><code>  x  \n</code></pre>1 < 2"
    )
    assert assistants.convert_html_to_markdown(html) == (
        "One < two\n\n[link](https://example.org/?a=1&b=2)\n\n```\n  x\n\n```\n\n1 < 2"
    )
