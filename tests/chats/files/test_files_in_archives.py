"""Account archives contain the original files, and an import restores them."""

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.exchange import chat_writer
from chats.files import uploads
from chats.models import Chat, Message, MessageFile, MessageImage, StoredFile, Turn
from contextpolicy.models import AuditEvent
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_pdf, make_png
from tests.support.exchange_files import export_account, replace_entries
from tests.support.file_uploads import Read, read_like_a_worker

pytestmark = pytest.mark.usefixtures("streams")

Work = Callable[..., Any]
PDF = make_pdf("The canary sings at dawn.")
SHA = hashlib.sha256(PDF).hexdigest()
PICTURE = make_png(30, 20)


@pytest.fixture
def archive(read: Read, of_alice: Program, chat: Chat, work: Work) -> bytes:
    """Alice's archive of a chat with a document and an image."""
    own = [read(PDF, "song.pdf")["id"], read(PICTURE, "bird.png")["id"]]
    answer = of_alice.post(f"chats/{chat.pk}/messages", {"text": "What sings?", "files": own})
    assert answer.status_code == 202, answer.json()
    work(Turn.objects.get(pk=answer.json()["turn"]["id"]))
    return export_account(of_alice)


def test_an_archive_has_originals_with_hashes_and_texts(archive: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        account = json.loads(held.read("account.json"))
        listed = {row["sha256"]: row for row in account["files"]}
        assert held.read(listed[SHA]["file"]) == PDF
        assert (listed[SHA]["name"], listed[SHA]["kind"]) == ("song.pdf", "pdf")
        for sha256, row in listed.items():
            assert hashlib.sha256(held.read(row["file"])).hexdigest() == sha256
        lines = held.read(account["chats"][0]["file"]).decode()
    assert len(listed) == 2
    assert "The canary sings at dawn." in lines


def test_another_account_gets_the_files(
    archive: bytes, of_charlie: Program, charlie: User, work: Work
) -> None:
    bring(of_charlie, archive)
    rows = StoredFile.objects.filter(owner=charlie)
    assert {row.name for row in rows} == {"song.pdf", "bird.png"}
    message = Message.objects.get(branch__chat__owner=charlie, role="user")
    assert set(MessageFile.objects.filter(message=message).values_list("file", flat=True)) == {
        row.pk for row in rows
    }
    part = next(part for part in message.parts if "document:" in part.get("reference", ""))
    assert str(rows.get(sha256=SHA).pk) in part["reference"]
    content = of_charlie.get(f"files/{rows.get(sha256=SHA).pk}/content")
    assert content.status_code == 200
    # The document is part of later prompts.
    chat = message.branch.chat
    answer = of_charlie.post(f"chats/{chat.pk}/messages", {"text": "And now?"})
    worker = work(Turn.objects.get(pk=answer.json()["turn"]["id"]))
    sent = "\n".join(wire.content for wire in worker.scripted.requests[-1].messages)
    assert "The canary sings at dawn." in sent
    # Again: nothing is doubled.
    bring(of_charlie, archive)
    assert Chat.objects.filter(owner=charlie).count() == 1
    assert StoredFile.objects.filter(owner=charlie).count() == 2


def test_a_file_with_other_bytes_than_its_hash_is_a_loss(
    archive: bytes, of_charlie: Program, charlie: User
) -> None:
    hostile = replace_entries(archive, **{f"files/{SHA}": make_pdf("Other words.")})
    bring(of_charlie, hostile)
    assert not StoredFile.objects.filter(owner=charlie, sha256=SHA).exists()
    message = Message.objects.get(branch__chat__owner=charlie, role="user")
    assert "canary" in json.dumps(message.parts)


def test_a_large_file_is_bounded(
    archive: bytes, of_charlie: Program, charlie: User, settings: Settings
) -> None:
    settings.FILE_BYTES = 100
    bring(of_charlie, archive)
    assert Message.objects.filter(branch__chat__owner=charlie).exists()
    assert not StoredFile.objects.filter(owner=charlie, size__gt=100).exists()


def test_an_import_names_no_file_of_another_person(
    archive: bytes, of_alice: Program, of_charlie: Program, alice: User, charlie: User
) -> None:
    secret = io.BytesIO(b"The secret is 4711. " * 5_000)
    row, _ = uploads.accept_upload(secret, name="s.txt", owner=alice, now=timezone.now())
    read_like_a_worker(str(row.pk))
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        name = json.loads(held.read("account.json"))["chats"][0]["file"]
        lines = held.read(name).decode()
    reference = f"document:id={row.pk}&sha256={'0' * 64}&size=9&pages=0&characters=100000"
    part = {"type": "file", "mediaType": "text/plain", "filename": "s.txt", "url": reference}
    first, _, rest = lines.partition("\n")
    message = json.loads(first)
    message["parts"].append(part)
    changed = json.dumps(message) + "\n" + rest
    bring(of_charlie, replace_entries(archive, **{name: changed.encode()}))
    stored = Message.objects.get(branch__chat__owner=charlie, role="user")
    assert str(row.pk) not in json.dumps(stored.parts)
    assert len(stored.parts) == 4
    assert not MessageFile.objects.filter(message=stored, file=row).exists()


@pytest.mark.parametrize(("exit_code", "loss"), [(1, "image_refused"), (3, "image_not_scanned")])
def test_an_image_that_the_scanner_does_not_accept_is_left_out(
    exit_code: int,
    loss: str,
    archive: bytes,
    of_charlie: Program,
    charlie: User,
    settings: Settings,
) -> None:
    program = f"import sys; sys.exit({exit_code} * (open(sys.argv[1], 'rb').read(4)[1:] == b'PNG'))"
    settings.FILE_SCAN = f'{sys.executable} -c "{program}"'
    (made,) = bring(of_charlie, archive).chats
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        (name,) = [name for name in held.namelist() if name.startswith("images/")]
    assert f"{loss}:{name[7:19]}" in made["losses"]
    refusals = AuditEvent.objects.filter(type="file.refused", chat_id=made["chat"])
    assert [each.data for each in refusals] == [{"kind": "image"}] * (loss == "image_refused")
    assert not MessageImage.objects.filter(message__branch__chat__owner=charlie).exists()
    # The other content is imported.
    assert StoredFile.objects.filter(owner=charlie, sha256=SHA).exists()
    settings.FILE_SCAN = ""
    (again,) = bring(of_charlie, archive).chats
    assert again["chat"] == made["chat"]
    image = MessageImage.objects.get(message__branch__chat=made["chat"])
    assert name.startswith(f"images/{image.sha256}")
    bring(of_charlie, archive)
    assert MessageImage.objects.filter(message__branch__chat=made["chat"]).count() == 1


@pytest.mark.parametrize("room", [0, 1])
def test_the_copies_of_restored_uploads_need_room(
    room: int, archive: bytes, of_charlie: Program, settings: Settings
) -> None:
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        (size,) = (each.file_size for each in held.infolist() if each.filename[:7] == "images/")
    settings.FILES_PER_USER_BYTES = len(PDF) + len(PICTURE) + size - 1 + room
    (made,) = bring(of_charlie, archive).chats
    losses = [loss.partition(":")[0] for loss in made["losses"]]
    assert losses == ([] if room else ["image_over_limit"])
    assert MessageImage.objects.filter(message__branch__chat=made["chat"]).count() == room


def test_an_import_counts_what_others_store_meanwhile(
    archive: bytes, of_charlie: Program, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = chat_writer.count_draft_messages

    def count_while_another_stores(*args: Any, **more: Any) -> Any:
        settings.FILES_PER_USER_BYTES = len(PDF) + len(PICTURE)
        return real(*args, **more)

    monkeypatch.setattr(chat_writer, "count_draft_messages", count_while_another_stores)
    (made,) = bring(of_charlie, archive).chats
    assert [loss.partition(":")[0] for loss in made["losses"]] == ["image_over_limit"]
    assert not MessageImage.objects.filter(message__branch__chat=made["chat"]).exists()


def test_a_small_file_does_not_make_room_for_a_large_image(
    archive: bytes, of_charlie: Program, charlie: User, settings: Settings
) -> None:
    """The hash of a copy is a claim of the archive."""
    small = b"x"
    sha256 = hashlib.sha256(small).hexdigest()

    def claim(account: dict[str, Any]) -> dict[str, Any]:
        (image,) = (row for row in account["files"] if row.get("copy_sha256"))
        image |= {"sha256": sha256, "name": "a.txt", "file": f"files/{sha256}"}
        return account

    changed = replace_entries(archive, account=claim, **{f"files/{sha256}": small})
    settings.FILES_PER_USER_BYTES = len(PDF) + len(small)
    (made,) = bring(of_charlie, changed).chats
    assert [loss.partition(":")[0] for loss in made["losses"]] == ["image_over_limit"]
    assert StoredFile.objects.filter(owner=charlie).count() == 2
    assert not MessageImage.objects.filter(message__branch__chat=made["chat"]).exists()
