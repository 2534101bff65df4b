"""Files inside JSON requests: first messages, later messages, and UI messages."""

import base64
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from chats.files import inline, reading
from chats.models import Chat, Message, MessageFile, StoredFile, Turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.file_uploads import Read
from tests.support.live_events import ScriptedBus

Work = Callable[..., Any]


@pytest.fixture(autouse=True)
def working(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files like a worker while a request waits for them."""

    def work() -> None:
        for row in StoredFile.objects.filter(state=StoredFile.State.PENDING):
            reading.read_uploaded_file(file_id=row.pk, counter=ApproximateCounter())

    monkeypatch.setattr(reading, "pause", work)


def url_of(data: bytes, kind: str = "text/plain") -> str:
    """Return a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def prompt_of(work: Work) -> str:
    """Let the model answer the newest turn, and return the last message of its prompt."""
    worker = work(Turn.objects.order_by("-queued_at", "-accepted")[0])
    return str(worker.scripted.requests[-1].messages[-1].content)


def test_a_chat_begins_with_uploads_and_inline_files(
    of_alice: Program, read: Read, work: Work
) -> None:
    own = read(b"The upload says 41.")
    inline_file = {"name": "b.txt", "url": url_of(b"The inline file says 42.")}
    body = {"text": "Compare.", "files": [own["id"]], "inline_files": [inline_file]}
    answer = of_alice.post("chats", body, headers={"Idempotency-Key": "once"})
    assert answer.status_code == 202, answer.json()
    content = prompt_of(work)
    assert content.index("says 41") < content.index("says 42") < content.index("Compare.")
    assert MessageFile.objects.count() == 2
    again = of_alice.post("chats", body, headers={"Idempotency-Key": "once"})
    assert again.json()["id"] == answer.json()["id"]
    assert (Chat.objects.count(), StoredFile.objects.count()) == (1, 2)


def test_files_without_a_text_start_the_chat(of_alice: Program, read: Read) -> None:
    own = read(b"words")
    answer = of_alice.post("chats", {"title": "Empty", "files": [own["id"]]})
    assert (answer.status_code, answer.json()["title"]) == (202, "Empty")
    assert [part["type"] for part in answer.json()["message"]["parts"]] == ["file"]


def test_a_message_has_inline_files(of_alice: Program, chat: Chat, work: Work) -> None:
    body = {"text": "What?", "inline_files": [{"url": url_of(b"It says 42.")}]}
    answer = of_alice.post(f"chats/{chat.pk}/messages", body)
    assert answer.status_code == 202, answer.json()
    assert "It says 42." in prompt_of(work)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com/a.txt", (422, "invalid_inline_file")),
        ("data:text/plain,plain", (422, "invalid_inline_file")),
        (url_of(b"\x00\x01binary"), (422, "file_kind_refused")),
        (url_of(b"x" * (inline.INLINE_BYTES + 1)), (413, "inline_files_too_large")),
    ],
)
def test_refused_inline_files_store_no_message(
    of_alice: Program, chat: Chat, url: str, expected: tuple[int, str]
) -> None:
    body = {"text": "What?", "inline_files": [{"name": "a.txt", "url": url}]}
    for path in (f"chats/{chat.pk}/messages", "chats"):
        answer = of_alice.post(path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert not Message.objects.exists()
    assert Chat.objects.count() == 1


def ui_message(*parts: dict[str, Any], own_id: str = "m1") -> dict[str, Any]:
    """Return a user's UI message."""
    return {"id": own_id, "role": "user", "parts": [*parts, {"type": "text", "text": "What?"}]}


def ui_file(url: str, kind: str = "text/plain", name: str = "a.txt") -> dict[str, Any]:
    """Return a file part of a UI message."""
    return {"type": "file", "mediaType": kind, "filename": name, "url": url}


def test_ui_messages_have_files_and_list_them(
    of_alice: Program, bus: ScriptedBus, work: Work
) -> None:
    sent = [ui_file(url_of(b"It says 42.")), ui_file(url_of(make_png()), "image/png", "b.png")]
    answer = of_alice.post("ui-chats", {"id": "own", "messages": [ui_message(*sent)]})
    assert answer.status_code == 200, answer.content
    assert "It says 42." in prompt_of(work)
    listed = of_alice.get("ui-chats/own").json()["messages"][0]["parts"]
    files = [part for part in listed if part["type"] == "file"]
    assert [(part["filename"], part["mediaType"]) for part in files] == [
        ("a.txt", "text/plain"),
        ("b.png", "image/png"),
    ]
    assert "says 42" not in str(listed)
    for part, data in zip(files, (b"It says 42.", make_png()), strict=True):
        content = of_alice.get(part["url"].removeprefix("/api/v1/"))
        assert b"".join(content) == data if not content.is_async else content.status_code == 200
    # The client sends the list again, with another message.
    more = [*of_alice.get("ui-chats/own").json()["messages"], ui_message(files[0], own_id="m2")]
    assert of_alice.post("ui-chats", {"id": "own", "messages": more}).status_code == 200
    assert "It says 42." in prompt_of(work)
    assert (StoredFile.objects.count(), MessageFile.objects.count()) == (2, 3)


def test_an_edited_ui_message_keeps_its_files(
    of_alice: Program, bus: ScriptedBus, work: Work
) -> None:
    message = ui_message(ui_file(url_of(b"It says 42.")))
    of_alice.post("ui-chats", {"id": "own", "messages": [message]})
    prompt_of(work)
    edit = {"id": "own", "messages": [{**message, "id": "m9"}], "messageId": "m1"}
    assert of_alice.post("ui-chats", edit).status_code == 200
    assert "It says 42." in prompt_of(work)
    other = ui_message(ui_file(url_of(b"Other words.")), own_id="m10")
    answer = of_alice.post("ui-chats", {"id": "own", "messages": [other], "messageId": "m9"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unsupported_ui_message")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com/a.txt", (422, "unsupported_ui_message")),
        ("data:text/plain;base64,%%", (422, "invalid_inline_file")),
        (url_of(b"x" * 3_000), (413, "file_too_large")),
    ],
)
def test_refused_files_of_ui_messages_store_nothing(
    of_alice: Program, bus: ScriptedBus, settings: Settings, url: str, expected: tuple[int, str]
) -> None:
    settings.FILE_BYTES = 2_000
    answer = of_alice.post("ui-chats", {"id": "own", "messages": [ui_message(ui_file(url))]})
    assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert not Message.objects.exists()


def test_too_many_inline_files_are_refused_before_one_is_stored(
    of_alice: Program, bus: ScriptedBus, settings: Settings
) -> None:
    sent = [ui_file(url_of(b"%d" % n)) for n in range(settings.FILES_PER_MESSAGE + 1)]
    answer = of_alice.post("ui-chats", {"id": "own", "messages": [ui_message(*sent)]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "too_many_files")
    assert not StoredFile.objects.exists()


def test_uploads_of_others_are_not_sent(
    of_alice: Program, of_charlie: Program, bus: ScriptedBus, read: Read, charlie: User
) -> None:
    address = f"/api/v1/files/{read(b'secret words')['id']}/content"
    body = {"id": "own", "messages": [ui_message(ui_file(address))]}
    answer = of_charlie.post("ui-chats", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "file_not_found")
    assert not Chat.objects.filter(owner=charlie).exists()


@pytest.mark.parametrize("data", [b"a virus", make_png() + b"virus"], ids=["text", "image"])
@pytest.mark.parametrize("way", ["chats", "messages", "ui-chats"])
def test_inline_files_are_scanned_like_uploads(
    data: bytes, way: str, of_alice: Program, alice: User, bus: ScriptedBus, settings: Settings
) -> None:
    refuse = "import sys; sys.exit(b'virus' in open(sys.argv[1], 'rb').read())"
    settings.FILE_SCAN = f'{sys.executable} -c "{refuse}"'
    kind = "text/plain" if data == b"a virus" else "image/png"
    url = url_of(data, kind)
    body: dict[str, Any] = {"text": "See.", "inline_files": [{"name": "a", "url": url}]}
    if way == "messages":
        way = f"chats/{of_alice.post('chats', {}).json()['id']}/messages"
    elif way == "ui-chats":
        part = {"type": "file", "mediaType": kind, "filename": "a", "url": url}
        body = {"id": "own", "messages": [ui_message(part)]}
    answer = of_alice.post(way, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "file_not_read")
    assert not Message.objects.exists()
    assert StoredFile.objects.get().code == "file_refused"
