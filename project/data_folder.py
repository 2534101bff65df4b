"""The data folder, and the keys that are created in it."""

import base64
import errno
import fcntl
import os
import secrets
from pathlib import Path

from project import trouble
from project.env import Misconfigured, read_list, read_string


def prepare_data_folder(default: Path) -> Path:
    """Return the path of the folder for all data that needs a backup; create it if missing.

    Only its owner can read it. A folder of another owner is used unchanged if its group may write,
    as in Kubernetes volumes with an `fsGroup`. Raises Misconfigured if it cannot be used.
    """
    folder = Path(read_string("PALIMPSEST_DATA") or default)
    try:
        folder = folder.expanduser().resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(0o700)
    except OSError as error:
        raise build_path_error(folder, error) from error
    except (RuntimeError, ValueError) as error:
        # An unknown home folder, a loop of links, or a NUL.
        raise Misconfigured(f"PALIMPSEST_DATA={folder} cannot be used: {error}.") from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        is_read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
        number = errno.EROFS if is_read_only else errno.EACCES
        raise build_path_error(folder, OSError(number, os.strerror(number)))
    make_temporary_folder(folder)
    return folder


def make_temporary_folder(folder: Path) -> None:
    """Create the folder that TMPDIR names if it is inside the data folder, as in containers.

    Raises Misconfigured if it cannot be created.
    """
    place = Path(os.environ.get("TMPDIR") or "/").absolute()
    if place.parent == folder:
        try:
            place.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise build_path_error(place, error) from error


def build_path_error(path: Path, error: OSError) -> Misconfigured:
    """Return the exception for an unusable file or folder, with the reason."""
    said = trouble.describe_file_error(error, what=str(path))
    return Misconfigured(said or f"{path} cannot be used: {error.strerror}.")


def load_or_create_key(path: Path, *, make: str) -> str:
    """Return the key in a file of the data folder, which the first start creates with mode 0600.

    Processes that start at the same time get the same key: it is created under a lock, and the file
    is written atomically. An interrupted start may leave a file without a key. Raises Misconfigured
    if the file cannot be used.
    """
    try:
        return read_key_file(path) or create_key_file(path, make=make)
    except OSError as error:
        raise build_path_error(path, error) from error


def create_key_file(path: Path, *, make: str) -> str:
    """Create a key under a lock and return it, or the one that another process just created."""
    with path.with_name("keys.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if key := read_key_file(path):
            return key
        key = generate_fernet_key() if make == "fernet" else secrets.token_urlsafe(64)
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    return key


def read_key_file(path: Path) -> str:
    """Return the key in a file; empty if there is none. Raises Misconfigured if it is not text."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise Misconfigured(
            f"{path} is damaged: a key has only ASCII characters. Restore the key that belongs to"
            " the data."
        ) from error


def read_encryption_keys(name: str, path: Path) -> list[str]:
    """Read the keys that encrypt stored secrets, newest first, or the key of the data folder.

    Raises Misconfigured if one is not 32 bytes in base64. Without this check, the error
    would appear only when the first secret is stored or read.
    """
    found = read_list(name)
    for key in found or [load_or_create_key(path, make="fernet")]:
        if not is_fernet_key(key):
            place = f"{name} has a key that" if found else f"{path}: the key"
            raise Misconfigured(
                f"{place} is not 32 bytes in URL-safe base64 (44 characters). Restore the key that"
                " belongs to the data."
            )
    return found or [load_or_create_key(path, make="fernet")]


def is_fernet_key(key: str) -> bool:
    """Return True if the text is 32 bytes in URL-safe base64."""
    try:
        return len(base64.urlsafe_b64decode(key)) == 32
    except ValueError:
        return False


def generate_fernet_key() -> str:
    """Create a key as `Fernet.generate_key` does, without importing its package."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
