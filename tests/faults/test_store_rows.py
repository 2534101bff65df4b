"""Rows F23, F25 and F26: stores that restart, lose data, refuse, or are locked."""

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import psycopg
import pytest

from tests.faults.client import Client, Screen
from tests.faults.harness import Tree
from tests.faults.programs import until
from tests.faults.promises import receipts_of, reply_of, text_of, tokens_of
from tests.faults.proxy import CommitLoser
from tests.faults.stores import Postgres, SQLite

REPEATS = 5
# Two seconds of messages while a database is locked.
POSTS, POSTS_PER_SECOND = 40, 20
# Faults of the bus.
FAULTS = ["flush", "restart", "flush", "restart", "restart"]


@pytest.fixture
def postgres(tree: Tree) -> Postgres:
    """The tree's database, for a row that only PostgreSQL has."""
    assert isinstance(tree.database, Postgres)
    return tree.database


@pytest.fixture
def sqlite(tree: Tree) -> SQLite:
    """The tree's database, for a row that only SQLite has."""
    assert isinstance(tree.database, SQLite)
    return tree.database


def test_f23_a_bus_that_forgets_everything_costs_no_token_and_no_turn(
    tree: Tree, alice: Client
) -> None:
    # One worker, so that no other one covers for a worker that no longer consumes.
    tree.clear("worker")
    worker = tree.worker()
    for fault in FAULTS:
        load = [tree.post(f"Beside {number} [[fake tokens=70 ms=40]]") for number in range(5)]
        chat = alice.new_chat()
        turn = alice.send(chat, f"Forget by {fault} [[fake tokens=70 ms=40]]")
        screen = Screen()
        assert longest_silence(tree, alice, (chat, turn), screen, fault) < 5
        assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
        assert tokens_of(tree, turn) == 70
        later = alice.send(chat, f"After {fault} [[fake tokens=3]]")
        for posted in [*load, later]:
            assert tree.wait_until_over(posted, seconds=25)["status"] == "completed"
        assert tree.running("beat")
        assert tree.running("worker") == [worker]


def test_f07_f23_who_comes_back_to_a_bus_that_forgot_everything_keeps_what_it_had(
    tree: Tree, alice: Client
) -> None:
    chat = alice.new_chat()
    turn = alice.send(chat, "Come back [[fake tokens=200 ms=20]]")
    screen = Screen()
    losses = 0
    while not screen.status:
        with alice.events(chat, turn, after=screen.place) as events:
            known = len(screen.text)
            for event in events:
                screen.show(event)
                # Between two checkpoints the text is ahead of the row.
                if losses < 12 and len(screen.text) > known + 60:
                    break
            else:
                continue
        tree.broker.flush()
        losses += 1
    assert losses == 12
    assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
    assert (screen.restarted, tokens_of(tree, turn)) == (0, 200)


def test_f23_turns_whose_tasks_are_lost_start_all_the_same(tree: Tree) -> None:
    for fault in FAULTS:
        tree.clear("worker")
        turns = [tree.post(f"Lost by {fault} {number} [[fake tokens=3]]") for number in range(3)]
        lose_bus(tree, fault)
        tree.worker()
        for turn in turns:
            assert tree.wait_until_over(turn, seconds=25)["status"] == "completed"


def longest_silence(
    tree: Tree, alice: Client, place: tuple[str, str], screen: Screen, fault: str
) -> float:
    """Watch a turn whose bus fails during the reply; return the longest time without an event."""
    longest, heard, is_lost = 0.0, time.monotonic(), False
    with alice.events(*place) as events:
        for event in events:
            longest = max(longest, time.monotonic() - heard)
            heard = time.monotonic()
            screen.show(event)
            if len(screen.text) > 300 and not is_lost:
                is_lost = True
                lose_bus(tree, fault)
    assert is_lost
    return longest


def lose_bus(tree: Tree, fault: str) -> None:
    """Flush the broker, or kill it and restart it without its data."""
    if fault == "flush":
        tree.broker.flush()
        return
    tree.broker.kill()
    tree.broker.start()


def post_until_accepted(alice: Client, chat: str, number: int) -> str:
    """Repeat a message with a key until it is accepted; return its turn's id.

    A refusal must report an unavailable database.
    """
    give_up = time.monotonic() + 30
    while True:
        assert time.monotonic() < give_up, "no message was accepted for 30 s"
        answer = alice.post(chat, f"Keep {number} [[fake tokens=5]]", key=f"{chat}-{number}")
        if answer.status_code == 202:
            return str(answer.json()["turn"]["id"])
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "database_busy"
        assert int(answer.headers["Retry-After"]) > 0
        time.sleep(0.1)


def test_f25_a_crashed_server_leaves_nothing_half_written_and_all_goes_on(
    tree: Tree, alice: Client, postgres: Postgres
) -> None:
    for crash in range(REPEATS):
        chat, other = alice.new_chat(), alice.new_chat()
        turn = alice.send(chat, f"Crash {crash} [[fake tokens=60 ms=30]]")
        tree.wait_for_text(turn)
        postgres.cluster.stop(mode="immediate")
        if crash == 0:
            answer = alice.post(other, "While it is away")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_busy")
            assert answer.headers["Retry-After"]
        postgres.cluster.start()
        back = time.monotonic()
        later = post_until_accepted(alice, other, crash)
        assert tree.wait_until_over(later, seconds=10)["status"] == "completed"
        assert time.monotonic() - back < 10
        row = tree.wait_until_over(turn, seconds=20)
        assert (row["status"], tokens_of(tree, turn)) == ("completed", 60)


def test_f25_terminated_backends_cost_no_message_and_double_none(
    tree: Tree, alice: Client, postgres: Postgres
) -> None:
    chats = [alice.new_chat() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        sending = [
            threads.submit(lambda c=chat: [post_until_accepted(alice, c, n) for n in range(5)])  # type: ignore[misc]  # mypy does not infer lambdas with defaults
            for chat in chats
        ]
        for _ in range(20):
            terminate_backends(postgres)
            time.sleep(0.15)
        turns = [turn for done in sending for turn in done.result()]
    assert len(turns) == 20
    assert [asked(alice, chat) for chat in chats] == [5] * 4
    for turn in turns:
        assert tree.wait_until_over(turn, seconds=30)["status"] in {"completed", "absorbed"}


def asked(alice: Client, chat: str) -> int:
    """The number of user messages in a chat."""
    return sum(message["role"] == "user" for message in alice.messages(chat))


def terminate_backends(postgres: Postgres) -> None:
    """End every connection of the processes, at any point of its transaction."""
    address = postgres.cluster.url("postgres", postgres.name)
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"
        )


def test_f25_a_commit_of_unknown_fate_is_looked_up_and_not_repeated(
    tree: Tree, postgres: Postgres
) -> None:
    tree.clear("worker")
    loser = CommitLoser(postgres.cluster.port)
    through = postgres.url.replace(f":{postgres.cluster.port}/", f":{loser.port}/")
    tree.worker(DATABASE_URL=through)
    turns = []
    for number in range(3 * REPEATS):
        turns.append(tree.post(f"Fate {number} [[fake tokens=12 ms=30]]"))
        until(lambda: tree.turn(turns[-1])["status"] != "queued", what="the claim")
        loser.arm(1 + number % 2)
        row = tree.wait_until_over(turns[-1], seconds=20)
        assert (row["status"], row["error_code"]) == ("completed", "")
        assert tokens_of(tree, turns[-1]) == 12
        assert len([r for r in receipts_of(tree, turns[-1]) if r["outcome"] == "ok"]) == 1
    assert loser.lost >= REPEATS
    tree.clear("worker")
    loser.close()


def test_f25_a_message_whose_commit_is_of_unknown_fate_is_found_by_its_key(
    tree: Tree, postgres: Postgres
) -> None:
    loser = CommitLoser(postgres.cluster.port)
    through = postgres.url.replace(f":{postgres.cluster.port}/", f":{loser.port}/")
    tree.clear("web")
    tree.web(DATABASE_URL=through)
    stored = 0
    with Client(tree) as client:
        chats = [client.new_chat() for _ in range(2 * REPEATS)]
        for chat in chats:
            loser.arm(1)
            answer = client.post(chat, "Keep 0 [[fake tokens=5]]", key=f"{chat}-0")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_busy")
            stored += asked(client, chat)
            turn = post_until_accepted(client, chat, 0)
            assert asked(client, chat) == 1
            assert tree.wait_until_over(turn, seconds=20)["status"] == "completed"
    # Messages without an answer were usually accepted.
    assert stored >= REPEATS
    tree.clear("web")
    loser.close()


def test_f26_a_database_locked_for_seconds_delays_messages_and_loses_none(
    tree: Tree, alice: Client, sqlite: SQLite
) -> None:
    for seconds in (10.0, 1.0, 1.0, 1.0, 1.0):
        chat = alice.new_chat()
        running = alice.send(chat, "Runs on [[fake tokens=60 ms=40]]")
        tree.wait_for_text(running)
        others = [alice.new_chat() for _ in range(POSTS)]
        screen = Screen()
        with ThreadPoolExecutor(POSTS + 1) as threads:
            watching = threads.submit(watch, alice, (chat, running), screen)
            holder = locked(sqlite)
            release = threading.Timer(seconds, holder.rollback)
            release.start()
            answers = []
            for other in others:
                answers.append(threads.submit(alice.post, other, "Wait [[fake tokens=3]]"))
                time.sleep(1 / POSTS_PER_SECOND)
            codes = [answer.result().status_code for answer in answers]
            release.join()
            holder.close()
            watching.result()
        assert codes == [202] * POSTS
        row = tree.wait_until_over(running, seconds=30)
        assert (row["status"], tokens_of(tree, running)) == ("completed", 60)
        assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, running)))


def watch(alice: Client, place: tuple[str, str], screen: Screen) -> None:
    """Show a turn to its end."""
    with alice.events(*place) as events:
        screen.show_all(events)


def test_f26_a_database_locked_for_longer_is_said_to_be_busy(
    tree: Tree, alice: Client, sqlite: SQLite
) -> None:
    chat = alice.new_chat()
    running = alice.send(chat, "Runs on [[fake tokens=40 ms=40]]")
    tree.wait_for_text(running)
    holder = locked(sqlite)
    begun = time.monotonic()
    answer = alice.post(chat, "Too long")
    waited = time.monotonic() - begun
    holder.rollback()
    holder.close()
    assert isinstance(answer, httpx2.Response)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_busy")
    assert answer.headers["Retry-After"]
    assert 15 < waited < 25
    assert tree.wait_until_over(running, seconds=30)["status"] == "completed"


def locked(database: SQLite) -> sqlite3.Connection:
    """Hold the write lock with a connection of another process."""
    # Another thread may release it.
    holder = sqlite3.connect(
        database.path, timeout=20, isolation_level=None, check_same_thread=False
    )
    holder.execute("BEGIN IMMEDIATE")
    return holder
