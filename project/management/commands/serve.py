"""`manage.py serve`: the whole product as one supervised process tree."""

import fcntl
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

from chats.turns.recover import release_expired
from project import broker, env
from project.celery import app as celery_app
from project.supervisor import Child, Supervisor

MANAGE = str(settings.BASE_DIR / "manage.py")
# A worker drains its replies before it ends, so it gets the longest grace.
WORKER_GRACE = 25.0
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
            supervisor.add(Child(name="broker", command=broker.command(settings.DATA_DIR)))
        except broker.BrokerMissing as error:
            raise CommandError(str(error)) from error
    if not broker.wait_until_ready(settings.REDIS_URL, seconds=10):
        raise CommandError(f"The broker at {settings.REDIS_URL} does not answer.")
    supervisor.add(
        Child(
            name="worker",
            command=worker_command(),
            env=worker_env,
            after_death=take_over,
            grace=WORKER_GRACE,
        )
    )
    supervisor.take(web)
    begin_schedule()


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


def worker_command() -> list[str]:
    """A stock Celery worker; its threads only hand turns over to the loop."""
    options = ["--pool", "threads", "-c", "8", "--loglevel", "warning"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [sys.executable, "-m", "celery", "-A", "project", "worker", *options, *quiet]


def worker_env() -> Mapping[str, str]:
    """A new name for each worker process: leases carry it."""
    return {
        "PALIMPSEST_WORKER": f"serve-{secrets.token_hex(6)}",
        "PYTHONPATH": str(Path(MANAGE).parent),
    }


def take_over(ended: Mapping[str, str]) -> None:
    """A worker died: free its turns at once instead of waiting for their leases."""
    close_old_connections()
    try:
        release_expired(now=timezone.now(), worker=ended["PALIMPSEST_WORKER"])
    except DatabaseError as error:
        # The sweep does the same a little later.
        sys.stderr.write(f"the ended worker's turns wait for the sweep: {error}\n")
