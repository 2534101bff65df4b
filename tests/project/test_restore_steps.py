"""A restore replaces the database, the files and the keys together, or nothing."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.db import DatabaseError
from pytest_django import Settings

from project.operations import archive, file_members, replacing, restore
from project.operations.archive import ArchiveReader
from project.operations.refused import OperationRefused
from project.operations.replacing import Replacement, prepare_replacement

MEMBERS = {archive.SQLITE_MEMBER: "", "files/ab/one": "", archive.CHECKPOINT_MEMBER: ""}


class SmallReader:
    """A backup with an SQLite file, one stored file and a checkpoint."""

    manifest = SimpleNamespace(members=MEMBERS, has_files=True, vendor="sqlite")

    def list_members(self, folder: str) -> list[str]:
        return [name for name in MEMBERS if name.startswith(folder)]

    def extract_member(self, name: str, path: Path) -> None:
        if name != archive.SQLITE_MEMBER:
            path.write_bytes(b"new")
            return
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE restored (x)")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Path:
    """A data folder with a database, a stored file and a key."""
    data = tmp_path / "data"
    (data / "files" / "cd").mkdir(parents=True)
    (data / "files" / "cd" / "old").write_bytes(b"old")
    (data / "p.sqlite3").write_bytes(b"old")
    (data / "p.sqlite3-wal").write_bytes(b"old")
    (data / "secret_key").write_text("old", encoding="ascii")
    closed = SimpleNamespace(close=lambda: None, vendor="sqlite")
    monkeypatch.setattr(restore, "connection", closed)
    monkeypatch.setattr(restore, "get_sqlite_path", lambda: data / "p.sqlite3")
    monkeypatch.setattr(file_members, "get_files_folder", lambda: data / "files")
    monkeypatch.setattr(file_members, "is_on_disk", lambda: True)
    settings.DATA_DIR = data
    settings.LEDGER_CHECKPOINT_FILE = str(data / "checkpoint")
    return data


def run_restore() -> None:
    restore.replace_content(cast(ArchiveReader, SmallReader()), {"secret_key": "new"})


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the content of every file by its path."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def assert_restored(data: Path) -> None:
    assert (data / "files" / "ab" / "one").read_bytes() == b"new"
    assert not (data / "files" / "cd").exists()
    assert (data / "secret_key").read_text() == "new\n"
    assert (data / "checkpoint").read_bytes() == b"new"
    assert (data / "p.sqlite3").read_bytes().startswith(b"SQLite format 3")
    assert not (data / "p.sqlite3-wal").exists()
    assert not [name for name in read_folder(data) if replacing.FRESH in name]


def test_everything_is_replaced(data: Path) -> None:
    run_restore()
    assert_restored(data)
    restore.drop_replaced()
    assert not [name for name in read_folder(data) if name.startswith(("p.sqlite3.", "files."))]


def test_a_folder_that_is_a_link_keeps_its_place(data: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (data / "files").rename(disk)
    (data / "files").symlink_to(disk)
    run_restore()
    assert_restored(data)
    assert (data / "files").is_symlink()
    assert (disk / "ab" / "one").exists()
    assert len(replacing.list_replaced(data / "files")) == 1
    restore.drop_replaced()
    assert {path.name for path in tmp_path.iterdir()} == {"data", "disk"}


@pytest.fixture
def mounted(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of stored files as a mount point, which cannot be renamed."""
    mounts, files = data.parent / "mounts", data / "files"
    mounts.write_text(f"36 35 98:0 /mnt {str(files).replace(' ', chr(92) + '040')} rw - ext4 x\n")
    monkeypatch.setattr(replacing, "MOUNTS", mounts)
    (files / replacing.OF_FILE_SYSTEM).mkdir()
    original = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if files in (self, target):
            raise OSError(16, "Device or resource busy", str(self))
        return original(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    return files


def test_the_entries_of_a_mount_point_are_replaced(data: Path, mounted: Path) -> None:
    run_restore()
    assert_restored(data)
    assert (mounted / replacing.OF_FILE_SYSTEM).exists()
    (before,) = replacing.list_replaced(mounted)
    assert read_folder(before) == {"cd/old": b"old"}
    restore.drop_replaced()
    assert {path.name for path in mounted.iterdir()} == {"ab", replacing.OF_FILE_SYSTEM}


def fail_at_rename(number: int) -> Callable[..., Any]:
    """Return a `Path.rename` whose call with this number fails."""
    original, calls = Path.rename, iter(range(1000))

    def rename(self: Path, target: Path) -> Path:
        if next(calls) == number:
            raise OSError(28, "No space left on device", str(self))
        return original(self, target)

    return rename


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("on_mount", [False, True])
def test_a_failed_rename_puts_everything_back(
    number: int, on_mount: bool, data: Path, request: pytest.FixtureRequest
) -> None:
    if on_mount:
        request.getfixturevalue("mounted")
    before = read_folder(data)
    monkeypatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setattr(Path, "rename", fail_at_rename(number))
    with pytest.raises(OperationRefused, match=r"No space left.*Nothing was replaced") as caught:
        run_restore()
    assert caught.value.code == "restore_failed"
    assert read_folder(data) == before


@pytest.mark.parametrize("step", ["prepare_sqlite", "prepare_stored_files", "prepare_key"])
def test_a_failed_preparation_changes_nothing(
    step: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_folder(data)
    prepare = getattr(restore, step)

    def fail(*given: Any) -> Replacement:
        prepared = prepare(*given)
        prepared.discard()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restore, step, fail)
    with pytest.raises(OperationRefused, match="Nothing was replaced"):
        run_restore()
    assert read_folder(data) == before


@pytest.mark.parametrize("fault", ["disk", "storage", "database"])
def test_a_failed_restore_names_the_number_of_written_objects(
    fault: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_folder(data)

    def write_two(_reader: Any, *, count: Callable[[], None]) -> int:
        count()
        count()
        if fault == "storage":
            raise OperationRefused("storage_failed", "The file storage failed.")
        return 2

    def fail(_reader: Any) -> Any:
        raise DatabaseError("a row is locked")

    monkeypatch.setattr(file_members, "is_on_disk", lambda: False)
    monkeypatch.setattr(file_members, "restore_objects", write_two)
    if fault == "disk":
        monkeypatch.setattr(Path, "rename", fail_at_rename(0))
    elif fault == "database":
        monkeypatch.setattr(restore, "restored_tables", fail)
    told = r"which stay there: 2\. Nothing else was replaced"
    with pytest.raises(OperationRefused, match=told) as caught:
        run_restore()
    assert caught.value.code == ("storage_failed" if fault == "storage" else "restore_failed")
    assert read_folder(data) == before


def test_a_disk_that_fills_during_the_extraction_is_left_clean(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_folder(data)

    def fail(_self: object, name: str, path: Path) -> None:
        path.write_bytes(b"a part")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(SmallReader, "extract_member", fail)
    with pytest.raises(OperationRefused, match="No space left"):
        run_restore()
    assert read_folder(data) == before


def test_what_cannot_be_put_back_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if data / "files" in (self, target) or replacing.BEFORE in self.name:
            raise OSError(5, "Input/output error", str(self))
        return original(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OperationRefused) as caught:
        run_restore()
    old, moved = data / "p.sqlite3", data / f"p.sqlite3{replacing.BEFORE}"
    assert f"{old} is now {moved}" in caught.value.sentence


def test_a_mounted_file_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "is_mount_point", lambda path: path.name == "p.sqlite3")
    before = read_folder(data)
    with pytest.raises(OperationRefused, match="is a mount point"):
        run_restore()
    assert read_folder(data) == before


def test_a_real_mount_is_found() -> None:
    assert replacing.is_mount_point(Path("/proc"))
    assert not replacing.is_mount_point(Path(__file__))
    assert os.path.ismount("/proc")
    assert prepare_replacement(Path(__file__)).is_mounted is False
