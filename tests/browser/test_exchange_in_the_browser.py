"""A chat goes out through its menu and comes in through the settings, as served."""

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.desk import Person

# More than any other form may have.
LONG = "word " * 700_000


def lines(*said: tuple[str, str, str]) -> str:
    """UI messages, one a line."""
    return "".join(
        json.dumps({"id": own, "role": role, "parts": [{"type": "text", "text": text}]}) + "\n"
        for own, role, text in said
    )


def test_a_large_file_comes_in_and_goes_out_again(admin: Person, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    half = len(LONG) // 2
    file.write_text(
        lines(
            ("a", "user", "What do ferns need?"),
            ("b", "assistant", LONG[:half]),
            ("c", "assistant", LONG[half:]),
        )
    )
    page = admin.page
    admin.open("/settings/")
    page.get_by_role("link", name="Import and export").click()
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="What became of the file")).to_be_visible()
    page.get_by_role("link", name="What do ferns need?").click()
    expect(page.locator(".chat__title")).to_have_text("What do ferns need?")
    page.locator("summary[aria-label='Chat actions']").click()
    page.get_by_role("link", name="Export…").click()
    expect(page.get_by_role("heading", name="Export this chat")).to_be_visible()
    with page.expect_download() as began:
        page.get_by_role("link", name=re.compile("All messages")).click()
    assert began.value.failure() is None
    told = Path(began.value.path()).read_text().splitlines()
    assert [json.loads(line)["id"] for line in told] == ["a", "b", "c"]
    assert json.loads(told[1])["parts"][0]["text"] == LONG[:half]
    assert admin.complaints == []
    assert admin.foreign == []
