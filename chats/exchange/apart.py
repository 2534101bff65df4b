"""Imports large files in a separate process, so that its memory is freed when it ends."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime

from django.conf import settings

from chats.exchange import import_job
from chats.ground import databases
from chats.models import FileImport
from contextpolicy.engine.messages.tokens import TokenCounter

logger = logging.getLogger(__name__)
COMMAND = "import_part"
# Seconds between two checks of the process.
LOOK = 0.1
# Seconds for which a process continues after its worker has ended.
LAST_SECONDS = 4.0


def import_file(
    *,
    import_id: uuid.UUID,
    counter: TokenCounter,
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
) -> None:
    """Import chats from a file for a few seconds; large files use a separate process."""
    row = FileImport.objects.filter(pk=import_id).only("size", "tries").first()
    if row is None or row.size <= settings.IMPORT_APART_BYTES:
        import_job.continue_import(
            import_id=import_id, counter=counter, clock=clock, is_closing=is_closing
        )
        return
    databases.release_pooled_connection()
    try:
        has_failed = run_process(import_id, is_closing=is_closing)
    except OSError as error:
        logger.warning("the process of import %s cannot be started: %s", import_id, error)
        has_failed = True
    if has_failed:
        import_job.count_failed_start(import_id, tries=row.tries, now=clock())


def run_process(import_id: uuid.UUID, *, is_closing: Callable[[], bool]) -> bool:
    """Run the process that imports chats from a file, and wait until it ends.

    The process notices through its standard input if this worker ends. Returns True if it failed
    on its own, not after this worker terminated it. Raises OSError if it cannot be started.
    """
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), COMMAND, str(import_id)]
    with subprocess.Popen(  # noqa: S603  # our own command, no shell
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        is_told = False
        while process.poll() is None:
            if is_closing() and not is_told:
                process.terminate()
                is_told = True
            time.sleep(LOOK)
    if process.returncode:
        # A due job finds the import after its lease expires. Its report explains the last attempt.
        logger.error("the process of import %s ended (%s)", import_id, process.returncode)
    return bool(process.returncode) and not is_told


class ClosingWatch:
    """Detects that this import process must end: after SIGTERM, or when its worker ends."""

    def __init__(self, parent: int) -> None:
        """Start watching. `parent` is the file descriptor of a pipe from the worker."""
        self.parent = parent
        self.event = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.event.set())
        threading.Thread(target=self.wait_for_parent, daemon=True).start()

    def wait_for_parent(self) -> None:
        """Wait until the worker ends, and terminate this process if it does not end in time."""
        while os.read(self.parent, 1):
            pass
        self.event.set()
        time.sleep(LAST_SECONDS)
        os._exit(1)

    def is_closing(self) -> bool:
        """Return True once the worker has ended or SIGTERM has arrived."""
        return self.event.is_set()
