"""A backup contains the stored files of the data folder and of a bucket, and a restore them too."""

import io
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from chats.files import storage, uploads
from chats.models import StoredFile
from project.operations import file_members
from project.operations.archive import ArchiveReader, ArchiveWriter, Manifest
from project.operations.file_members import FileReport
from project.operations.refused import OperationRefused
from tests.chats.files.sample_files import make_png
from tests.support.file_uploads import read_like_a_worker
from tests.support.s3_bucket import Bucket

TEXT = b"The lighthouse is in Kiel. " * 100_000


@pytest.fixture(params=["folder", "bucket"])
def place(request: Any) -> Any:
    """The bucket, or the folder of the tests."""
    return request.getfixturevalue("bucket") if request.param == "bucket" else None


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def stored(
    request: Any, place: Any, alice: User, now: datetime, settings: Settings
) -> list[StoredFile]:
    """A text and an image with its copy."""
    del place
    settings.FILE_ENCRYPTION = request.param
    rows = []
    for data, name in ((TEXT, "a.txt"), (make_png(), "a.png")):
        row, _ = uploads.accept_upload(io.BytesIO(data), name=name, owner=alice, now=now)
        read_like_a_worker(str(row.pk))
        rows.append(StoredFile.objects.get(pk=row.pk))
    return rows


def write_archive(path: Path) -> FileReport:
    """Write the stored files to a backup without a database."""
    manifest = Manifest("1", "", "sqlite", [], "")
    with path.open("wb") as file, ArchiveWriter(file, manifest) as writer:
        return file_members.dump_files(writer)


def test_each_stored_object_is_in_the_backup(stored: list[StoredFile], tmp_path: Path) -> None:
    text, image = stored
    assert write_archive(tmp_path / "backup.zip") == FileReport()
    with zipfile.ZipFile(tmp_path / "backup.zip") as written:
        names = {name for name in written.namelist() if name.startswith("files/")}
        assert names == {f"files/{path}" for path in (text.path, image.path, image.copy_path)}
        assert (written.read(f"files/{text.path}") == TEXT) is not bool(text.sealed_key)
    ArchiveReader(tmp_path / "backup.zip").verify_members()


def test_missing_and_damaged_files_are_named(stored: list[StoredFile], tmp_path: Path) -> None:
    text, image = stored
    kept = storage.get_file_storage()
    kept.delete(image.copy_path)
    with kept.open(text.path) as file:
        data = file.read()
    kept.delete(text.path)
    kept.save(text.path, io.BytesIO(data[:-1] + b"!"))
    report = write_archive(tmp_path / "backup.zip")
    assert report == FileReport([f"{image.pk} (copy of the image)"], [str(text.pk)])
    assert str(text.pk) in report.describe()
    # The damaged one is there, unchanged.
    with zipfile.ZipFile(tmp_path / "backup.zip") as written:
        assert written.read(f"files/{text.path}") == data[:-1] + b"!"


def test_a_file_that_is_deleted_during_the_backup_is_not_missing(
    stored: list[StoredFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = file_members.open_member_source

    def delete_meanwhile(one: Any, **more: Any) -> Any:
        StoredFile.objects.filter(pk=stored[1].pk).delete()
        storage.get_file_storage().delete(stored[1].path)
        storage.get_file_storage().delete(stored[1].copy_path)
        return real(one, **more)

    monkeypatch.setattr(file_members, "open_member_source", delete_meanwhile)
    assert write_archive(tmp_path / "backup.zip") == FileReport()


def test_a_restore_writes_missing_and_changed_objects_and_no_others(
    bucket: type[Bucket], stored: list[StoredFile], tmp_path: Path
) -> None:
    write_archive(tmp_path / "backup.zip")
    before = dict(bucket.objects)
    lost, changed, other = (
        f"/chat-files/one/{path}"
        for path in (stored[0].path, stored[1].path, "of/another/application")
    )
    del bucket.objects[lost]
    bucket.objects |= {changed: b"changed", other: b"other"}
    reader = ArchiveReader(tmp_path / "backup.zip")
    counted: list[None] = []
    assert file_members.restore_objects(reader, count=lambda: counted.append(None)) == 2
    assert len(counted) == 2
    assert bucket.objects == {**before, other: b"other"}
    assert file_members.restore_objects(reader) == 0
    assert file_members.list_missing_files(reader) == []


@pytest.mark.parametrize("method", ["do_GET", "do_HEAD"])
def test_a_bucket_that_refuses_stops_the_backup(
    method: str,
    bucket: type[Bucket],
    stored: list[StoredFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del stored

    def refuse(self: Bucket) -> None:
        self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    monkeypatch.setattr(bucket, method, refuse)
    with pytest.raises(OperationRefused) as refusal:
        write_archive(tmp_path / "backup.zip")
    assert refusal.value.code == "storage_failed"


@pytest.mark.parametrize("fault", ["refused", "cut"])
def test_a_bucket_that_stores_nothing_or_less_stops_the_restore(
    fault: str,
    bucket: type[Bucket],
    stored: list[StoredFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del stored
    write_archive(tmp_path / "backup.zip")
    bucket.objects.clear()
    real = bucket.read_body

    def refuse(self: Bucket) -> None:
        real(self)
        self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    if fault == "refused":
        monkeypatch.setattr(bucket, "do_PUT", refuse)
        monkeypatch.setattr(bucket, "do_POST", refuse)
    else:
        monkeypatch.setattr(bucket, "read_body", lambda self: real(self)[:-1])
    with pytest.raises(OperationRefused) as refusal:
        file_members.restore_objects(ArchiveReader(tmp_path / "backup.zip"))
    assert refusal.value.code == "storage_failed"
    assert not bucket.objects


def test_a_failed_restore_puts_the_replaced_object_back(
    bucket: type[Bucket],
    stored: list[StoredFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_archive(tmp_path / "backup.zip")
    before = dict(bucket.objects)
    changed = f"/chat-files/one/{stored[1].path}"
    bucket.objects[changed] = b"changed"
    real = bucket.do_PUT
    refused: list[str] = []

    def refuse_first(self: Bucket) -> None:
        if refused:
            real(self)
        else:
            refused.append(self.path)
            self.read_body()
            self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    monkeypatch.setattr(bucket, "do_PUT", refuse_first)
    with pytest.raises(OperationRefused):
        file_members.restore_objects(ArchiveReader(tmp_path / "backup.zip"))
    assert bucket.objects == {**before, changed: b"changed"}
