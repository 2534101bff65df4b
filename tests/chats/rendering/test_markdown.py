"""Rendering of Markdown on pages."""

import re

import pytest

from chats.rendering.code import LANGUAGES, find_lexer, render_code_figure
from chats.rendering.localized import localise_html
from chats.rendering.markdown import MAX_COLUMNS, PLAIN_ABOVE, render_markdown


def test_rendering_twice_gives_the_same() -> None:
    text = "# T\n\n**b** `c` https://a.example\n\n```python\nx = 1\n```\n\n| a |\n|--:|\n| 1 |"

    assert render_markdown(text) == render_markdown(text)


def test_headings_stand_below_the_headings_of_the_page() -> None:
    assert "<h3" in render_markdown("# one")
    assert "<h6" in render_markdown("###### six")


def test_a_line_end_stays_a_line_end() -> None:
    assert "a<br>" in render_markdown("a\nb")


def test_each_outermost_block_has_its_own_direction() -> None:
    html = render_markdown("abc\n\nאבג\n\n- x\n\n> y")

    assert html.count('dir="auto"') == 4


def test_numbers_stand_at_the_side_that_the_table_says() -> None:
    html = render_markdown("| a | b |\n|---|--:|\n| 1 | 2 |")

    assert '<td class="n">2</td>' in html
    assert "<td>1</td>" in html
    assert "style" not in html


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("Ada<br>Bob", "Ada<br>Bob"),
        ("Ada<BR/>Bob<br />Cem", "Ada<br>Bob<br>Cem"),
        ("**Ada<br>Bob**", "<strong>Ada<br>Bob</strong>"),
        ("Ada<br class=x>Bob", "Ada&lt;br class=x&gt;Bob"),
        ("Ada<br onclick=1>", "Ada&lt;br onclick=1&gt;"),
        ("Ada<hr>Bob", "Ada&lt;hr&gt;Bob"),
        (r"Ada\<br>Bob", "Ada&lt;br&gt;Bob"),
        ("Ada&lt;br>Bob", "Ada&lt;br&gt;Bob"),
        ("`<br>`", "<code>&lt;br&gt;</code>"),
    ],
)
def test_a_break_in_a_cell_is_a_line_break(cell: str, shown: str) -> None:
    html = render_markdown(f"| Berth | Ships |\n|---|---|\n| 4 | {cell} |")
    assert f"<td>{shown}</td>" in html.replace("<br>\n", "<br>")
    head = render_markdown(f"| {cell} |\n|---|\n| 4 |")
    assert f">{shown}</th>" in head.replace("<br>\n", "<br>")


def test_a_break_outside_a_table_is_text() -> None:
    for text in ("Ada<br>Bob", "- Ada<br>Bob", "# Ada<br>Bob", "> Ada<br>Bob"):
        assert "Ada&lt;br&gt;Bob" in render_markdown(text)


def test_a_fence_is_a_figure_with_its_language_and_colours() -> None:
    html = render_markdown('```python\ndef f():\n    return "x"\n```')

    assert '<figure class="code">' in html
    assert "<span>python</span>" in html
    assert '<span class="k">def</span>' in html
    assert re.search(r'<button type="button" class="[^"]* code__copy">Copy</button>', html)


def test_the_code_in_a_figure_is_the_code_that_was_written() -> None:
    code = "\n  if a < b && c:\n\treturn '<b>'\n\n"
    text = render_code_figure(code, "python").split("<code>")[1].split("</code>")[0]
    plain = text.replace('<span class="k">', "").replace('<span class="s">', "")

    assert "&lt;b&gt;" in plain
    assert plain.startswith("\n  ")


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_named_language_has_a_lexer(language: str) -> None:
    assert find_lexer(language) is not None


def test_an_unknown_language_is_shown_as_it_is() -> None:
    assert "<code>x &lt; 1\n</code>" in render_markdown("```klingon\nx < 1\n```")


def test_code_with_a_very_long_line_stays_uncoloured() -> None:
    assert 'class="s"' not in render_markdown(f"```python\n'{'a' * 600}'\n```")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("see https://a.example/x.", "https://a.example/x"),
        ("(https://a.example/x)", "https://a.example/x"),
        ("https://a.example/x_(y)", "https://a.example/x_(y)"),
        ("**https://a.example/x**", "https://a.example/x"),
    ],
)
def test_an_address_in_a_text_can_be_clicked(text: str, address: str) -> None:
    assert f'<a href="{address}"' in render_markdown(text)


def test_an_address_in_code_is_code() -> None:
    assert "<a " not in render_markdown("`https://a.example`")


def test_S20_a_very_long_text_is_shown_unformatted_with_a_notice() -> None:
    html = localise_html(render_markdown("**a**" + "b" * PLAIN_ABOVE))

    assert "64,005 characters; it is shown unformatted" in html
    assert "**a**" in html
    assert "<strong>" not in html


def test_S20_a_deeply_nested_text_loses_nothing() -> None:
    html = localise_html(render_markdown(">" * 40 + " the innermost words"))

    assert "nested" in html
    assert "the innermost words" in html


def test_S20_nesting_up_to_the_limit_is_formatted() -> None:
    html = render_markdown("> " * 18 + "words")

    assert html.count("<blockquote") == 18
    assert "words" in html


def test_S20_a_table_with_too_many_columns_stays_text() -> None:
    def table(columns: int) -> str:
        return "|a" * columns + "|\n" + "|-" * columns + "|\n" + "|b" * columns + "|"

    assert "<table" in render_markdown(table(MAX_COLUMNS))
    assert "<table" not in render_markdown(table(MAX_COLUMNS + 1))


def test_a_text_that_cannot_be_encoded_is_still_shown() -> None:
    assert "before" in render_markdown("before \ud800 after")
