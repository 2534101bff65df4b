"""Temporary copies of files: they do not outlive a killed process for long."""

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.background.due_jobs import run_due_job
from chats.files import reading, uploads, working_folders
from chats.files.storage import iter_file_bytes
from chats.files.working_folders import open_working_folder
from chats.models import StoredFile
from tests.faults.programs import python
from tests.support.file_uploads import Read, Upload
from tests.support.repository import ROOT

KILLED = """
import os, signal
from chats.files.working_folders import open_working_folder
with open_working_folder() as folder:
    (folder / "file").write_text("a secret")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files of this test."""
    made = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def grow_old(folder: Path) -> None:
    """Set the times of the entries of a folder as if they were older than the grace period."""
    then = time.time() - 2 * working_folders.UNLOCKED_SECONDS
    for path in folder.iterdir():
        os.utime(path, (then, then))


def leave_a_folder(folder: Path) -> None:
    """Let a process be killed while it reads a file."""
    env = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run(python("-c", KILLED), cwd=ROOT, env=env, check=False)  # our own code
    assert len(list(folder.rglob("file"))) == 1


@pytest.mark.django_db
def test_the_due_job_deletes_the_copy_of_a_killed_reader(folder: Path) -> None:
    leave_a_folder(folder)
    # It may not have its lock yet.
    run_due_job("removed_files", now=timezone.now())
    assert list(folder.rglob("file"))
    grow_old(folder)
    assert run_due_job("removed_files", now=timezone.now()) == 1
    assert list(folder.iterdir()) == []


def test_the_next_reader_deletes_it_and_no_folder_that_is_in_use(folder: Path) -> None:
    leave_a_folder(folder)
    with open_working_folder() as mine:
        (mine / "file").write_text("in use", encoding="ascii")
        grow_old(folder)
        with open_working_folder() as other:
            assert set(folder.iterdir()) == {mine, other}
            assert (mine / "file").exists()
    assert list(folder.iterdir()) == []


def test_other_folders_stay(folder: Path) -> None:
    target = folder / "target"
    target.mkdir()
    (folder / f"{working_folders.PREFIX}link").symlink_to(target)
    (folder / f"{working_folders.PREFIX}file").touch()
    (folder / "other").mkdir()
    grow_old(folder)
    assert working_folders.remove_abandoned_folders() == 0
    assert len(list(folder.iterdir())) == 4


def test_a_reader_copies_files_into_such_a_folder_only(
    read: Read,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    run = reading.run_extractor

    def look(*args: Any, **named: Any) -> Any:
        seen.extend(path.name for path in folder.iterdir())
        return run(*args, **named)

    monkeypatch.setattr(reading, "run_extractor", look)
    assert read(b"some words")["state"] == "ready"
    assert seen
    assert all(name.startswith(working_folders.PREFIX) for name in seen)
    assert list(folder.iterdir()) == []


def test_a_large_upload_has_no_named_temporary_file(
    upload: Upload,
    folder: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b"many words " * (settings.FILE_UPLOAD_MAX_MEMORY_SIZE // 5)
    seen: list[Any] = []
    accept = uploads.accept_upload

    def look(file: IO[bytes], **named: Any) -> Any:
        seen.append((type(file).__name__, list(folder.iterdir())))
        return accept(file, **named)

    monkeypatch.setattr(uploads, "accept_upload", look)
    answer = upload(data, "large.txt")
    assert answer.status_code == 201, answer.json()
    assert answer.json()["size"] == len(data)
    ((kind, named),) = seen
    assert kind != "BytesIO"
    assert named == []
    assert b"".join(iter_file_bytes(StoredFile.objects.get())) == data


def test_a_file_is_read_although_the_temporary_folder_cannot_be_listed(
    read: Read, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = os.scandir

    def refuse(path: Any = ".") -> Any:
        if path == str(folder):
            raise PermissionError
        return usual(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert read(b"some words")["state"] == "ready"
    assert run_due_job("removed_files", now=timezone.now()) == 0
