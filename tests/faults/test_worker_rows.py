"""Rows F1, F2, F3, F5, F6 and F29: workers that are killed, tasks that come twice or never."""

import time

from tests.faults.harness import Tree
from tests.faults.programs import Program, until
from tests.faults.promises import events_of, receipts_of, tokens_of

SLOW = "[[fake tokens=60 ms=25]]"
QUICK = "[[fake tokens=8]]"
# Lease, sweep and some slack: within this time a killed worker's turn goes on.
HEALED = 2 + 0.5 + 5


def test_f01_workers_killed_in_the_middle_of_replies_leave_one_whole_reply_each(
    tree: Tree,
) -> None:
    tree.settle(workers=3)
    turns = []
    for kill in range(10):
        turns.append(tree.post(f"Kill {kill} {SLOW}"))
        tree.wait_for_text(turns[-1])
        tree.worker_of(turns[-1]).kill()
        tree.worker(wait=False)
    for turn in turns:
        row = tree.wait_until_over(turn, seconds=4 * HEALED)
        assert row["losses"] >= 1
        # A turn that happened to be on three of the killed workers gives up, and says so.
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


class Armed:
    """Workers that die at a place in the code when they are armed, and live otherwise."""

    def __init__(self, tree: Tree, failpoint: str) -> None:
        self.tree = tree
        self.marker = tree.folder / f"{failpoint}-{time.monotonic_ns()}"
        self.marker.touch()
        self.failpoint = f"{failpoint}@{self.marker}"
        tree.clear("worker")
        for worker in [self.worker() for _ in range(2)]:
            tree.wait_for_worker(worker)

    def worker(self) -> Program:
        """One more of these workers."""
        return self.tree.worker(wait=False, PALIMPSEST_FAILPOINT=self.failpoint)

    def post(self, text: str) -> str:
        """Have the worker die that comes to the place with this message's turn; the turn's id."""
        self.marker.unlink()
        turn = self.tree.post(text)
        until(self.marker.exists, what="the kill")
        until(lambda: len(self.tree.running("worker")) < 2, what="the end of the killed worker")
        self.worker()
        return turn

    def disarm(self) -> None:
        """Leave plain workers to the next test."""
        self.tree.clear("worker")


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
    for kill in range(5):
        turn = armed.post(f"Kill {kill} {QUICK}")
        tree.desk.ask("deliver", turn=turn, times=5)
        row = tree.wait_until_over(turn)
        assert (row["status"], row["attempt"], tokens_of(tree, turn)) == ("completed", 1, 8)
    # Whatever was delivered is through once a later message has its answer.
    last = tree.post(f"Last {QUICK}")
    assert tree.wait_until_over(last, seconds=HEALED)["status"] == "completed"
    assert len(receipts_of(tree, turn)) == 1
    armed.disarm()


def test_f05_a_message_accepted_while_the_broker_is_away_is_answered_once_it_is_back(
    tree: Tree,
) -> None:
    for outage in range(5):
        tree.broker.kill()
        chat = tree.new_chat()
        begun = time.monotonic()
        turn = tree.post(f"Outage {outage} {QUICK}", chat=chat)
        assert time.monotonic() - begun < 2.5
        assert tree.turn(turn)["status"] == "queued"
        tree.broker.start()
        back = time.monotonic()
        assert tree.wait_until_over(turn, seconds=25)["status"] == "completed"
        assert time.monotonic() - back < 25


def test_f06_a_task_delivered_ten_times_is_one_call_and_one_reply(tree: Tree) -> None:
    turns = [tree.post(f"Delivery {number} {SLOW}") for number in range(5)]
    for turn in turns:
        tree.desk.ask("deliver", turn=turn, times=10)
    for turn in turns:
        row = tree.wait_until_over(turn)
        assert (row["status"], row["attempt"], tokens_of(tree, turn)) == ("completed", 1, 60)
        tree.desk.ask("deliver", turn=turn, times=10)
    last = tree.post(f"Last {QUICK}")
    assert tree.wait_until_over(last)["status"] == "completed"
    for turn in turns:
        assert len(receipts_of(tree, turn)) == 1


def test_f29_a_worker_told_to_end_hands_its_turns_back_and_they_go_on_at_once(tree: Tree) -> None:
    for restart in range(5):
        tree.settle()
        turns = [tree.post(f"Restart {restart}.{n} [[fake tokens=130 ms=40]]") for n in range(3)]
        for turn in turns:
            tree.wait_for_text(turn)
        leaving = tree.worker_of(turns[-1])
        assert leaving.terminate() < 25
        gone = time.monotonic()
        assert leaving.process.returncode == 0
        for turn in turns:
            until(lambda turn=turn: tree.turn(turn)["status"] != "queued", seconds=5)  # type: ignore[misc]  # mypy does not infer lambdas with defaults
        assert time.monotonic() - gone < 5
        for turn in turns:
            row = tree.wait_until_over(turn)
            assert (row["status"], row["losses"]) == ("completed", 0)
            assert tokens_of(tree, turn) == 130
        assert "turn.handed_back" in events_of(tree, turns[-1])


def test_f29_a_full_worker_told_to_end_gives_back_what_waits_for_a_place(tree: Tree) -> None:
    tree.clear("worker")
    full = tree.worker(REPLIES_PER_WORKER="2")
    turns = [tree.post(f"Place {n} [[fake tokens=100 ms=40]]") for n in range(8)]
    until(lambda: sum(tree.turn(turn)["status"] == "running" for turn in turns) == 2)
    taken = full.terminate()
    assert taken < 5, f"the end waited {taken:.1f} s for replies that had not begun"
    assert not [turn for turn in turns if tree.turn(turn)["status"] == "running"]
    tree.settle()
    for turn in turns:
        assert tree.wait_until_over(turn, seconds=30)["losses"] == 0
