"""A restore refuses other files, damaged backups and those of newer versions."""

import io
import json
import sqlite3
import zipfile
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from pytest_django import Settings

from chats.ground.secrets import encrypt
from project.operations import archive, backup, file_members, replacing, restore
from project.operations.archive import ArchiveReader, ArchiveWriter, Manifest
from project.operations.refused import OperationRefused
from project.operations.restore import RestoreOptions

pytestmark = pytest.mark.django_db
DATABASE = archive.SQLITE_MEMBER


def build_archive(path: Path, **changed: Any) -> Path:
    """A small backup with the given facts in its manifest."""
    facts: dict[str, Any] = {
        "version": "0.9.0",
        "created_at": "2026-11-20T12:00:00+00:00",
        "vendor": connection.vendor,
        "migrations": ["chats.0001_start"],
        "key_check": encrypt(backup.KEY_CHECK),
    }
    with path.open("wb") as file:
        writer = ArchiveWriter(file, Manifest(**{**facts, **changed}))
        with writer.open_member(DATABASE) as member:
            member.write(b"database " * 1000)
        writer.close()
    return path


def rewrite(path: Path, change: Any, **members: bytes) -> Path:
    """Write the archive again with another manifest and other members."""
    with zipfile.ZipFile(path) as old:
        found = {name: old.read(name) for name in old.namelist()}
    manifest = json.loads(found.pop(archive.MANIFEST))
    change(manifest)
    with zipfile.ZipFile(path, "w") as new:
        for name, content in {**found, **members}.items():
            new.writestr(name, content)
        new.writestr(archive.MANIFEST, json.dumps(manifest))
    return path


def refused(path: Path, **options: Any) -> str:
    """The code with which a restore of the file is refused."""
    with pytest.raises(OperationRefused) as refusal:
        restore.check_restore(ArchiveReader(path), None, RestoreOptions(**options))
    assert refusal.value.sentence.endswith(".")
    return refusal.value.code


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process uses the database, and it has no data."""
    monkeypatch.setattr("project.operations.running.list_running_processes", list)
    monkeypatch.setattr(restore, "has_data", lambda: False)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A backup of this database and this version."""
    return build_archive(tmp_path / "backup.zip")


def test_a_complete_backup_is_accepted(whole: Path) -> None:
    assert restore.check_restore(ArchiveReader(whole), None, RestoreOptions()) == {}


def test_a_missing_file_and_another_file_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.zip") == "backup_missing"
    other = tmp_path / "other.zip"
    other.write_bytes(b"PK\x03\x04 nothing")
    assert refused(other) == "not_a_backup"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("letters.txt", "a")
    assert refused(other) == "not_a_backup"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr(archive.MANIFEST, json.dumps({"product": "another"}))
    assert refused(other) == "not_a_backup"


@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
def test_a_backup_that_was_cut_off_is_refused(whole: Path, share: float) -> None:
    content = whole.read_bytes()
    whole.write_bytes(content[: int(len(content) * share)])
    assert refused(whole) == "not_a_backup"


def test_a_changed_member_is_refused(whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    content[content.index(DATABASE.encode()) + len(DATABASE) + 25] ^= 1
    whole.write_bytes(bytes(content))
    assert refused(whole) == "not_a_backup"


def test_another_content_with_a_correct_checksum_of_the_zip_is_refused(whole: Path) -> None:
    assert refused(rewrite(whole, lambda _: None, **{DATABASE: b"other"})) == "not_a_backup"


def test_an_unnamed_member_and_one_outside_the_folder_are_refused(whole: Path) -> None:
    assert refused(rewrite(whole, lambda _: None, **{"files/x": b""})) == "not_a_backup"

    def name_both(manifest: dict[str, Any]) -> None:
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        manifest["members"] |= {"files/x": empty, "files/../../x": empty}

    assert refused(rewrite(whole, name_both, **{"files/../../x": b""})) == "not_a_backup"


@pytest.mark.parametrize("name", ["members", "tables", "migrations", "sequences", "vendor"])
def test_an_incomplete_manifest_is_refused(whole: Path, name: str) -> None:
    assert refused(rewrite(whole, lambda manifest: manifest.pop(name))) == "not_a_backup"


def test_a_backup_of_a_version_without_the_field_for_files_is_accepted(whole: Path) -> None:
    reader = ArchiveReader(rewrite(whole, lambda manifest: manifest.pop("has_files")))
    assert restore.check_restore(reader, None, RestoreOptions()) == {}
    assert reader.manifest.has_files


def test_a_newer_version_is_refused_by_an_older_one(tmp_path: Path, whole: Path) -> None:
    newer = build_archive(tmp_path / "newer.zip", migrations=["chats.9999_later"])
    assert refused(newer) == "backup_newer"
    assert refused(rewrite(whole, lambda manifest: manifest.update(format=2))) == "backup_newer"


def test_a_backup_of_another_database_is_refused(tmp_path: Path) -> None:
    other = {"sqlite": "postgresql", "postgresql": "sqlite"}[connection.vendor]
    assert refused(build_archive(tmp_path / "other.zip", vendor=other)) == "other_database"


def test_data_is_erased_only_if_told(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "has_data", lambda: True)
    assert refused(whole) == "not_empty"
    restore.check_restore(ArchiveReader(whole), None, RestoreOptions(replace=True))


def test_a_running_product_is_not_touched(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("project.operations.running.list_running_processes", lambda: ["worker a"])
    assert refused(whole, replace=True) == "still_running"


def test_the_encryption_key_must_fit(whole: Path, settings: Settings, tmp_path: Path) -> None:
    key = settings.ENCRYPTION_KEYS[0]
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    assert refused(whole) == "other_keys"
    restore.check_restore(ArchiveReader(whole), None, RestoreOptions(without_keys=True))
    keys = tmp_path / "keys"
    keys.write_text(json.dumps({"encryption_key": key}))
    found = restore.check_restore(ArchiveReader(whole), keys, RestoreOptions())
    assert found == {"encryption_key": key}
    keys.write_text("{")
    with pytest.raises(OperationRefused, match="keys_unreadable"):
        restore.check_restore(ArchiveReader(whole), keys, RestoreOptions())


def test_an_existing_file_is_not_overwritten(tmp_path: Path, now: datetime) -> None:
    place = tmp_path / "backup.zip"
    place.write_bytes(b"older")
    with pytest.raises(OperationRefused, match="file_exists"):
        backup.write_backup_file(place, now=now)
    assert place.read_bytes() == b"older"


def test_an_interrupted_backup_leaves_no_file(
    tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "write_backup", fail)
    with pytest.raises(OSError, match="No space"):
        backup.write_backup_file(tmp_path, now=now)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_cannot_seek_is_enough() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    target = Pipe()
    writer = ArchiveWriter(target, Manifest("1", "", "sqlite", [], ""))
    with writer.open_member("files/a") as member:
        member.write(b"a" * 100)
    writer.close()
    assert zipfile.ZipFile(io.BytesIO(target.getvalue())).read("files/a") == b"a" * 100


@pytest.mark.parametrize("name", ["plain", "a#b", "a%41", "a?mode=rw", "é ü"])
def test_a_database_in_any_folder_is_copied(
    name: str, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, now: datetime
) -> None:
    path = tmp_path / name / "chats.sqlite3"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE kept (name text)")
        database.commit()
    monkeypatch.setitem(settings.DATABASES["default"], "NAME", str(path))
    monkeypatch.setattr(backup, "connection", SimpleNamespace(close=lambda: None))
    manifest = Manifest("0", now.isoformat(), "sqlite", [], "")
    writer = ArchiveWriter(held := io.BytesIO(), manifest)
    backup.dump_sqlite(writer, place=tmp_path)
    writer.close()
    with zipfile.ZipFile(held) as written:
        assert b"kept" in written.read(DATABASE)


class SQLiteReader:
    """A backup with an SQLite file."""

    def extract_member(self, _name: str, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE restored (x)")


def test_a_repeated_restore_keeps_the_data_that_the_first_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key, files = (tmp_path / name for name in ("p.sqlite3", "secret_key", "files"))
    path.write_bytes(b"original")
    key.write_text("original", encoding="ascii")
    closed = SimpleNamespace(close=lambda: None, vendor="sqlite")
    monkeypatch.setattr(restore, "connection", closed)
    monkeypatch.setattr(restore, "get_sqlite_path", lambda: path)
    monkeypatch.setattr(file_members, "get_files_folder", lambda: files)
    monkeypatch.setattr(restore, "settings", SimpleNamespace(DATA_DIR=tmp_path))
    for number in range(3):
        restore.prepare_sqlite(cast(ArchiveReader, SQLiteReader())).put()
        prepared = restore.prepare_key("secret_key", f"key {number}")
        assert prepared is not None
        prepared.put()
    assert (tmp_path / f"p.sqlite3{replacing.BEFORE}").read_bytes() == b"original"
    assert (tmp_path / f"secret_key{replacing.BEFORE}").read_text() == "original"
    assert len(replacing.list_replaced(path)) == 3
    restore.drop_replaced()
    assert replacing.list_replaced(path) == []
    assert path.exists()
    assert len(replacing.list_replaced(key)) == 3
