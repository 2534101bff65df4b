"""S4, S5, S6: no text becomes an element, an htmx instruction, or a request to another server."""

import re
import uuid
from dataclasses import fields
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client

from chats.streams import connection
from chats.streams.follow import Beginning, Delta, Snapshot, TurnNotice, Update
from chats.streams.web import ReplyView
from tests.contextpolicy.people import signed_in
from tests.security.addresses import routes
from tests.security.markup import HOSTILE, read
from tests.security.world import Texts, World, build
from tests.support.chat_pages import HTMX
from tests.support.repository import ROOT
from tests.support.role_clients import SUPERUSER, open_browser_as

pytestmark = pytest.mark.wide

# A column may be shorter than a hostile text.
SHORT = {"group": 150, "model": 200, "provider": 200, "title": 200, "key": 200}
HARMLESS = Texts(**{field.name: "harmless" for field in fields(Texts)})
PAGES = [
    route
    for route in routes()
    if not route.text.startswith(("api/", "logout", "admin/logout", "healthz", "readyz"))
    and route.text != "stream"
]


def texts_of(hostile: str) -> Texts:
    """The same hostile text in every field."""
    values = {field.name: hostile[: SHORT.get(field.name)] for field in fields(Texts)}
    # A key's name has no line ends; the model's and the provider's are one line too.
    for name in ("key", "model", "provider", "group", "title", "policy"):
        values[name] = values[name].replace("\n", " ").strip()
    return Texts(**values)


def pages_of(world: World, *browsers: Client) -> dict[tuple[str, int, bool], str]:
    """The HTML of every page and partial, as these people see it."""
    found = {}
    for number, browser in enumerate(browsers):
        for route in PAGES:
            row = world.rows.get(route.admin_model)
            path = route.filled({**world.ids, "object_id": row.pk if row else 1})
            for headers in ({}, HTMX) if not route.text.startswith("admin/") else ({},):
                answer: Any = browser.get(path, headers=headers)
                assert answer.status_code < 500
                if answer.headers.get("Content-Type", "").startswith("text/html"):
                    found[route.text, number, bool(headers)] = answer.content.decode()
    return found


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.in_turn
def test_S04_no_page_makes_an_element_of_a_text(hostile: str, alice: User, now: datetime) -> None:
    User.objects.filter(pk=alice.pk).update(first_name=hostile[:150], last_name=hostile[:150])
    world = build(alice=alice, now=now, texts=texts_of(hostile))
    alice.refresh_from_db()
    html = pages_of(world, signed_in(alice), open_browser_as(SUPERUSER))
    assert len(html) > 80
    wrong = {where: page.wrong for where, text in html.items() if (page := read(text)).wrong}
    assert wrong == {}
    # The texts were on the pages at all.
    assert sum("pwn" in text for text in html.values()) > 20


def test_S04_hostile_words_leave_a_page_its_shape(alice: User, now: datetime) -> None:
    world = build(alice=alice, now=now, texts=HARMLESS)
    browser = signed_in(alice)
    address = f"/chats/{world.chat.pk}/"
    before = read(browser.get(address).content.decode()).outline
    for hostile in HOSTILE:
        type(world.chat).objects.filter(pk=world.chat.pk).update(title=hostile[:200].strip())
        for name in ("chats_provideraccount", "contextpolicy_modelspec"):
            row = world.rows[name]
            type(row).objects.filter(pk=row.pk).update(name=hostile[:200])
        assert read(browser.get(address).content.decode()).outline == before


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_S04_no_fragment_of_a_stream_makes_an_element_of_a_text(hostile: str) -> None:
    turn = uuid.uuid4()
    page = ReplyView(turn)
    half = len(hostile) // 2
    updates: list[Update] = [
        Snapshot(Beginning(1, 1), hostile),
        Delta(len(hostile), hostile[:half]),
        Delta(0, hostile[half:] + "\n\nnext\n\n"),
        TurnNotice(hostile),
    ]
    wire = "".join(async_to_sync(page.encode)(update) for update in updates)
    for line in wire.split("\n"):
        assert line == "" or line.startswith((f"id: {turn}~1.1.", "event: ", "data: "))
    events = re.findall(rf"^event: {turn}\.(.*)$", wire, re.MULTILINE)
    assert set(events) <= {"snapshot", "delta", "block", "rest", "state"}
    html = "\n".join(line.removeprefix("data: ") for line in wire.split("\n") if "data: " in line)
    assert read(html).wrong == []


def test_S18_no_line_end_of_any_kind_begins_a_field() -> None:
    data = "a\n\nevent: done\r\rdata: x\r\n\r\nid: 9\nretry: 1\u2028event: y\x85z"
    wire = connection.format_sse_event("delta", data)
    assert [line.split(": ")[0] for line in wire.rstrip("\n").split("\n")] == (
        ["event"] + ["data"] * 8
    )
    assert "\r" not in wire
    assert wire.endswith("\n\n")


def test_S05_every_rendered_text_stands_where_htmx_does_nothing(world: World, page: Client) -> None:
    html = page.get(f"/chats/{world.chat.pk}/").content.decode()
    assert html.count('class="prose') > 2
    assert read(html).wrong == []
    assert read(html.replace("hx-disable", "")).wrong != []


def test_S04_only_the_renderer_makes_safe_html() -> None:
    makers = re.compile(r"mark_safe|SafeString\(|SafeText|autoescape|format_html_join|__html__")
    found = {
        str(path.relative_to(ROOT))
        for part in ("chats", "contextpolicy", "project")
        for path in (ROOT / part).rglob("*.py")
        if makers.search(path.read_text(encoding="utf-8"))
    }
    # The last one joins pieces that Django escapes, around links to fields of the same form.
    assert found == {
        "chats/rendering/documents.py",
        "chats/rendering/fragments.py",
        "chats/rendering/store.py",
        "chats/admin/policies/form_text.py",
    }


@pytest.mark.parametrize("name", ["templates", "static"])
def test_S04_no_template_or_script_writes_html_of_its_own(name: str) -> None:
    forbidden = re.compile(
        r"\|\s*safe\b|safeseq|autoescape|innerHTML\s*=|outerHTML\s*=|insertAdjacentHTML|"
        r"document\.write|eval\(|new Function|createContextualFragment|DOMParser|javascript:|"
        r"https?://(?!api\.example\.com|www\.w3\.org)"
    )
    # The response to a form is read as htmx reads one, in one place.
    reads_answers = ROOT / "static/js/failures.js"
    for path in (ROOT / name).rglob("*"):
        if path.suffix in {".html", ".js", ".css", ".svg"}:
            allowed = ["DOMParser"] if path == reads_answers else []
            assert forbidden.findall(path.read_text(encoding="utf-8")) == allowed, path
