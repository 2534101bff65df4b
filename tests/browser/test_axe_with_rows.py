"""axe on pages with content: checkpoints, imported chats and the invitation."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.desk import Person
from tests.browser.product import Product
from tests.faults.programs import MANAGE, python, run
from tests.support.accessibility import find_accessibility_faults
from tests.support.browser_chats import PHONE
from tests.support.exchange_files import join_ui_messages

CHECKPOINTS = "/admin/contextpolicy/auditevent/checkpoints/"
INVITE = "/admin/auth/user/invite/"
TABLE = "A table:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\n- [ ] Water"
SAID = (("a", "user", "What do ferns need?"), ("b", "assistant", TABLE))


def brought(person: Person, file: Path, *said: tuple[str, str, str]) -> str:
    """Import a chat; return its address."""
    file.write_text(join_ui_messages(*said))
    page = person.page
    person.open("/settings/exchange/")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="Import results")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="What do ferns need?").first.click()
    expect(page.locator(".chat__title")).to_have_text("What do ferns need?")
    return page.url.removeprefix(person.product.url)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.in_turn
def test_axe_finds_nothing_serious_on_pages_with_rows(
    open_tab: Callable[..., Person], product: Product, signed_in: Any, tmp_path: Path, scheme: str
) -> None:
    options: dict[str, Any] = {"color_scheme": scheme, "reduced_motion": "reduce"}
    options["bypass_csp"] = True
    wide = open_tab(product, storage_state=signed_in, **options)
    answered = brought(wide, tmp_path / "answered.jsonl", *SAID)
    waiting = brought(wide, tmp_path / "waiting.jsonl", *SAID, ("c", "user", "And light?"))
    run(python(MANAGE, "ledger_checkpoint"), env={**os.environ, **product.env})
    wide.open(CHECKPOINTS)
    expect(wide.page.locator("pre.palimpsest-code")).to_be_visible()
    expect(wide.page.locator(".palimpsest-table tbody tr").first).to_be_visible()
    phone = open_tab(product, storage_state=signed_in, **PHONE, **options)
    wrong = []
    for person, width in ((wide, 1280), (phone, 390)):
        for path in (answered, waiting, CHECKPOINTS, INVITE):
            person.open(path)
            wrong += [f"{width} {path}: {fault}" for fault in find_accessibility_faults(person)]
        person.page.locator("#id_username").fill(f"ines-{scheme}-{width}")
        person.page.get_by_role("button", name="Create invitation").click()
        expect(person.page.locator("#invitation-link")).to_contain_text("/login/link/")
        wrong += [f"{width} invited: {fault}" for fault in find_accessibility_faults(person)]
    assert not wrong, "\n".join(wrong)


def test_long_choices_stay_beside_their_boxes(admin: Person) -> None:
    page = admin.page
    admin.open("/admin/auth/group/add/")
    page.locator("#id_name").fill("Sachbearbeitung_der_Rechnungen_und_Mahnungen_im_Sueden")
    with page.expect_navigation():
        page.locator("[name=_save]").click()
    admin.open(INVITE)
    choice = page.locator("label", has=page.locator("[name=groups]")).last
    found = choice.bounding_box()
    assert found
    assert found["height"] < 40
