"""Files encrypted in the storage: uploads, copies, downloads, archives, and new encryption keys."""

import io
import zipfile
from datetime import datetime
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.management import call_command
from pytest_django.fixtures import Settings

from chats.exchange.originals import write_original
from chats.files import encryption, storage, uploads
from chats.files.attach import load_image
from chats.ground.secrets import SecretUnreadable
from chats.models import StoredFile
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.file_uploads import Read, Upload, read_like_a_worker
from tests.support.streamed_responses import read_stream

BLOCK = encryption.BLOCK_BYTES
SEALED = BLOCK + encryption.TAG_BYTES


@pytest.fixture(autouse=True)
def encrypted_storage(settings: Settings) -> None:
    settings.FILE_ENCRYPTION = True


def read_stored_bytes(path: str) -> bytes:
    """Return the bytes in the storage."""
    with storage.get_file_storage().open(path, "rb") as file:
        return bytes(file.read())


def replace_stored_bytes(path: str, data: bytes) -> None:
    place = storage.get_file_storage()
    place.delete(path)
    assert place.save(path, ContentFile(data)) == path


def accept(data: bytes, owner: User, now: datetime) -> StoredFile:
    row, _ = uploads.accept_upload(io.BytesIO(data), name="a.txt", owner=owner, now=now)
    return row


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7])
def test_bytes_of_any_length_come_back(size: int, alice: User, now: datetime) -> None:
    data = (b"secret words " * (size // 13 + 1))[:size]
    row = accept(data, alice, now)
    stored = read_stored_bytes(row.path)
    assert len(stored) > size
    assert b"secret" not in stored
    assert b"".join(storage.iter_file_bytes(row)) == data
    with storage.open_file_bytes(row) as file:
        assert file.read(5) + file.read() == data


def test_a_text_is_read_downloaded_and_exported(
    of_alice: Program, read: Read, upload: Upload
) -> None:
    found = read(b"The lighthouse is in Kiel.")
    assert found["state"] == "ready"
    answer = of_alice.get(f"files/{found['id']}/content")
    assert read_stream(answer) == b"The lighthouse is in Kiel."
    assert answer["Content-Length"] == "26"


def test_the_copy_of_an_image_is_encrypted_with_another_key(read: Read) -> None:
    row = StoredFile.objects.get(pk=read(make_png(), "a.png")["id"])
    original, copy = read_stored_bytes(row.path), read_stored_bytes(row.copy_path)
    assert b"PNG" not in original[:8] + copy[:8]
    found = load_image(row)
    assert found is not None
    assert len(found.data) == row.copy_size
    replace_stored_bytes(row.path, copy)
    with pytest.raises(encryption.FileDamaged):
        list(storage.iter_file_bytes(row))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:SEALED],
        lambda data: data[:-1],
        lambda data: data[SEALED:],
        lambda data: data[SEALED : 2 * SEALED] + data[:SEALED] + data[2 * SEALED :],
        lambda data: data + data[-SEALED:],
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: b"",
    ],
    ids=["cut", "short", "first block", "order", "longer", "bit", "empty"],
)
def test_changed_bytes_are_noticed(change: Any, alice: User, now: datetime) -> None:
    row = accept(b"w" * (2 * BLOCK + 10), alice, now)
    replace_stored_bytes(row.path, change(read_stored_bytes(row.path)))
    with pytest.raises(encryption.FileDamaged):
        list(storage.iter_file_bytes(row))


def test_a_damaged_file_fails_to_be_read(of_alice: Program, upload: Upload) -> None:
    own = upload(b"words").json()["id"]
    row = StoredFile.objects.get(pk=own)
    replace_stored_bytes(row.path, b"x" * 40)
    read_like_a_worker(own)
    assert of_alice.get(f"files/{own}").json()["code"] == "file_damaged"


def test_files_from_before_stay_readable(alice: User, now: datetime, settings: Settings) -> None:
    settings.FILE_ENCRYPTION = False
    plain = accept(b"plain words", alice, now)
    settings.FILE_ENCRYPTION = True
    secret = accept(b"secret words", alice, now)
    settings.FILE_ENCRYPTION = False
    assert read_stored_bytes(plain.path) == b"plain words"
    assert b"".join(storage.iter_file_bytes(plain)) == b"plain words"
    assert b"".join(storage.iter_file_bytes(secret)) == b"secret words"


def test_rotated_keys_open_the_files_without_the_old_key(
    alice: User, now: datetime, settings: Settings
) -> None:
    row = accept(b"words", alice, now)
    before = read_stored_bytes(row.path)
    new = Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [new, *settings.ENCRYPTION_KEYS]
    call_command("rotate_keys")
    settings.ENCRYPTION_KEYS = [new]
    row.refresh_from_db()
    assert b"".join(storage.iter_file_bytes(row)) == b"words"
    assert read_stored_bytes(row.path) == before
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(SecretUnreadable):
        storage.open_file_bytes(row)


def test_an_archive_has_the_original_bytes(alice: User, now: datetime) -> None:
    row = accept(b"words", alice, now)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        assert write_original(row, archive=archive, name="one") == ""
    assert zipfile.ZipFile(made).read("one") == b"words"
