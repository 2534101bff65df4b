"""S9, S10: every response has the headers, no page has inline code, GET changes nothing."""

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import models
from django.test import Client

from chats.models import ApiKey, Chat, Compaction, Message, Turn
from chats.record import access
from chats.streams.files import SANDBOX_POLICY
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec
from tests.security.addresses import Route, routes
from tests.security.conftest import SUPERUSER, browser_of
from tests.security.markup import read
from tests.security.world import World

pytestmark = pytest.mark.wide

FIXED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
POLICY = (
    "default-src 'none'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "object-src 'none'",
)
READ = [route for route in routes() if not route.text.endswith(("stream", "}/events"))]
READ = [r for r in READ if "turn_id>/events" not in r.text and "logout" not in r.text]
UNSAFE = [
    route
    for route in routes()
    if not route.text.startswith(("api/", "admin/")) or "docs" in route.text
]


def filled(route: Route, world: World) -> str:
    """The URL with ids that exist."""
    row = world.rows.get(route.admin_model)
    return route.filled({**world.ids, "object_id": row.pk if row else 1})


def is_users_content(answer: Any) -> bool:
    """Return True for bytes of a user's image or file, to which the product adds nothing."""
    kind = str(answer.headers["Content-Type"])
    return kind.startswith("image/png") or kind == "application/octet-stream"


def check_headers(answer: Any, where: object) -> None:
    """Check the headers of §6, whatever the status."""
    for name, value in FIXED.items():
        assert answer.headers.get(name) == value, (where, name)
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "*" not in policy
    if "jsi18n/" not in str(where):
        # The sentences of the scripts are the same for everyone.
        assert "no-store" in answer.headers["Cache-Control"], where
    for name in ("Server", "X-Powered-By", "Access-Control-Allow-Origin"):
        assert name not in answer.headers, where
    if is_users_content(answer):
        assert policy == SANDBOX_POLICY, where
        return
    rules = policy.split("; ")
    assert set(POLICY) <= set(rules), where
    for kind in ("script-src", "style-src"):
        (rule,) = [rule for rule in rules if rule.startswith(kind)]
        assert rule.startswith(f"{kind} 'self' 'nonce-")
        assert len(rule.partition("nonce-")[2]) > 16


def check_html(answer: Any, where: object) -> None:
    """Check for inline code, handlers, styles and content of other origins."""
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        assert read(answer.content.decode()).wrong == [], where


def test_S10_every_page_of_every_part_carries_the_headers(world: World, page: Client) -> None:
    nonces, pages = set(), 0
    for browser in (Client(), page, browser_of(SUPERUSER)):
        for route in READ:
            for method in ("GET", "PUT"):
                answer: Any = browser.generic(method, filled(route, world))
                check_headers(answer, (route.text, method))
                check_html(answer, route.text)
                if not is_users_content(answer):
                    pages += 1
                    nonces.add(answer.headers["Content-Security-Policy"])
    assert len(nonces) == pages > 5 * len(READ)


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


@pytest.mark.parametrize("route", UNSAFE, ids=lambda route: route.text or "home")
def test_S09_no_page_changes_anything_without_its_token(route: Route, world: World) -> None:
    browser = browser_of(SUPERUSER)
    browser.handler.enforce_csrf_checks = True
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        if route.text.endswith("/events"):
            continue
        answer = browser.generic(method, filled(route, world))
        # Below /v1 sessions are ignored: only a key gives access.
        refused = {401, 404} if route.text.startswith("v1/") else {403, 405, 404}
        assert answer.status_code in refused, method


def test_S09_the_administration_changes_nothing_without_its_token(world: World) -> None:
    browser = browser_of(SUPERUSER)
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

    browsers = [page, browser_of(SUPERUSER)]
    before = state()
    for browser in browsers:
        for route in READ:
            browser.generic(method, filled(route, world))
    assert state() == before
