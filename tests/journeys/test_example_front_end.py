"""The example front end of docs/examples/use_chat in a browser: `make clients`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import browser
from tests.faults.harness import Tree
from tests.faults.programs import MANAGE, ROOT, free_port, python, until
from tests.journeys.test_openai_clients import answers
from tests.journeys.test_openai_clients import tree as tree

__all__ = ["browser"]

CLIENTS = Path(os.environ.get("CLIENTS") or Path(sys.prefix) / "clients")
EXAMPLE = ROOT / "docs" / "examples" / "use_chat"
pytestmark = [
    pytest.mark.clients,
    pytest.mark.processes,
    pytest.mark.skipif(not CLIENTS.exists(), reason="make clients has installed nothing yet"),
]


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture
def front_end(tree: Tree, tmp_path: Path) -> Iterator[str]:
    """The address of the built example, in front of a running server."""
    tree.fake.configure(context_limit=0, tokens=20, ms=0, replies=[], faults=[])
    port, own = free_port(), free_port()
    tree.start("web", python(MANAGE, "web", "--port", str(port)))
    until(
        lambda: answers(f"http://127.0.0.1:{port}"), seconds=30, what="the start of a web process"
    )
    folder = tmp_path / "use_chat"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (folder / "node_modules").symlink_to(CLIENTS / "use_chat" / "node_modules")
    env = {
        "PATH": os.environ["PATH"],
        "PALIMPSEST_URL": f"http://127.0.0.1:{port}",
        "PALIMPSEST_KEY": tree.keys["alice"],
    }
    vite = ["node", "node_modules/vite/bin/vite.js"]
    subprocess.run([*vite, "build"], cwd=folder, env=env, check=True, capture_output=True)
    address = ["--host", "127.0.0.1", "--port", str(own), "--strictPort"]
    served = subprocess.Popen([*vite, "preview", *address], cwd=folder, env=env)
    try:
        until(lambda: answers(f"http://127.0.0.1:{own}"), seconds=30, what="the start of vite")
        yield f"http://127.0.0.1:{own}/"
    finally:
        served.terminate()
        served.wait(timeout=10)


@pytest.fixture
def page(browser: Browser, front_end: str) -> Iterator[Page]:
    """The example in a tab."""
    tab = browser.new_page()
    tab.goto(front_end)
    yield tab
    tab.close()


def say(page: Page, text: str, button: str = "Send") -> None:
    """Send a text."""
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name=button, exact=True).click()


def test_a_chat_is_sent_reloaded_edited_regenerated_and_stopped(page: Page) -> None:
    replies = page.locator("article.assistant")
    say(page, "Hello from the example")
    expect(replies).to_contain_text(" 19@", timeout=30_000)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)

    page.reload()
    expect(page.locator("article")).to_have_count(2)
    expect(page.locator("article.user")).to_contain_text("Hello from the example")

    page.get_by_role("button", name="Edit").click()
    say(page, "Other words", "Save")
    expect(page.locator("article.user")).to_have_text("Other wordsEdit")
    expect(replies).to_contain_text(" 19@", timeout=30_000)

    page.get_by_role("button", name="Regenerate").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=30_000)
    expect(page.locator("article")).to_have_count(2)

    say(page, "Count slowly [[fake tokens=2000 ms=50]]")
    expect(replies.last).to_contain_text(" 10@", timeout=30_000)
    page.reload()
    # The stream is resumed from its start.
    expect(replies.last).to_contain_text(" 20@", timeout=30_000)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=30_000)
    shown = replies.last.locator("p").inner_text()
    page.reload()
    expect(replies.last).to_contain_text(" 20@", timeout=30_000)
    assert replies.last.locator("p").inner_text().startswith(shown)
    expect(page.get_by_role("alert")).to_have_count(0)
