"""The file with the last checkpoint.

It is outside the database, so restoring a backup of the database does not change it.
"""

import os
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal


class FileUnreadable(Refusal):
    """The checkpoint file cannot be read or written."""

    code = "checkpoint_file_unreadable"
    status = 500
    sentence = gettext_noop(
        "The checkpoint file cannot be read or written, so no checkpoint is signed. Allow the "
        "server to write to its folder, or set another file in LEDGER_CHECKPOINT_FILE."
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
    """Replace the note atomically. Raises `FileUnreadable`."""
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
        raise FileUnreadable from None


def set_aside(name: str) -> None:
    """Rename the checkpoint file when a new origin begins, so that the old checkpoint is kept.

    Raises `FileUnreadable`.
    """
    try:
        if get_checkpoint_path().exists():
            get_checkpoint_path().replace(
                get_checkpoint_path().with_name(f"{get_checkpoint_path().name}.{name}")
            )
    except OSError:
        raise FileUnreadable from None
