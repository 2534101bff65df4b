"""Files that cannot be read, and the reasons."""

import re
import zipfile
from pathlib import Path
from typing import IO

# Office files: unpacked bytes and entries. Real documents have a few MiB.
UNPACKED_BYTES = 200 * 1024 * 1024
MOST_ENTRIES = 10_000
PIECE_BYTES = 1024 * 1024
# The beginning of an OLE container, and the entry of its directory for an encrypted document: the
# name, the length of the name in bytes, and the type of the entry, a stream.
OLE_BEGINNING = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ENTRY_BYTES = 128
ENCRYPTED_NAME = "EncryptedPackage".encode("utf-16-le").ljust(64, b"\0")
ENCRYPTED_ENTRY = re.compile(re.escape(ENCRYPTED_NAME + b"\x22\x00\x02"))


class UnreadableFile(Exception):
    """The file cannot be read. `code` is the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def is_protected_document(file: IO[bytes]) -> bool:
    """Return True if an OLE container has an encrypted Office document, and rewind it.

    Office writes such a container if a document has a password.
    """
    file.seek(0)
    rest, start = b"", 0
    while piece := file.read(PIECE_BYTES):
        data = rest + piece
        for found in ENCRYPTED_ENTRY.finditer(data):
            # The entries of the directory are aligned.
            if (start + found.start()) % ENTRY_BYTES == 0:
                file.seek(0)
                return True
        rest = data[-ENTRY_BYTES:]
        start += len(data) - len(rest)
    file.seek(0)
    return False


def check_archive(path: Path) -> None:
    """Raise `UnreadableFile` if an archive is protected, damaged, or too large when unpacked."""
    with path.open("rb") as file:
        if file.read(len(OLE_BEGINNING)) == OLE_BEGINNING and is_protected_document(file):
            raise UnreadableFile("file_locked")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    # The last two: a directory with impossible sizes, or a compression that Python lacks.
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableFile("file_damaged") from error
    # Reading an entry stops at the size that the directory states.
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > UNPACKED_BYTES or len(entries) > MOST_ENTRIES:
        raise UnreadableFile("file_unpacks_too_large")
