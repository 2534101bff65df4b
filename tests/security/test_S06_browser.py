"""S4, S5, S6 in a real browser: opening a hostile chat runs nothing and loads nothing."""

import os
import re
import shutil
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Page, sync_playwright

from tests.fakes.fake_server import FakeServer
from tests.faults.harness import Tree, new_folder
from tests.faults.programs import MANAGE, free_port, needed_browser, python, run, until
from tests.faults.stores import SQLite, count

pytestmark = [pytest.mark.browser, pytest.mark.processes]

# Each would load, change or run something if it were not escaped.
REPLY = """<script>window.pwned = 1</script><img src=http://127.0.0.1:1/a onerror=window.pwned=2>

![a chart](http://127.0.0.1:1/b.png?secret) ![x](data:image/svg+xml,<svg/onload=window.pwned=3>)

<div hx-post=/chats/new hx-trigger=load hx-vals='{"text":"pwned"}'>x</div>

<style>@import url(http://127.0.0.1:1/c.css);</style><link rel=prefetch href=http://127.0.0.1:1/d>

[click](javascript:window.pwned=4) <a href=http://127.0.0.1:1/e ping=http://127.0.0.1:1/f>x</a>

<div sse-connect=/x hx-ext=sse></div><iframe src=http://127.0.0.1:1/g></iframe>

<form action=/logout/ method=post><input name=csrfmiddlewaretoken></form>

event: done
data: <script>window.pwned = 5</script>
"""
LINK = """
import django; django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from chats.people import signin
print(signin.create_link(user=User.objects.get(username="alice"), now=timezone.now()))
"""
# The context meter only reads. A slow page has the time to ask it.
METER = re.compile(r"POST http://127\.0\.0\.1:\d+/chats/[0-9a-f-]{36}/meter")


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


@pytest.fixture
def instance() -> Iterator[Tree]:
    """One instance whose model answers with hostile text."""
    folder = new_folder()
    with FakeServer() as fake:
        tree = Tree(folder=folder, database=SQLite(folder), fake=fake)
        try:
            tree.broker.start()
            tree.prepare()
            fake.configure(ms=5)
            tree.worker()
            # The sweep interval, so that a lost broker message only delays the reply.
            tree.beat()
            yield tree
        finally:
            tree.close()
            shutil.rmtree(folder)


@pytest.fixture
def tab() -> Iterator[Page]:
    """A browser with one tab."""
    with sync_playwright() as player:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = player.chromium.launch(executable_path=needed_browser(), args=options)
        yield browser.new_page()
        browser.close()


def test_S06_a_hostile_reply_asks_for_nothing_and_changes_nothing(
    instance: Tree, tab: Page
) -> None:
    port = free_port()
    home = f"http://127.0.0.1:{port}"
    web = instance.start("web", python(MANAGE, "web", "--port", str(port)))
    until(lambda: web.must_live() and "ok" in reach(f"{home}/healthz"), seconds=30)
    token = run(python("-c", LINK), env=instance.env).strip()
    asked: list[str] = []
    complaints: list[str] = []
    tab.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
    tab.on("dialog", lambda dialog: complaints.append(dialog.message))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(f"{home}/login/link/{token}/")
    tab.click("main button[type=submit]")
    instance.fake.configure(replies=[{"text": REPLY}])
    del asked[:]
    tab.fill("#composer-text", REPLY)
    tab.press("#composer-text", "Enter")
    tab.wait_for_selector("#tail[data-status=completed]", timeout=30_000)
    tab.reload()
    tab.wait_for_selector(".msg__body")
    tab.wait_for_timeout(500)
    assert "window.pwned" in tab.inner_text("#tail")
    assert tab.evaluate("window.pwned") is None
    called = [call for call in asked if not METER.fullmatch(call)]
    own = (f"GET {home}/", f"POST {home}/chats/new")
    assert [call for call in called if not call.startswith(own)] == []
    assert sum(call.startswith("POST") for call in called) == 1
    assert complaints == []
    assert count(instance.database, "chats_chat") == 1
    assert count(instance.database, "chats_message", "role = 'user'") == 1
    assert tab.evaluate("Object.keys(localStorage).join()") == ""


def reach(address: str) -> str:
    """The response of an address; empty while it is not listening."""
    try:
        return httpx2.get(address).text
    except httpx2.HTTPError:
        return ""
