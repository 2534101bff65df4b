"""The file with the last checkpoint, outside the database: a restored backup does not bring it."""

import os
from pathlib import Path

from django.conf import settings

from chats.ground.refusals import Refusal


class FileUnreadable(Refusal):
    """The file with the last checkpoint is there and cannot be read or written."""

    code = "checkpoint_file_unreadable"
    status = 500
    sentence = (
        "The file with the last checkpoint cannot be read or written, so no checkpoint is signed. "
        "Give the product the right to its folder, or name another file in LEDGER_CHECKPOINT_FILE."
    )


def path() -> Path:
    """Return where the file is."""
    return Path(settings.LEDGER_CHECKPOINT_FILE)


def last() -> str:
    """Return the note in the file; empty if there is none yet. Raises `FileUnreadable`."""
    try:
        return path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError):
        raise FileUnreadable from None


def keep(note: str) -> None:
    """Put a note in the place of the one before; whole or not at all. Raises `FileUnreadable`."""
    place = path()
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
    """Keep the file of an origin that ends under another name. Raises `FileUnreadable`."""
    try:
        if path().exists():
            path().replace(path().with_name(f"{path().name}.{name}"))
    except OSError:
        raise FileUnreadable from None
