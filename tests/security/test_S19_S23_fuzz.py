"""S19, S23: any input gets a response that names the problem, never a server error."""

import json
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat, Message
from tests.faults.shares import EVERY_ROW
from tests.security.addresses import Route, routes
from tests.security.world import World
from tests.support.chat_pages import HTMX
from tests.support.role_clients import SUPERUSER, create_client_of, open_browser_as

pytestmark = pytest.mark.wide

HUGE = "x" * 5_000_000
HOSTILE = [
    "\x00",
    "a\x00b",
    "\ufffe\uffff",
    "\u202e\u2066\ufeff",
    "\r\nSet-Cookie: stolen=1\r\n\r\n<script>",
    "' OR 1=1 --",
    '"; DROP TABLE chats_chat; --',
    '*" NEAR( {{7*7}} %s %(x)s ${x}',
    "[" * 2_000,
    "9" * 400,
    "-1",
    "1e999",
    "NaN",
    "../../../etc/passwd",
    "owner__password",
    "http://[",
    "\U0010ffff",
]
# Bytes that are not text: half a surrogate pair in UTF-8, an overlong NUL, a lone 0xFF.
BROKEN = ["%ED%A0%80", "%C0%80", "%FF%FE"]
FIELDS: tuple[str, ...] = (
    "text",
    "key",
    "title",
    "model",
    "from",
    "before",
    "page",
    "username",
    "password",
    "next",
)
FIELDS += ("name", "base_url", "api_key", "old_password", "new_password1", "new_password2")
PARAMETERS: tuple[str, ...] = (
    "q",
    "o",
    "p",
    "e",
    "all",
    "_changelist_filters",
    "status",
    "status__exact",
    "id",
)
PARAMETERS += ("queued_at__gte", "created_at__year", "owner__password", "before", "page", "from")
PARAMETERS += (
    "next",
    "model",
    "limit",
    "cursor",
    "type",
    "chat",
    "since",
    "from_seq",
    "order",
    "after",
)
ELSEWHERE = ("admin/", "api/", "logout", "readyz")
QUERY = ("limit", "cursor", "type", "chat", "since", "from_seq", "to_seq", "order")
FORMS = [
    route for route in routes() if not route.text.startswith(ELSEWHERE) and route.text != "stream"
]
LISTS = [r for r in routes() if r.text.startswith("admin/") and "logout" not in r.text]
# As a cookie encodes it.
NUL = "\\000"
HEADERS = {
    "HX-Current-URL": "http://[",
    "HX-Request": "true",
    "Last-Event-ID": "1.1.\u0662",
    "Accept": ";;;q=x,*",
    "Accept-Language": "x" * 3000,
    "Cookie": f'sessionid="{NUL * 9}"; zone=../../etc; csrftoken=x',
    "Idempotency-Key": "\xff",
    "X-Forwarded-For": "\xff,::,%",
    "X-Forwarded-Host": "evil.example",
    "X-Request-ID": "\r x",
    "If-Modified-Since": "x",
    "Range": "bytes=-1--9",
    "Authorization": "Bearer",
    "Content-Type": "multipart/form-data",
}


@pytest.fixture
def client(page: Client) -> Client:
    """Alice's browser; server errors are responses, as in production."""
    page.raise_request_exception = False
    return page


def no_error_of_ours(answer: Any, what: object) -> None:
    """Check that the status is below 500 and that the request did not inject a header."""
    assert answer.status_code < 500, what
    assert "stolen" not in answer.cookies
    assert not any("\n" in value or "\r" in value for value in answer.headers.values())


# Each URL gets every third hostile value, different from its neighbours; `make walks` tests all.
SHARE = 1 if EVERY_ROW else 3


def fillings(route: Route) -> Iterator[str]:
    """Hostile values for a URL, percent-encoded."""
    every = [*(quote(text, safe="") for text in HOSTILE), *BROKEN]
    first = zlib.crc32(route.text.encode()) % SHARE
    yield from every[first::SHARE]


@pytest.mark.parametrize("route", FORMS, ids=lambda route: route.text or "home")
@pytest.mark.in_turn
def test_S19_no_form_is_broken_by_a_value(route: Route, client: Client, world: World) -> None:
    path = route.filled(world.ids)
    for value in fillings(route):
        body = "&".join(f"{name}={value}" for name in FIELDS)
        for headers in ({}, HTMX):
            kind = "application/x-www-form-urlencoded"
            answer = client.post(path, body, kind, headers=headers)
            no_error_of_ours(answer, value)
        if len(value) < 4000:
            query = "&".join(f"{name}={value}" for name in PARAMETERS)
            no_error_of_ours(client.get(f"{path}?{query}"), value)


@pytest.mark.parametrize("route", LISTS, ids=lambda route: route.text)
@pytest.mark.in_turn
def test_S23_no_list_of_the_administration_is_broken_by_a_parameter(
    route: Route, world: World
) -> None:
    client = open_browser_as(SUPERUSER)
    client.raise_request_exception = False
    path = route.filled({"object_id": "x", **world.ids})
    is_list = path.count("/") == 4
    for value in ("a%00b", "%27%20OR%201", "9" * 30, "-1.2.3.99", "http://[", "%FF"):
        queries = [f"{name}={value}" for name in PARAMETERS]
        for query in queries if is_list else ["&".join(queries)]:
            no_error_of_ours(client.get(f"{path}?{query}"), query)


@pytest.mark.parametrize("name", HEADERS)
def test_S23_no_header_is_followed_where_it_should_not_be(
    name: str, client: Client, world: World
) -> None:
    stranger = Client(raise_request_exception=False)
    own = f"/chats/{world.chat.pk}/"
    for path in ("/", "/login/", "/settings/", "/api/v1/chats", "/nowhere", own):
        for browser in (client, stranger):
            for method in ("GET", "POST"):
                headers = {"HX-Request": "true", name: HEADERS[name]}
                answer = browser.generic(method, path, b"", headers=headers)
                no_error_of_ours(answer, (path, name))
                assert "evil.example" not in answer.content.decode() + str(answer.headers)


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\xff",
        "multipart/form-data; boundary=x; charset=hex",
        "application/x-www-form-urlencoded; charset=utf-16",
        "application/x-www-form-urlencoded; charset=zlib",
        "application/json; charset=rot13",
        "text/html;;;",
        "",
    ],
)
def test_S19_no_encoding_breaks_a_form(kind: str, client: Client, world: World) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\n\xed\xa0\x80\x00\r\n--x--\r\n'
    )
    for path in ("/login/", "/chats/new", f"/chats/{world.chat.pk}/messages", "/api/v1/chats"):
        for browser in (client, Client(raise_request_exception=False)):
            answer = browser.generic("POST", path, body, kind)
            no_error_of_ours(answer, (path, kind))


@pytest.mark.parametrize("path", ["/chats/new", "/login/", "/setup/", "/admin/", "/nowhere"])
def test_S19_five_megabytes_in_a_form_are_refused(path: str, client: Client) -> None:
    answer = client.post(path, f"text={HUGE}", "application/x-www-form-urlencoded")
    assert answer.status_code in {413, 403, 404, 302}, path
    if answer.status_code == 413:
        assert "larger than 2,621,440 bytes" in answer.content.decode()
    assert not Message.objects.exists()


def test_S19_too_many_fields_are_refused(client: Client) -> None:
    body = "&".join(f"f{n}=1" for n in range(settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1))
    answer = client.post("/login/", body, "application/x-www-form-urlencoded")
    assert answer.status_code == 400
    assert 'id="refusal"' in answer.content.decode()


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"text":' * 100_000, json.dumps({"text": HUGE}).encode(), b"\x00", b"\xff"],
    ids=["brackets", "objects", "5 MB", "NUL", "no text"],
)
def test_S19_no_body_breaks_the_api(body: bytes, world: World, alice: User) -> None:
    program = create_client_of(alice)
    program.client.raise_request_exception = False
    for route in routes():
        if route.text.startswith("api/") and "docs" not in route.text:
            for method in ("POST", "PATCH", "DELETE"):
                path = route.filled(world.ids).removeprefix("/api/v1/")
                answer = program.call(method, path, body)
                assert answer.status_code < 500, (method, route.text)
                # 202: the bytes of a file, which the report of its import checks.
                assert answer.status_code in {202, 204} or "error" in answer.json()


def test_S19_every_text_of_the_api_takes_or_names_what_it_gets(world: World, alice: User) -> None:
    program = create_client_of(alice)
    program.client.raise_request_exception = False
    chat = world.chat.pk
    values: list[Any] = [*HOSTILE, "\ud800", "\udfff\ud800", None, 7, [], {}, True, 1e308]
    for value in values:
        for path, name in (
            ("chats", "title"),
            ("chats", "model"),
            ("chats", "text"),
            (f"chats/{chat}/messages", "text"),
            ("keys", "name"),
            ("keys", "scopes"),
            ("keys", "lifetime_days"),
        ):
            body = {"name": "n", name: value} if path == "keys" else {name: value}
            answer = program.post(path, body)
            assert answer.status_code < 500, (path, name, value)
        for name in ("title", "model"):
            answer = program.call("PATCH", f"chats/{chat}", {name: value})
            assert answer.status_code < 500, (name, value)


@pytest.mark.slow
@pytest.mark.in_turn
def test_S19_no_query_breaks_the_api(world: World, alice: User) -> None:
    program = create_client_of(alice)
    program.client.raise_request_exception = False
    times = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30", "1e9")
    for route in routes():
        is_stream = route.text.endswith("/events") and "turn_id" in route.text
        if is_stream or not route.text.startswith("api/"):
            continue
        path = route.filled(world.ids)
        for name in QUERY:
            for value in (*times, "a%00b", "%FF", "9" * 40, "-1"):
                answer = program.client.get(f"{path}?{name}={value}")
                no_error_of_ours(answer, (path, name, value))


@pytest.mark.parametrize(
    "path",
    [
        "/%00",
        "/chats/%00/",
        "/%ff%fe",
        "/static/%00",
        "/static/..%2f..%2fproject/settings.py",
        "/static/" + "a" * 3000,
        "//evil.example/..",
        "/chats/new/",
        "/login/link/%00/",
        "/api/v1/%00",
    ],
)
def test_S23_no_address_leaves_its_place(path: str, client: Client) -> None:
    for browser in (client, Client(raise_request_exception=False)):
        answer = browser.get(path)
        no_error_of_ours(answer, path)
        assert not answer.headers.get("Location", "").startswith(("//", "http"))
        if not answer.streaming:
            assert "SECRET_KEY" not in answer.content.decode()


def test_S23_a_host_that_is_not_ours_gets_a_sentence_and_nothing_else() -> None:
    for path in ("/login/", "/api/v1/chats"):
        stranger = Client(raise_request_exception=False)
        answer = stranger.get(path, headers={"Host": "evil.example\r\n"})
        assert answer.status_code == 400
        assert "evil.example" not in answer.content.decode()
        if path.startswith("/api/"):
            assert answer.json()["error"]["code"] == "bad_request"


def test_nothing_was_lost(world: World) -> None:
    assert Chat.objects.filter(pk=world.chat.pk).exists()
