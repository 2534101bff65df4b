"""Rows F5, F7 to F11 and F28: the web process, double clicks, tabs that open and close."""

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import httpx2
import pytest

from tests.faults.armed import Armed
from tests.faults.client import Client, Event, Screen
from tests.faults.harness import Tree
from tests.faults.programs import Program, until
from tests.faults.promises import events_of, reply_of, text_of, tokens_of

Result = TypeVar("Result")
REPEATS = 5
# Number of stops that race with the end of their reply; a hundred before a release (`make races`).
RACES = int(os.environ.get("PALIMPSEST_STOP_RACES", "25"))
# Reconnects of each of five viewers: a hundred in total.
CUTS = 20
ENDS = {"turn.completed", "turn.stopped", "turn.failed"}


def at_once(function: Callable[[int], Result], times: int) -> list[Result]:
    """The results of a function that many threads call at the same moment."""
    gate = threading.Barrier(times)

    def pass_gate(number: int) -> Result:
        gate.wait()
        return function(number)

    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(pass_gate, range(times)))


def test_f01_a_viewer_sees_the_second_attempt_replace_the_first(tree: Tree, alice: Client) -> None:
    for kill in range(2):
        chat = alice.new_chat()
        turn = alice.send(chat, f"Watched {kill} [[fake tokens=40 ms=25]]")
        screen = Screen()
        with alice.events(chat, turn) as events:
            show_first_text(screen, events)
            tree.worker_of(turn).kill()
            tree.worker(wait=False)
            screen.show_all(events)
        assert screen.restarted >= 1
        assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
        assert tokens_of(tree, turn) == 40


def test_f03_a_viewer_hears_of_an_end_that_the_killed_worker_could_not_say(
    tree: Tree, alice: Client
) -> None:
    armed = Armed(tree, "after_commit_reply")
    for kill in range(REPEATS):
        armed.arm()
        chat = alice.new_chat()
        turn = alice.send(chat, f"Watched {kill} [[fake tokens=20 ms=25]]")
        screen = Screen()
        with alice.events(chat, turn) as events:
            screen.show_all(events)
        assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
        armed.wait_for_kill()
    armed.disarm()


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
        assert tree.running("beat")


def test_f05_a_broker_that_hangs_is_not_waited_for(tree: Tree, alice: Client) -> None:
    hung = tree.broker.program
    assert hung is not None
    for outage in range(REPEATS):
        chat = alice.new_chat()
        hung.send(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            turn = alice.send(chat, f"Hung {outage} [[fake tokens=5]]")
            took = time.monotonic() - begun
        finally:
            hung.send(signal.SIGCONT)
        assert took < 2.5
        assert tree.wait_until_over(turn, seconds=25)["status"] == "completed"


def test_f05_f07_a_killed_web_process_loses_no_message_and_no_token(
    tree: Tree, web: Program
) -> None:
    for kill in range(REPEATS):
        lose_web_once(tree, f"kill-{kill}-{time.monotonic_ns()}")


def lose_web_once(tree: Tree, key: str) -> None:
    """Kill the web process after it stored a message, while it streams another reply."""
    tree.clear("web")
    marker = tree.folder / key
    tree.web(PALIMPSEST_FAILPOINT=f"before_enqueue@{marker}")
    marker.touch()
    screen = Screen()
    with Client(tree) as before:
        chat, other = before.new_chat(), before.new_chat()
        turn = before.send(chat, "Watched [[fake tokens=60 ms=40]]")
        with before.events(chat, turn) as events:
            show_first_text(screen, events)
            marker.unlink()
            with pytest.raises(httpx2.TransportError):
                before.post(other, "Is it there? [[fake tokens=3]]", key=key)
    tree.clear("web")
    tree.web()
    with Client(tree) as after:
        with after.events(chat, turn, after=screen.place) as events:
            screen.show_all(events)
        assert screen.text == text_of(reply_of(tree, turn))
        assert tokens_of(tree, turn) == 60
        answers = [after.post(other, "Is it there? [[fake tokens=3]]", key=key) for _ in range(2)]
        assert answers[0].json()["message"]["id"] == answers[1].json()["message"]["id"]
        assert answers[0].json()["turn"]["id"] == answers[1].json()["turn"]["id"]
        assert len(asked(after, other)) == 1
        tree.wait_until_over(answers[0].json()["turn"]["id"], seconds=25)


def test_f07_viewers_cut_off_at_a_hundred_random_places_see_every_character_once(
    tree: Tree, alice: Client
) -> None:
    seed = random.randrange(2**32)  # noqa: S311  # a place, no secret
    print(f"seed {seed}")  # noqa: T201  # shown where the test fails

    def view(number: int) -> int:
        places = random.Random(seed + number)  # noqa: S311  # as above
        chat = alice.new_chat()
        turn = alice.send(chat, "Look [[fake tokens=200 ms=30]]")
        screen = Screen()
        cuts = 0
        while not screen.status:
            left = places.randint(1, 5) if cuts < CUTS else 0
            with alice.events(chat, turn, after=screen.place) as events:
                for seen, event in enumerate(events, start=1):
                    screen.show(event)
                    if seen == left:
                        cuts += 1
                        break
            time.sleep(places.uniform(0, 0.05))
        assert screen.status == "completed"
        assert screen.text.encode() == text_of(reply_of(tree, turn)).encode()
        assert tokens_of(tree, turn) == 200
        return cuts

    assert at_once(view, REPEATS) == [CUTS] * REPEATS


def test_f08_twenty_posts_with_one_key_are_one_message(tree: Tree, alice: Client) -> None:
    for repeat in range(REPEATS):
        press_twenty_times(alice, key=f"once-{repeat}-{time.monotonic_ns()}")


def press_twenty_times(alice: Client, *, key: str) -> None:
    """Send the same request from twenty threads, then another one with its key."""
    chat = alice.new_chat()
    answers = at_once(lambda _number: alice.post(chat, "Once [[fake tokens=3]]", key=key), 20)
    assert [answer.status_code for answer in answers] == [202] * 20
    named = {(a.json()["message"]["id"], a.json()["turn"]["id"]) for a in answers}
    assert len(named) == 1
    assert len(asked(alice, chat)) == 1
    other = alice.post(chat, "Something else", key=key)
    assert other.status_code == 422
    assert other.json()["error"]["code"] == "idempotency_key_reused"


@pytest.mark.requirement("S4.6")
def test_f09_twenty_posts_at_once_are_all_taken_up_in_one_order(tree: Tree, alice: Client) -> None:
    for repeat in range(REPEATS):
        post_from_twenty_tabs(tree, alice, stops=repeat % 2 == 1)


def post_from_twenty_tabs(tree: Tree, alice: Client, *, stops: bool) -> None:
    """Send twenty messages during a reply, then one more than the limit of waiting messages.

    The running turn includes them, or the next one if that reply is stopped.
    """
    chat = alice.new_chat()
    first = alice.send(chat, "First [[fake tokens=130 ms=40]]")
    tree.wait_for_text(first)
    answers = at_once(lambda n: alice.post(chat, f"Tab {n} [[fake tokens=4]]", key=f"tab-{n}"), 20)
    assert [answer.status_code for answer in answers] == [202] * 20
    refused = alice.post(chat, "One too many")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "chat_busy")
    waiting = asked(alice, chat)
    assert len(waiting) == 21
    if stops:
        assert alice.stop(chat, first).status_code == 202
    branch = tree.turn(first)["branch_id"]
    until(lambda: is_quiet(tree, branch), seconds=30, what="the end of all turns")
    with Client(tree) as other_tab:
        assert asked(other_tab, chat) == asked(alice, chat) == waiting


def asked(client: Client, chat: str) -> list[str]:
    """The ids of a chat's user messages, in their order."""
    return [message["id"] for message in client.messages(chat) if message["role"] == "user"]


def is_quiet(tree: Tree, branch: object) -> bool:
    """Return True if no turn of a branch runs or waits; two turns must never run at once."""
    rows = tree.database.rows("SELECT status FROM chats_turn WHERE branch_id = %s", [branch])
    assert sum(row["status"] == "running" for row in rows) <= 1
    return not [row for row in rows if row["status"] in {"queued", "running"}]


def test_f10_a_reply_goes_on_when_nobody_watches(tree: Tree, alice: Client) -> None:
    def leave(_number: int) -> None:
        chat = alice.new_chat()
        turn = alice.send(chat, "Leave [[fake tokens=60 ms=25]]")
        screen = Screen()
        with alice.events(chat, turn) as events:
            show_first_text(screen, events)
        row = tree.wait_until_over(turn)
        assert (row["status"], tokens_of(tree, turn)) == ("completed", 60)
        assert row["attempt"] == row["losses"] + 1
        back = Screen()
        with alice.events(chat, turn) as events:
            back.show_all(events)
        assert (back.status, back.text) == ("completed", text_of(reply_of(tree, turn)))

    at_once(leave, REPEATS)


def test_f11_stop_is_seen_within_a_second_and_ends_the_call(tree: Tree, alice: Client) -> None:
    for _ in range(REPEATS):
        chat = alice.new_chat()
        turn = alice.send(chat, "Stop me [[fake tokens=400 ms=40]]")
        screen = Screen()
        with alice.events(chat, turn) as events:
            show_first_text(screen, events)
            begun = time.monotonic()
            assert alice.stop(chat, turn).status_code == 202
            screen.show_all(events)
            assert time.monotonic() - begun < 1
        assert (screen.status, screen.text) == ("stopped", text_of(reply_of(tree, turn)))
        assert tree.turn(turn)["status"] == "stopped"
        tree.fake.wait_for_outcome("client_gone", timeout=2 - (time.monotonic() - begun))
        assert reply_of(tree, turn)["finish"] == "stopped"
        assert ENDS & set(events_of(tree, turn)) == {"turn.stopped"}


def test_f11_a_stop_that_races_with_the_end_leaves_one_end(tree: Tree, alice: Client) -> None:
    def race(_number: int) -> None:
        chat = alice.new_chat()
        turn = alice.send(chat, "Race [[fake tokens=8 ms=20]]")
        time.sleep(random.uniform(0.0, 0.6))  # noqa: S311  # a moment, no secret
        answer = alice.stop(chat, turn)
        assert answer.status_code in {202, 409}
        row = tree.wait_until_over(turn)
        assert row["status"] in {"completed", "stopped"}
        assert len([event for event in events_of(tree, turn) if event in ENDS]) == 1

    for _ in range(RACES // 5):
        at_once(race, 5)


def test_f28_a_web_process_told_to_end_sends_its_viewers_on(tree: Tree, web: Program) -> None:
    with Client(tree) as client:
        chat = client.new_chat()
    leaving = web
    for number in range(REPEATS):
        screen = Screen()
        with Client(tree) as client:
            turn = client.send(chat, f"Roll {number} [[fake tokens=120 ms=40]]")
        with Client(tree) as client, client.events(chat, turn, after=screen.place) as events:
            show_first_text(screen, events)
            leaving.send(signal.SIGTERM)
            told = time.monotonic()
            until(lambda: not is_ready(tree), seconds=2, what="no more readiness")
            last = show_rest(screen, events)
            assert (last.name, last.retry) == ("server.restarting", "1000")
            assert time.monotonic() - told < 2
        assert not is_ready(tree)
        leaving.process.wait(10)
        assert time.monotonic() - told < 10
        leaving = tree.web()
        with Client(tree) as client, client.events(chat, turn, after=screen.place) as events:
            screen.show_all(events)
        assert screen.text == text_of(reply_of(tree, turn))
        assert (screen.status, tokens_of(tree, turn)) == ("completed", 120)


def show_first_text(screen: Screen, events: Iterator[Event]) -> None:
    """Show a stream until there is more text than before."""
    before = len(screen.text)
    for event in events:
        screen.show(event)
        if len(screen.text) > before:
            return


def show_rest(screen: Screen, events: Iterator[Event]) -> Event:
    """Show a stream to its end; return its last event."""
    shown = list(events)
    for event in shown:
        screen.show(event)
    return shown[-1]


def is_ready(tree: Tree) -> bool:
    """Return True if a load balancer would use the web process."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(tree.socket)
            asking.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return asking.recv(100).startswith(b"HTTP/1.1 200")
        except OSError:
            return False
