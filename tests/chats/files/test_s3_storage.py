"""Files in a bucket of an S3-compatible server, with the real client and a small server."""

import io
from datetime import datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import TestCase
from pytest_django.fixtures import Settings

from chats.files import storage, uploads
from chats.files.attach import load_image
from chats.models import FileRemoval, StoredFile
from project import env, file_storage
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.file_uploads import Read, Upload, read_like_a_worker
from tests.support.s3_bucket import Bucket
from tests.support.streamed_responses import read_stream

pytestmark = pytest.mark.usefixtures("bucket")

committed = TestCase.captureOnCommitCallbacks


def test_a_file_is_stored_read_downloaded_and_deleted(
    of_alice: Program, read: Read, bucket: type[Bucket]
) -> None:
    found = read(b"The lighthouse is in Kiel.")
    assert found["state"] == "ready"
    row = StoredFile.objects.get()
    assert bucket.objects == {f"/chat-files/one/{row.path}": b"The lighthouse is in Kiel."}
    answer = of_alice.get(f"files/{found['id']}/content")
    assert read_stream(answer) == b"The lighthouse is in Kiel."
    with committed(execute=True):
        assert of_alice.call("DELETE", f"files/{found['id']}").status_code == 204
    assert not bucket.objects
    assert not FileRemoval.objects.exists()


def test_the_copy_of_an_image_is_in_the_bucket(read: Read, bucket: type[Bucket]) -> None:
    row = StoredFile.objects.get(pk=read(make_png(), "a.png")["id"])
    assert len(bucket.objects) == 2
    found = load_image(row)
    assert found is not None
    assert found.data == bucket.objects[f"/chat-files/one/{row.copy_path}"]


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_large_file_is_stored_in_parts(
    is_encrypted: bool, alice: User, now: datetime, bucket: type[Bucket], settings: Settings
) -> None:
    settings.FILE_ENCRYPTION = is_encrypted
    data = b"0123456789abcdef" * (20 * 65_536)
    row, _ = uploads.accept_upload(io.BytesIO(data), name="a.txt", owner=alice, now=now)
    (stored,) = bucket.objects.values()
    assert (stored == data) is not is_encrypted
    assert b"".join(storage.iter_file_bytes(row)) == data


def test_a_file_that_the_bucket_lost_is_missing(
    of_alice: Program, upload: Upload, bucket: type[Bucket]
) -> None:
    own = upload(b"words").json()["id"]
    bucket.objects.clear()
    answer = of_alice.get(f"files/{own}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_missing")
    read_like_a_worker(own)
    assert of_alice.get(f"files/{own}").json()["code"] == "file_damaged"


def test_a_bucket_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_storage, "find_spec", lambda name: None)
    with pytest.raises(env.Misconfigured):
        file_storage.read_file_storage(Path("unused"))


def test_without_a_bucket_files_are_in_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("S3_BUCKET")
    found = file_storage.read_file_storage(tmp_path)
    assert found["OPTIONS"]["location"] == tmp_path
