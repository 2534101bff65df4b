"""The pages by which chats come in and go out, without scripts."""

import io
import json
import zipfile
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from chats.models import Chat, Message
from tests.chats.test_outlook import fill

LINES = b"".join(
    json.dumps({"id": own, "role": role, "parts": [{"type": "text", "text": text}]}).encode()
    + b"\n"
    for own, role, text in (("a", "user", "What <b>now</b>?"), ("b", "assistant", "Nothing."))
)


@pytest.fixture
def page(alice: User, demo_model: object) -> Client:
    """Alice's browser."""
    client = Client()
    client.force_login(alice)
    return client


def send(page: Client, data: bytes) -> Any:
    """The page after a file was sent."""
    return page.post("/settings/exchange/import", {"file": SimpleUploadedFile("x", data)})


def body_of(answer: Any) -> bytes:
    """The bytes of a download."""
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith("attachment")

    async def collect() -> bytes:
        return b"".join([chunk async for chunk in answer.streaming_content])

    return bytes(async_to_sync(collect)())


def test_a_file_becomes_a_chat_that_the_report_leads_to(page: Client) -> None:
    assert "Import and export" in page.get("/settings/").content.decode()
    html = send(page, LINES).content.decode()
    chat = Chat.objects.get()
    assert f'href="/chats/{chat.pk}/"' in html
    assert "What &lt;b&gt;now&lt;/b&gt;?" in html
    thread = page.get(f"/chats/{chat.pk}/").content.decode()
    assert "Nothing." in thread
    assert "none: it was imported before" in send(page, LINES).content.decode()
    assert Message.objects.count() == 2


def test_a_file_that_cannot_be_read_is_refused_in_words(page: Client) -> None:
    answer = send(page, b'{"x": 1}\n')
    assert answer.status_code == 422
    assert "needs an id" in answer.content.decode()
    answer = page.post("/settings/exchange/import")
    assert "Choose one first." in answer.content.decode()
    assert not Chat.objects.exists()


def test_a_chat_is_downloaded_from_its_menu(page: Client, chat: Chat, now: datetime) -> None:
    fill(chat, 4, now=now)
    address = f"/chats/{chat.pk}/export"
    assert f'href="{address}"' in page.get(f"/chats/{chat.pk}/").content.decode()
    html = page.get(address).content.decode()
    for form, scope in (("markdown", "active"), ("html", "active"), ("ui", "all")):
        assert f"{address}?form={form}&amp;scope={scope}" in html
        data = body_of(page.get(address, {"form": form, "scope": scope})).decode()
        assert "Message 2 tells of Eva" in data
    bundle = body_of(page.get(address, {"form": "bundle"}))
    assert zipfile.ZipFile(io.BytesIO(bundle)).namelist() == ["history.jsonl", "meta.json"]
    assert page.get(address, {"form": "poem"}).status_code == 404


def test_everything_is_downloaded_from_the_settings(
    page: Client, chat: Chat, now: datetime, charlie: User
) -> None:
    fill(chat, 4, now=now)
    archive = zipfile.ZipFile(io.BytesIO(body_of(page.get("/settings/exchange/everything"))))
    assert len(archive.namelist()) == 2
    assert page.get("/settings/exchange/everything", {"form": "poem"}).status_code == 404
    page.force_login(charlie)
    archive = zipfile.ZipFile(io.BytesIO(body_of(page.get("/settings/exchange/everything"))))
    assert archive.namelist() == ["account.json"]
