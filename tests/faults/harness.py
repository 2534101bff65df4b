"""A tree: one instance of the product with its processes and stores, for fault tests.

It has short timings, raised rate limits and a programmable model server. A test uses the tree,
kills some of its processes, and finally checks `tests.faults.promises`.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chats.ground import queues
from project.launcher import BACKGROUND_THREADS, build_worker_command
from tests.fakes.fake_server import FakeServer
from tests.faults.impostor import Impostor
from tests.faults.programs import MANAGE, Program, free_port, python, until
from tests.faults.stores import Broker, Database, Row, SQLite, wait_for_rows
from tests.support.repository import ROOT

# Columns of a turn's row that the tests read often.
TURN = "SELECT * FROM chats_turn WHERE id = %s"
OVER = TURN + " AND status NOT IN ('queued', 'running')"
SHORT_LEASE = "2"
TIMINGS = {
    "LEASE_SECONDS": SHORT_LEASE,
    "HEARTBEAT_EVERY": "0.5",
    "SWEEP_EVERY": "0.5",
    "REQUEUE_AFTER": "0.5",
    "CHECKPOINT_EVERY": "0.2",
    "WORKER_DRAIN_SECONDS": "1",
    "PROVIDER_CONNECT_TIMEOUT": "1",
    "PROVIDER_FIRST_TOKEN_TIMEOUT": "2",
    "PROVIDER_GAP_TIMEOUT": "1.5",
    "PROVIDER_TOTAL_TIMEOUT": "30",
    "PROVIDER_BACKOFF_MAX": "0.5",
    "MESSAGES_PER_MINUTE": "100000",
    "API_REQUESTS_PER_MINUTE": "100000",
    "GATEWAY_REQUESTS_PER_MINUTE": "100000",
    "TURNS_PER_USER": "1000",
    "TURNS_PER_KEY": "1000",
    "STREAMS_PER_USER": "500",
    # The tests count calls, and the summary model fails in many ways.
    "TITLES_BY_MODEL": "0",
    "LOG_LEVEL": "INFO",
}


class Refused(Exception):
    """The desk refused a request."""

    def __init__(self, answer: Mapping[str, str]) -> None:
        self.code = answer["refusal"]
        self.sentence = answer["sentence"]
        super().__init__(f"{self.code}: {self.sentence}")


class Desk:
    """The process that calls the product's functions for the test (`tests.faults.desk`)."""

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        self.log = log.open("ab")
        self.process = subprocess.Popen(  # our own module
            python("-m", "tests.faults.desk"),
            cwd=ROOT,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def ask(self, command: str, **arguments: Any) -> Any:
        """Call a function of the desk. Raises `Refused`."""
        given, taken = self.process.stdin, self.process.stdout
        if given is None or taken is None:
            raise RuntimeError("the desk has no pipes")
        given.write(json.dumps([command, arguments]) + "\n")
        given.flush()
        line = taken.readline()
        if not line:
            raise RuntimeError(f"the desk ended: {Path(self.log.name).read_text(encoding='utf-8')}")
        answer = json.loads(line)
        if "refusal" in answer:
            raise Refused(answer)
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(10)
        self.log.close()


class Tree:
    """The processes of one instance, and the messages they accepted."""

    def __init__(self, *, folder: Path, database: Database, fake: FakeServer) -> None:
        self.folder = folder
        self.database = database
        self.fake = fake
        self.broker = Broker(folder)
        self.programs: list[Program] = []
        self.accepted: list[str] = []
        self.keys: dict[str, str] = {}
        self.logs = 0
        # Lease of the next workers, in seconds. A busy machine may delay them longer than this.
        self.lease = SHORT_LEASE
        # No server listens there: a provider that refuses the connection.
        self.closed_port = free_port()
        self.impostor = Impostor(folder)
        self.socket = str(folder / "web.sock")
        self.env = self.environment()
        self._desk: Desk | None = None

    def environment(self) -> dict[str, str]:
        """The environment of every process of the tree, without the environment of the tests."""
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "PALIMPSEST_DATA": str(self.folder),
            "PALIMPSEST_TESTING": "1",
            "REDIS_URL": self.broker.url,
            "ALLOWED_PRIVATE_PROVIDERS": ",".join(
                f"{host}:{port}"
                for host in ("127.0.0.1", "localhost")
                for port in (self.fake.port, self.closed_port, self.impostor.port)
            ),
            **TIMINGS,
        }
        if self.database.url:
            env["DATABASE_URL"] = self.database.url
        return env

    def prepare(self) -> None:
        """Create the tables as their owner, then people and models as the app."""
        self.database.put_tables(self.env)
        closed = f"127.0.0.1:{self.closed_port}"
        addresses = {
            "fake": self.fake.base_url,
            "locked": self.fake.base_url,
            "narrow": self.fake.base_url,
            "closed": f"http://{closed}/v1",
            "not-tls": f"https://{self.fake.host}/v1",
            "impostor": f"https://127.0.0.1:{self.impostor.port}/v1",
            "no-host": "https://no-such-host.invalid/v1",
        }
        self.keys = self.desk.ask("prepare", addresses=addresses, kind=self.fake.kind)

    @property
    def desk(self) -> Desk:
        """The desk, started at its first use."""
        if self._desk is None:
            self._desk = Desk(self.env, self.folder / "desk.log")
        return self._desk

    def start(self, name: str, command: list[str], **env: str) -> Program:
        """Start a process of the product."""
        self.logs += 1
        log = self.folder / f"{self.logs:03}-{name}.log"
        program = Program(name, command, env={**self.env, **env}, log=log)
        self.programs.append(program)
        return program

    def worker(self, command: list[str] | None = None, *, wait: bool = True, **env: str) -> Program:
        """Start a worker for all queues. Without `wait` it starts in the background."""
        name = f"worker-{self.logs}-{self.lease}"
        given = {"PALIMPSEST_WORKER": name, "LEASE_SECONDS": self.lease, **env}
        program = self.start("worker", command or build_worker_command(), **given)
        if wait:
            self.wait_for_worker(program)
        return program

    def background(self, **env: Any) -> Program:
        """Start a worker for background jobs only, as the launcher does."""
        command = build_worker_command(*queues.BACKGROUND, threads=BACKGROUND_THREADS)
        return self.worker(command, **env)

    def replies(self, **env: Any) -> Program:
        """Start a worker for replies only, as the launcher does."""
        return self.worker(build_worker_command(queues.REPLIES), **env)

    def wait_for_worker(self, program: Program) -> None:
        """Wait until a worker accepts tasks."""
        until(lambda: program.must_live() and "worker ready" in program.said(), seconds=30)

    def beat(self) -> Program:
        """Start the scheduler process."""
        schedule = str(self.folder / "schedule")
        options = ["--scheduler", "celery.beat:Scheduler", "-s", schedule, "--pidfile="]
        return self.start("beat", python("-m", "celery", "-A", "project", "beat", *options))

    def web(self, *, wait: bool = True, **env: str) -> Program:
        """Start a web process on the tree's socket."""
        program = self.start("web", python(MANAGE, "web", "--uds", self.socket), **env)
        if wait:
            self.wait_for_web(program)
        return program

    def wait_for_web(self, program: Program) -> None:
        """Wait until a web process answers."""
        until(lambda: program.must_live() and is_listening(self.socket), seconds=30)

    def running(self, name: str) -> list[Program]:
        """The running processes of a kind."""
        return [program for program in self.programs if program.name == name and program.is_alive]

    def settle(self, *, workers: int = 2) -> None:
        """Restore the tree's usual state: broker, scheduler and some plain workers."""
        if self.broker.program is None or not self.broker.program.is_alive:
            self.broker.start()
        if not self.running("beat"):
            self.beat()
        for program in self.running("worker"):
            if not program.label.endswith(f"-{self.lease}"):
                program.kill()
        missing = workers - len(self.running("worker"))
        begun = [self.worker(wait=False) for _ in range(missing)]
        for program in begun:
            self.wait_for_worker(program)

    def clear(self, name: str) -> None:
        """Kill every process of a kind."""
        for program in self.running(name):
            program.kill()

    def new_chat(self, *, model: str = "", person: str = "alice") -> str:
        """Create a chat of Alice's, or of another person."""
        return str(self.desk.ask("new_chat", model=model, person=person))

    def post(
        self,
        text: str = "",
        *,
        chat: str = "",
        model: str = "",
        key: str = "",
        person: str = "alice",
    ) -> str:
        """Post a message that must be accepted, in a new chat by default; return the turn's id."""
        chat = chat or self.new_chat(model=model, person=person)
        answer = self.desk.ask("post", chat=chat, text=text, key=key, person=person)
        self.accepted.append(answer["message"])
        return str(answer["turn"])

    def turn(self, turn_id: str) -> Row:
        """A turn's row."""
        return self.database.rows(TURN, [self.key(turn_id)])[0]

    def key(self, row_id: str) -> str:
        """An id in the format of this database."""
        return row_id if self.database.kind == "postgres" else row_id.replace("-", "")

    def wait_until_over(self, turn_id: str, *, seconds: float = 20) -> Row:
        """The turn's row after the turn has ended."""
        return wait_for_rows(self.database, OVER, self.key(turn_id), seconds=seconds)

    def wait_for_text(self, turn_id: str, *, seconds: float = 15) -> Row:
        """The turn's row after some of its text was saved."""
        query = TURN + " AND partial_text <> ''"
        return wait_for_rows(self.database, query, self.key(turn_id), seconds=seconds)

    def worker_of(self, turn_id: str) -> Program:
        """The worker that holds a turn's lease."""
        name = self.turn(turn_id)["worker"]
        return next(p for p in self.running("worker") if p.label == name)

    def said(self) -> str:
        """The last output of the newest processes."""
        newest = [(program.log.name, program.said()[-3000:]) for program in self.programs[-6:]]
        return "\n".join(f"--- {name}\n{text}" for name, text in newest if text.strip())

    def close(self) -> None:
        """End every process, the broker last, and delete the data."""
        for program in reversed(self.programs):
            program.kill()
        if self._desk is not None:
            self._desk.close()
        self.broker.kill()
        self.impostor.close()
        self.database.close()


def is_listening(path: str) -> bool:
    """Return True if a web process accepts connections on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


@contextmanager
def running_tree(fake: FakeServer) -> Iterator[Tree]:
    """A tree on SQLite with all of its processes, which are ended with it."""
    folder = new_folder()
    made = Tree(folder=folder, database=SQLite(folder), fake=fake)
    try:
        made.broker.start()
        made.prepare()
        made.worker()
        made.beat()
        made.web()
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def new_folder() -> Path:
    """A folder with a short path, because it contains sockets."""
    return Path(tempfile.mkdtemp(prefix="plm-faults-", dir="/tmp"))  # private and unique
