"""`manage.py move_files` moves files from the data folder into a bucket, and loses none."""

import io
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import FileSystemStorage
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from chats.files import moving, storage, uploads
from chats.files.attach import load_image
from chats.models import StoredFile
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.file_uploads import read_like_a_worker
from tests.support.s3_bucket import Bucket
from tests.support.streamed_responses import read_stream

pytestmark = pytest.mark.usefixtures("bucket")

TEXT = b"The lighthouse is in Kiel. " * 5_000


@pytest.fixture
def folder(tmp_path: Path, bucket: type[Bucket]) -> Path:
    """The folder in which files were stored before the bucket."""
    del bucket
    found = tmp_path / "files"
    found.mkdir()
    return found


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def earlier(
    request: Any, folder: Path, alice: User, now: datetime, settings: Settings
) -> list[StoredFile]:
    """A text and an image with its copy, stored in the folder."""
    settings.FILE_ENCRYPTION = request.param
    to_bucket = settings.STORAGES
    settings.STORAGES = {
        **to_bucket,
        "files": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": folder},
        },
    }
    rows = []
    for data, name in ((TEXT, "a.txt"), (make_png(), "a.png")):
        row, _ = uploads.accept_upload(io.BytesIO(data), name=name, owner=alice, now=now)
        read_like_a_worker(str(row.pk))
        rows.append(StoredFile.objects.get(pk=row.pk))
    settings.STORAGES = to_bucket
    assert len(list_files(folder)) == 3
    return rows


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def move(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command and return its output."""

    def moving_files(**options: Any) -> str:
        call_command("move_files", folder=folder, **options)
        return str(capsys.readouterr().out)

    return moving_files


def test_files_are_in_the_bucket_afterwards_and_not_in_the_folder(
    earlier: list[StoredFile],
    folder: Path,
    bucket: type[Bucket],
    of_alice: Program,
    move: Callable[..., str],
) -> None:
    text, image = earlier
    assert of_alice.get(f"files/{text.pk}/content").status_code == 404
    before = {path.name: path.read_bytes() for path in list_files(folder)}
    output = move()
    assert f"Moved: 3 files, {sum(map(len, before.values()))} bytes." in output
    assert not list_files(folder)
    # The stored bytes do not change, so the keys of encrypted files still fit.
    assert {key.rpartition("/")[2]: data for key, data in bucket.objects.items()} == before
    assert read_stream(of_alice.get(f"files/{text.pk}/content")) == TEXT
    assert b"".join(storage.iter_file_bytes(image)) == make_png()
    assert load_image(image) is not None
    assert "Already in the storage: 3." in move()


def test_a_dry_run_changes_nothing(
    earlier: list[StoredFile], folder: Path, bucket: type[Bucket], move: Callable[..., str]
) -> None:
    (folder / "ab").mkdir(exist_ok=True)
    (folder / "ab" / "deleted").write_bytes(b"x")
    output = move(dry_run=True)
    assert "To move: 3 files" in output
    assert "Left in the folder: 1 files" in output
    assert len(list_files(folder)) == 4
    assert not bucket.objects


@pytest.mark.parametrize("begun", [b"", b"a part of it", TEXT])
def test_an_interrupted_move_continues(
    begun: bytes,
    earlier: list[StoredFile],
    folder: Path,
    bucket: type[Bucket],
    move: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def fail(self: FileSystemStorage, name: str) -> None:
        calls.append(name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        Path(self.path(name)).unlink()

    with monkeypatch.context() as broken:
        broken.setattr(FileSystemStorage, "delete", fail)
        with pytest.raises(KeyboardInterrupt):
            move()
    # Two are in the bucket, and the second of them is in the folder too.
    assert (len(bucket.objects), len(list_files(folder))) == (2, 2)
    if begun != TEXT:
        bucket.objects[f"/chat-files/one/{calls[1]}"] = begun
    output = move()
    assert "Moved: 2 files" in output
    assert "Already in the storage: 1." in output
    assert not list_files(folder)
    assert len(bucket.objects) == 3
    assert b"".join(storage.iter_file_bytes(earlier[0])) == TEXT


def test_a_file_whose_content_changed_stays_and_is_named(
    earlier: list[StoredFile], folder: Path, bucket: type[Bucket], move: Callable[..., str]
) -> None:
    path = folder / earlier[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    (folder / earlier[1].path).unlink()
    with pytest.raises(CommandError):
        move()
    assert list_files(folder) == [path]
    assert len(bucket.objects) == 1
    report = moving.move_stored_files(folder, is_dry_run=False)
    assert report.damaged == [str(earlier[0].pk)]
    assert report.missing == [str(earlier[1].pk)]
    assert (report.moved, report.already_there) == (0, 1)


def test_a_copy_that_differs_is_not_trusted(
    earlier: list[StoredFile],
    folder: Path,
    bucket: type[Bucket],
    move: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(self: Bucket) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))[:-1]

    monkeypatch.setattr(Bucket, "read_body", lose)
    with pytest.raises(CommandError):
        move()
    assert len(list_files(folder)) == 3
    assert not bucket.objects


def test_a_file_that_is_deleted_during_its_copy_leaves_nothing(
    earlier: list[StoredFile],
    folder: Path,
    bucket: type[Bucket],
    move: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del earlier
    real = moving.copy_bytes

    def delete_meanwhile(stored: moving.StoredBytes, **more: Any) -> None:
        StoredFile.objects.filter(pk=stored.row.pk).delete()
        real(stored, **more)

    monkeypatch.setattr(moving, "copy_bytes", delete_meanwhile)
    move()
    assert not list_files(folder)
    assert not bucket.objects


def test_a_refused_file_is_not_missing(
    earlier: list[StoredFile], folder: Path, move: Callable[..., str]
) -> None:
    (folder / earlier[0].path).unlink()
    StoredFile.objects.filter(pk=earlier[0].pk).update(state="failed", code="file_refused")
    assert "Moved: 2 files" in move()


def test_without_a_bucket_or_its_folder_nothing_is_moved(
    earlier: list[StoredFile], folder: Path, move: Callable[..., str], settings: Settings
) -> None:
    del earlier
    with pytest.raises(CommandError, match="not exist"):
        call_command("move_files", folder=folder / "none")
    local = {"BACKEND": "django.core.files.storage.FileSystemStorage"}
    settings.STORAGES = {**settings.STORAGES, "files": {**local, "OPTIONS": {"location": folder}}}
    with pytest.raises(CommandError, match="S3_BUCKET"):
        move()
    assert len(list_files(folder)) == 3


def test_a_bucket_that_does_not_answer_loses_nothing(
    earlier: list[StoredFile],
    folder: Path,
    move: Callable[..., str],
    bucket: type[Bucket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del earlier

    def refuse(self: Bucket) -> None:
        self.read_body()
        self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    monkeypatch.setattr(bucket, "do_PUT", refuse)
    with pytest.raises(CommandError, match="stopped"):
        move()
    assert len(list_files(folder)) == 3
