"""The file format of a backup: a ZIP file with a manifest that lists every other member.

The manifest is written last, so a backup that was cut off has none. It contains the SHA-256 of each
member, the applied migrations, and a token by which the encryption key is recognised.
"""

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from project.operations.refused import OperationRefused

MANIFEST = "manifest.json"
PRODUCT = "palimpsest"
# Increase this number if an older version could misread the file.
FORMAT = 1
CHUNK = 1024 * 1024
# A manifest has about 100 bytes per member.
MANIFEST_BYTES = 256 * 1024 * 1024
# A fast level: higher ones spend most of the time on the last per cent of the size.
LEVEL = 3
SQLITE_MEMBER = "database/palimpsest.sqlite3"
TABLE_FOLDER = "database/tables/"
FILES_FOLDER = "files/"
CHECKPOINT_MEMBER = "ledger_checkpoint"
NOT_A_BACKUP = (
    "The file is not a complete backup of Palimpsest: {why}. Use another backup, or copy this one"
    " again from where it was written."
)


@dataclass(slots=True)
class TableFacts:
    """A table in the backup: its columns in the order of the member, and the number of rows."""

    columns: list[str]
    rows: int


@dataclass(slots=True)
class Manifest:
    """The contents of a backup. `members` maps each name to its SHA-256 in hex."""

    version: str
    created_at: str
    vendor: str
    # Names such as `chats.0001_start`, of all apps.
    migrations: list[str]
    key_check: str
    members: dict[str, str] = field(default_factory=dict)
    tables: dict[str, TableFacts] = field(default_factory=dict)
    # {sequence: next value}
    sequences: dict[str, int] = field(default_factory=dict)
    # False: the backup contains the database alone.
    has_files: bool = True


class ArchiveWriter:
    """Writes the members of a backup, then its manifest.

    As a context manager, it is closed at the end of the block. After an error the file is left
    without a manifest, so it is not a complete backup.
    """

    def __init__(self, target: IO[bytes], manifest: Manifest) -> None:
        self.zip = zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)
        self.manifest = manifest

    @contextmanager
    def open_member(self, name: str) -> Iterator["HashingWriter"]:
        """Open a member for writing; its hash is stored when the block ends."""
        with self.zip.open(name, "w", force_zip64=True) as stream:
            writer = HashingWriter(stream)
            yield writer
        self.manifest.members[name] = writer.hash.hexdigest()

    def __enter__(self) -> "ArchiveWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
            return
        # The error of the block matters, not that of a target that is closed or full.
        with suppress(OSError, ValueError):
            self.zip.close()

    def close(self) -> None:
        """Write the manifest and the directory of the ZIP file."""
        content = {"product": PRODUCT, "format": FORMAT, **asdict(self.manifest)}
        self.zip.writestr(MANIFEST, json.dumps(content, indent=1))
        self.zip.close()


class HashingWriter:
    """A binary stream that computes the SHA-256 of the bytes it passes on."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.hash = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Write and hash the data; return its length."""
        self.hash.update(data)
        return self.stream.write(data)


class ArchiveReader:
    """A backup whose manifest was read. Close it after use.

    Opening raises OperationRefused if the file is missing or is not a complete backup.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise OperationRefused("backup_missing", f"There is no file {path}.") from None
        except (zipfile.BadZipFile, OSError) as error:
            raise refuse_archive(describe_zip_error(error)) from None
        self.manifest = self.read_manifest()

    def read_manifest(self) -> Manifest:
        """Return the manifest. Raises OperationRefused if it is missing or unusable."""
        try:
            if self.zip.getinfo(MANIFEST).file_size > MANIFEST_BYTES:
                raise refuse_archive("its manifest is too large")
            content = json.loads(self.zip.read(MANIFEST))
        except KeyError:
            raise refuse_archive("it has no manifest") from None
        except (ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise refuse_archive(f"its manifest cannot be read ({type(error).__name__})") from None
        return parse_manifest(content)

    def verify_members(self) -> None:
        """Read every member and compare its hash. Raises OperationRefused for any difference."""
        wanted = self.manifest.members
        found = set(self.zip.namelist()) - {MANIFEST}
        if found != set(wanted) or len(self.zip.namelist()) != len(found) + 1:
            raise refuse_archive("its members are not those of the manifest")
        for name, expected in wanted.items():
            check_member_name(name)
            digest = hashlib.sha256()
            try:
                with self.zip.open(name) as stream:
                    while block := stream.read(CHUNK):
                        digest.update(block)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
                raise refuse_archive(f"{name} is damaged ({describe_zip_error(error)})") from None
            if digest.hexdigest() != expected:
                raise refuse_archive(f"{name} has been changed")

    def extract_member(self, name: str, target: Path) -> None:
        """Write a member to a new file, mode 0600."""
        target.touch(mode=0o600)
        with self.zip.open(name) as stream, target.open("wb") as file:
            shutil.copyfileobj(stream, file, CHUNK)

    def list_members(self, folder: str) -> list[str]:
        return [name for name in self.manifest.members if name.startswith(folder)]

    def close(self) -> None:
        self.zip.close()


def parse_manifest(content: Any) -> Manifest:
    """Return the manifest from decoded JSON. Raises OperationRefused if it is unusable."""
    if not isinstance(content, dict) or content.get("product") != PRODUCT:
        raise refuse_archive("it belongs to another product")
    if content.get("format") != FORMAT:
        raise OperationRefused(
            "backup_newer",
            f"Palimpsest {content.get('version')} wrote this backup in a newer format. Restore it"
            " with that version.",
        )
    try:
        tables = {
            str(name): TableFacts([str(one) for one in facts["columns"]], int(facts["rows"]))
            for name, facts in content["tables"].items()
        }
        return Manifest(
            version=str(content["version"]),
            created_at=str(content["created_at"]),
            vendor=str(content["vendor"]),
            migrations=[str(name) for name in content["migrations"]],
            key_check=str(content["key_check"]),
            members={str(name): str(digest) for name, digest in content["members"].items()},
            tables=tables,
            sequences={str(name): int(value) for name, value in content["sequences"].items()},
            # Backups of earlier versions lack this field and contain the stored files.
            has_files=bool(content.get("has_files", True)),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise refuse_archive("its manifest lacks a field") from None


def check_member_name(name: str) -> None:
    """Raise OperationRefused for a name that would be written outside the data folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or name.endswith("/"):
        raise refuse_archive(f"the name {name!r} is not allowed")


def refuse_archive(why: str) -> OperationRefused:
    """Return the error for a file that cannot be restored."""
    return OperationRefused("not_a_backup", NOT_A_BACKUP.format(why=why))


def describe_zip_error(error: Exception) -> str:
    """Return the reason for a ZIP error in a few words."""
    return (str(error) or type(error).__name__).rstrip(".")
