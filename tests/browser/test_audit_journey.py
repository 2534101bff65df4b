"""An auditor finds who raised a window, reads a prompt with a reason, exports, and verifies."""

import base64
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.support.browser_operator import CREATE_AUDITOR, run_operator_script

LIST = "/admin/contextpolicy/auditevent/"
CHANGES = """
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from contextpolicy.publish import create_policy, create_policy_version
ines = User.objects.create_user("ines")
given = {"actor": f"user:{ines.pk}", "now": timezone.now()}
values = {"strategy": "simple", "window_size": 12}
policy = create_policy(slug="audited", name="Audited", values=values, **given)
values = {**values, "window_size": 20}
create_policy_version(policy=policy, values=values, locks=[], note="", **given)
call_command("ledger_checkpoint")
"""


@pytest.mark.requirement("S0.5", by="auditor")
def test_an_auditor_finds_reads_exports_and_verifies(
    open_tab: Callable[..., Person], fresh: Product, tmp_path: Path
) -> None:
    person, auditor = open_tab(fresh), open_tab(fresh)
    person.sign_in(fresh.printed_link())
    person.type("The order 4711 of Anna Berg goes to Oslo.")
    person.wait_for_reply()
    run_operator_script(fresh, CREATE_AUDITOR + CHANGES)
    page = auditor.page
    auditor.open(f"/login/?next={LIST}")
    page.get_by_label("Name").fill("audrey")
    page.get_by_label("Password").fill("correct horse battery")
    page.keyboard.press("Enter")

    finds_who_raised_the_window(page)
    reads_with_a_reason(auditor)
    auditor.open(f"{LIST}?q=chat:none")
    save(page, "form=jsonl", tmp_path / "ledger.jsonl")
    auditor.open(f"{LIST}checkpoints/")
    for name in ("checkpoint.txt", "ledger-key.pem", "log.txt"):
        save(page, f"file={name}", tmp_path / name)
    page.locator("#scope").fill("instance")
    save(page, "file=chain.tlog-proof", tmp_path / "chain.tlog-proof")
    is_verified(tmp_path)
    assert auditor.complaints == []


def finds_who_raised_the_window(page: Page) -> None:
    """Find the change with one search."""
    page.get_by_label("Search").fill("field:window_size")
    page.keyboard.press("Enter")
    row = page.get_by_role("row", name="v1 → v2: window 12 → 20")
    expect(row).to_contain_text("ines (user:")
    expect(page.get_by_text("All time")).to_be_visible()


def reads_with_a_reason(auditor: Person) -> None:
    """The reason is in the ledger before the text is displayed."""
    page = auditor.page
    auditor.open("/admin/chats/receipt/")
    page.locator("#result_list tbody a").first.click()
    page.locator("a[href*='/words/?receipt=']").click()
    expect(page.locator("#content")).not_to_contain_text("Anna Berg")
    page.get_by_label("Reason").fill("Complaint 2026-118")
    page.locator("form:has(#id_reason) [type=submit]").click()
    expect(page.locator("#content")).to_contain_text("Anna Berg")
    expect(page.locator("#content .palimpsest-notice--ok")).to_be_visible()
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator("td.palimpsest-lines").first).to_have_css("white-space", "pre-wrap")
    auditor.open(f"{LIST}?q=event:content.*")
    expect(page.get_by_role("row", name="Complaint 2026-118")).to_contain_text("audrey")


def save(page: Page, field: str, path: Path) -> None:
    """Download a file with the button that sends this field, as name=value."""
    name, _, value = field.partition("=")
    with page.expect_download() as taken:
        page.locator(f"button[name='{name}'][value='{value}']").click()
    taken.value.save_as(path)


def is_verified(folder: Path) -> None:
    """Run the documented commands with OpenSSL: signature, chain, log entry, proof."""
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[:4]
    # Later reads and exports are not in the checkpoint; its rows are listed.
    told = base64.b64decode((folder / "log.txt").read_text().splitlines()[-1]).decode()
    kind, scope, count, last = told.split()
    assert (kind, scope) == ("chain", "instance")
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    assert json.loads(lines.pop())["rows"] == len(lines) > int(count)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[: int(count)]))
    done = subprocess.run(
        ["sh", "-ec", "\n".join(commands)],  # noqa: S607  # as documented, by the auditor's own shell
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for sentence in (
        "Signature Verified Successfully",
        f"{count} rows, last hash {last}",
        "The chain is in the checkpoint.",
    ):
        assert sentence in done.stdout
