"""Link definitions that no link uses stay in the text."""

import pytest

from chats.rendering.markdown import render_markdown


def test_a_list_of_sources_stays() -> None:
    html = render_markdown("Two sources.\n\n[1]: https://a.com/one\n[2]: https://b.com/two 'B'")
    assert '[1]: <a href="https://a.com/one"' in html
    assert '[2]: <a href="https://b.com/two"' in html
    assert html.count("<p") == 2
    assert html.count("<br>") == 1


def test_a_definition_that_a_link_uses_is_left_out() -> None:
    html = render_markdown(
        "See [one][a], ![two] and [three].\n\n[a]: https://a.com\n[two]: https://b.com"
    )
    assert html.count("https://a.com") == 1
    assert "[a]:" not in html
    assert "[two]:" not in html


@pytest.mark.parametrize(
    "text",
    [
        "[a]\n\n[a]: https://a.com\n[a]: https://b.com/other",
        "> [b]: https://b.com/other",
        "- one\n\n  [b]: https://b.com/other\n- two",
        "# Title\n[b]:\n  https://b.com/other\n\nMore",
        "[b]: https://b.com/other",
    ],
)
def test_other_definitions_stay(text: str) -> None:
    html = render_markdown(text)
    assert '<a href="https://b.com/other"' in html
    assert "]:" in html
