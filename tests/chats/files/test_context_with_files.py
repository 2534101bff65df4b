"""The context preview over REST counts and shows the uploaded files of the next message."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from chats.models import Chat, Message, MessageFile, MessageImage, Receipt, Turn
from contextpolicy.engine.messages.openai_chat import format_chat_messages
from tests.chats.api.conftest import set_policy
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_docx, make_png
from tests.support.error_codes import read_status_and_code
from tests.support.file_uploads import Read, Upload

__all__ = ["set_policy"]
QUESTION = "When does the train to Sintra leave?"
Preview = Callable[..., Any]


@pytest.fixture
def preview(of_alice: Program, chat: Chat) -> Preview:
    """Return the response to a preview in Alice's chat."""

    def previewing(*files: str, **more: Any) -> Any:
        body = {"question": QUESTION, "files": list(files), **more}
        return of_alice.post(f"chats/{chat.pk}/context", body)

    return previewing


@pytest.mark.parametrize("layout", ["multi_turn", "A", "B"])
def test_the_preview_is_the_prompt_that_is_sent(
    layout: str,
    preview: Preview,
    read: Read,
    of_alice: Program,
    chat: Chat,
    work: Callable[..., Any],
    set_policy: Any,
) -> None:
    set_policy(layout=layout)
    files = [
        read(b"The train leaves Rossio at 9:41. " * 60, "notes.md")["id"],
        read(make_docx("The hotel is in Alfama. " * 30), "hotel.docx")["id"],
        read(make_png(800, 600), "map.png")["id"],
    ]
    text_only = preview().json()
    told = preview(*files).json()
    assert told["prompt_tokens"] > text_only["prompt_tokens"] + 600
    assert sum(told["tokens"].values()) > sum(text_only["tokens"].values()) + 600
    assert not Message.objects.exists()
    assert not MessageFile.objects.exists()
    assert not MessageImage.objects.exists()

    body = {"text": QUESTION, "files": files}
    answer = of_alice.post(f"chats/{chat.pk}/messages", body).json()
    worker = work(Turn.objects.get(pk=answer["turn"]["id"]))
    assert told["messages"] == format_chat_messages(worker.scripted.requests[0].messages)
    assert told["prompt_tokens"] == Receipt.objects.get().prompt_tokens
    (seen,) = of_alice.get(f"chats/{chat.pk}/turns/{answer['turn']['id']}/receipts").json()["data"]
    assert [s["text"] for s in told["segments"]] == [s["text"] for s in seen["segments"]]


def test_the_question_of_the_form_messages_has_its_files(preview: Preview, read: Read) -> None:
    files = [read(b"It leaves at 9:41.", "notes.md")["id"], read(make_png(), "map.png")["id"]]
    (question,) = preview(*files, form="messages").json()["messages"]
    assert "It leaves at 9:41." in question["content"]
    assert "[Image: " in question["content"]
    assert question["content"].endswith(QUESTION)
    # Files without a text are counted too.
    (question,) = preview(*files, form="messages", question="").json()["messages"]
    assert "It leaves at 9:41." in question["content"]


def test_files_that_a_message_could_not_have_are_refused(
    preview: Preview, read: Read, set_policy: Any, settings: Settings
) -> None:
    assert read_status_and_code(preview(str(uuid.uuid4()))) == (422, "file_not_found")
    assert preview("no id").status_code == 400
    own = [read(name.encode(), name)["id"] for name in ("one.md", "two.md")]
    set_policy(files_per_message=1)
    assert read_status_and_code(preview(*own)) == (422, "too_many_files")
    set_policy(file_kinds=["pdf"])
    assert read_status_and_code(preview(own[0])) == (422, "file_kind_not_allowed")
    set_policy(token_budget=2_000, reserve_tokens=600)
    assert preview(own[0]).status_code == 200
    large = read(make_png(1600, 1200), "map.png")["id"]
    assert read_status_and_code(preview(large)) == (409, "message_too_large")
    settings.FILE_UPLOADS = False
    assert read_status_and_code(preview(own[0])) == (403, "file_uploads_off")


def test_an_unread_file_is_counted_by_name_if_requested(
    preview: Preview, upload: Upload, read: Read
) -> None:
    unread, damaged = upload(b"words").json()["id"], read(b"%PDF-1.7 no", "a.pdf")["id"]
    assert read_status_and_code(preview(unread)) == (409, "file_not_ready")
    assert read_status_and_code(preview(damaged)) == (409, "file_not_read")
    told = preview(unread, damaged, allow_unread=True).json()
    assert "notes.txt" in told["segments"][-1]["text"]
    assert "a.pdf" in told["segments"][-1]["text"]
    assert "words" not in told["segments"][-1]["text"]


def test_the_files_and_chats_of_others_are_not_shown(
    of_charlie: Program, read: Read, chat: Chat, charlie: User
) -> None:
    own = read(b"Alice's words", "notes.md")["id"]
    theirs = of_charlie.post("chats", {}).json()["id"]
    answer = of_charlie.post(f"chats/{theirs}/context", {"files": [own]})
    assert read_status_and_code(answer) == (422, "file_not_found")
    assert of_charlie.post(f"chats/{chat.pk}/context", {"files": [own]}).status_code == 404
