"""Skills in the browser: write one with a file, export and import it; narrow and dark too."""

import os
from collections.abc import Callable
from itertools import product as combinations
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.browser.rest import ask

WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.requirement("S4.9", by="user")
def test_a_skill_is_written_exported_and_imported(
    open_tab: Callable[..., Person], fresh: Product, tmp_path: Path
) -> None:
    # Skills of the instance cannot be deleted, and the test starts without any.
    person = open_tab(fresh)
    person.sign_in(fresh.printed_link())
    page = person.page
    person.open("/settings/")
    page.locator("a[href='/skills/']").click()
    expect(page.locator("[data-note=no-skills]")).to_be_visible()

    form = page.locator("#new-skill")
    form.locator("[name=name]").fill("Refunds")
    form.locator("[name=description]").fill("Check and answer requests for refunds.")
    form.locator("[name=text]").fill("Ask for the order number first.")
    with page.expect_navigation():
        form.locator("[type=submit]").click()
    assert int(page.locator("#cost").get_attribute("data-text") or 0) > 5

    page.locator("#skill [name=text]").fill("Ask for the order number twice.")
    with page.expect_navigation():
        page.locator("#skill [type=submit]").click()
    write_file(person, name="forms/refund.csv", text="order,amount")
    import_exported(person, tmp_path / "refunds.zip")
    longest = "Aufgabenverteilungsplan " * 4
    ask(person, "skills", {"name": longest, "description": "A plan. " * 100, "text": "Ask."})
    check_each_size(person)
    expect(page.locator("#skill [name=text]")).to_have_value("Ask for the order number twice.")
    expect(page.locator("[data-file='forms/refund.csv'] [name=text]")).to_have_value("order,amount")
    assert person.complaints == []


def write_file(person: Person, *, name: str, text: str) -> None:
    """Add a file to the skill and replace it. Then add another file and remove it."""
    page = person.page
    for path, words in ((name, "order"), ("gone.md", "Gone")):
        page.locator("#new-file [name=name]").fill(path)
        page.locator("#new-file [name=text]").fill(words)
        page.locator("#new-file [type=submit]").click()
        expect(page.locator(f"[data-file='{path}']")).to_be_visible()
    file, gone = (page.locator(f"[data-file='{path}']") for path in (name, "gone.md"))
    file.locator("summary").click()
    file.locator("[name=text]").fill(text)
    with page.expect_navigation():
        file.locator(".btn--primary").click()
    gone.locator("summary").click()
    gone.locator(".btn--danger").click()
    expect(gone).to_have_count(0)


def import_exported(person: Person, file: Path) -> None:
    """Export the skill to the file and import it as a change of the same skill."""
    page = person.page
    with page.expect_download() as download:
        page.locator("a[href='/skill/refunds/export']").click()
    download.value.save_as(file)
    person.open("/skills/")
    page.locator("#import-archive").set_input_files(file)
    page.locator("#import-skills [type=submit]").click()
    expect(page.locator("#imported[data-changed='1']")).to_be_visible()


def check_each_size(person: Person) -> None:
    """Open the pages in each width and colour scheme. `SCREENSHOTS` names a folder for pictures."""
    page = person.page
    for address, width, scheme in combinations(("/skills/", "/skill/refunds"), WIDTHS, SCHEMES):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        person.open(address)
        page.evaluate("document.querySelectorAll('[data-file]').forEach(each => each.open = true)")
        # Nothing is wider than the page.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("SCREENSHOTS"):
            name = f"{address.strip('/').replace('/', '-')}-{width}-{scheme}.png"
            page.screenshot(path=f"{folder}/{name}", full_page=True)


def test_the_other_forms_of_the_page_keep_their_text(admin: Person) -> None:
    page = admin.page
    ask(admin, "skills", {"name": "Plans", "description": "A plan.", "text": "Ask."})
    admin.open("/skill/plans")
    text, file = page.locator("#skill-text"), page.locator("#new-file")
    text.fill("Ask for the date first.")
    # A refusal renders the page again.
    file.locator("[name=name]").fill("../plan.md")
    file.locator("[name=text]").fill("Monday")
    file.locator("[type=submit]").click()
    expect(page.locator("#refusal", has_text="../plan.md")).to_be_visible()
    expect(text).to_have_value("Ask for the date first.")
    # A redirect to the same page loads it again.
    file.locator("[name=name]").fill("plan.md")
    file.locator("[type=submit]").click()
    expect(page.locator("[data-file='plan.md']")).to_be_visible()
    expect(text).to_have_value("Ask for the date first.")
    page.reload()
    expect(text).to_have_value("Ask.")
