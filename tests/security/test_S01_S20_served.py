"""S1-S5, S9-S13, S15, S18-S20, S30 on real processes: the rules also hold when served.

The many cases of each rule are tested next to its code. Here the attack goes through sockets,
cookies, threads and a worker.
"""

import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.faults.client import parsed
from tests.faults.programs import MANAGE, free_port, python, run, until
from tests.faults.stores import count, wait_for_rows
from tests.security.addresses import Route, routes
from tests.security.instance import (
    EMAIL,
    PASSWORD,
    PEOPLE,
    ROOT,
    Instance,
    browser,
    logs,
    program,
    sign_in,
    token_of,
)
from tests.security.markup import HOSTILE, read
from tests.support.api_operations import METHODS, PATHS, READ_ONLY_FIELDS, VALID_BODIES, replace_ids
from tests.support.page_headers import READABLE_ROUTES, check_headers
from tests.support.role_table import ROLE_TABLE, A, O, P, S, W
from tests.support.worst_markdown import WORST_TEXTS

pytestmark = [
    pytest.mark.processes,
    pytest.mark.services,
]

CANARY = "canary-2d7e"
WORDS = "The order 4711 of 3 May 2026 goes to Anna Berg in Oslo. " * 8
PAGES_OF_ALICE = [
    route
    for route in routes()
    if {"chat_id", "key_id"} & set(route.gaps) and not route.text.startswith("api/")
]
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
ADMIN = "/admin/chats/provideraccount/"
# Words and numbers that are too common to search for in a text.
OF_POLICIES = {"slug", "number", "assignment_id"}


@pytest.fixture(autouse=True)
def sent() -> None:
    """Replace the fixture that records tasks: the broker is real."""


def speak_plainly(instance: Instance) -> None:
    """Reset the model server's replies, and the key that another test rejected."""
    instance.fake.configure(reply="", fault="", ms=0, tokens=20, faults=[], replies=[])
    instance.desk.ask("save_account", slug="fake")


@pytest.fixture
def answers(instance: Instance) -> Iterator[None]:
    """The model server with default replies, reset again after the test."""
    speak_plainly(instance)
    yield
    speak_plainly(instance)


@pytest.fixture(scope="module")
def of_alice(instance: Instance) -> dict[str, str]:
    """A chat of Alice's with an active summary, and a key, by the names that URLs use."""
    speak_plainly(instance)
    chat = instance.new_chat(model="locked")
    instance.desk.ask("fold_early", chat=chat)
    for number in range(3):
        turn = instance.post(f"{CANARY} {number} {WORDS} [[fake tokens=30]]", chat=chat)
        assert instance.wait_until_over(turn)["status"] == "completed"
    query = "SELECT * FROM chats_branch WHERE chat_id = %s AND active_compaction_id IS NOT NULL"
    branch = wait_for_rows(instance.database, query, instance.key(chat), seconds=20)
    row = instance.turn(turn)
    with browser(instance, "alice") as alice:
        key = over_rest(alice, "POST", "/api/v1/keys", {"name": "k", "scopes": ["chats:read"]})
        folder = over_rest(alice, "POST", "/api/v1/folders", {"name": f"{CANARY} folder"})
        crew = {"name": f"{CANARY} team", "agents": [{"name": "Quillwright"}]}
        team = over_rest(alice, "POST", "/api/v1/teams", crew)
        over_rest(alice, "PATCH", "/api/v1/memory", {"consent": True})
        told = {"slot": "note", "text": f"{CANARY} preference"}
        kept = over_rest(alice, "POST", "/api/v1/memory/preferences", told)
        hook = {"url": f"https://example.org/{CANARY}", "events": ["task.changed"]}
        webhook = over_rest(alice, "POST", "/api/v1/webhooks", hook)
    found = {
        "chat_id": chat,
        "turn_id": turn,
        "message_id": row["trigger_id"],
        "branch_id": branch["id"],
        "compaction_id": branch["active_compaction_id"],
        "key_id": key.json()["id"],
        "folder_id": folder.json()["id"],
        "team_id": team.json()["id"],
        "preference_id": kept.json()["id"],
        "webhook_id": webhook.json()["id"],
        # Deliveries of another person's webhook are never queried.
        "delivery_id": uuid.uuid4(),
        # People without access get the same refusal, whatever the id.
        "hold_id": uuid.uuid4(),
        "run_id": uuid.uuid4(),
        "radius_id": uuid.uuid4(),
        "evaluation_id": uuid.uuid4(),
        "erasure_id": uuid.uuid4(),
        "asked_id": uuid.uuid4(),
        "import_id": uuid.uuid4(),
        "file_id": uuid.uuid4(),
        # Calls of another person's turn are never queried.
        "receipt_id": uuid.uuid4(),
    }
    ids = {name: str(uuid.UUID(str(value))) for name, value in found.items()}
    ids["role_id"] = "quillwright"
    ids["client_id"] = ids["chat_id"]
    # Images of another person's message are never queried.
    ids["sha256"] = "0" * 64
    # Charlie cannot see the policy of Alice's chat either.
    query = (
        "SELECT a.id, p.slug FROM contextpolicy_policyassignment a"
        " JOIN contextpolicy_contextpolicy p ON p.id = a.policy_id"
    )
    assigned = instance.database.rows(query)[0]
    ids |= {"slug": assigned["slug"], "number": "1", "assignment_id": str(assigned["id"])}
    until(lambda: is_at_rest(instance, ids), seconds=20, what="the end of the work on the chat")
    return ids


def is_at_rest(instance: Instance, ids: dict[str, str]) -> bool:
    """Return True if no worker uses the chat, including a compaction after the last message."""
    before = everything(instance, ids)
    time.sleep(0.3)
    return everything(instance, ids) == before


def over_rest(http: httpx2.Client, method: str, path: str, body: Any = None) -> httpx2.Response:
    """A request with a JSON body and, in a session, its token."""
    headers = {"X-CSRFToken": http.cookies["csrftoken"]} if "csrftoken" in http.cookies else {}
    return http.request(method, path, json=body, headers=headers)


def bare(answer: httpx2.Response) -> tuple[int, str]:
    """Status and body without the parts that vary between requests."""
    text = answer.text.replace(answer.headers["X-Request-ID"], "")
    return answer.status_code, text.partition("<main")[2] or text


def everything(instance: Instance, ids: dict[str, str]) -> list[str]:
    """All responses about Alice's chat."""
    chat = f"/api/v1/chats/{ids['chat_id']}"
    with program(instance, "alice") as alice:
        lists = ("/messages?limit=100", "/compactions", "/branches", "/pins")
        parts = ("", *lists, "/policy", "/policy/explained")
        return [bare(alice.get(chat + part))[1] for part in parts]


def begun(http: httpx2.Client, text: str) -> tuple[str, str]:
    """Start a chat in this browser; return the ids of the chat and the turn."""
    chat = over_rest(http, "POST", "/api/v1/chats", {}).json()["id"]
    sent = over_rest(http, "POST", f"/api/v1/chats/{chat}/messages", {"text": text})
    assert sent.status_code == 202, sent.text
    return chat, sent.json()["turn"]["id"]


def answered(instance: Instance, http: httpx2.Client, text: str) -> tuple[str, str]:
    """Start a chat and wait for the reply; return the same ids."""
    chat, turn = begun(http, text)
    assert instance.wait_until_over(turn)["status"] == "completed"
    return chat, turn


# --- Ownership ----------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["key", "session"])
def test_S01_as_served_foreign_and_absent_ids_get_the_same_answer(
    door: str, instance: Instance, of_alice: dict[str, str]
) -> None:
    before = everything(instance, of_alice)
    absent = replace_ids(of_alice)
    opened = program(instance, "charlie") if door == "key" else browser(instance, "charlie")
    with opened as charlie:
        for path in sorted(path for path in PATHS if "{" in path):
            for method in METHODS:
                body = VALID_BODIES.get(PATHS[path].get(method.lower(), {}).get("operationId", ""))
                told = [
                    bare(over_rest(charlie, method, path.format(**ids), body))
                    for ids in (of_alice, absent)
                ]
                assert told[0] == told[1], (method, path)
                assert told[0][0] in {403, 404, 405}, (method, path)
                assert CANARY not in told[0][1]
        for path in sorted(path for path in PATHS if "{" not in path):
            listed = charlie.get(path).text
            hers = [own for name, own in of_alice.items() if name not in OF_POLICIES]
            assert not any(own in listed for own in (CANARY, *hers))
    assert everything(instance, of_alice) == before


def test_S01_as_served_no_page_of_alices_opens_for_charlie(
    instance: Instance, of_alice: dict[str, str]
) -> None:
    before = everything(instance, of_alice)
    absent = {name: str(uuid.uuid4()) for name in of_alice} | {"sha256": "1" * 64}
    with browser(instance, "charlie") as charlie:
        for route in PAGES_OF_ALICE:
            for method in ("GET", "POST"):
                form = token_of(charlie) if method == "POST" else None
                told = [
                    bare(charlie.request(method, route.filled(ids), data=form))
                    for ids in (of_alice, absent)
                ]
                assert told[0][0] in {404, 405}, (method, route.text)
                assert re.sub(r'value="\w{64}"', "", told[0][1]) == re.sub(
                    r'value="\w{64}"', "", told[1][1]
                ), (method, route.text)
                assert CANARY not in told[0][1]
    assert everything(instance, of_alice) == before


@pytest.mark.parametrize("who", ["policies", "operator", "auditor", "owner", ROOT, "alice"])
def test_S02_as_served_each_role_opens_what_the_table_says(who: str, instance: Instance) -> None:
    short = {"policies": P, "operator": O, "auditor": A, "owner": W, ROOT: S, "alice": ""}[who]
    with browser(instance, who) as person:
        for model, (reads, adds, changes, deletes) in ROLE_TABLE.items():
            page = f"/admin/{model.replace('_', '/', 1)}/"
            # The last one: the first groups are the roles, which cannot be deleted.
            found = instance.database.rows(f"SELECT * FROM {model}")[-1:]  # noqa: S608  # own
            seen, done = {page: reads, f"{page}add/": adds}, {f"{page}add/": adds}
            for row in found:
                own = f"{page}{row.get('id') or row['digest']}/"
                seen |= {f"{own}change/": reads, f"{own}delete/": deletes}
                done |= {f"{own}change/": changes, f"{own}delete/": deletes}
            for address, allowed in seen.items():
                refused = not allowed & {short}
                assert (person.get(address).status_code != 200) == refused, (who, address)
            for address, allowed in done.items():
                if short not in allowed:
                    answer = person.post(address, data=token_of(person))
                    assert answer.status_code == (302 if who == "alice" else 403), (who, address)
                    assert "/login/" in answer.headers.get("Location", "/login/")


def test_S03_as_served_what_is_not_offered_cannot_be_set(
    instance: Instance, of_alice: dict[str, str]
) -> None:
    before = everything(instance, of_alice)
    path = f"/api/v1/chats/{of_alice['chat_id']}"
    with program(instance, "alice") as alice:
        for field in READ_ONLY_FIELDS:
            for method, address, body in (
                ("PATCH", path, {"title": "New"}),
                ("POST", f"{path}/messages", {"text": "Hello"}),
            ):
                answer = over_rest(alice, method, address, {**body, field: 1})
                error = answer.json()["error"]
                assert (answer.status_code, error["code"], error["param"]) == (
                    400,
                    "unknown_field",
                    field,
                )
    assert everything(instance, of_alice) == before


# --- Content of texts ---------------------------------------------------------------------------


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_S04_S05_S18_as_served_a_text_stays_a_text(
    hostile: str, instance: Instance, answers: None
) -> None:
    words = f"{hostile} {CANARY}"
    instance.fake.configure(replies=[{"text": words, "match": CANARY}])
    with browser(instance, "alice") as alice:
        chat, turn = answered(instance, alice, words)
        title = {"title": hostile[:200].replace("\n", " "), **token_of(alice)}
        assert alice.post(f"/chats/{chat}/rename", data=title).status_code == 302
        for path in (f"/chats/{chat}/", "/", f"/chats/{chat}/tail", f"/chats/{chat}/find?q=pwn"):
            assert read(alice.get(path).text).wrong == [], path
        page = alice.get(f"/chats/{chat}/").text
        assert page.count(CANARY) >= 2
        stored = over_rest(alice, "GET", f"/api/v1/chats/{chat}/messages").json()["data"]
        assert [part["text"] for m in stored for part in m["parts"]] == [words, words]
        # Both streams of the ended turn repeat its events.
        with alice.stream("GET", f"/stream?turn={turn}") as stream:
            assert_streams(stream.headers)
            lines = []
            for line in stream.iter_lines():
                lines.append(line)
                if line == f"event: {turn}.done":
                    break
        assert all(re.match(r"(event|data|id|retry): |:|$", line) for line in lines)
        html = "\n".join(line[6:] for line in lines if line.startswith("data: "))
        assert read(html).wrong == []
        with alice.stream("GET", f"/api/v1/chats/{chat}/turns/{turn}/events") as stream:
            assert_streams(stream.headers)
            events = list(parsed(stream.iter_lines()))
    assert "".join(e.data["text"] for e in events if e.name in {"snapshot", "delta"}) == words
    assert [e.name for e in events].count("done") == 1


def assert_streams(headers: httpx2.Headers) -> None:
    """Check the headers of every event stream."""
    assert headers["Content-Type"].startswith("text/event-stream")
    assert "no-store" in headers["Cache-Control"]
    assert headers["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize("way", ["key", "logout"])
def test_S18_as_served_a_stream_ends_with_the_right_to_it(
    way: str, instance: Instance, answers: None
) -> None:
    instance.fake.configure(tokens=2_000, ms=20)
    with browser(instance, "alice") as alice, browser(instance) as follower:
        new = {"name": "follower", "scopes": ["chats:read"]}
        key = over_rest(alice, "POST", "/api/v1/keys", new).json()
        headers = {"Authorization": f"Bearer {key['secret']}"} if way == "key" else {}
        if way == "logout":
            sign_in(follower, "alice")

        def leave() -> None:
            if way == "key":
                over_rest(alice, "DELETE", f"/api/v1/keys/{key['id']}")
            else:
                with browser(instance) as same:
                    same.cookies.update(follower.cookies)
                    same.post("/logout/", data=token_of(same))

        chat, turn = begun(alice, "Go on")
        events = f"/api/v1/chats/{chat}/turns/{turn}/events"
        with follower.stream("GET", events, headers=headers) as stream:
            told = parsed(stream.iter_lines())
            assert next(told).name in {"snapshot", "delta"}
            # The first turn of a worker waits until it has loaded its tokenizer.
            until(lambda: instance.turn(turn)["status"] == "running")
            left = time.monotonic()
            threading.Thread(target=leave).start()
            assert "done" not in [event.name for event in told]
        assert time.monotonic() - left < 10
        assert follower.get(events, headers=headers).status_code == 401
        assert instance.turn(turn)["status"] == "running"
        assert over_rest(alice, "POST", events.replace("/events", "/stop")).status_code < 300
        instance.wait_until_over(turn)


# --- Forged requests ----------------------------------------------------------------------------


def test_S09_as_served_nothing_changes_without_the_token(
    instance: Instance, of_alice: dict[str, str]
) -> None:
    before = everything(instance, of_alice)
    with browser(instance, "alice") as alice:
        for path, operations in PATHS.items():
            for method in sorted({m.upper() for m in operations} & set(UNSAFE)):
                answer = alice.request(method, path.format(**of_alice), json={})
                told = (answer.status_code, answer.json()["error"]["code"])
                assert told == (403, "csrf_failed"), (method, path)
        for route in routes():
            if not route.text.startswith("api/"):
                answer = alice.post(address(route, of_alice), data={"text": "x", "title": "x"})
                # Below /v1 sessions are ignored: only a key gives access.
                allowed = {401, 404, 405} if route.text.startswith("v1/") else {403, 404, 405}
                assert answer.status_code in allowed, route.text
        assert alice.get("/settings/").status_code == 200, "still signed in"
        # A page of another origin is refused, whatever token it sends.
        foreign = {"Origin": "https://evil.example"}
        form = {"title": "stolen", **token_of(alice)}
        page = f"/chats/{of_alice['chat_id']}/rename"
        assert alice.post(page, data=form, headers=foreign).status_code == 403
        # With a key the cookie is ignored.
        own = {"Authorization": f"Bearer {instance.keys['charlie']}"}
        path = f"/api/v1/chats/{of_alice['chat_id']}"
        assert alice.get(path).status_code == 200
        assert alice.get(path, headers=own).status_code == 404
    with program(instance, "alice") as key:
        assert over_rest(key, "PATCH", path, {"title": "New"}).status_code == 200
        assert over_rest(key, "PATCH", path, {"title": ""}).status_code == 200
    assert everything(instance, of_alice)[1:] == before[1:]


def address(route: Route, ids: dict[str, str]) -> str:
    """The route's URL for Alice's objects."""
    return route.filled({**ids, "object_id": 1, "id": 1, "content_type_id": 1, "token": "absent"})


def test_S10_as_served_every_answer_carries_the_headers(
    instance: Instance, of_alice: dict[str, str]
) -> None:
    nonces, asked = set(), 0
    for who in ("", "alice", ROOT):
        with browser(instance, who) as person:
            for route in READABLE_ROUTES:
                answer = person.get(address(route, of_alice))
                check_headers(answer, (who, route.text))
                if answer.headers.get("Content-Type", "").startswith("text/html"):
                    assert read(answer.text).wrong == [], (who, route.text)
                nonces.add(answer.headers["Content-Security-Policy"])
                asked += 1
    assert len(nonces) == asked
    with browser(instance) as stranger:
        for status, answer in (
            (404, stranger.get("/nowhere")),
            (404, stranger.get("/api/v1/nowhere")),
            (403, stranger.post("/login/", data={"username": "x"})),
            (400, stranger.get("/login/", headers={"Host": "evil.example"})),
            (405, stranger.put("/login/", data=token_of(stranger))),
        ):
            check_headers(answer, answer.url)
            assert answer.status_code in {status, 403}, answer.url
        page = stranger.get("/login/").text
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
        assert len(files) > 2
        for name in files:
            answer = stranger.get(name)
            assert answer.status_code == 200
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "Server" not in answer.headers


# --- Sign-in ------------------------------------------------------------------------------------


def test_S11_as_served_sessions_are_new_hidden_and_end(instance: Instance) -> None:
    with browser(instance) as fixed, browser(instance, "eve") as other:
        fixed.cookies.set("sessionid", "0" * 32, domain="localhost.local")
        entered = sign_in(fixed, "eve")
        (cookie,) = [c for c in entered.headers.get_list("Set-Cookie") if c.startswith("sessionid")]
        assert {"httponly", "samesite=lax", "path=/"} <= set(cookie.lower().split("; "))
        assert "0" * 32 not in cookie
        taken = {"Cookie": cookie.partition(";")[0]}
        stolen = {"Cookie": f"sessionid={other.cookies['sessionid']}"}
        with browser(instance) as thief:
            thief.cookies.clear()
            assert thief.get("/settings/", headers=taken).status_code == 200
            assert thief.get("/settings/", headers=stolen).status_code == 200
            form = {
                "old_password": PASSWORD,
                "new_password1": f"{PASSWORD}-new",
                "new_password2": f"{PASSWORD}-new",
                **token_of(fixed),
            }
            assert fixed.post("/account/password/", data=form).status_code == 302
            assert fixed.get("/settings/").status_code == 200
            assert thief.get("/settings/", headers=stolen).status_code == 302
            mine = {"Cookie": f"sessionid={fixed.cookies['sessionid']}"}
            assert fixed.get("/logout/").status_code in {302, 405}
            assert thief.get("/settings/", headers=mine).status_code == 200
            assert fixed.post("/logout/", data=token_of(fixed)).status_code == 302
            for used in (taken, stolen, mine):
                assert thief.get("/settings/", headers=used).status_code == 302
        sign_in(fixed, "eve", f"{PASSWORD}-new")
        form |= {"old_password": form["new_password1"]}
        form |= {"new_password1": PASSWORD, "new_password2": PASSWORD, **token_of(fixed)}
        assert fixed.post("/account/password/", data=form).status_code == 302


@pytest.fixture(scope="module")
def port(instance: Instance) -> Iterator[int]:
    """A second web process that distinguishes clients by address; its port."""
    chosen = free_port()
    served = instance.start("web", python(MANAGE, "web", "--port", str(chosen)))
    until(lambda: served.must_live() and is_served(chosen), seconds=30)
    yield chosen
    served.kill()


def is_served(port: int) -> bool:
    """Return True if the web process answers."""
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx2.TransportError:
        return False


DOORS = ["login", "account", "link", "api", "stream"]
NOBODY = "00000000-0000-4000-8000-000000000000"


def guess(http: httpx2.Client, door: str, n: int) -> httpx2.Response:
    """A failed attempt at a sign-in form."""
    wrong = {"Authorization": f"Bearer plm_wrong{n}"}
    match door:
        case "api":
            return http.get("/api/v1/chats", headers=wrong)
        case "stream":
            path = f"/api/v1/chats/{NOBODY}/turns/{NOBODY}/events"
            return http.get(path, headers=wrong)
        case "link":
            return http.post(f"/login/link/wrong{n}/", data=token_of(http))
        case _:
            name = "nobody" if door == "account" else f"nobody{n}"
            form = {"username": name, "password": f"wrong{n}", **token_of(http)}
            forged = {"X-Forwarded-For": f"10.0.0.{n}"}
            return http.post("/login/", data=form, headers=forged)


@pytest.mark.parametrize("door", DOORS)
def test_S12_as_served_twelve_wrong_tries_end_in_429(
    door: str, instance: Instance, port: int
) -> None:
    own = f"127.0.0.{10 + DOORS.index(door)}"
    base = f"http://127.0.0.1:{port}"
    with (
        httpx2.Client(transport=httpx2.HTTPTransport(local_address=own), base_url=base) as guesser,
        httpx2.Client(
            transport=httpx2.HTTPTransport(local_address="127.0.0.99"), base_url=base
        ) as elsewhere,
    ):
        guesser.get("/login/")
        told = [guess(guesser, door, n) for n in range(12)]
        assert told[0].status_code in {200, 401, 403}
        assert told[-1].status_code == 429
        assert 0 < int(told[-1].headers["Retry-After"]) <= 15 * 60
        # There the right password is refused now; other addresses and other forms accept it.
        form = {"username": "charlie", "password": PASSWORD}
        guesser.get("/login/")
        now = guesser.post("/login/", data={**form, **token_of(guesser)})
        assert now.status_code == (429 if door == "login" else 302)
        elsewhere.get("/login/")
        assert elsewhere.post("/login/", data={**form, **token_of(elsewhere)}).status_code == 302


def test_S13_as_served_a_key_is_worth_what_it_was_given_and_ends_at_once(
    instance: Instance, of_alice: dict[str, str]
) -> None:
    path = f"/api/v1/chats/{of_alice['chat_id']}"
    with browser(instance, "alice") as alice, browser(instance) as http:
        new = {"name": "reader", "scopes": ["chats:read"]}
        made = over_rest(alice, "POST", "/api/v1/keys", new).json()
        key = {"Authorization": f"Bearer {made['secret']}"}
        assert http.get(path, headers=key).status_code == 200
        refused = http.patch(path, headers=key, json={"title": "x"})
        assert refused.status_code == 403
        assert "chats:write" in refused.json()["error"]["message"]
        assert http.post("/api/v1/keys", headers=key, json=new).status_code == 403
        assert http.get("/settings/", headers=key).status_code == 302, "no key opens a page"
        for query in ({"key": made["secret"]}, {"api_key": made["secret"]}):
            assert http.get(path, params=query).status_code in {400, 401}
        assert made["secret"] not in alice.get("/api/v1/keys").text
        assert over_rest(alice, "DELETE", f"/api/v1/keys/{made['id']}").status_code == 200
        ended = http.get(path, headers=key)
        assert ended.status_code == 401
        assert made["secret"] not in logs(instance)


# --- Outgoing requests --------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server outside the allow list that records calls."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "base_url",
    [
        "http://127.0.0.1:{port}/v1",
        "http://localhost:{port}/v1",
        "http://2130706433:{port}/v1",
        "http://0x7f.1:{port}/v1",
        "http://[::ffff:127.0.0.1]:{port}/v1",
        "http://user:pass@127.0.0.1:{port}/v1",
        "http://169.254.169.254/v1",
        "file:///etc/passwd",
    ],
)
def test_S15_as_served_no_forbidden_address_is_called(
    base_url: str, instance: Instance, listener: socket.socket, answers: None
) -> None:
    chosen = base_url.format(port=listener.getsockname()[1])
    query = "SELECT * FROM chats_provideraccount WHERE slug = 'narrow'"
    account = instance.database.rows(query)[0]
    with browser(instance, "operator") as operator:
        form = {"name": "narrow", "kind": "openai", "base_url": chosen, **token_of(operator)}
        told = operator.post(f"{ADMIN}{account['id']}/change/", data=form)
        assert told.status_code == 200
        assert "errorlist" in told.text
    assert instance.database.rows(query)[0]["base_url"] == account["base_url"]
    # However it got into the database.
    instance.desk.ask("move_account", slug="narrow", base_url=chosen)
    try:
        row = instance.wait_until_over(instance.post("Hello", model="narrow"))
        assert (row["status"], row["error_code"]) == ("failed", "provider_unavailable")
        assert not row["error_sentence"].startswith("The provider did not")
    finally:
        instance.desk.ask("move_account", slug="narrow", base_url=account["base_url"])


# --- Sizes and formats --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"text": "a", "text": "b"}',
        b'{"text": NaN}',
        b'{"text": "\xff\xfe"}',
        b'{"text": {"$gt": ""}}',
        b'{"text": ' + b"9" * 10_000 + b"}",
        b'{"__proto__": {"text": "a"}, "text": "a"}',
        b"null",
        b"",
    ],
    ids=["depth", "twice", "NaN", "bytes", "object", "number", "proto", "null", "0"],
)
def test_S19_as_served_a_broken_body_is_refused_in_words(body: bytes, instance: Instance) -> None:
    errors = logs(instance).count("Traceback")
    with program(instance, "alice") as alice:
        chat = over_rest(alice, "POST", "/api/v1/chats", {}).json()["id"]
        path = f"/api/v1/chats/{chat}/messages"
        answer = alice.post(path, content=body, headers={"Content-Type": "application/json"})
        error = answer.json()["error"]
        assert answer.status_code in {400, 422}
        assert error["code"]
        assert error["message"].endswith(".")
        assert alice.get(path).json()["data"] == []
    assert logs(instance).count("Traceback") == errors


@pytest.mark.parametrize("name", sorted(WORST_TEXTS)[::7])
def test_S20_as_served_the_worst_text_is_rendered_once(
    name: str, instance: Instance, answers: None
) -> None:
    instance.fake.configure(replies=[{"text": WORST_TEXTS[name], "match": "worst"}])
    rendered = []
    with browser(instance, "alice") as alice:
        chat, _ = answered(instance, alice, f"the worst: {name}")
        for _ in range(3):
            page = alice.get(f"/chats/{chat}/")
            assert (page.status_code, read(page.text).wrong) == (200, [])
            rendered.append(count(instance.database, "chats_rendering"))
    assert rendered[0] == rendered[-1] > 0


def test_S30_as_served_the_first_link_opens_once_and_nobody_has_a_password(
    instance: Instance,
) -> None:
    said = run(python(MANAGE, "login_link", "auditor"), env=instance.env)
    link = re.search(r"/login/link/[\w-]+/", said)
    assert link
    with browser(instance) as first, browser(instance) as second:
        assert first.get(link[0]).status_code == 200, "looking does not use it up"
        assert first.post(link[0], data=token_of(first)).status_code == 302
        assert first.get("/settings/").status_code == 200
        assert "login_link_invalid" in second.post(link[0], data=token_of(second)).text
        assert second.get("/settings/").status_code == 302
    stored = instance.database.rows("SELECT username, password FROM auth_user")
    assert {row["username"] for row in stored} >= {*PEOPLE, ROOT}
    assert all(row["password"].startswith("argon2") for row in stored)
    assert EMAIL not in logs(instance)
