"""An archive of a user's data contains everything else if one file cannot be read."""

import io
import json
import zipfile
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, Storage
from pytest_django.fixtures import Settings

from chats.files import storage
from chats.models import StoredFile
from tests.chats.api.programs import Program
from tests.support.exchange_files import export_account
from tests.support.file_uploads import Upload

pytestmark = pytest.mark.usefixtures("streams")


def list_archived(archive: bytes) -> dict[str, Any]:
    """Return the listed files of an archive by name, and check the names of their entries."""
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        listed = {row["name"]: row for row in json.loads(held.read("account.json"))["files"]}
        entries = {name for name in held.namelist() if name.startswith("uploads/")}
    assert entries == {row["file"] for row in listed.values() if row["file"]}
    return listed


def change_stored_byte(row: StoredFile) -> None:
    """Change the first stored byte of a file."""
    place = storage.get_file_storage()
    with place.open(row.path, "rb") as file:
        data = file.read()
    place.delete(row.path)
    place.save(row.path, ContentFile(bytes([data[0] ^ 1]) + data[1:]))


def lose_key(row: StoredFile) -> None:
    """Encrypt the key of a file with an unknown key."""
    sealed_key = Fernet(Fernet.generate_key()).encrypt(b"key").decode()
    StoredFile.objects.filter(pk=row.pk).update(sealed_key=sealed_key)


def remove_bytes(row: StoredFile) -> None:
    storage.get_file_storage().delete(row.path)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (change_stored_byte, "file_unreadable"),
        (lose_key, "file_unreadable"),
        (remove_bytes, "file_missing"),
    ],
)
def test_an_unreadable_file_does_not_prevent_the_archive(
    damage: Any, code: str, of_alice: Program, upload: Upload, settings: Settings
) -> None:
    settings.FILE_ENCRYPTION = True
    upload(b"whole", "whole.txt")
    damage(StoredFile.objects.get(pk=upload(b"bad" * 50_000, "bad.txt").json()["id"]))
    listed = list_archived(export_account(of_alice))
    assert listed["whole.txt"]["file"]
    assert "code" not in listed["whole.txt"]
    assert (listed["bad.txt"]["file"], listed["bad.txt"]["code"]) == (None, code)
    assert "operator" in listed["bad.txt"]["reason"]


class Forbidden(Exception):
    """An error of a storage that is not an OSError, like those of the client for S3."""


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), Forbidden()])
def test_an_error_of_the_storage_leaves_out_one_file(
    error: Exception, of_alice: Program, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(b"whole", "whole.txt")
    bad = StoredFile.objects.get(pk=upload(b"bad", "bad.txt").json()["id"])
    original = FileSystemStorage.open

    def fail(self: Storage, name: str, mode: str = "rb") -> Any:
        if name == bad.path:
            raise error
        return original(self, name, mode)

    monkeypatch.setattr(FileSystemStorage, "open", fail)
    listed = list_archived(export_account(of_alice))
    assert listed["whole.txt"]["file"]
    assert listed["bad.txt"]["file"] is None
    assert listed["bad.txt"]["code"] == "file_storage_unavailable"
    assert listed["bad.txt"]["reason"]


def test_changed_content_is_in_the_archive_with_its_reason(
    of_alice: Program, upload: Upload
) -> None:
    row = StoredFile.objects.get(pk=upload(b"words", "bad.txt").json()["id"])
    change_stored_byte(row)
    found = list_archived(export_account(of_alice))["bad.txt"]
    assert found["file"] == f"uploads/{row.sha256}"
    assert found["code"] == "file_changed"
    assert "stored content" in found["reason"]


def test_a_refused_file_has_the_reason_of_the_scanner(of_alice: Program, upload: Upload) -> None:
    row = StoredFile.objects.get(pk=upload(b"words", "bad.txt").json()["id"])
    remove_bytes(row)
    StoredFile.objects.filter(pk=row.pk).update(state="failed", code="file_refused")
    found = list_archived(export_account(of_alice))["bad.txt"]
    assert (found["file"], found["code"]) == (None, "file_refused")
    assert "scanner" in found["reason"]
