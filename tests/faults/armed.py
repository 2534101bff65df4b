"""Workers with a failpoint: they are killed at a place in the code instead of at a time."""

import time

from tests.faults.harness import Tree
from tests.faults.programs import Program, until


class Armed:
    """Workers that die at a place in the code while they are armed."""

    def __init__(self, tree: Tree, failpoint: str) -> None:
        self.tree = tree
        self.marker = tree.folder / f"{failpoint}-{time.monotonic_ns()}"
        self.marker.touch()
        self.failpoint = f"{failpoint}@{self.marker}"
        tree.clear("worker")
        for worker in [self.worker() for _ in range(2)]:
            tree.wait_for_worker(worker)

    def worker(self) -> Program:
        """Start another of these workers."""
        return self.tree.worker(wait=False, PALIMPSEST_FAILPOINT=self.failpoint)

    def arm(self) -> None:
        """Arm the failpoint: the first worker that reaches it dies, the others continue."""
        self.marker.unlink()

    def wait_for_kill(self) -> None:
        """Wait until a worker died, then start a replacement."""
        until(self.marker.exists, what="the kill")
        until(lambda: len(self.tree.running("worker")) < 2, what="the end of the killed worker")
        self.worker()

    def post(self, text: str) -> str:
        """Post a message, kill the worker that reaches the failpoint, and return the turn's id."""
        self.arm()
        turn = self.tree.post(text)
        self.wait_for_kill()
        return turn

    def disarm(self) -> None:
        """Replace these workers with plain ones for the next test."""
        self.tree.clear("worker")
