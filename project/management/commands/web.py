"""`manage.py web`: one web process that closes its event streams before it stops."""

import fcntl
import os
import signal
import socket
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand, CommandError

from chats.ground import shared_figures
from chats.streams.connection import STREAMS
from project import addresses
from project.arenas import limit_arenas
from project.telemetry import set_up_telemetry
from project.versions import refuse_newer_database

GRACE_SECONDS = 3
# Longer than the idle timeout of proxies and clients (60 s), so that they close a connection first.
# A request sent into a connection that the server is closing would be reset.
IDLE_SECONDS = 75


class Server(uvicorn.Server):
    """A server that closes the open streams before it stops.

    uvicorn would wait for them until its grace period ends. `ready` is a file to which the process
    id is written once the server listens.
    """

    def __init__(self, config: uvicorn.Config, *, ready: Path | None = None) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and write the ready file."""
        await super().startup(sockets=sockets)
        shared_figures.report_open_streams(STREAMS.by_user.total, until=STREAMS.closing)
        if self.ready:
            self.ready.write_text(str(os.getpid()), encoding="ascii")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Close the streams, then stop the server."""
        STREAMS.closing.set()
        super().handle_exit(sig, frame)


def load_and_wait(lock: Path) -> None:
    """Load the application while another process prepares the database, then wait for it."""
    import_module("project.asgi")
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)


class Command(BaseCommand):
    """Serves the pages, the REST API and the event streams."""

    help = "Run one web process (several may share a port behind a proxy)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments: the address, and the lock to wait for."""
        addresses.add_arguments(parser)
        parser.add_argument("--uds", default=None, help="A unix socket instead of a port.")
        parser.add_argument(
            "--after", type=Path, default=None, help="Wait until this file is unlocked."
        )
        parser.add_argument(
            "--ready", type=Path, default=None, help="A file for the process id, once it listens."
        )

    def handle(
        self,
        *_args: Any,
        host: str,
        port: int,
        uds: str | None,
        after: Path | None,
        ready: Path | None,
        **_options: Any,
    ) -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        limit_arenas()
        if not uds:
            try:
                addresses.refuse_open_network(host)
                # 0 means any free port.
                if port:
                    addresses.refuse_used_port(host, port)
            except addresses.NotLaunched as refusal:
                raise CommandError(str(refusal)) from refusal
        if after:
            load_and_wait(after)
        refuse_newer_database()
        # Telemetry is not set up with the application, which the launcher loads before it forks,
        # because it starts threads.
        set_up_telemetry()
        config = uvicorn.Config(
            "project.asgi:application",
            host=host,
            port=port,
            uds=uds,
            loop="uvloop",
            http="httptools",
            lifespan="off",
            access_log=False,
            server_header=False,
            date_header=True,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=IDLE_SECONDS,
            log_config=None,
            # One header may have 8 kB, all together 32 kB.
            h11_max_incomplete_event_size=32_768,
        )
        Server(config, ready=ready).run()
