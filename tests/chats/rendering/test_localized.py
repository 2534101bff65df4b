"""Stored renderings have no words of the product; a page fills them in."""

import pytest
from django.utils import translation

from chats.rendering.localized import localise_html
from chats.rendering.markdown import MAX_NESTING, PLAIN_ABOVE, render_markdown
from chats.rendering.notes import link_footnotes

TEXTS = {
    "image on ": "![a](https://a.example/x.png)",
    "[image: a]": "[![a](https://a.example/x.png)](https://b.example)",
    "64,001 characters": "a" * (PLAIN_ABOVE + 1),
    "nested": ">" * (MAX_NESTING + 1) + " a",
    'aria-label="Table"': "| a |\n|---|\n| b |",
    'aria-label="Formula"': "$$\nx\n$$",
    'aria-label="Code"': "```\nx\n```",
    "Back to the text, 1": "a[^1]\n\n[^1]: b",
}


@pytest.mark.parametrize("words", TEXTS)
def test_the_words_are_in_the_language_of_the_reader(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    html = render_markdown(TEXTS[words])
    with translation.override("en"):
        assert words in link_footnotes(localise_html(html), key="m1")
    for module in ("localized", "notes"):
        name = f"chats.rendering.{module}.gettext"
        monkeypatch.setattr(name, lambda text: f"<X> {text}")
    shown = link_footnotes(localise_html(html), key="m1")
    assert "&lt;X&gt;" in shown
    assert "<X>" not in shown


def test_text_of_a_message_is_no_placeholder() -> None:
    text = '<span class="image__text">a</span> aria-label="Table"'
    html = render_markdown(text)
    assert localise_html(html) == html
