"""Exporting a chat through its menu, and importing it in the settings."""

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.support.exchange_files import join_ui_messages

# Longer than any other form accepts.
LONG = "word " * 700_000


def test_a_large_file_comes_in_and_goes_out_again(admin: Person, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    half = len(LONG) // 2
    file.write_text(
        join_ui_messages(
            ("a", "user", "What do ferns need?"),
            ("b", "assistant", LONG[:half]),
            ("c", "assistant", LONG[half:]),
        )
    )
    page = admin.page
    admin.open("/settings/")
    page.locator("a[href='/settings/exchange/']").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    # The page updates during the import without a reload.
    report = page.get_by_role("heading", name="Import results")
    expect(report).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="What do ferns need?").click()
    expect(page.locator(".chat__title")).to_have_text("What do ferns need?")
    page.locator("summary[aria-label='Chat actions']").click()
    page.get_by_role("link", name="Export chat…").click()
    expect(page).to_have_url(re.compile("/export$"))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    with page.expect_download() as began:
        page.get_by_role("link", name=re.compile("All messages")).click()
    assert began.value.failure() is None
    told = Path(began.value.path()).read_text().splitlines()
    assert [json.loads(line)["id"] for line in told] == ["a", "b", "c"]
    assert json.loads(told[1])["parts"][0]["text"] == LONG[:half]
    assert admin.complaints == []
    assert admin.foreign == []


def test_a_long_import_is_followed_and_stopped(admin: Person, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    said = [{"uuid": f"m{number}", "text": "How are ferns watered?"} for number in range(40)]
    chats = [
        {"uuid": f"c{number}", "name": f"Ferns {number}", "chat_messages": said}
        for number in range(2_000)
    ]
    file.write_text(json.dumps(chats))
    page = admin.page
    admin.open("/settings/exchange/")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="Importing chats")).to_be_visible(timeout=60_000)
    progress = page.get_by_role("progressbar")
    expect(progress).to_have_attribute("max", "2000")
    # The page continues without input.
    expect(progress).not_to_have_attribute("value", "0", timeout=30_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Import stopped.")).to_be_visible()
    page.get_by_role("link", name="Ferns 0", exact=True).click()
    expect(page.locator(".chat__title")).to_have_text("Ferns 0")
    admin.open("/settings/exchange/")
    row = page.get_by_role("row").filter(has_text="Stopped")
    row.get_by_role("link").click()
    page.locator("form[action$='/delete'] [type=submit]").click()
    expect(page.get_by_role("row").filter(has_text="Stopped")).to_have_count(0)
    assert admin.complaints == []
    assert admin.foreign == []
