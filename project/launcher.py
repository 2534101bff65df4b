"""The launcher: the whole product as one supervised process tree, `manage.py serve`.

It loads the code once and forks its children, which share its memory (`speed/forks.py`). With
`SPEED=0`, and where forks are not reliable, each child is a new interpreter. A short-lived child
prepares the database, and the reply worker runs the schedule.
"""

import fcntl
import hashlib
import importlib
import logging.config
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from redis import Redis
from redis.exceptions import RedisError

from chats.ground import native, queues
from project import broker, database_url, env, instance, logs, small_model, trouble
from project.addresses import (
    NotLaunched,
    add_arguments,
    refuse_open_network,
    refuse_used_port,
)
from project.supervisor import Child, Supervisor
from speed.forks import can_fork

HELP = "Start everything on this machine: no other service is needed."
MANAGE = str(instance.BASE_DIR / "manage.py")
# A worker finishes its replies before it ends. It abandons those that take longer than this.
WORKER_GRACE = instance.WORKER_DRAIN_SECONDS + 4.5
# Threads that wait for summarising models. A reply has a separate thread.
BACKGROUND_THREADS = 32
# Background work gets a lower priority than everything that users wait for.
BACKGROUND_NICENESS = 10
# Seconds between two checks for background work.
LOOK_EVERY = 0.5
# A hanging broker must not block the launcher.
BROKER_TIMEOUTS = {"socket_connect_timeout": 1.0, "socket_timeout": 1.0}


# Locked while the database is being prepared.
PREPARING = instance.DATA_DIR / "prepare.lock"
# Holds the process id of the web process once it listens.
READY = instance.DATA_DIR / "web.ready"
# The address of this start, for commands that print links.
ADDRESS = instance.DATA_DIR / "address"


class Unprepared(NotLaunched):
    """The database could not be migrated or seeded."""


def main(arguments: Sequence[str]) -> int:
    """Launch the product with the command line's options; return the exit code.

    Raises Misconfigured, and OSError for an error that is not explained to the operator.
    """
    parser = ArgumentParser(prog="manage.py serve", description=HELP)
    add_arguments(parser)
    given = parser.parse_args(arguments)
    logging.config.dictConfig(logs.build_logging_config(instance.LOG_LEVEL, instance.LOG_FORMAT))
    try:
        launch_instance(host=given.host, port=given.port)
    except NotLaunched as error:
        sys.stderr.write(f"{error}\n" if str(error) else "")
        return 1
    except OSError as error:
        said = trouble.describe_file_error(error)
        if not said:
            raise
        sys.stderr.write(f"{said}\n")
        return 1
    return 0


def launch_instance(*, host: str, port: int) -> None:
    """Prepare the data, start the processes, print the address and watch them; Ctrl-C stops all.

    Raises NotLaunched if another launcher uses the data, the address cannot be used or there is no
    broker. Also raises Unprepared and Misconfigured.
    """
    refuse_open_network(host)
    # Only the children use these settings. Reading them here reports an error once.
    database_url.build_database_settings(instance.DATA_DIR)
    for key in ("SECRET_KEY", "ENCRYPTION_KEYS"):
        env.read_string(key)
    # Held until this process ends, however it ends.
    with (instance.DATA_DIR / "serve.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NotLaunched(
                f"Palimpsest already runs with the data in {instance.DATA_DIR}."
                " Stop it first, or set PALIMPSEST_DATA to another folder."
            ) from error
        refuse_used_port(host, port)
        supervisor = Supervisor()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, supervisor.request_stop)
        # Under nohup, closing the terminal stops nothing.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, supervisor.request_stop)
        try:
            supervise_processes(supervisor, host=host, port=port)
        except Unprepared:
            # If the user stopped the launcher, the preparation was stopped too: that is not a
            # failure.
            if not supervisor.stopping:
                raise
        finally:
            supervisor.stop()


def supervise_processes(supervisor: Supervisor, *, host: str, port: int) -> None:
    """Start the broker, prepare the database, start the rest, and watch until a stop is requested.

    Raises NotLaunched, Unprepared and Misconfigured.
    """
    if env.read_bool("SMALL_MODEL"):
        start_small_model(supervisor)
    start_broker(supervisor)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    READY.unlink(missing_ok=True)
    ADDRESS.write_text(f"{address}\n", encoding="utf-8")
    in_fork = load_code() if env.read_bool("SPEED", default=True) and can_fork() else None
    if supervisor.stopping:
        return
    page = build_web_process(host=host, port=port, in_fork=in_fork)
    with PREPARING.open("w") as preparing:
        fcntl.flock(preparing, fcntl.LOCK_EX)
        # The web process loads its code now, and listens when the lock is free.
        supervisor.add(page)
        welcome = prepare_database(base_url=address, in_fork=in_fork)
    if not supervisor.stopping:
        supervisor.add(build_reply_worker(in_fork=in_fork))
        supervisor.take(build_background_worker(in_fork=in_fork))
        if wait_for_page(supervisor, page, host=host, port=port):
            sys.stdout.write(f"{welcome}Stop with Ctrl-C.\n")
            sys.stdout.flush()
    supervisor.watch()


def start_small_model(supervisor: Supervisor) -> None:
    """Start the small model, and pass its address to every process started after it.

    If this machine cannot run the model, a message is printed and the other processes start without
    it. Raises NotLaunched if the model is not installed.
    """
    try:
        supervisor.add(small_model.build_model_process(instance.DATA_DIR))
    except small_model.SmallModelMissing as error:
        raise NotLaunched(str(error)) from error
    except small_model.SmallModelUnusable as error:
        sys.stderr.write(f"{error}\n")


def start_broker(supervisor: Supervisor) -> None:
    """Start the broker unless the environment names one, and wait for it.

    All other processes need the broker. Raises NotLaunched if there is no broker or it does
    not answer.
    """
    command: list[str] = []
    if not env.read_string("REDIS_URL"):
        try:
            command = broker.build_broker_command(instance.DATA_DIR)
        except broker.BrokerMissing as error:
            raise NotLaunched(str(error)) from error
        try:
            supervisor.add(Child(name="broker", command=command, ends_last=True))
        except OSError as error:
            raise NotLaunched(describe_broken_broker(command[0], error.strerror)) from error
    if broker.wait_until_ready(instance.REDIS_URL, seconds=10):
        return
    lacking = native.try_command([command[0], "--version"]) if command else None
    if lacking:
        raise NotLaunched(
            f"The broker needs {lacking.name}, which this machine lacks. {lacking.remedy}"
        )
    if command:
        raise NotLaunched(describe_broken_broker(command[0], "it does not answer"))
    # The address is shown without user and password.
    place = instance.REDIS_URL.rpartition("@")[2]
    raise NotLaunched(f"The broker at {place} does not answer. Start it, or correct REDIS_URL.")


def describe_broken_broker(binary: str, reason: str | None) -> str:
    """Return the error message for a broker that does not start."""
    return (
        f"The broker {binary} could not be started: {reason}."
        " Reinstall it, or set REDIS_URL to a Redis or Valkey server."
    )


def load_code() -> Callable[[], None]:
    """Load the code for all processes; return the function that each fork calls first.

    Raises Misconfigured.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    in_fork: Callable[[], None] = importlib.import_module("project.preloading").load_shared_code()
    return in_fork


def prepare_database(*, base_url: str, in_fork: Callable[[], None] | None) -> str:
    """Migrate, seed, and release leases of workers that ended, in a short-lived process.

    Returns the text for the console. Raises Unprepared.
    """
    command = [sys.executable, MANAGE, "setup", "--base-url", base_url]
    command += ["--take-over", build_worker_prefix()]
    # Only a terminal gets the sign-in link, because other outputs are logs.
    command += ["--with-link"] if sys.stdout.isatty() else []
    with tempfile.TemporaryFile() as printed:
        setup = Child(name="setup", command=command, stdout=printed, in_fork=in_fork)
        setup.start()
        code = setup.process.wait() if setup.process else 1
        printed.seek(0)
        welcome = printed.read().decode()
    if code == trouble.SAID:
        raise Unprepared("")
    if code:
        raise Unprepared("The database could not be prepared; the lines above say why.")
    return welcome


def build_web_process(*, host: str, port: int, in_fork: Callable[[], None] | None = None) -> Child:
    """Return the web process, which waits until the database is prepared."""
    address = ["--host", host, "--port", str(port)]
    files = ["--after", str(PREPARING), "--ready", str(READY)]
    return Child(
        name="web",
        command=[sys.executable, MANAGE, "web", *address, *files],
        grace=6.0,
        in_fork=in_fork,
    )


def build_reply_worker(*, in_fork: Callable[[], None] | None = None) -> Child:
    """Return the reply worker, which also runs the schedule.

    The schedule only sends tasks to this worker's queue, and without the worker none of them would
    run.
    """
    return Child(
        name="worker",
        command=build_worker_command(queues.REPLIES, threads=instance.REPLIES_PER_WORKER),
        env=partial(build_worker_env, queues.REPLIES, PALIMPSEST_KEEPS_SCHEDULE="1"),
        grace=WORKER_GRACE,
        in_fork=in_fork,
    )


def build_background_worker(*, in_fork: Callable[[], None] | None = None) -> Child:
    """Return the worker for background work.

    It is started with the first background task, so that an idle instance uses less memory.
    """
    return Child(
        name="background",
        command=build_worker_command(*queues.BACKGROUND, threads=BACKGROUND_THREADS),
        env=partial(build_worker_env, "background"),
        grace=WORKER_GRACE,
        niceness=BACKGROUND_NICENESS,
        is_needed=BackgroundWork().is_there,
        stdout=None if instance.LEDGER_LINES else subprocess.DEVNULL,
        in_fork=in_fork,
    )


class BackgroundWork:
    """Checks periodically whether a background queue of the broker has a task."""

    def __init__(self) -> None:
        self.broker = Redis.from_url(instance.REDIS_URL, **BROKER_TIMEOUTS)
        self.next_look = 0.0

    def is_there(self) -> bool:
        """Return True if a task is waiting, False also if the broker does not answer.

        Queries the broker only at intervals; returns False in between.
        """
        now = time.monotonic()
        if now < self.next_look:
            return False
        self.next_look = now + LOOK_EVERY
        try:
            return any(self.broker.llen(name) for name in queues.BACKGROUND)
        except RedisError:
            return False


def wait_for_page(supervisor: Supervisor, page: Child, *, host: str, port: int) -> bool:
    """Wait until our own web process listens, so that a printed link leads to it.

    Returns False if a stop was requested first. Raises NotLaunched if another program started to
    use the port.
    """
    while not supervisor.stopping:
        if page.process and is_ready(page.process.pid):
            return True
        if page.process and page.process.poll() is not None:
            refuse_used_port(host, port)
        supervisor.look()
        time.sleep(0.05)
    return False


def is_ready(pid: int) -> bool:
    """Return True if the web process with this id has reported that it is listening."""
    try:
        return READY.read_text(encoding="ascii") == str(pid)
    except FileNotFoundError:
        return False


def build_worker_command(*names: str, threads: int = instance.REPLIES_PER_WORKER) -> list[str]:
    """Return the command line of a Celery worker for some of the queues.

    If no queue is given, the worker serves all of them.
    """
    options = ["--pool", "threads", "-c", str(threads), "--loglevel", "warning"]
    options += ["-Q", ",".join(names)] if names else []
    # Two workers of one host need different names.
    options += ["-n", f"{names[0]}@%h"] if names else []
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    # The web process runs the system checks; in a worker they would load the pages.
    celery = [sys.executable, "-m", "celery", "--quiet", "--skip-checks", "-A", "project"]
    return [*celery, "worker", *options, *quiet]


def build_worker_env(kind: str, **more: str) -> Mapping[str, str]:
    """Return the environment of a worker process, with a unique name for its leases.

    No other worker of the same kind runs at the same time, so it takes over the leases of
    its dead predecessor immediately.
    """
    name = f"{build_worker_prefix()}{kind}-"
    return {
        "PALIMPSEST_WORKER": f"{name}{secrets.token_hex(6)}",
        "PALIMPSEST_TAKES_OVER": name,
        "PYTHONPATH": str(instance.BASE_DIR),
        **more,
    }


def build_worker_prefix() -> str:
    """Return the name prefix of this launcher's workers.

    No other launcher uses this data folder.
    """
    place = f"{socket.gethostname()}:{instance.DATA_DIR}"
    return f"serve-{hashlib.sha256(place.encode()).hexdigest()[:12]}-"
