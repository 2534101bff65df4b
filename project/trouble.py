"""Error messages for a failed start: unusable files, disks, ports and databases."""

import errno
import os
import re
import sys
from pathlib import Path

# The exit code of a command that printed the reason of its failure in one sentence.
SAID = 3
# Errors of the operating system, and possible solutions.
REASONS = {
    errno.ENOSPC: "the disk is full. Free space, then start again",
    errno.EDQUOT: "the disk quota is used up. Free space, then start again",
    errno.EROFS: "it is read-only. Set PALIMPSEST_DATA to a folder that can be written",
    errno.ENOTDIR: "a part of its path is a file",
    errno.EEXIST: "it is a file, not a folder",
    errno.EIO: "the disk reports an error",
}
DATABASE_DAMAGED = (
    "The database file is damaged, or is not a SQLite database. Restore it from a backup,"
    " or set PALIMPSEST_DATA or DATABASE_URL to the right place."
)
TABLES_MISSING = (
    "The database has no tables, or those of another version. Check PALIMPSEST_DATA and"
    " DATABASE_URL, then run: manage.py setup"
)
# The messages of SQLite and PostgreSQL for tables and columns that do not exist.
ABSENT = re.compile(r"no such (?:table|column)|(?:relation|column) \S+ does not exist")
# SQLite's messages for a file that it cannot use.
DAMAGED = ("file is not a database", "database disk image is malformed")
DENIED = frozenset({errno.EACCES, errno.EPERM})


def describe_file_error(error: OSError, *, what: str = "") -> str:
    """Return the reason why a file or a folder cannot be used.

    Empty if the error is about something else.
    """
    name = what or (str(error.filename) if error.filename else "")
    if error.errno in DENIED and name:
        owner = describe_path_owner(Path(name))
        return f"{name} cannot be used by {describe_process_user()}: {owner}."
    if error.errno not in REASONS or not (name or error.errno in {errno.ENOSPC, errno.EDQUOT}):
        return ""
    return f"{name or 'A file'} cannot be written: {REASONS[error.errno]}."


def describe_path_owner(path: Path) -> str:
    """Return owner and mode of a path, or of its nearest readable folder, with a remedy."""
    for place in (path, *path.parents):
        try:
            found = place.stat()
        except OSError:
            continue
        mode = found.st_mode & 0o777
        return (
            f"{place} belongs to user {found.st_uid}, group {found.st_gid}, mode {mode:04o}."
            " Change its owner or group, or set PALIMPSEST_DATA to another folder"
        )
    return "nothing of its path can be read"


def describe_process_user() -> str:
    """Return the user id and the group ids of this process, for an error message."""
    groups = ", ".join(map(str, sorted({os.getegid(), *os.getgroups()})))
    return f"user {os.geteuid()} (groups {groups})"


def describe_command_error(error: BaseException) -> str:
    """Return a sentence that says why a command failed; empty for an unexpected error."""
    if isinstance(error, OSError) and (said := describe_file_error(error)):
        return said
    if "django.db" not in sys.modules:
        return ""
    from chats.ground.refusals import Refusal  # noqa: PLC0415  # not in `serve`, which has no Django

    return error.sentence if isinstance(error, Refusal) else describe_database_error(error)


def describe_database_error(error: BaseException) -> str:
    """Return a sentence about an unusable database; empty for any other error."""
    # Not at the top: `serve` has no Django.
    from django.db import DatabaseError, OperationalError  # noqa: PLC0415  # see above

    from chats.ground import databases  # noqa: PLC0415  # as above

    if isinstance(error, DatabaseError) and any(said in str(error) for said in DAMAGED):
        return DATABASE_DAMAGED
    if isinstance(error, DatabaseError) and ABSENT.search(str(error)):
        return TABLES_MISSING
    if not isinstance(error, OperationalError):
        return ""
    if databases.is_full(error):
        return "The disk of the database is full. Free space, then start again."
    if cause := databases.describe_connection_error(error):
        return f"The database cannot be used: {cause}. Check DATABASE_URL and its server."
    if "readonly database" in str(error) or "unable to open database" in str(error):
        return (
            "The database file cannot be written. Check the owner and the mode of the data folder."
        )
    return ""
