"""S14, S19, S23, S24 on real processes: secrets and texts do not leak, size limits hold.

Each kind of content has a word that must not be found elsewhere.
"""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.faults.programs import MANAGE, python, run
from tests.security.instance import EMAIL, PASSWORD, SECRET, Instance, logs, sign_in, token_of
from tests.support.stored_bytes import read_everything_stored, wait_for_newest_turn

pytestmark = [
    pytest.mark.processes,
    pytest.mark.services,
]

MESSAGE = "canary-message-9c1e"
REPLY = "canary-reply-77aa"
TITLE = "canary-title-31d0"


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


def talk(instance: Instance, http: httpx2.Client) -> str:
    """A chat with a message and its reply; its URL."""
    instance.fake.configure(reply=REPLY, fault="")
    instance.desk.ask("save_account", slug="fake")
    answer = http.post("/chats/new", data={"text": MESSAGE, "key": "k1", **token_of(http)})
    assert answer.status_code == 302
    address = answer.headers["Location"]
    http.post(f"{address}rename", data={"title": TITLE, **token_of(http)})
    wait_for_newest_turn(instance)
    assert REPLY in http.get(address).text
    return address


def test_S13_S14_S24_S25_a_provider_key_and_the_texts_stay_where_they_belong(
    instance: Instance, http: httpx2.Client
) -> None:
    sign_in(http)
    address = talk(instance, http)
    sent = instance.fake.requests()[-1]
    assert f"…{SECRET[-4:]}" in str(sent), "the key was used"
    instance.fake.configure(reply="", fault="401")
    failed = http.post(f"{address}messages", data={"text": MESSAGE, **token_of(http)})
    assert failed.status_code == 302
    wait_for_newest_turn(instance)
    seen = [instance.said_at_setup.partition("link")[0]]
    for path in ("/setup/", "/admin/", "/admin/chats/provideraccount/", "/api/v1/models", address):
        seen.append(http.get(path).text)
    accounts = instance.database.rows("SELECT id FROM chats_provideraccount")
    seen += [http.get(f"/admin/chats/provideraccount/{a['id']}/change/").text for a in accounts]
    assert all(SECRET not in text for text in seen)
    assert any(SECRET[-4:] in text for text in seen)
    assert SECRET.encode() not in read_everything_stored(instance)
    assert PASSWORD.encode() not in read_everything_stored(instance)
    api_keys = list(instance.keys.values())
    assert api_keys
    assert not any(key.encode() in read_everything_stored(instance) for key in api_keys)
    ledger = repr(instance.database.rows("SELECT * FROM contextpolicy_auditevent"))
    assert "provider.changed" in ledger
    for words in (SECRET, MESSAGE, REPLY, TITLE, EMAIL, PASSWORD):
        assert words not in ledger
    said = logs(instance)
    cookies = [value for value in dict(http.cookies).values() if len(value) > 20]
    for secret in (SECRET, MESSAGE, REPLY, TITLE, EMAIL, PASSWORD, *cookies, *api_keys):
        assert secret not in said


def test_S24_a_refused_login_link_is_not_in_the_logs(
    instance: Instance, http: httpx2.Client
) -> None:
    token = instance.said_at_setup.split("link ")[1].strip()
    assert http.post(f"/login/link/{token}/").status_code == 403
    assert http.put(f"/login/link/{token}/").status_code in {403, 405}
    assert http.get("/api/v1/chats?key=plm_canarykey000000").status_code == 400
    said = logs(instance)
    assert token not in said
    assert "plm_canarykey" not in said
    assert "/login/link/…" in said


def test_S24_no_request_can_begin_a_line_of_the_log(
    instance: Instance, http: httpx2.Client
) -> None:
    http.post("/login/%0a2026-11-20 ERROR forged", data={"x": "y"})
    http.post("/login/link/forged%0d%0a/", headers={"Host": "forged\x1b[31m.example"})
    http.get("/", headers={"Host": "forged.example"})
    lines = logs(instance).splitlines()
    assert not any(line.startswith(("2026-11-20 ERROR forged", "forged")) for line in lines)
    assert "\x1b" not in logs(instance)
    named = [line for line in lines if "forged.example" in line and line[0] != "\t"]
    assert named
    assert all(re.match(r"\d{4}-.* \w+ [\w.]+ [0-9a-f]{32} ", line) for line in named)


@pytest.mark.parametrize("path", ["/login/", "/api/v1/chats", "/nowhere"])
def test_S19_what_is_too_large_is_refused_before_it_is_read(path: str, http: httpx2.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield from [b"x" * 65_536] * 80

    cases: list[tuple[int, str, Any]] = [
        (414, "address_too_long", http.get(path, params={"q": "x" * 10_000})),
        (431, "headers_too_large", http.get(path, headers={"X-Long": "x" * 8_200})),
        (
            431,
            "headers_too_large",
            http.get(path, headers={f"X-{n}": "x" * 4_000 for n in range(10)}),
        ),
        (413, "request_too_large", http.post(path, content=b"x" * 5_000_000)),
        (413, "request_too_large", http.post(path, content=pieces())),
    ]
    for status, code, answer in cases:
        assert answer.status_code == status, code
        assert answer.headers["Connection"] == "close"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert code in answer.text
        if path.startswith("/api/"):
            assert answer.json()["error"]["code"] == code
    just = http.get(path, params={"q": "x" * 4_000}, headers={"X-Long": "x" * 8_000})
    assert just.status_code in {200, 401, 404}


def test_S19_a_snapshot_may_be_larger_than_all_else(http: httpx2.Client) -> None:
    path = "/api/v1/chats/00000000-0000-4000-8000-000000000000/team/snapshot"
    assert http.post(path, content=b"x" * 5_000_000).status_code == 401
    assert http.post(path, content=b"x" * 17_000_000).status_code == 413


def test_S19_a_connection_is_of_use_after_a_refusal(
    instance: Instance, http: httpx2.Client
) -> None:
    assert http.post("/login/", content=b"x" * 5_000_000).status_code == 413
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "wire",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\n b\r\nBad header\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET " + b"/" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["NUL", "folded", "NUL path", "length", "smuggling", "websocket", "TLS", "long line"],
)
def test_S23_bytes_that_are_no_request_break_nothing(
    wire: bytes, instance: Instance, http: httpx2.Client
) -> None:
    before = logs(instance).count("Traceback")
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(5)
        raw.connect(instance.socket)
        raw.sendall(wire)
        raw.shutdown(socket.SHUT_WR)
        answer = raw.recv(65_536)
    assert answer[9:10] in {b"", b"2", b"3", b"4"}, answer[:100]
    assert http.get("/healthz").status_code == 200
    assert logs(instance).count("Traceback") == before


NULS = ["title", "model", "text", "name", "base_url", "api_key", "username", "next"]


def test_S19_no_value_breaks_the_database(instance: Instance, http: httpx2.Client) -> None:
    sign_in(http)
    address = talk(instance, http)
    for path in ("/chats/new", "/setup/", f"{address}rename", f"{address}model", "/login/"):
        for name in NULS:
            form = {"text": "x", "base_url": instance.fake.base_url, name: "a\x00b"}
            answer = http.post(path, data={**form, **token_of(http)})
            assert answer.status_code < 500, (path, name)
    for path in ("/admin/chats/turn/", "/admin/contextpolicy/auditevent/", "/admin/auth/user/"):
        for query in (
            "q=a%00b",
            "status__exact=%00",
            "created_at__year=" + "9" * 30,
            "id=" + "9" * 30,
        ):
            assert http.get(f"{path}?{query}").status_code < 500, (path, query)
    http.cookies.clear()
    cookie = {"Cookie": 'sessionid="' + "\\000" * 9 + '"'}
    assert http.get("/", headers=cookie).status_code == 400


def test_S14_the_keys_of_the_instance_are_outside_of_its_database(instance: Instance) -> None:
    stored = read_everything_stored(instance)
    for name in ("secret_key", "encryption_key"):
        path = Path(instance.folder / name)
        assert path.stat().st_mode & 0o077 == 0
        assert path.read_bytes().strip() not in stored
    assert run(python(MANAGE, "ledger_verify"), env=instance.env)
