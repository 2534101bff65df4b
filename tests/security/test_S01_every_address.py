"""S1, S2: other people's objects are inaccessible at any URL, with any method, in any role."""

import io
import re
import uuid
import zipfile
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chats.actions import lifecycle
from chats.models import ApiKey, Branch, Chat, Compaction, Folder, Message, Turn
from chats.record import access
from chats.turns.start import get_active_branch
from contextpolicy.models import AuditEvent
from tests.contextpolicy.people import signed_in
from tests.faults.shares import EVERY_ROW
from tests.security.addresses import METHODS, Route, routes
from tests.security.world import CANARY, World
from tests.support.chat_pages import HTMX
from tests.support.role_clients import WHO, create_client_of, open_browser_as
from tests.support.streamed_responses import read_stream

pytestmark = pytest.mark.wide

# Deny by default: the URLs that strangers may open, each with its reason.
PUBLIC = {
    "healthz": "probe",
    "jsi18n/": "sentences of the scripts",
    "readyz": "probe",
    "metrics": "404 unless a token or an address is permitted",
    "login/": "the way in",
    "login/link/<slug:token>/": "the way in",
    "logout/": "sends a stranger to the way in",
    "admin/logout/": "sends a stranger to the way in",
}
# The administration's sign-in redirects to the product's.
WAYS_IN = ("/login/", "/admin/login/?")
# An export of the ledger, which auditors may have: it contains no message text.
LEDGER = "application/jsonl"
# No personal data: existing and missing objects get the same response.
ABSENT = {404, 405}
OWNED = {f"{kind}_id" for kind in ("chat", "key", "folder", "preference", "webhook", "erasure")}
OWNED |= {"import_id", "file_id"}
OF_ALICE = [route for route in routes() if OWNED & set(route.gaps)]


def call(client: Client, method: str, path: str, **options: Any) -> Any:
    """The response to a request with an empty body."""
    kind = "application/json" if path.startswith("/api/") else "application/x-www-form-urlencoded"
    return client.generic(method, path, b"{}" if "json" in kind else b"", kind, **options)


def body_of(answer: Any) -> str:
    """The body without the parts that vary between requests."""
    if answer.streaming:
        kind = answer["Content-Type"]
        assert kind in {"application/zip", LEDGER}, "a stranger holds an event stream"
        held: bytes = read_stream(answer)
        return held.decode() if kind == LEDGER else unpacked(held)
    text: str = answer.content.decode()
    text = text.replace(answer["X-Request-ID"], "")
    # CSRF tokens and nonces are new for each page.
    return text.partition("<main")[2] or text


def unpacked(archive: bytes) -> str:
    """The names and texts of an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as entries:
        return "".join(name + entries.read(name).decode() for name in entries.namelist())


def ids_for(route: Route, world: World) -> dict[str, Any]:
    """The ids of Alice's objects that this URL names."""
    row = world.rows.get(route.admin_model)
    return {**world.ids, **({"object_id": row.pk} if row else {"object_id": 1})}


def ways_to_ask(route: Route, method: str = "GET") -> list[dict[str, str]]:
    """Headers: a plain request, and for pages also an htmx request, with the methods htmx uses."""
    is_page = not route.text.startswith(("admin/", "api/"))
    return [{}, HTMX] if is_page and (EVERY_ROW or method in {"GET", "POST"}) else [{}]


def test_the_walk_reaches_every_part() -> None:
    texts = {route.text for route in routes()}
    assert {"login/", "chats/<uuid:chat_id>/", "api/v1/chats", "admin/chats/turn/"} <= texts
    assert len(OF_ALICE) > 20


@pytest.mark.parametrize("method", METHODS)
def test_S01_a_stranger_opens_only_what_is_listed(method: str, world: World) -> None:
    wrong = []
    for route in routes():
        for headers in ways_to_ask(route, method):
            answer = call(Client(), method, route.filled(ids_for(route, world)), headers=headers)
            place = answer.headers.get("Location", "") or answer.headers.get("HX-Redirect", "")
            refused = answer.status_code in {401, *ABSENT} or place.startswith(WAYS_IN)
            if not refused and route.text not in PUBLIC:
                wrong.append((method, route.text, answer.status_code))
            assert CANARY not in body_of(answer)
    assert wrong == []


def test_S01_no_address_of_a_person_s_thing_can_be_counted_through() -> None:
    for route in routes():
        # The ids of stored responses and conversations are random: `resp_` or `conv_` and a UUID.
        if not route.text.startswith(("admin/", "v1/responses/", "v1/conversations/")):
            assert not re.search(r"<(int|str|path):|<\w+>", route.text), route.text
    for kind in (Chat, Folder, Branch, Message, Turn, Compaction, ApiKey):
        assert kind._meta.pk.get_default().version in {4, 7}, kind


def test_S01_an_id_beside_the_address_opens_nothing_of_alices(world: World, charlie: User) -> None:
    now = world.chat.created_at
    own = lifecycle.create_chat(owner=charlie, now=now)
    said = Message.objects.create(
        branch=get_active_branch(own),
        seq=1,
        accepted=1,
        role="user",
        parts=[{"type": "text", "text": world.texts.message}],
        created_at=now,
    )
    # Both messages have the same text: in one chat the second would be erased with the first.
    also = {"also": str(world.ids["message_id"])}
    answer = signed_in(charlie).post(f"/chats/{own.pk}/messages/{said.pk}/erase", also)
    assert answer.status_code == 200
    said.refresh_from_db()
    assert said.erased_at
    assert not Message.objects.filter(branch__chat=world.chat).exclude(erased_at=None).exists()
    theirs = dict.fromkeys(("older", "newer"), str(world.ids["compaction_id"]))
    compared = create_client_of(charlie).get(f"chats/{own.pk}/compactions/compare", **theirs)
    assert compared.status_code == 404
    cursor = (
        create_client_of(world.chat.owner).get(f"chats/{world.chat.pk}/messages", limit=1).json()
    )
    moved = create_client_of(charlie).get(f"chats/{own.pk}/messages", cursor=cursor["next_cursor"])
    assert (moved.status_code, moved.json()["error"]["code"]) == (400, "invalid_cursor")


def test_S01_the_list_of_public_addresses_has_no_dead_entry() -> None:
    assert set(PUBLIC) <= {route.text for route in routes()}


@pytest.mark.parametrize("who", WHO)
def test_S01_no_answer_holds_a_word_of_alices(who: str, world: World) -> None:
    client = open_browser_as(who)
    leaks = []
    for route in routes():
        # Every user has an event stream; separate tests check that it has no events of others.
        if route.text in {"logout/", "admin/logout/", "readyz", "stream"}:
            continue
        path = route.filled(ids_for(route, world))
        for method in ("GET", "POST"):
            for headers in ways_to_ask(route):
                answer = call(client, method, path, headers=headers)
                assert answer.status_code < 500, (method, path)
                if CANARY in body_of(answer) + str(answer.headers):
                    leaks.append((method, route.text))
    assert leaks == []


@pytest.mark.parametrize("who", WHO)
def test_S01_nothing_of_alices_was_changed(who: str, world: World) -> None:
    def state() -> list[Any]:
        kinds: list[Any] = [Chat, Folder, Turn, Message, Compaction, ApiKey]
        return [list(kind.objects.order_by("pk").values()) for kind in kinds]

    client = open_browser_as(who)
    before, events = state(), AuditEvent.objects.exclude(scope="instance").count()
    for route in OF_ALICE:
        for method in METHODS:
            call(client, method, route.filled(world.ids))
    assert state() == before
    assert AuditEvent.objects.exclude(scope="instance").count() == events


# One test for all addresses, because the objects take longer to create than the requests. Other
# people change none of them (`test_S01_nothing_of_alices_was_changed`).
def test_S01_foreign_and_absent_ids_get_the_same_answer_at_the_same_cost(
    world: World, charlie: User
) -> None:
    browser, program = Client(), create_client_of(charlie).client
    browser.force_login(charlie)
    absent = {**world.ids, **{name: uuid.uuid4() for name in world.ids if name.endswith("_id")}}
    wrong = []
    for client in (browser, program):
        # The first request of a session or a key records its use.
        call(client, "GET", "/api/v1/models")
        for route in OF_ALICE:
            if client is program and not route.text.startswith("api/"):
                continue
            for method in METHODS:
                answers = []
                for ids in (world.ids, absent):
                    with CaptureQueriesContext(connection) as queries:
                        answer = call(client, method, route.filled(ids))
                    answers.append((answer.status_code, body_of(answer), len(queries)))
                if answers[0] != answers[1] or answers[0][0] not in {*ABSENT, 403}:
                    wrong.append((method, route.text, answers))
    assert wrong == []


def test_S01_a_forgotten_check_would_be_found(
    world: World, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "get_visible_chats", lambda *, user: Chat.objects.all())
    browser = Client()
    browser.force_login(charlie)
    pages = ("chats/<uuid:chat_id>/", "api/v1/chats/<uuid:chat_id>/messages")
    for path in (Route(text).filled(world.ids) for text in pages):
        assert CANARY in body_of(call(browser, "GET", path))
