"""Rendering 32,000 characters of worst-case input takes at most 1.5 s of CPU time."""

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Branch, Chat, Message, Rendering
from chats.rendering import store
from chats.rendering.code import HIGHLIGHT_LIMIT, LANGUAGES, render_code_figure
from chats.rendering.markdown import render_markdown
from chats.turns.start import get_active_branch

pytestmark = pytest.mark.wide

SIZE = 32_000
LIMIT = 1.5
PAGE_LIMIT = 2.0
# CPU seconds of `count` on the reference machine.
COUNTED = 0.03


def quickest(function: Callable[[], object], *, enough: float) -> float:
    """Return the CPU seconds of a function, scaled by the current speed of the machine.

    Runs it up to three times and stops at the first run below `enough`.
    """
    best = enough
    for _ in range(3):
        slowness = max(1.0, taken(count) / COUNTED)
        best = taken(function) / slowness
        if best < enough:
            break
    return best


def count() -> None:
    """Run a constant workload that measures the speed of the machine."""
    for number in range(1_000_000):
        _ = number % 7


def taken(function: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    began = time.process_time()
    function()
    return time.process_time() - began


def filled(pattern: str) -> str:
    """Repeat the pattern up to `SIZE` characters."""
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
    "dollars": filled("$"),
    "open formulas": filled("\\("),
    "open displayed formulas": filled("$$a\n"),
    "open environments": filled("\\begin{align}\n"),
    "short formulas": filled("$x$ "),
    "formulas that grow": filled("$x" + "'" * 1900 + "$ "),
    "deep formulas": filled("$" + "x^{" * 400 + "x" + "}" * 400 + "$ "),
    "wide formulas": filled("\\[" + "x&" * 900 + "\\]\n"),
    "formulas that define": filled(r"$\def\a{\a\a}\a$ "),
    "escaped dollars": "$a" + filled("\\$"),
    "tasks": filled("- [ ] a\n"),
    "tasks in tasks": filled("".join("  " * n + "- [x] a\n" for n in range(18))),
    "open footnotes": "[^a]: b\n\n" + filled("[^"),
    "footnotes": filled("".join(f"[^{n}] [^{n}]: a\n[^{n}]: b\n" for n in range(2000))),
    "one footnote": "[^a]: b\n\n" + filled("[^a]"),
    "footnotes in footnotes": filled("[^a]: "),
    "code of brackets": "```python\n" + filled("(" * 499 + "\n") + "\n```",
    "many blocks of code": filled("```js\n" + '"\\' * 200 + "\n```\n"),
}


@pytest.mark.parametrize("name", WORST)
def test_S20_the_worst_text_is_rendered_in_time(name: str) -> None:
    assert quickest(lambda: render_markdown(WORST[name]), enough=LIMIT) < LIMIT


@pytest.mark.parametrize("name", WORST)
def test_S20_a_page_with_the_worst_text_is_there_in_time_and_renders_it_once(
    name: str, alice: User, chat: Chat, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = get_active_branch(chat)
    Message.objects.create(
        branch=branch,
        seq=1,
        accepted=1,
        role="user",
        parts=[{"type": "text", "text": WORST[name]}],
        created_at=now,
    )
    Branch.objects.filter(pk=branch.pk).update(last_seq=1)
    browser = Client()
    browser.force_login(alice)
    address = f"/chats/{chat.pk}/"

    def first_view() -> None:
        Rendering.objects.all().delete()
        browser.get(address)

    assert quickest(first_view, enough=PAGE_LIMIT) < PAGE_LIMIT
    assert 'class="prose' in browser.get(address).content.decode()
    monkeypatch.setattr(store, "render_markdown", lambda text: pytest.fail("rendered again"))
    assert browser.get(address).status_code == 200


@pytest.mark.slow
@pytest.mark.in_turn
def test_S20_the_worst_code_of_each_language_is_coloured_in_time() -> None:
    patterns = ["a b ", "/*\n", '"\\', "\n" * 199 + "a"]
    slow = []
    for language in sorted(LANGUAGES):
        for pattern in patterns:
            line = pattern if "\n" in pattern else (pattern * 500)[:499] + "\n"
            code = (line * HIGHLIGHT_LIMIT)[:HIGHLIGHT_LIMIT]
            colour = partial(render_code_figure, code, language)
            if quickest(colour, enough=LIMIT / 2) >= LIMIT / 2:
                slow.append((language, pattern))

    assert not slow


def test_S20_a_message_of_everyday_length_takes_moments() -> None:
    text = ("Some **bold** words and `code`, see https://a.example/x.\n\n- one\n- two\n\n" * 60)[
        :4000
    ]
    took = []
    for _ in range(5):
        began = time.process_time()
        render_markdown(text)
        took.append(time.process_time() - began)

    assert min(took) < 0.05
