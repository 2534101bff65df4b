"""Rows F5, F7 to F11 and F28: the web process, people who press twice, tabs that come and go."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.faults.client import Client, Event, Screen
from tests.faults.harness import Tree
from tests.faults.programs import Program, until
from tests.faults.promises import events_of, reply_of, text_of, tokens_of

REPEATS = 5
ENDS = {"turn.completed", "turn.stopped", "turn.failed"}


@pytest.fixture
def web(tree: Tree) -> Iterator[Program]:
    """A web process of the tree; the test may end it and start others."""
    tree.clear("web")
    yield tree.web()
    tree.clear("web")


@pytest.fixture
def alice(tree: Tree, web: Program) -> Iterator[Client]:
    """A program with Alice's key."""
    client = Client(tree)
    yield client
    client.close()


def at_once(function: Callable[[int], object], times: int) -> list[object]:
    """The results of a function that many threads call at the same moment."""
    gate = threading.Barrier(times)

    def pass_gate(number: int) -> object:
        gate.wait()
        return function(number)

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(pass_gate, range(times)))


def test_f05_a_message_posted_while_the_broker_is_away_is_accepted_in_time(
    tree: Tree, alice: Client
) -> None:
    for outage in range(REPEATS):
        chat = alice.new_chat()
        tree.broker.kill()
        begun = time.monotonic()
        turn = alice.send(chat, f"Outage {outage} [[fake tokens=5]]")
        assert time.monotonic() - begun < 2.5
        tree.broker.start()
        assert tree.wait_until_over(turn, seconds=25)["status"] == "completed"


def test_f07_a_killed_web_process_loses_no_message_and_no_token(tree: Tree, web: Program) -> None:
    tree.clear("web")
    for kill in range(REPEATS):
        marker = tree.folder / f"before-enqueue-{time.monotonic_ns()}"
        marker.touch()
        tree.web(PALIMPSEST_FAILPOINT=f"before_enqueue@{marker}")
        before = Client(tree)
        chat, other = before.new_chat(), before.new_chat()
        turn = before.send(chat, f"Kill {kill} [[fake tokens=80 ms=40]]")
        screen = Screen()
        with before.events(chat, turn) as events:
            until(lambda: screen.show(next(events)) or screen.text, what="the first text")
            marker.unlink()
            with pytest.raises(httpx2.TransportError):
                before.post(other, "Is it there? [[fake tokens=3]]", key=f"kill-{kill}")
        before.close()
        tree.clear("web")
        tree.web()
        after = Client(tree)
        again = [
            after.post(other, "Is it there? [[fake tokens=3]]", key=f"kill-{kill}").json()
            for _ in range(2)
        ]
        assert again[0]["message"]["id"] == again[1]["message"]["id"]
        assert again[0]["turn"]["id"] == again[1]["turn"]["id"]
        assert len([m for m in after.messages(other) if m["role"] == "user"]) == 1
        with after.events(chat, turn, after=screen.place) as events:
            screen.show_all(events)
        assert screen.text == text_of(reply_of(tree, turn))
        assert screen.restarted == 0
        assert tokens_of(tree, turn) == 80
        tree.wait_until_over(again[0]["turn"]["id"], seconds=25)
        after.close()
        tree.clear("web")


def test_f07_a_viewer_that_reconnects_twenty_times_sees_every_token_once(
    tree: Tree, alice: Client
) -> None:
    def view(_number: int) -> None:
        chat = alice.new_chat()
        turn = alice.send(chat, "Look [[fake tokens=150 ms=30]]")
        screen = Screen()
        connections = 0
        while not screen.status:
            connections += 1
            with alice.events(chat, turn, after=screen.place) as events:
                for seen, event in enumerate(events):
                    screen.show(event)
                    if seen >= 2 and connections <= 20:
                        break
        assert connections > 20
        assert screen.status == "completed"
        assert screen.text == text_of(reply_of(tree, turn))
        assert tokens_of(tree, turn) == 150

    at_once(view, REPEATS)


def test_f08_twenty_posts_with_one_key_are_one_message(tree: Tree, alice: Client) -> None:
    for repeat in range(REPEATS):
        chat, key = alice.new_chat(), f"once-{repeat}-{time.monotonic_ns()}"
        answers = at_once(lambda _n: alice.post(chat, "Once [[fake tokens=3]]", key=key), 20)
        seen = set()
        for answer in answers:
            assert isinstance(answer, httpx2.Response)
            assert answer.status_code == 202, answer.text
            seen.add((answer.json()["message"]["id"], answer.json()["turn"]["id"]))
        assert len(seen) == 1
        assert len([m for m in alice.messages(chat) if m["role"] == "user"]) == 1
        other = alice.post(chat, "Something else", key=key)
        assert other.status_code == 422
        assert other.json()["error"]["code"] == "idempotency_key_reused"


def test_f09_twenty_posts_at_once_are_all_taken_up_in_one_order(tree: Tree, alice: Client) -> None:
    charlie = Client(tree, person="charlie")
    for _ in range(REPEATS):
        chat = alice.new_chat()
        first = alice.send(chat, "First [[fake tokens=60 ms=40]]")
        tree.wait_for_text(first)
        answers = at_once(lambda n: alice.post(chat, f"Tab {n} [[fake tokens=4]]"), 20)
        codes = [answer.status_code for answer in answers if isinstance(answer, httpx2.Response)]
        assert codes == [202] * 20
        refused = alice.post(chat, "One too many")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "chat_busy")
        assert charlie.http.get(f"/chats/{chat}/messages").status_code == 404
        waiting = asked(alice, chat)
        assert len(waiting) == 21
        branch = tree.turn(first)["branch_id"]
        until(lambda: is_quiet(tree, branch), seconds=30, what="the end of all turns")
        other_tab = Client(tree)
        assert asked(other_tab, chat) == asked(alice, chat) == waiting
        other_tab.close()
    charlie.close()


def asked(client: Client, chat: str) -> list[str]:
    """The ids of a chat's user messages, in their order."""
    return [message["id"] for message in client.messages(chat) if message["role"] == "user"]


def is_quiet(tree: Tree, branch: object) -> bool:
    """Whether nothing runs or waits in a branch; at no time do two turns run there."""
    rows = tree.database.rows("SELECT status FROM chats_turn WHERE branch_id = %s", [branch])
    assert sum(row["status"] == "running" for row in rows) <= 1
    return not [row for row in rows if row["status"] in {"queued", "running"}]


def test_f10_a_reply_goes_on_when_nobody_watches(tree: Tree, alice: Client) -> None:
    def leave(_number: int) -> None:
        chat = alice.new_chat()
        turn = alice.send(chat, "Leave [[fake tokens=60 ms=25]]")
        screen = Screen()
        with alice.events(chat, turn) as events:
            until(lambda: screen.show(next(events)) or screen.text, what="the first text")
        row = tree.wait_until_over(turn)
        assert (row["status"], row["attempt"], tokens_of(tree, turn)) == ("completed", 1, 60)
        back = Screen()
        with alice.events(chat, turn) as events:
            back.show_all(events)
        assert (back.status, back.text) == ("completed", text_of(reply_of(tree, turn)))

    at_once(leave, REPEATS)


def test_f11_stop_is_seen_within_a_second_and_ends_the_call(tree: Tree, alice: Client) -> None:
    for _ in range(REPEATS):
        chat = alice.new_chat()
        turn = alice.send(chat, "Stop me [[fake tokens=400 ms=40]]")
        tree.wait_for_text(turn)
        begun = time.monotonic()
        assert alice.stop(chat, turn).status_code == 202
        row = tree.wait_until_over(turn, seconds=1)
        assert row["status"] == "stopped"
        tree.fake.wait_for_outcome("client_gone", timeout=2 - (time.monotonic() - begun))
        assert reply_of(tree, turn)["finish"] == "stopped"
        assert ENDS & set(events_of(tree, turn)) == {"turn.stopped"}


def test_f11_a_stop_that_races_with_the_end_leaves_one_end(tree: Tree, alice: Client) -> None:
    def race(_number: int) -> None:
        chat = alice.new_chat()
        turn = alice.send(chat, "Race [[fake tokens=8 ms=20]]")
        time.sleep(random.uniform(0.0, 0.6))
        answer = alice.stop(chat, turn)
        assert answer.status_code in {202, 409}
        row = tree.wait_until_over(turn)
        assert row["status"] in {"completed", "stopped"}
        assert len([event for event in events_of(tree, turn) if event in ENDS]) == 1

    for _ in range(REPEATS):
        at_once(race, 5)


def test_f28_a_web_process_told_to_end_sends_its_viewers_on(tree: Tree, web: Program) -> None:
    client = Client(tree)
    chat = client.new_chat()
    turn = client.send(chat, "Roll [[fake tokens=330 ms=40]]")
    screen = Screen()
    leaving = web
    for _ in range(REPEATS):
        client = Client(tree)
        with client.events(chat, turn, after=screen.place) as events:
            until(lambda: screen.show(next(events)) or screen.text, what="some text")
            told = time.monotonic()
            leaving.send(signal.SIGTERM)
            last = show_rest(screen, events)
            assert last == "server.restarting"
            assert time.monotonic() - told < 2
        client.close()
        assert not is_ready(tree)
        leaving.process.wait(10)
        assert time.monotonic() - told < 10
        leaving = tree.web()
    client = Client(tree)
    with client.events(chat, turn, after=screen.place) as events:
        screen.show_all(events)
    assert screen.text == text_of(reply_of(tree, turn))
    assert (screen.status, tokens_of(tree, turn)) == ("completed", 330)
    client.close()


def show_rest(screen: Screen, events: Iterator[Event]) -> str:
    """Show a stream to its end; the name of its last event."""
    name = ""
    for event in events:
        screen.show(event)
        name = event.name
    return name


def is_ready(tree: Tree) -> bool:
    """Whether a balancer would send people to the web process."""
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=tree.socket)) as client:
        try:
            return client.get("http://localhost/readyz").status_code == 200
        except httpx2.TransportError:
            return False
