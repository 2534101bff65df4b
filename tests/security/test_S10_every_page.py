"""S9, S10: every response has the headers, no page has inline code, GET changes nothing."""

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import models
from django.test import Client

from chats.models import ApiKey, Chat, Compaction, Message, Turn
from chats.record import access
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec
from tests.security.addresses import Route, routes
from tests.security.markup import read
from tests.security.world import World
from tests.support.page_headers import READABLE_ROUTES, check_headers, is_users_content
from tests.support.role_clients import SUPERUSER, open_browser_as

pytestmark = pytest.mark.wide

UNSAFE = [
    route
    for route in routes()
    if (not route.text.startswith(("api/", "admin/")) or "docs" in route.text)
    and not route.text.endswith("/events")
]


def filled(route: Route, world: World) -> str:
    """The URL with ids that exist."""
    row = world.rows.get(route.admin_model)
    return route.filled({**world.ids, "object_id": row.pk if row else 1})


def check_html(answer: Any, where: object) -> None:
    """Check for inline code, handlers, styles and content of other origins."""
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        assert read(answer.content.decode()).wrong == [], where


def test_S10_every_page_of_every_part_carries_the_headers(world: World, page: Client) -> None:
    nonces, pages = set(), 0
    for browser in (Client(), page, open_browser_as(SUPERUSER)):
        for route in READABLE_ROUTES:
            for method in ("GET", "PUT"):
                answer: Any = browser.generic(method, filled(route, world))
                check_headers(answer, (route.text, method))
                check_html(answer, route.text)
                if not is_users_content(answer):
                    pages += 1
                    nonces.add(answer.headers["Content-Security-Policy"])
    assert len(nonces) == pages > 5 * len(READABLE_ROUTES)


def test_S10_errors_carry_them_too(
    world: World, page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_arguments: object) -> None:
        raise RuntimeError("a bug")

    checked = Client(enforce_csrf_checks=True)
    page.raise_request_exception = False
    own = f"/chats/{world.chat.pk}/"
    answers: list[tuple[int, Any]] = [
        (404, page.get("/nowhere")),
        (404, page.get("/api/v1/nowhere")),
        (403, checked.post("/login/", {"username": "x"})),
        (400, page.get("/login/", headers={"Host": "evil.example"})),
        (400, page.get("/api/v1/chats", headers={"Host": "evil.example"})),
        (405, page.get(f"{own}rename")),
        (413, page.post("/settings/", b"x" * 3_000_000, "application/x-www-form-urlencoded")),
        (422, page.post(f"{own}messages", {"text": ""})),
    ]
    monkeypatch.setattr(access, "get_chat", broken)
    monkeypatch.setattr(access, "get_chat_branch", broken)
    answers += [(500, page.get(own)), (500, page.get(f"/api/v1{own}".rstrip("/")))]
    for status, answer in answers:
        if status != 413:
            assert answer.status_code == status
        check_headers(answer, answer.request)
        check_html(answer, answer.request)
        if status == 500:
            assert answer.headers["X-Request-ID"] in answer.content.decode()
        assert "Traceback" not in answer.content.decode()
        assert "a bug" not in answer.content.decode()


# One test for all pages, because the objects take longer to create than the requests.
def test_S09_no_page_changes_anything_without_its_token(world: World) -> None:
    browser = open_browser_as(SUPERUSER)
    browser.handler.enforce_csrf_checks = True
    wrong = []
    for route in UNSAFE:
        # Below /v1 sessions are ignored: only a key gives access.
        refused = {401, 404} if route.text.startswith("v1/") else {403, 405, 404}
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = browser.generic(method, filled(route, world))
            if answer.status_code not in refused:
                wrong.append((method, route.text, answer.status_code))
    assert wrong == []


def test_S09_the_administration_changes_nothing_without_its_token(world: World) -> None:
    browser = open_browser_as(SUPERUSER)
    browser.handler.enforce_csrf_checks = True
    for route in routes():
        if route.text.startswith("admin/"):
            assert browser.post(filled(route, world)).status_code in {403, 404}, route.text


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_S09_reading_changes_nothing(method: str, world: World, page: Client) -> None:
    kinds: list[type[models.Model]] = [Turn, Message, Compaction, ApiKey, ContextPolicy, ModelSpec]

    def state() -> list[Any]:
        rows: list[Any] = [list(kind._default_manager.order_by("pk").values()) for kind in kinds]
        # Reading only marks a chat as read. The ledger records file exports and reads of the
        # ledger.
        chats = [{**row, "unread": None} for row in Chat.objects.order_by("pk").values()]
        events = AuditEvent.objects.exclude(type="ledger.read")
        if method == "GET":
            events = events.exclude(type="chat.exported")
        return [*rows, chats, events.count(), Session.objects.count()]

    browsers = [page, open_browser_as(SUPERUSER)]
    before = state()
    for browser in browsers:
        for route in READABLE_ROUTES:
            browser.generic(method, filled(route, world))
    assert state() == before
