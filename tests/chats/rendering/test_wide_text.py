"""Markdown of Chinese, Japanese and Korean text, with addresses and formulas next to it."""

import pytest

from chats.rendering.markdown import render_markdown


@pytest.mark.parametrize(
    ("text", "strong"),
    [
        ("**「大事」**です。", "「大事」"),
        ("- **手順：**まず保存します", "手順："),
        ("이것은 **중요(필수)**입니다.", "중요(필수)"),
        ("これは**「A」**と", "「A」"),
        ("请**“重要”**的", "“重要”"),
        ("한국어**(필수)**입니다", "(필수)"),
        ("**注意：**ASCII", "注意："),
        ("***「全部」***です", "「全部」"),
    ],
)
def test_bold_ends_beside_wide_characters(text: str, strong: str) -> None:
    html = render_markdown(text)
    assert f"<strong>{strong}</strong>" in html
    assert "*" not in html


def test_other_marks_end_there_too() -> None:
    assert "<em>「大事」</em>" in render_markdown("_「大事」_です")
    assert "<s>「旧」</s>" in render_markdown("~~「旧」~~です")
    assert "<em>" not in render_markdown("変数_名_です")


@pytest.mark.parametrize(
    "text", ["**Note:**text", "a**(b)**c", "snake_case_name", "2 * 3 * 4", "** no**"]
)
def test_between_other_characters_commonmark_decides(text: str) -> None:
    html = render_markdown(text)
    assert "<strong>" not in html
    assert "<em>" not in html


@pytest.mark.parametrize(
    ("text", "href", "rest"),
    [
        ("参照https://example.com。次へ", "https://example.com", "。次へ"),
        ("（https://example.com/a）", "https://example.com/a", "）"),
        ("https://example.com/a，然后", "https://example.com/a", "，然后"),
        ("https://example.com次へ", "https://example.com", "次へ"),
        ("https://example.comдалее", "https://example.com", "далее"),
        ("https://example.com:8080次へ", "https://example.com:8080", "次へ"),
        ("「https://example.com/a?b=c」と", "https://example.com/a?b=c", "」と"),
        ("“https://example.com/a” said", "https://example.com/a", "” said"),
        ("https://example.com/a\u3000次", "https://example.com/a", "次"),
        ("https://münchen.de/x y", "https://xn--mnchen-3ya.de/x", " y"),
        ("https://日本語.jp/a b", "https://xn--wgv71a119e.jp/a", " b"),
    ],
)
def test_a_bare_address_ends_where_other_text_begins(text: str, href: str, rest: str) -> None:
    html = render_markdown(text)
    assert f'href="{href}"' in html
    assert html.rstrip().endswith(f"{rest}</p>")


def test_a_path_may_have_letters_of_any_script() -> None:
    html = render_markdown("https://zh.wikipedia.org/wiki/中国，然后")
    assert 'href="https://zh.wikipedia.org/wiki/%E4%B8%AD%E5%9B%BD"' in html


@pytest.mark.parametrize(
    ("text", "codes", "formulas"),
    [
        ("Set $HOME and then `$path` too", ["$path"], 0),
        ("the fee is $x or `$y`", ["$y"], 0),
        ("with $x + y$ as `code`", ["code"], 1),
        ("$$A and `$$b` c", ["$$b"], 0),
        (r"\(a and `\)` b", [r"\)"], 0),
        ("`$`$x$", ["$"], 1),
        ("$x$ and ``a ` $b`` c$", ["a ` $b"], 1),
        (r"\`$x$ and \`y", [], 1),
    ],
)
def test_a_formula_never_reaches_into_code(text: str, codes: list[str], formulas: int) -> None:
    html = render_markdown(text)
    assert html.count("<math") == formulas
    for code in codes:
        assert f"<code>{code}</code>" in html


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("设$x$为整数，则$x^2$也是", 2),
        ("値は$\\alpha$。", 1),
        ("단어$y$는", 1),
        ("「$x$」", 1),
        ("価格は$5と$10です", 0),
        ("价格为$5，不是$6。", 0),
        ("買い$AAPL、売り$TSLA。", 0),
        ("約$5-$10です", 0),
        ("環境変数$HOME:$PATH", 0),
    ],
)
def test_a_formula_needs_no_space_after_wide_characters(text: str, formulas: int) -> None:
    assert render_markdown(text).count("<math") == formulas


@pytest.mark.parametrize(
    "mark", ["\u061f", "\u060c", "\u061b", "\u06d4", "\u0964", "\u1362", "\u2026", "\u037e"]
)
def test_a_bare_address_ends_before_the_punctuation_of_its_sentence(mark: str) -> None:
    html = render_markdown(f"https://example.com/a{mark} b")
    assert 'href="https://example.com/a"' in html
