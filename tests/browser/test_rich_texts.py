"""Formulas, task lists and footnotes on the page: light, dark and on a phone."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_chats import PHONE

WIDE = " + ".join(f"a_{{{number}}} x^{{{number}}}" for number in range(40))
TEXT = f"""\
The roots are $x_{{1,2}} = \\frac{{-b \\pm \\sqrt{{b^2 - 4ac}}}}{{2a}}$[^1], it costs $5 and $6.

\\[
\\int_0^\\infty e^{{-x^2}} \\, dx = \\frac{{\\sqrt{{\\pi}}}}{{2}}
\\]

$$\\begin{{pmatrix}} 1 & 2 \\\\ 3 & 4 \\end{{pmatrix}} \\quad \\boxed{{42}}$$

\\begin{{align}}
f(x) &= {WIDE} \\\\
g(x) &= \\overline{{AB}} + \\cancel{{y}}
\\end{{align}}

And $\\nosuchcommand$, as written.

- [x] solved for $x$
- [ ] checked by Anna

[^1]: Found by **many**, see [a page](https://a.example/roots).
"""
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", **PHONE},
}


@pytest.mark.parametrize("look", LOOKS)
def test_formulas_tasks_and_footnotes_look_as_they_should(
    open_tab: Callable[..., Person], product: Product, signed_in: Any, look: str
) -> None:
    person = open_tab(product, storage_state=signed_in, **LOOKS[look])
    page = person.page
    person.open("/chats/new")
    page.locator("#composer-text").fill(TEXT)
    page.get_by_role("button", name="Send").click()
    person.wait_for_reply()
    page.reload()

    words = page.locator(".msg--user .prose")
    expect(words.locator("math")).to_have_count(5)
    expect(words).to_contain_text("it costs $5 and $6.")
    expect(words.locator(".math__source")).to_have_text("$\\nosuchcommand$")
    ink = "node => getComputedStyle(node).color"
    assert words.locator("math").first.evaluate(ink) == words.evaluate(ink)
    assert not person.scrolls_sideways()
    assert wide_boxes(page) == ["block"]
    fractions = words.locator("mfrac").first.bounding_box()
    assert fractions
    assert fractions["height"] > 20

    boxes = page.get_by_role("checkbox", disabled=True)
    expect(boxes).to_have_count(2)
    expect(page.get_by_role("checkbox", name=re.compile("solved for"))).to_be_checked()
    expect(page.get_by_role("checkbox", name="checked by Anna")).not_to_be_checked()
    follow_the_footnote(page)


def wide_boxes(page: Page) -> list[str]:
    """The display of boxes that are narrower than their formula."""
    found: list[str] = page.locator(".math").evaluate_all(
        "all => all.filter(box => box.scrollWidth > box.clientWidth + 1)"
        ".map(box => getComputedStyle(box).display)"
    )
    return found


def follow_the_footnote(page: Page) -> None:
    """The number links to its footnote, the footnote back to its number, in this page."""
    address = page.url.partition("#")[0]
    note = page.locator("li.note")
    page.locator("sup.note a").click()
    expect(note).to_be_in_viewport()
    assert page.url == f"{address}#{note.get_attribute('id')}"
    page.get_by_role("link", name="Back to the text, 1").click()
    expect(page.locator("sup.note a")).to_be_in_viewport()
    assert page.url.partition("#")[2] == page.locator("sup.note a").get_attribute("id")
