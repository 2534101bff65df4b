"""An outage of the file storage is status 503 with a code; a full disk and a lost file are not."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import FileSystemStorage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chats.background.due_jobs import DUE_JOBS
from chats.files import reading
from chats.files.storage import get_configured_storage
from chats.models import Chat, Message, StoredFile, Turn
from project.operations import file_members
from project.operations.refused import OperationRefused
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.exchange_files import export_account
from tests.support.file_uploads import Read, Upload, read_like_a_worker, send_upload
from tests.support.s3_bucket import Bucket

pytestmark = pytest.mark.usefixtures("streams")
CODE = "file_storage_unavailable"


class Unreachable(Exception):
    """An error that no standard class describes, like those of a client for a network storage."""


@pytest.fixture(params=[Unreachable(), PermissionError(errno.EACCES, "Permission denied")])
def outage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let every operation of the storage fail."""

    def fail(*_: Any, **__: Any) -> Any:
        raise request.param

    def begin() -> None:
        for name in ("_open", "_save", "exists", "delete"):
            monkeypatch.setattr(FileSystemStorage, name, fail)

    return begin


def fail(*_: Any) -> Any:
    raise Unreachable


def assert_unavailable(response: Any) -> None:
    assert response.status_code == 503, response.content
    assert response.json()["error"]["code"] == CODE
    assert response["Retry-After"] == "30"


def test_rest_refuses_uploads_downloads_and_messages(
    outage: Callable[[], None], of_alice: Program, read: Read, send: Any
) -> None:
    own = read(make_png(), "a.png")["id"]
    outage()
    assert_unavailable(send_upload(of_alice, b"new words"))
    # The same content again: the storage is asked for its bytes.
    assert_unavailable(send_upload(of_alice, make_png(), "a.png"))
    assert_unavailable(of_alice.get(f"files/{own}/content"))
    assert_unavailable(send(own))
    assert not Message.objects.exists()
    assert StoredFile.objects.count() == 1


def test_pages_keep_the_text_and_name_the_reason(
    outage: Callable[[], None], alice: User, chat: Chat, client: Client, read: Read
) -> None:
    own = read(make_png(), "a.png")["id"]
    outage()
    client.force_login(alice)
    form = {"text": "What does it show?", "files": own, "key": "one"}
    for place in (reverse("chats:message-create", args=[chat.pk]), reverse("chats:chat-new")):
        response = client.post(place, form)
        text = response.content.decode()
        assert response.status_code == 503
        assert response["Retry-After"] == "30"
        assert "What does it show?" in text
        assert own in text
    given = {"file": SimpleUploadedFile("b.txt", b"words")}
    response = client.post(reverse("chats:file-attach"), given)
    assert (response.status_code, response["Retry-After"]) == (503, "30")
    assert f'data-reason="{CODE}"' in response.content.decode()
    response = client.get(reverse("chats:file-download", args=[own]))
    assert (response.status_code, response["Retry-After"]) == (503, "30")


def test_a_worker_reads_the_file_after_the_outage(
    of_alice: Program, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = upload(b"words").json()["id"]

    with monkeypatch.context() as patch:
        patch.setattr(FileSystemStorage, "_open", fail)
        for _ in range(5):
            read_like_a_worker(own)
    row = StoredFile.objects.get()
    assert (row.state, row.tries, row.lease_until) == ("pending", 0, None)
    assert reading.READINGS.select_free_rows().filter(pk=own).exists()
    read_like_a_worker(own)
    assert of_alice.get(f"files/{own}").json()["state"] == "ready"


def refuse_file(own: str, patch: pytest.MonkeyPatch) -> None:
    """Let the storage refuse a file, and no other."""
    refused = StoredFile.objects.get(pk=own).path
    original: Any = vars(FileSystemStorage)["_open"]

    def open_others(self: FileSystemStorage, name: str, mode: str = "rb") -> Any:
        return fail() if name == refused else original(self, name, mode)

    patch.setattr(FileSystemStorage, "_open", open_others)


def test_a_file_that_the_storage_always_refuses_fails_after_some_attempts(
    of_alice: Program, read: Read, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(b"other words", "b.txt")
    own = upload(b"words").json()["id"]
    refuse_file(own, monkeypatch)
    rows = StoredFile.objects.filter(pk=own)
    for tries in (1, 2):
        read_like_a_worker(own)
        row = rows.get()
        assert (row.state, row.tries) == ("pending", tries)
        # Before the next attempt, no worker gets it.
        assert not reading.READINGS.select_free_rows().filter(pk=own).exists()
        read_like_a_worker(own)
        assert rows.get().tries == tries
        rows.update(lease_until=None)
    read_like_a_worker(own)
    told = of_alice.get(f"files/{own}").json()
    assert (told["state"], told["code"]) == ("failed", CODE)


def test_a_file_without_others_fails_after_a_day(
    of_alice: Program, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = upload(b"words").json()["id"]
    refuse_file(own, monkeypatch)
    rows = StoredFile.objects.filter(pk=own)
    rows.update(created_at=timezone.now() - reading.OUTAGE_TIME)
    for _ in range(3):
        read_like_a_worker(own)
        rows.update(lease_until=None)
    assert (rows.get().state, rows.get().code) == ("failed", CODE)


def test_an_outage_of_the_whole_storage_is_no_attempt(
    read: Read, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(b"other words", "b.txt")
    own = upload(b"words").json()["id"]
    monkeypatch.setattr(FileSystemStorage, "_open", fail)
    read_like_a_worker(own)
    row = StoredFile.objects.get(pk=own)
    assert (row.tries, row.lease_until) == (0, None)


def test_an_import_names_the_outage_and_takes_the_chat_later(
    of_alice: Program,
    of_charlie: Program,
    charlie: User,
    read: Read,
    send: Any,
    work: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = send(read(make_png(), "a.png")["id"])
    work(Turn.objects.get(pk=answer.json()["turn"]["id"]))
    archive = export_account(of_alice)
    with monkeypatch.context() as patch:
        patch.setattr(FileSystemStorage, "_save", fail)
        failed = bring(of_charlie, archive)
    assert [code for _, code in failed.not_taken] == [CODE]
    assert not Chat.objects.filter(owner=charlie).exists()
    bring(of_charlie, archive)
    assert StoredFile.objects.filter(owner=charlie).exists()


def test_a_full_disk_keeps_its_code(of_alice: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileSystemStorage, "_save", fail)
    of_alice.client.raise_request_exception = False
    response = send_upload(of_alice, b"words")
    assert (response.status_code, response.json()["error"]["code"]) == (507, "storage_full")


def test_an_expired_credential_of_a_bucket_is_an_outage(
    bucket: type[Bucket], of_alice: Program, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = upload(b"words").json()["id"]
    original = bucket.answer

    def refuse(self: Bucket, status: int, data: bytes = b"", **headers: str) -> None:
        original(self, 403, b"<Error><Code>ExpiredToken</Code></Error>")

    monkeypatch.setattr(bucket, "answer", refuse)
    assert_unavailable(send_upload(of_alice, b"new words"))
    assert_unavailable(of_alice.get(f"files/{own}/content"))
    # A deletion is completed later.
    assert of_alice.call("DELETE", f"files/{own}").status_code == 204
    assert DUE_JOBS["removed_files"](timezone.now()) == 0
    # The commands of an operator name the error.
    upload_error = pytest.raises(OperationRefused, match="ClientError")
    with upload_error, file_members.catch_storage_errors("Nothing was written."):
        get_configured_storage().open("one")
