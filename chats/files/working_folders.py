"""Temporary folders in which files are read, and the removal of those whose process was killed.

A folder contains a copy of a file, decrypted if the stored bytes are encrypted. Each folder has a
lock, which the system releases when its process dies.
"""

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)
PREFIX = "palimpsest-reading-"
LOCK = "lock"
# A younger folder may not have its lock yet.
UNLOCKED_SECONDS = 60.0


@contextmanager
def open_working_folder() -> Iterator[Path]:
    """Create a temporary folder, and delete it with its content after the block.

    First deletes the folders that killed processes left behind.
    """
    remove_abandoned_folders()
    with (
        tempfile.TemporaryDirectory(prefix=PREFIX) as name,
        (Path(name) / LOCK).open("w", encoding="ascii") as lock,
    ):
        # Some network file systems have no locks. Folders there are never removed for others.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def remove_abandoned_folders() -> int:
    """Delete the working folders of killed processes on this machine. Return the count."""
    removed = 0
    limit = time.time() - UNLOCKED_SECONDS
    for entry in list_working_folders():
        try:
            state = entry.stat(follow_symlinks=False)
            is_ours = entry.is_dir(follow_symlinks=False) and state.st_uid == os.geteuid()
            if is_ours and state.st_mtime < limit and is_abandoned(Path(entry.path)):
                shutil.rmtree(entry.path)
                removed += 1
        except OSError as error:
            # Another process may have removed it first.
            logger.info("a temporary folder was not removed: %s", type(error).__name__)
    return removed


def list_working_folders() -> list[os.DirEntry[str]]:
    """Return the entries of the temporary folder with the prefix of working folders.

    Returns an empty list if the folder cannot be listed: folders can still be created there.
    """
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            return [each for each in entries if each.name.startswith(PREFIX)]
    except OSError as error:
        logger.info("the temporary folder was not listed: %s", type(error).__name__)
        return []


def is_abandoned(folder: Path) -> bool:
    """Return True if no process holds a folder's lock. Raises OSError if it cannot be opened."""
    try:
        with (folder / LOCK).open("r+", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        # Its process was killed before it took the lock.
        return True
    except BlockingIOError:
        return False
    return True
