"""Files that cannot be read, and the reasons."""

import zipfile
from pathlib import Path

# Office files: unpacked bytes and entries. Real documents have a few MiB.
UNPACKED_BYTES = 200 * 1024 * 1024
MOST_ENTRIES = 10_000


class UnreadableFile(Exception):
    """The file cannot be read. `code` is the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def check_archive(path: Path) -> None:
    """Raise `UnreadableFile` if an archive is damaged, or too large when unpacked."""
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
