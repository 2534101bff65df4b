"""Formulas become MathML. Amounts of money and invalid LaTeX are shown unchanged."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.rendering.blocks import find_closed_offset
from chats.rendering.fragments import build_delta_fragments, build_snapshot_fragments
from chats.rendering.markdown import render_markdown
from chats.rendering.maths import DEEPEST, LONGEST_FORMULA, MOST_MATHML

SQUARE = "<msup><mi>x</mi><mn>2</mn></msup>"


@pytest.mark.parametrize("text", ["$x^2$", r"\(x^2\)", "so $x^2$, and", "**a** ($x^2$)", "$x^2$th"])
def test_a_formula_stands_within_its_sentence(text: str) -> None:
    html = render_markdown(text)

    assert f"<math>{SQUARE}</math>" in html
    assert html.startswith("<p")
    assert "$" not in html


@pytest.mark.parametrize(
    "text",
    [
        "$$x^2$$",
        "$$\nx^2\n$$",
        r"\[x^2\]",
        "\\[\nx^2\n\\]",
        "See:\n$$\nx^2\n$$\nand so on",
        "- item\n  $$\n  x^2\n  $$",
        "> \\[\n> x^2\n> \\]",
        "It is $$x^2$$ then.",
        "1. a\n\n   \\[ x^2 \\]",
    ],
)
def test_a_displayed_formula_has_a_box_of_its_own_that_scrolls(text: str) -> None:
    html = render_markdown(text)

    assert f'<math display="block">{SQUARE}</math>' in html
    assert re.search(
        r'<(div|span) class="math" tabindex="0" role="group" aria-label="Formula"><math', html
    )
    assert "$" not in html


def test_lines_of_a_formula_are_no_lists_or_headings() -> None:
    html = render_markdown("\\[\na\n+ b\n- c\n= d\n\\]")

    assert "<li" not in html
    assert "<h" not in html
    assert html.count("<mi>") == 4


@pytest.mark.parametrize("name", ["align", "align*", "gather", "equation", "multline"])
def test_an_environment_needs_no_marks_and_has_no_number_of_its_own(name: str) -> None:
    html = render_markdown(f"\\begin{{{name}}}\na = b \\label{{one}}\n\\end{{{name}}}")

    assert '<math display="block">' in html
    assert "(1)" not in html


def test_a_number_that_a_formula_says_itself_is_shown() -> None:
    html = render_markdown("\\begin{align}\na &= b \\tag{7}\n\\end{align}")

    assert "(7)" in html
    assert 'class="math-end math-joined-end"' in html
    assert " style=" not in html


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6.",
        "Between $5-$6 or $5–$10.",
        "$5 and 6$, say",
        "I have 5$ and you 6$.",
        "US$5 or A$6",
        "$HOME/$USER and ${a}/${b}",
        "$(a).b($(c))",
        "cp $src/$dst",
        "$user@$host:$port",
        "$db_user,$db_password",
        "echo $first$second",
        "PATH=$prefix/bin:$other",
        '"$src"/"$dst"',
        "$foo:$bar",
        "mv $a/$b",
        "$src/*.$ext",
        "$this->$name",
        "$HOME/$dir",
        "$srcDir/$dst",
        "$list[$key]",
        "a $ b $ c",
        r"\$x\$",
        "`$x$`",
        "$",
        "$$",
        "$$$$",
        r"\(\)",
        "$ x$",
    ],
)
def test_money_and_names_of_variables_are_no_formulas(text: str) -> None:
    html = render_markdown(text)

    assert "<math" not in html
    assert "math__source" not in html


@pytest.mark.parametrize(
    "text",
    [
        "the $k$s",
        "$n$th",
        "$f'$s",
        "$n!$ways",
        r"$\alpha_i$s",
        "$x_1$ and $y$",
        "$(a)$s",
        "$x^*$s",
        "$a>0,$and",
        "$a<b,$and",
        "$x=y,$so",
        "$x^-$and",
        "$x^+$s",
        "$x,$and",
        "$x_1,$and",
        "$AB,$and",
        "$ABC$s",
        "$x_1$s",
        "$f(x),$then",
        "$n/2$th",
        "$a + b,$and",
        "$ab/c=$x",
    ],
)
def test_letters_may_follow_a_formula(text: str) -> None:
    assert "<math" in render_markdown(text)


@pytest.mark.parametrize(
    "latex",
    [
        r"\frac{1",
        r"\foo{x}",
        r"\href{https://evil.example}{x}",
        r"\includegraphics{x}",
        r"\def\a{\a\a}\a",
        r"\newcommand{\x}{y}\x",
        r"\left(",
        "x^" * 3,
        "x" * (LONGEST_FORMULA + 1),
        "x^{" * DEEPEST + "x" + "}" * DEEPEST,
    ],
    ids=range(10),
)
def test_what_cannot_be_typeset_stands_as_code_as_it_was_written(latex: str) -> None:
    html = render_markdown(f"$$\n{latex}\n$$")

    assert "<math" not in html
    source = re.search(r'<code class="math__source">(.*?)</code>', html, re.DOTALL)
    assert source
    assert source[1] == f"$$\n{latex}\n$$"


def test_a_message_of_very_many_formulas_shows_the_last_ones_as_code() -> None:
    html = render_markdown(("$x" + "'" * 1900 + "$ ") * 12)

    assert 0 < html.count("<math>") < 12
    assert html.count("<math>") + html.count("math__source") == 12
    assert len(html) < 2 * MOST_MATHML


def test_a_formula_moves_nothing_far_and_has_no_colours() -> None:
    html = render_markdown(r"$\hspace{99em}\kern-99em\raisebox{99em}{x}\color{white}y$")

    assert "<mi>y</mi>" in html
    assert "99" not in html
    assert " style=" not in html
    assert "FFF" not in html


def test_no_open_formula_is_an_error_while_it_streams() -> None:
    text = "Then:\n\n$$\n\\frac{a}{b}\n$$\n\nand $x^2$ at \\(y\\).\n\nEnd\n"
    before = ""
    for end in range(1, len(text) + 1):
        for _, html in build_delta_fragments(before, text[:end]):
            assert "math__source" not in html
            assert "Error" not in html
        [(_, html)] = build_snapshot_fragments(text[:end])
        assert "math__source" not in html
        before = text[:end]


LINES = st.sampled_from(
    ["a $x$ b", "", "", "$$", "x^2", "\\[", "\\]", "$$y$$", "- a", "  \\(z", "\\)", "> $", "```"]
)


@given(st.lists(LINES, max_size=14).map(lambda lines: "".join(f"{line}\n" for line in lines)))
def test_formulas_of_a_closed_part_and_the_rest_are_those_of_the_whole(text: str) -> None:
    closed = find_closed_offset(text)
    whole = render_markdown(text)
    parts = render_markdown(text[:closed]) + render_markdown(text[closed:])

    assert re.sub(r"\s+", " ", parts).strip() == re.sub(r"\s+", " ", whole).strip()
