"""Workers with a failpoint, to be killed at a place in the code and not at a time."""

import time

from tests.faults.harness import Tree
from tests.faults.programs import Program, until


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

    def arm(self) -> None:
        """From now on the worker dies that comes to the place first; the others live."""
        self.marker.unlink()

    def wait_for_kill(self) -> None:
        """Until one died; another one is started in its place."""
        until(self.marker.exists, what="the kill")
        until(lambda: len(self.tree.running("worker")) < 2, what="the end of the killed worker")
        self.worker()

    def post(self, text: str) -> str:
        """Have the worker die that comes to the place with this message's turn; the turn's id."""
        self.arm()
        turn = self.tree.post(text)
        self.wait_for_kill()
        return turn

    def disarm(self) -> None:
        """Leave plain workers to the next test."""
        self.tree.clear("worker")
