"""A streamed reply shows the streamed text, however the text was split."""

import html as html_module
import re

from hypothesis import given
from hypothesis import strategies as st

from chats.rendering.fragments import (
    build_delta_fragments,
    build_snapshot_fragments,
    render_live_html,
)

TEXT = """First **words**.

> it was quoted

```python
x = 1

y = 2
```
Then <b>more</b>

- a

- b

End."""


class Page:
    """The content of the page's containers after events, as htmx swaps them."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.open = ""

    def take(self, events: list[tuple[str, str]]) -> None:
        """Apply the events."""
        for name, html in events:
            if name == "snapshot":
                done = re.search(r'<div class="block" hx-disable>(.*)</div></div><div', html, re.S)
                self.blocks = [done[1]] if done else []
                self.open = rest_of(html)
            elif name == "block":
                self.blocks.append(html)
            elif name == "rest":
                self.open = rest_of(html)
            elif name == "delta":
                self.open += html_module.unescape(html)


def rest_of(html: str) -> str:
    """Return the text of the open part."""
    match = re.search(r'<span sse-swap="delta" hx-swap="beforeend">(.*?)</span>', html, re.S)
    assert match
    return html_module.unescape(match[1])


def test_S20_blocks_come_once_and_in_order() -> None:
    page, text = Page(), ""
    page.take(build_snapshot_fragments(""))
    for letter in TEXT:
        page.take(build_delta_fragments(text, text + letter))
        text += letter

    assert [
        len(re.findall(word, "".join(page.blocks))) for word in ("words", "quoted", "more")
    ] == [
        1,
        1,
        1,
    ]
    assert page.open == "End."


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(0, 60))
def test_the_open_rest_is_the_end_of_the_text(sizes: list[int], start: int) -> None:
    page, text = Page(), TEXT[:start]
    page.take(build_snapshot_fragments(text))
    for size in sizes:
        new = TEXT[: len(text) + size]
        page.take(build_delta_fragments(text, new))
        text = new

    assert text.endswith(page.open)


def test_another_text_replaces_everything() -> None:
    [(name, html)] = build_delta_fragments("attempt one", "attempt two, other words")

    assert name == "snapshot"
    assert "attempt two" in html


def test_nothing_new_is_no_event() -> None:
    assert build_delta_fragments("same", "same") == []


def test_open_text_is_escaped() -> None:
    assert build_delta_fragments("a", "a<b>") == [("delta", "&lt;b&gt;")]


def test_a_page_drawn_during_a_reply_has_the_containers_of_a_snapshot() -> None:
    assert render_live_html("abc") == build_snapshot_fragments("abc")[0][1]
