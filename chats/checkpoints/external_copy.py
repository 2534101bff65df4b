"""The file with the last checkpoint.

It is outside the database, so restoring a backup of the database does not change it.
"""

import os
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal


class FileUnreadable(Refusal):
    """The checkpoint file cannot be read. No checkpoint is signed."""

    code = "checkpoint_file_unreadable"
    status = 500
    sentence = gettext_noop(
        "The checkpoint file cannot be read, so no checkpoint is signed. Allow the server to read "
        "it, restore it if it is damaged, or set another file in LEDGER_CHECKPOINT_FILE."
    )


class CopyNotWritten(Refusal):
    """The checkpoint is signed and stored, but its copy cannot be written to the file."""

    code = "checkpoint_copy_not_written"
    status = 500
    sentence = gettext_noop(
        "The checkpoint is signed and stored in the database, but it could not be written to the "
        "checkpoint file. Allow the server to write to the folder of LEDGER_CHECKPOINT_FILE. The "
        "next checkpoint writes the file. To sign it now, run manage.py ledger_checkpoint."
    )


class OldCopyNotMoved(CopyNotWritten):
    """A new origin began, but the file of the previous origin cannot be renamed."""

    sentence = gettext_noop(
        "The new origin is opened and its checkpoint is stored in the database, but the previous "
        "checkpoint file could not be renamed. Rename it to {name} yourself. Then sign the next "
        "checkpoint, which writes a new file: manage.py ledger_checkpoint."
    )


def get_checkpoint_path() -> Path:
    return Path(settings.LEDGER_CHECKPOINT_FILE)


def load_checkpoint_note() -> str:
    """Return the note in the file, or "" without a file. Raises `FileUnreadable`."""
    try:
        return get_checkpoint_path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError):
        raise FileUnreadable from None


def replace_checkpoint_note(note: str) -> None:
    """Replace the note atomically. Raises `CopyNotWritten`."""
    place = get_checkpoint_path()
    fresh = place.with_name(f"{place.name}.new")
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as file:
            file.write(note)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place)
    except OSError:
        raise CopyNotWritten from None


def set_aside(name: str) -> None:
    """Rename the checkpoint file when a new origin begins, so that the old checkpoint is kept.

    Raises `OldCopyNotMoved`.
    """
    place = get_checkpoint_path()
    aside = place.with_name(f"{place.name}.{name}")
    try:
        if place.exists():
            place.replace(aside)
    except OSError:
        raise OldCopyNotMoved(name=aside.name) from None
