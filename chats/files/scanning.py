"""Runs the operator's malware scanner (`PALIMPSEST_FILE_SCAN`) before files are read."""

import hashlib
import logging
import os
import shlex
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache

from chats.files.working_folders import open_working_folder

logger = logging.getLogger(__name__)
# Seconds for the check of one file.
SECONDS = 60.0
# Clients send the images of a conversation with each request. A process scans the same bytes again
# after this time in seconds, so that new signatures of the scanner apply.
CLEAN_SECONDS = 60 * 60
CHUNK_BYTES = 64 * 1024
CLAMAV = "clamav:"
CLAMAV_PORT = 3310
# Exit codes of a command, as those of clamscan.
CLEAN, REFUSED = 0, 1
# Codes in `READING_FAILURES`.
FILE_REFUSED, SCANNER_UNAVAILABLE = "file_refused", "scanner_unavailable"


def scan_file(path: Path) -> str:
    """Return an empty string if the file may be read, otherwise the code of the reason.

    The code is `file_refused` or `scanner_unavailable`. Without a scanner, every file may
    be read.
    """
    scanner = settings.FILE_SCAN
    if not scanner:
        return ""
    try:
        is_clean = (
            ask_clamav(scanner, path) if is_clamav(scanner) else run_scan_command(scanner, path)
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logger.warning("a file could not be scanned: %s", error)
        return SCANNER_UNAVAILABLE
    return "" if is_clean else FILE_REFUSED


def scan_bytes(data: bytes) -> str:
    """Scan content in memory, like `scan_file`. A clean result is cached for an hour."""
    if not settings.FILE_SCAN:
        return ""
    key = hashlib.sha256(settings.FILE_SCAN.encode() + b"\0" + data).hexdigest()
    if cache.get(key):
        return ""
    with open_working_folder() as folder:
        path = folder / "file"
        path.write_bytes(data)
        code = scan_file(path)
    if not code:
        cache.set(key, "clean", CLEAN_SECONDS)
    return code


def is_clamav(scanner: str) -> bool:
    """Return True for the address of a ClamAV daemon, False for a command."""
    return scanner.startswith(CLAMAV)


def run_scan_command(scanner: str, path: Path) -> bool:
    """Run a command with the file as its last argument; return True if the file is clean (exit code
    0).

    Returns False for exit code 1. Raises ValueError for any other exit code, OSError and
    SubprocessError.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    done = subprocess.run(  # noqa: S603  # the operator's command, no shell
        [*shlex.split(scanner), str(path)],
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode not in (CLEAN, REFUSED):
        raise ValueError(f"the scanner ended with {done.returncode}")
    return done.returncode == CLEAN


def ask_clamav(scanner: str, path: Path) -> bool:
    """Send a file to a ClamAV daemon and return True if it found nothing.

    Raises OSError if it cannot be reached, and ValueError for any other answer.
    """
    with connect_clamav(scanner) as connection, path.open("rb") as file:
        connection.sendall(b"zINSTREAM\0")
        while piece := file.read(CHUNK_BYTES):
            connection.sendall(len(piece).to_bytes(4, "big") + piece)
        connection.sendall(bytes(4))
        answer = receive_answer(connection)
    if answer.endswith(" FOUND"):
        return False
    if answer != "stream: OK":
        raise ValueError(f"ClamAV answered {answer!r}")
    return True


def connect_clamav(scanner: str) -> socket.socket:
    """Connect to `clamav:/path/of/a/socket` or `clamav://host:port`. Raises OSError, ValueError."""
    address = urlsplit(scanner)
    if address.hostname:
        return socket.create_connection((address.hostname, address.port or CLAMAV_PORT), SECONDS)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS)
    try:
        connection.connect(address.path)
    except OSError:
        connection.close()
        raise
    return connection


def receive_answer(connection: socket.socket) -> str:
    """Return the daemon's answer without its final zero byte. Raises OSError."""
    data = b""
    while not data.endswith(b"\0") and len(data) < CHUNK_BYTES:
        piece = connection.recv(CHUNK_BYTES)
        if not piece:
            break
        data += piece
    return data.rstrip(b"\0").decode("utf-8", "replace").strip()
