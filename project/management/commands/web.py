"""`manage.py web`: one web process that ends its event streams before it goes."""

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
from django.core.management.base import BaseCommand

from chats.streams.connection import STREAMS
from project.versions import refuse_newer_database

GRACE_SECONDS = 3
# Longer than proxies and clients keep an idle connection (60 s), so that they close it first:
# a message sent into a connection that is being closed from here is answered by a reset.
IDLE_SECONDS = 75


class Server(uvicorn.Server):
    """A server that ends the open streams before it ends itself.

    uvicorn would wait for them until its grace is over. `ready` names a file that gets the process
    id once the server listens.
    """

    def __init__(self, config: uvicorn.Config, *, ready: Path | None = None) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets=sockets)
        if self.ready:
            self.ready.write_text(str(os.getpid()), encoding="ascii")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams, then the server."""
        STREAMS.closing.set()
        super().handle_exit(sig, frame)


def load_and_wait(lock: Path) -> None:
    """Load the application while somebody prepares its database, then wait for them."""
    import_module("project.asgi")
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)


class Command(BaseCommand):
    """Serves pages, REST and event streams."""

    help = "Run one web process (several may share a port behind a proxy)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the address to listen on, and the lock to wait for."""
        parser.add_argument("--host", default=os.environ.get("PALIMPSEST_HOST", "127.0.0.1"))
        parser.add_argument("--port", type=int, default=os.environ.get("PALIMPSEST_PORT", "8420"))
        parser.add_argument("--uds", default=None, help="A unix socket instead of a port.")
        parser.add_argument(
            "--after", type=Path, default=None, help="Wait until nobody holds this file's lock."
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
        """Serve until told to stop."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        if after:
            load_and_wait(after)
        refuse_newer_database()
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
            # One header may be 8 kB, all of them 32 kB (limits of reliable operation).
            h11_max_incomplete_event_size=32_768,
        )
        Server(config, ready=ready).run()
