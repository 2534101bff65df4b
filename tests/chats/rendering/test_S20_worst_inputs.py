"""The worst texts of 32,000 characters take at most 1.5 s of a core, code included."""

import time

import pytest

from chats.rendering.code import HIGHLIGHT_LIMIT, LANGUAGES, code_figure
from chats.rendering.markdown import render_markdown

SIZE = 32_000
LIMIT = 1.5


def filled(pattern: str) -> str:
    """The pattern again and again."""
    return (pattern * (SIZE // len(pattern) + 1))[:SIZE]


WORST = {
    "open brackets": filled("["),
    "open links": filled("[a]("),
    "open images": filled("!["),
    "images": filled("![a](http://x.y/)"),
    "nested brackets": "[" * (SIZE // 2) + "]" * (SIZE // 2),
    "emphasis": filled("*a_ "),
    "stars": filled("*"),
    "mixed stars": filled("a**b" + "c* "),
    "tildes": filled("~~a"),
    "ticks of all lengths": filled("".join("`" * n + " " for n in range(1, 250))),
    "less-than signs": filled("<"),
    "half a tag": filled('<a href="'),
    "autolinks": filled("<http://a.b>"),
    "bare addresses": filled("https://a.b "),
    "addresses of brackets": filled("https://a.b/" + "(" * 980 + " "),
    "entities": filled("&amp;"),
    "backslashes": filled("\\"),
    "quotes": filled("> a\n"),
    "nested quotes": filled("> " * 19 + "a\n"),
    "quote signs": filled(">"),
    "nested lists": filled("".join("  " * n + "- a\n" for n in range(120))),
    "list signs": filled("- "),
    "wide tables": filled("|a" * 99 + "|\n" + "|-" * 99 + "|\n" + ("|a" * 99 + "|\n") * 150),
    "long tables": filled("a|b\n-|-\n" + "|\n" * 16_000),
    "references": filled("".join(f"[a{n}]: x\n" for n in range(4000))),
    "uses of one reference": "[a]: https://x.y\n" + filled("[a]"),
    "headings": filled("# a\n"),
    "underlined headings": filled("a\n=\n"),
    "lines": filled("a\n"),
    "line ends": filled("\n"),
    "spaces": filled(" "),
    "code of brackets": "```python\n" + filled("(" * 499 + "\n") + "\n```",
    "many blocks of code": filled("```js\n" + '"\\' * 200 + "\n```\n"),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_text_is_rendered_in_time(name: str) -> None:
    began = time.thread_time()
    render_markdown(WORST[name])

    assert time.thread_time() - began < LIMIT


def test_the_worst_code_of_each_language_is_coloured_in_time() -> None:
    patterns = ["a b ", "/*\n", '"\\', "\n" * 199 + "a"]
    slow = []
    for language in sorted(LANGUAGES):
        for pattern in patterns:
            line = pattern if "\n" in pattern else (pattern * 500)[:499] + "\n"
            code = (line * HIGHLIGHT_LIMIT)[:HIGHLIGHT_LIMIT]
            began = time.thread_time()
            code_figure(code, language)
            if time.thread_time() - began > LIMIT / 2:
                slow.append((language, pattern))

    assert not slow


def test_a_message_of_everyday_length_takes_moments() -> None:
    text = ("Some **bold** words and `code`, see https://a.example/x.\n\n- one\n- two\n\n" * 60)[
        :4000
    ]
    took = []
    for _ in range(5):
        began = time.thread_time()
        render_markdown(text)
        took.append(time.thread_time() - began)

    assert min(took) < 0.05
