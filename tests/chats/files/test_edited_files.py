"""An edited message keeps all files of the earlier version, also unread ones."""

from collections.abc import Callable
from typing import Any

from chats.models import Message, MessageFile, StoredFile, Turn
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_docx, make_png
from tests.support.exchange_files import export_account
from tests.support.file_uploads import Read
from tests.support.streamed_responses import read_stream

Work = Callable[..., Any]


def edit(program: Program, message: Message) -> Turn:
    """Edit a message and return the new turn."""
    path = f"chats/{message.branch.chat_id}/messages/{message.pk}/edit"
    answer = program.post(path, {"text": "Shorter, please"})
    assert answer.status_code == 202, answer.json()
    return Turn.objects.get(pk=answer.json()["turn"]["id"])


def files_of(message: Message) -> list[dict[str, str]]:
    """Return the file parts of a message."""
    return [part for part in message.parts if part["type"] == "file"]


def edited(turn: Turn) -> Message:
    """Return the message of a turn."""
    return Message.objects.get(pk=str(turn.trigger_id))


def test_imported_files_are_kept_before_they_are_read(
    read: Read, of_alice: Program, of_charlie: Program, work: Work
) -> None:
    own = [read(make_png(30, 20), "bird.png"), read(make_docx("A fee of 42 crowns"), "fees.docx")]
    made = of_alice.post("chats", {"text": "Look", "files": [each["id"] for each in own]})
    work(Turn.objects.get(pk=made.json()["turn"]["id"]))
    bring(of_charlie, export_account(of_alice))
    message = Message.objects.get(branch__chat__owner__username="charlie", role="user")
    assert set(
        StoredFile.objects.filter(uses__message=message).values_list("state", flat=True)
    ) == {"pending"}
    turn = edit(of_charlie, message)
    copy = edited(turn)
    assert files_of(copy) == files_of(message)
    assert MessageFile.objects.filter(message=copy).count() == 2
    worker = work(turn)
    assert len(worker.scripted.requests[-1].images) == 1


def test_an_imported_document_without_an_original_is_kept(
    read: Read, of_alice: Program, of_charlie: Program, work: Work
) -> None:
    own = read(make_docx("A fee of 42 crowns"), "fees.docx")["id"]
    made = of_alice.post("chats", {"text": "Look", "files": [own]}).json()
    work(Turn.objects.get(pk=made["turn"]["id"]))
    lines = of_alice.get(f"chats/{made['id']}/export", form="ui")
    bring(of_charlie, read_stream(lines))
    message = Message.objects.get(branch__chat__owner__username="charlie", role="user")
    worker = work(edit(of_charlie, message))
    assert "A fee of 42 crowns" in worker.scripted.requests[-1].messages[-1].content
