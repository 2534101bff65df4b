"""`manage.py serve`: the whole product as one supervised process tree."""

import fcntl
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any, cast

from celery.beat import EmbeddedService
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections
from django.db.utils import Error as DatabaseError
from django.utils import timezone
from redis import Redis
from redis.exceptions import RedisError

from chats import queue
from chats.turns import recover
from project import broker, env
from project.celery import app as celery_app
from project.supervisor import Child, Supervisor

MANAGE = str(settings.BASE_DIR / "manage.py")
# A worker drains its replies before it ends; what it cannot end within this time, it leaves.
WORKER_GRACE = settings.WORKER_DRAIN_SECONDS + 4.5
# Threads of a worker: those for replies only hand turns over to its loop, those for background work
# wait for the models that write summaries.
REPLY_THREADS = 8
BACKGROUND_THREADS = 32
# Background work stands back behind everything that people wait for.
BACKGROUND_NICENESS = 10
# How often the launcher looks whether there is background work, in seconds.
LOOK_EVERY = 0.5
# A broker that hangs must not hang the launcher.
BROKER_TIMEOUTS = {"socket_connect_timeout": 1.0, "socket_timeout": 1.0}
# How long the printed link waits for the web process.
PAGE_SECONDS = 30.0


# Locked while the database is being prepared.
PREPARING = settings.DATA_DIR / "prepare.lock"


class Unprepared(CommandError):
    """The database could not be migrated or seeded."""


class Command(BaseCommand):
    """Broker, worker, web and the schedule; Ctrl-C ends all of it."""

    help = "Start everything on this machine: no other service is needed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to listen."""
        parser.add_argument("--host", default=os.environ.get("PALIMPSEST_HOST", "127.0.0.1"))
        parser.add_argument(
            "--port", type=int, default=int(os.environ.get("PALIMPSEST_PORT", "8420"))
        )

    def handle(self, *_args: Any, host: str, port: int, **_options: Any) -> None:
        """Prepare the data, start the processes, print the address, watch."""
        refuse_open_network(host)
        # Held until this process ends, however it ends.
        lock = (settings.DATA_DIR / "serve.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(
                f"Palimpsest already runs with the data in {settings.DATA_DIR}."
                " Stop it first, or set PALIMPSEST_DATA to another folder."
            ) from error
        supervisor = Supervisor()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, supervisor.request_stop)
        web = web_child(host=host, port=port)
        try:
            with PREPARING.open("w") as preparing:
                fcntl.flock(preparing, fcntl.LOCK_EX)
                # It loads what it needs meanwhile, and opens its doors when the lock is free.
                web.start()
                welcome = prepare(base_url=f"http://{host}:{port}")
            if not supervisor.stopping:
                take_over(f"{worker_prefix()}-")
                start(supervisor, web=web)
                wait_for_page(supervisor, host=host, port=port)
                self.stdout.write(welcome)
                self.stdout.flush()
            supervisor.watch()
        except Unprepared:
            # Who ended it while it was preparing its data ended that, too.
            if not supervisor.stopping:
                raise
        finally:
            supervisor.stop()
            web.stop()
            lock.close()


def refuse_open_network(host: str) -> None:
    """Without TLS in front, only this machine may connect: passwords would cross the network."""
    if host in {"127.0.0.1", "localhost", "::1"} or settings.BEHIND_TLS or settings.TRUSTED_PROXY:
        return
    raise CommandError(
        f"Listening on {host} without TLS would send passwords in the clear. Put a TLS proxy in"
        " front and set PALIMPSEST_PUBLIC_URL=https://… and TRUSTED_PROXY=1."
    )


def prepare(*, base_url: str) -> str:
    """Migrate and seed in a process that ends: it takes 40 MB that the launcher never needs.

    Returns what to tell the person at the console.
    """
    command = [sys.executable, MANAGE, "setup", "--base-url", base_url]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603  # our own command
    if done.returncode:
        raise Unprepared("The database could not be prepared; the lines above say why.")
    return done.stdout


def web_child(*, host: str, port: int) -> Child:
    """The web process, which waits until the database is prepared."""
    address = ["--host", host, "--port", str(port)]
    return Child(
        name="web",
        command=[sys.executable, MANAGE, "web", *address, "--after", str(PREPARING)],
        grace=6.0,
    )


def start(supervisor: Supervisor, *, web: Child) -> None:
    """Broker first, then what needs it; the schedule is a thread of this process."""
    if not env.text("REDIS_URL"):
        try:
            supervisor.add(
                Child(name="broker", command=broker.command(settings.DATA_DIR), ends_last=True)
            )
        except broker.BrokerMissing as error:
            raise CommandError(str(error)) from error
    if not broker.wait_until_ready(settings.REDIS_URL, seconds=10):
        raise CommandError(f"The broker at {settings.REDIS_URL} does not answer.")
    supervisor.add(
        Child(
            name="worker",
            command=worker_command(queue.REPLIES, threads=REPLY_THREADS),
            env=worker_env,
            after_death=take_over_from,
            grace=WORKER_GRACE,
        )
    )
    supervisor.take(
        # Started with its first task: an idle instance needs no memory for it.
        Child(
            name="background",
            command=worker_command(*queue.BACKGROUND, threads=BACKGROUND_THREADS),
            env=worker_env,
            after_death=take_over_from,
            grace=WORKER_GRACE,
            niceness=BACKGROUND_NICENESS,
            is_needed=BackgroundWork().is_there,
        )
    )
    supervisor.take(web)
    begin_schedule()


class BackgroundWork:
    """Looks at the broker, now and then, whether a queue of the background has a task."""

    def __init__(self) -> None:
        self.broker = Redis.from_url(settings.REDIS_URL, **BROKER_TIMEOUTS)
        self.next_look = 0.0

    def is_there(self) -> bool:
        """Whether something waits; a broker that does not answer is asked again later."""
        now = time.monotonic()
        if now < self.next_look:
            return False
        self.next_look = now + LOOK_EVERY
        try:
            return any(self.broker.llen(name) for name in queue.BACKGROUND)
        except RedisError:
            return False


def begin_schedule() -> None:
    """The schedule as a thread: as a process of the worker it would outlive a killed worker."""
    scheduler = "celery.beat:Scheduler"
    schedule = cast(Thread, EmbeddedService(celery_app, thread=True, scheduler_cls=scheduler))
    schedule.daemon = True
    schedule.start()


def wait_for_page(supervisor: Supervisor, *, host: str, port: int) -> None:
    """Until the web process listens, so that a printed link works at the first click."""
    give_up = time.monotonic() + PAGE_SECONDS
    while time.monotonic() < give_up and not supervisor.stopping:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        supervisor.look()
        time.sleep(0.05)


def worker_command(*queues: str, threads: int = REPLY_THREADS) -> list[str]:
    """A stock Celery worker for some of the queues; for all of them when none is named."""
    options = ["--pool", "threads", "-c", str(threads), "--loglevel", "warning"]
    options += ["-Q", ",".join(queues)] if queues else []
    # Two workers of one host need two names.
    options += ["-n", f"{queues[0]}@%h"] if queues else []
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [sys.executable, "-m", "celery", "-A", "project", "worker", *options, *quiet]


def worker_env() -> Mapping[str, str]:
    """A new name for each worker process: leases carry it."""
    return {
        "PALIMPSEST_WORKER": f"{worker_prefix()}-{secrets.token_hex(6)}",
        "PYTHONPATH": str(Path(MANAGE).parent),
    }


def worker_prefix() -> str:
    """What the names of this launcher's workers begin with: no other one serves this folder."""
    place = f"{socket.gethostname()}:{settings.DATA_DIR}"
    return f"serve-{hashlib.sha256(place.encode()).hexdigest()[:12]}"


def take_over_from(ended: Mapping[str, str]) -> None:
    """A worker died: free what it held."""
    take_over(ended["PALIMPSEST_WORKER"])


def take_over(name: str) -> None:
    """Free what workers held that are gone, instead of waiting for the leases to run out."""
    close_old_connections()
    try:
        recover.take_over(now=timezone.now(), worker=name)
    except DatabaseError as error:
        # The sweep does the same a little later.
        sys.stderr.write(f"what an ended worker held waits for the sweep: {error}\n")
    finally:
        close_old_connections()
