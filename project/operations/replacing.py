"""Replaces files and folders together: everything is prepared first, then renamed.

The new content is written next to its target, on the same file system. If a rename fails, the
earlier ones are undone.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from project.operations.refused import OperationRefused

# A file or folder that a restore replaced keeps this ending until the restore is complete.
BEFORE = ".before-restore"
FRESH = ".restoring"
# The folder of a file system's own repairs. Only root may rename it.
OF_FILE_SYSTEM = "lost+found"
MOUNTS = Path("/proc/self/mountinfo")
OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(slots=True)
class Replacement:
    """The new content of a file or folder, prepared under `fresh`.

    `target` has no symbolic links. `endings`: files that belong to the old content and are moved
    away with it. `is_mounted`: the folder is a mount point, so its entries are renamed instead.
    """

    target: Path
    fresh: Path
    endings: Sequence[str] = ()
    is_mounted: bool = False
    moved: list[tuple[Path, Path]] = field(default_factory=list)

    def put(self) -> None:
        """Move the old content away and the new one into its place. Raises OSError."""
        if self.is_mounted:
            self.put_entries()
            return
        before = find_free_place(self.target)
        for ending in (*self.endings, ""):
            old = self.target.with_name(f"{self.target.name}{ending}")
            if old.exists():
                self.move(old, before.with_name(f"{before.name}{ending}"))
        self.move(self.fresh, self.target)

    def put_entries(self) -> None:
        """Move the entries of a mounted folder away and the new ones into it. Raises OSError."""
        inner = self.target / self.target.name
        kept = (f"{inner.name}{BEFORE}", f"{inner.name}{FRESH}", OF_FILE_SYSTEM)
        old = [path for path in self.target.iterdir() if not path.name.startswith(kept)]
        if old:
            before = find_free_place(inner)
            before.mkdir(mode=0o700)
            for path in old:
                self.move(path, before / path.name)
        for path in list(self.fresh.iterdir()):
            self.move(path, self.target / path.name)
        self.fresh.rmdir()

    def move(self, source: Path, target: Path) -> None:
        source.rename(target)
        self.moved.append((source, target))

    def undo(self) -> None:
        """Undo the renames, the last one first. Raises OSError."""
        while self.moved:
            source, target = self.moved[-1]
            if self.is_mounted:
                source.parent.mkdir(mode=0o700, exist_ok=True)
            target.rename(source)
            self.moved.pop()
            if self.is_mounted and not any(target.parent.iterdir()):
                target.parent.rmdir()

    def discard(self) -> None:
        """Delete the prepared content that is not in place."""
        delete_path(self.fresh)


@dataclass(slots=True)
class WrittenObjects:
    """The number of objects that were written to a bucket, which stay there."""

    count: int = 0

    def add(self) -> None:
        """Count one more object."""
        self.count += 1


def prepare_replacement(path: Path, *, endings: Sequence[str] = ()) -> Replacement:
    """Return the replacement of a file or folder, which may be absent.

    Deletes the data that an interrupted restore prepared. Raises OperationRefused for a file that
    is a mount point, and OSError.
    """
    target = path.resolve()
    is_mounted = is_mount_point(target)
    if is_mounted and not target.is_dir():
        raise OperationRefused(
            "restore_failed",
            f"{target} is a mount point, so it cannot be replaced. Mount its folder instead."
            " Nothing was replaced.",
        )
    place = target / target.name if is_mounted else target
    fresh = place.with_name(f"{place.name}{FRESH}")
    delete_path(fresh)
    return Replacement(target, fresh, endings=endings, is_mounted=is_mounted)


def is_mount_point(path: Path) -> bool:
    """Return True if a file system or a folder is mounted at a path, which cannot be renamed."""
    if path.is_dir() and os.path.ismount(path):
        return True
    # `ismount` does not notice a bind mount of the same file system.
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    return str(path) in {
        OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split(" ")[4]) for line in lines
    }


@contextmanager
def put_back_on_error(replacements: list[Replacement]) -> Iterator[WrittenObjects]:
    """Undo the replacements if the block fails, and delete the prepared content.

    Yields the count of the objects that the block writes. An OSError becomes OperationRefused,
    which names the replaced data; after written objects, any other error too.
    """
    objects = WrittenObjects()
    try:
        yield objects
    except BaseException as error:
        left = [each for each in reversed(replacements) if not undo_replacement(each)]
        for each in replacements:
            each.discard()
        is_told = isinstance(error, OSError) or (objects.count and isinstance(error, Exception))
        if not left and not is_told:
            raise
        code = error.code if isinstance(error, OperationRefused) and not left else "restore_failed"
        raise OperationRefused(
            code, f"{describe_error(error)}. {describe_left(left, objects=objects.count)}"
        ) from error


def undo_replacement(replacement: Replacement) -> bool:
    """Undo a replacement. Return False if a rename fails."""
    try:
        replacement.undo()
    except OSError:
        return False
    return True


def describe_error(error: BaseException) -> str:
    """Return an error with its path in a few words, without a period."""
    if isinstance(error, OperationRefused):
        return error.sentence.rstrip(".")
    if not isinstance(error, OSError) or not error.strerror:
        return str(error).rstrip(".") or type(error).__name__
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror}"


def describe_left(left: Sequence[Replacement], *, objects: int = 0) -> str:
    """Return sentences about written objects and the replacements that could not be undone."""
    kept = (
        f"Objects written to the file storage, which stay there: {objects:,}. " if objects else ""
    )
    if not left:
        what = "Nothing else" if objects else "Nothing"
        return f"{kept}{what} was replaced. Remove the cause, then repeat the restore."
    moves = [f"{source} is now {target}" for each in left for source, target in each.moved]
    return (
        f"{kept}These could not be put back: {'; '.join(moves)}. Move them back, or repeat the"
        " restore."
    )


def find_free_place(path: Path) -> Path:
    """Return a free path next to a file or folder that a restore replaces.

    Data that an earlier, incomplete restore replaced may still be there, and it is kept.
    """
    number, before = 1, path.with_name(f"{path.name}{BEFORE}")
    taken = {each.name for each in path.parent.iterdir()}
    while any(name.startswith(before.name) for name in taken):
        number += 1
        before = path.with_name(f"{path.name}{BEFORE}.{number}")
    return before


def list_replaced(path: Path) -> list[Path]:
    """Return the files or folders that restores replaced at this path."""
    return list_beginning(path, BEFORE)


def list_unfinished(path: Path) -> list[Path]:
    """Return the content that an interrupted restore prepared for this path."""
    return list_beginning(path, FRESH)


def list_beginning(path: Path, ending: str) -> list[Path]:
    target = path.resolve()
    places = [target, target / target.name]
    return [
        each
        for place in places
        for each in (place.parent.iterdir() if place.parent.is_dir() else ())
        if each.name.startswith(f"{place.name}{ending}")
    ]


def delete_path(path: Path) -> None:
    """Delete a file or a folder if it exists. Ignores errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
