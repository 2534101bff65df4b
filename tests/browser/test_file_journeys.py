"""Journeys with files: a long report, ten pictures, and an erased document."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.rest import ask, read
from tests.chats.files.sample_files import list_report_pages, make_docx, make_pdf, make_png
from tests.faults.programs import until
from tests.support.browser_files import attach_files, build_file_payload

WORD = "qxzanzibar7781"
QUESTION = "How much is the lighthouse repair budget?"
# Reading 300 pages on a busy machine.
READ_SECONDS = 40_000


def get_chat_id(person: Person) -> str:
    """Return the id of the chat of the page."""
    found = re.search(r"/chats/([0-9a-f-]{36})/", person.page.url)
    assert found is not None
    return found[1]


@pytest.mark.requirement("S4.1", by="user")
def test_a_question_about_page_212_of_300_brings_its_excerpt(admin: Person, items: Any) -> None:
    page = admin.page
    attach_files(admin, build_file_payload("report.pdf", make_pdf(*list_report_pages())))
    expect(items).to_contain_text("300 pages", timeout=READ_SECONDS)
    page.locator("#composer-text").fill(QUESTION)
    page.locator("#composer-text").press("Enter")
    admin.wait_for_reply()
    chat = get_chat_id(admin)
    page.locator("a[href*='/receipt']").last.click()
    section = page.locator("#file-excerpts")
    expect(section).to_contain_text("page 212")
    expect(section).to_contain_text("report.pdf")
    assert not admin.scrolls_sideways()
    # The same chat over REST: the request as sent has the excerpt.
    turn = re.search(r"/turns/([0-9a-f-]{36})/", page.url)
    assert turn is not None
    place = f"chats/{chat}/turns/{turn[1]}"
    assert 212 in [row["page"] for row in read(admin, place)["file_excerpts"]]
    receipt = read(admin, f"{place}/receipts")["data"][0]["id"]
    assert "48,213 euros" in str(read(admin, f"{place}/receipts/{receipt}/request"))


@pytest.mark.requirement("S4.1", by="user")
def test_ten_pictures_are_sent_in_one_message(admin: Person, items: Any) -> None:
    page = admin.page
    names = [f"picture {number}.png" for number in range(10)]
    attach_files(
        admin, *(build_file_payload(name, make_png(30 + n, 20)) for n, name in enumerate(names))
    )
    expect(items).to_have_count(10)
    for number in range(10):
        expect(items.nth(number)).to_contain_text("Image, ", timeout=READ_SECONDS)
    page.locator("#composer-text").fill("Compare the pictures.")
    page.locator("#composer-text").press("Enter")
    admin.wait_for_reply()
    images = page.locator(".msg--user").get_by_role("img")
    expect(images).to_have_count(10)
    widths = images.evaluate_all("(all) => all.map((image) => image.naturalWidth)")
    assert widths == [30 + number for number in range(10)]
    assert not admin.scrolls_sideways()


def list_places_with(folder: Path, word: str) -> list[str]:
    """Return the files of a data folder that contain a word, and the tables of its database."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and word.encode() in path.read_bytes().lower():
            found.append(str(path.relative_to(folder)))
    return found


def list_stored(folder: Path) -> list[Path]:
    """Return the paths of the stored bytes, which are compressed and hide their words."""
    return sorted(path for path in (folder / "files").rglob("*") if path.is_file())


def count_files(folder: Path) -> int:
    """Return the number of stored files in the database of a data folder."""
    place = f"file:{folder / 'palimpsest.sqlite3'}?mode=ro"
    with closing(sqlite3.connect(place, uri=True)) as database:
        (number,) = database.execute("SELECT count(*) FROM chats_storedfile").fetchone()
        return int(number)


def test_an_erased_document_leaves_no_word_on_disk(admin: Person, items: Any) -> None:
    folder = admin.product.folder / "data"
    files, stored = count_files(folder), list_stored(folder)
    page = admin.page
    document = make_docx("Minutes of the board.", f"The code of the vault is {WORD}.")
    attach_files(admin, build_file_payload("minutes.docx", document))
    expect(items).to_contain_text("Word", timeout=READ_SECONDS)
    page.locator("#composer-text").fill("Name the code of the vault.")
    page.locator("#composer-text").press("Enter")
    admin.wait_for_reply()
    chat = re.sub(r"[?#].*", "", page.url)
    assert list_places_with(folder, WORD) != []
    assert (count_files(folder), len(list_stored(folder))) == (files + 1, len(stored) + 1)
    message = page.locator(".msg--user").first.get_attribute("id")
    assert message is not None
    page.goto(f"{chat}messages/{message.removeprefix('message-')}/erase")
    page.get_by_role("button", name="Erase message").click()
    expect(page.get_by_role("heading", name="Message erased")).to_be_visible()
    assert (count_files(folder), list_stored(folder)) == (files, stored)
    # The write-ahead log is cleared by a background job.
    until(lambda: list_places_with(folder, WORD) == [], seconds=60)
    found = ask(admin, f"search?q={WORD}", method="GET")
    assert found["data"] == []
