"""Rows F1, F2, F3, F6 and F29: killed workers, and tasks that arrive twice or never."""

import signal
import time

import pytest

from project.launcher import build_worker_command
from tests.faults.armed import Armed
from tests.faults.harness import Tree
from tests.faults.programs import until
from tests.faults.promises import events_of, receipts_of, reply_of, tokens_of
from tests.faults.stores import Row, count

SLOW = "[[fake tokens=60 ms=25]]"
QUICK = "[[fake tokens=8]]"
# Long enough to run until its worker is found and killed, while other processes start.
LONG = "[[fake tokens=60 ms=80]]"
# Lease, sweep and some margin: within this time a killed worker's turn continues.
HEALED = 2 + 0.5 + 5


def test_f01_workers_killed_in_the_middle_of_replies_leave_one_whole_reply_each(
    tree: Tree,
) -> None:
    tree.settle(workers=3)
    turns = []
    for kill in range(10):
        turns.append(tree.post(f"Kill {kill} {LONG}"))
        tree.wait_for_text(turns[-1])
        tree.worker_of(turns[-1]).kill()
        tree.worker(wait=False)
    for turn in turns:
        row = tree.wait_until_over(turn, seconds=4 * HEALED)
        assert row["losses"] >= 1, (turn, row, events_of(tree, turn))
        # A turn that ran on three of the killed workers gives up with an error.
        if row["losses"] < 3:
            assert (row["status"], tokens_of(tree, turn)) == ("completed", 60)
            assert row["attempt"] == row["losses"] + 1
            assert "turn.requeued" in events_of(tree, turn)
        else:
            assert (row["status"], row["error_code"]) == ("failed", "worker_lost")


def test_f01_a_killed_workers_turn_runs_again_within_the_lease_and_a_sweep(tree: Tree) -> None:
    turn = tree.post(f"How long? {SLOW}")
    tree.wait_for_text(turn)
    tree.worker_of(turn).kill()
    killed_at = time.monotonic()
    until(lambda: tree.turn(turn)["attempt"] == 2, seconds=HEALED, what="a second attempt")
    assert time.monotonic() - killed_at < HEALED
    assert tree.wait_until_over(turn)["status"] == "completed"


def test_f02_a_kill_between_the_answer_and_its_commit_leads_to_one_reply_of_two_paid_calls(
    tree: Tree,
) -> None:
    armed = Armed(tree, "before_commit_reply")
    for kill in range(5):
        turn = armed.post(f"Kill {kill} {QUICK}")
        row = tree.wait_until_over(turn, seconds=HEALED)
        assert (row["status"], row["attempt"], row["losses"]) == ("completed", 2, 1)
        assert tokens_of(tree, turn) == 8
        booked = [(r["attempt"], r["outcome"]) for r in receipts_of(tree, turn)]
        assert booked == [(1, "lost"), (2, "ok")]
    armed.disarm()


def test_f03_a_kill_after_the_commit_keeps_the_reply_and_a_redelivered_task_changes_nothing(
    tree: Tree,
) -> None:
    armed = Armed(tree, "after_commit_reply")
    replies = {}
    for kill in range(5):
        turn = armed.post(f"Kill {kill} {QUICK}")
        replies[turn] = reply_of(tree, turn)
        tree.desk.ask("deliver", turn=turn, times=5)
        row = tree.wait_until_over(turn)
        assert (row["status"], tokens_of(tree, turn)) == ("completed", 8)
        assert row["attempt"] == row["losses"] + 1
    # All deliveries are done when a later message has its answer.
    last = tree.post(f"Last {QUICK}")
    assert tree.wait_until_over(last, seconds=HEALED)["status"] == "completed"
    for turn, reply in replies.items():
        assert reply_of(tree, turn) == reply
        assert len(receipts_of(tree, turn)) == tree.turn(turn)["attempt"]
    armed.disarm()


@pytest.mark.usefixtures("long_lease")
def test_f06_a_task_delivered_ten_times_is_one_call_and_one_reply(tree: Tree) -> None:
    turns = [tree.post(f"Delivery {number} {SLOW}") for number in range(5)]
    for turn in turns:
        tree.desk.ask("deliver", turn=turn, times=10)
    tree.wait_for_text(turns[-1])
    assert tree.desk.ask("begin_again", turn=turns[-1], times=11) < 0.05
    for turn in turns:
        row = tree.wait_until_over(turn)
        assert (row["status"], tokens_of(tree, turn), row["attempt"]) == ("completed", 60, 1)
        tree.desk.ask("deliver", turn=turn, times=10)
    last = tree.post(f"Last {QUICK}")
    assert tree.wait_until_over(last)["status"] == "completed"
    for turn in turns:
        assert len(receipts_of(tree, turn)) == tree.turn(turn)["attempt"] == 1
        assert tree.desk.ask("begin_again", turn=turn, times=11) < 0.05
    # The summary of an earlier test may also send a call.
    asked = [row for row in tree.fake.requests() if "Delivery" in str(row) or "Last" in str(row)]
    assert len(asked) == len(turns) + 1


def test_f29_a_worker_told_to_end_hands_its_turns_back_and_they_go_on_at_once(tree: Tree) -> None:
    turns: list[str] = []
    for restart in range(5):
        tree.settle()
        turns += [tree.post(f"Restart {restart}.{n} [[fake tokens=90 ms=40]]") for n in range(2)]
        tree.wait_for_text(turns[-1])
        leaving = tree.worker_of(turns[-1])
        assert leaving.terminate() < 25
        assert leaving.process.returncode == 0
        until(lambda: not handed_back(tree), seconds=5, what="the handed-back turns' new start")
    for turn in turns:
        row = tree.wait_until_over(turn, seconds=30)
        assert (row["status"], row["losses"]) == ("completed", 0)
        assert tokens_of(tree, turn) == 90
    assert sum("turn.handed_back" in events_of(tree, turn) for turn in turns) >= 5


def handed_back(tree: Tree) -> list[Row]:
    """The turns that a worker returned and that no other has begun yet."""
    return tree.database.rows("SELECT id FROM chats_turn WHERE status = 'queued' AND attempt > 0")


def test_f29_a_turn_handed_back_to_nobody_goes_on_with_the_next_worker_at_its_start(
    tree: Tree,
) -> None:
    tree.clear("worker")
    tree.clear("beat")
    leaving = tree.worker()
    turn = tree.post("Nobody is there [[fake tokens=90 ms=40]]")
    tree.wait_for_text(turn)
    assert leaving.terminate() < 25
    assert handed_back(tree)
    # Without its task and without a schedule, only the check at the start finds it.
    tree.broker.flush()
    tree.worker(REQUEUE_AFTER="3600")
    until(lambda: not handed_back(tree), seconds=5, what="the handed-back turn's new start")
    row = tree.wait_until_over(turn)
    assert (row["status"], row["losses"], tokens_of(tree, turn)) == ("completed", 0, 90)


def test_f29_a_full_worker_told_to_end_gives_back_what_waits_for_a_place(tree: Tree) -> None:
    tree.clear("worker")
    full = tree.worker(build_worker_command(threads=2))
    turns = [tree.post(f"Place {n} [[fake tokens=100 ms=40]]") for n in range(8)]
    until(lambda: sum(tree.turn(turn)["status"] == "running" for turn in turns) == 2)
    taken = full.terminate()
    # The two running replies take four seconds; two more after them would make it eight.
    assert taken < 7, f"the end waited {taken:.1f} s for replies that had not begun"
    assert not [turn for turn in turns if tree.turn(turn)["status"] == "running"]
    tree.settle()
    for turn in turns:
        assert tree.wait_until_over(turn, seconds=30)["losses"] == 0


def test_f29_a_worker_that_writes_a_summary_hands_its_turns_back_as_soon(tree: Tree) -> None:
    tree.clear("worker")
    folding = tree.worker(PROVIDER_FIRST_TOKEN_TIMEOUT="60")
    chat = tree.new_chat()
    tree.desk.ask("fold_early", chat=chat)
    # The summariser's prompt contains the first message, and waits.
    tree.fake.configure(faults=[{"ttft": 60_000, "match": "<message"}])
    for number in range(3):
        text = f"Round {number} {'word ' * 100} [[fake tokens=60]]"
        tree.wait_until_over(tree.post(text, chat=chat))
    until(lambda: is_folding(tree), what="a summary in the making")
    turn = tree.post("Meanwhile [[fake tokens=150 ms=40]]")
    tree.wait_for_text(turn)
    folding.send(signal.SIGTERM)
    until(lambda: "turn.handed_back" in events_of(tree, turn), seconds=5, what="the hand-back")
    folding.kill()
    tree.fake.configure(faults=[])
    tree.settle()
    row = tree.wait_until_over(turn)
    assert (row["status"], row["losses"], tokens_of(tree, turn)) == ("completed", 0, 150)
    # The next worker made the second attempt: a worker that ends takes no turn, not even its own.
    assert row["attempt"] == 2


def is_folding(tree: Tree) -> bool:
    """Return True if a summary is running."""
    return count(tree.database, "chats_compaction", "status = %s", "preparing") > 0
