"""The pages by which chats come in and go out, without scripts."""

import io
import json
import zipfile
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.html import escape

from chats.models import Chat, FileImport, Message
from chats.web.account import imports
from tests.chats.api.bringing import work
from tests.support.chat_messages import fill_with_every_kind
from tests.support.chat_pages import HTMX
from tests.support.streamed_responses import read_stream

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
    """The answer to a file."""
    return page.post("/settings/exchange/import", {"file": SimpleUploadedFile("x", data)})


def imported(page: Client, data: bytes) -> str:
    """The page of an import after a worker was at it."""
    answer = send(page, data)
    assert answer.status_code == 302
    row = FileImport.objects.get(state="queued")
    assert answer["Location"] == f"/settings/exchange/imports/{row.pk}/"
    work(row.pk)
    return str(page.get(answer["Location"]).content.decode())


def body_of(answer: Any) -> bytes:
    """The bytes of a download."""
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith("attachment")
    return read_stream(answer)


def test_a_file_becomes_a_chat_that_the_report_leads_to(page: Client) -> None:
    assert 'href="/settings/exchange/"' in page.get("/settings/").content.decode()
    html = imported(page, LINES)
    chat = Chat.objects.get()
    assert f'href="/chats/{chat.pk}/"' in html
    assert "What &lt;b&gt;now&lt;/b&gt;?" in html
    thread = page.get(f"/chats/{chat.pk}/").content.decode()
    assert "Nothing." in thread
    assert 'data-note="already-imported"' not in html
    assert 'data-note="already-imported"' in imported(page, LINES)
    assert Message.objects.count() == 2


def test_a_file_that_cannot_be_read_is_refused_in_words(page: Client) -> None:
    html = imported(page, b'{"id": 1}\n')
    assert "<code>import_malformed</code>" in html
    assert escape(FileImport.objects.get().localized_reason) in html
    answer = send(page, b"PK\x03\x04 but nothing else")
    assert answer.status_code == 422
    assert 'data-reason="import_bad_archive"' in answer.content.decode()
    answer = page.post("/settings/exchange/import")
    assert answer.status_code == 422
    assert 'data-reason="import_empty"' in answer.content.decode()
    assert not Chat.objects.exists()


def test_the_page_follows_an_import_until_it_is_over(page: Client) -> None:
    address = send(page, LINES)["Location"]
    html = page.get(address).content.decode()
    assert 'data-status="queued"' in html
    assert 'data-note="import-finished"' not in html
    assert f'hx-get="{address}"' in html
    part = page.get(address, headers=HTMX).content.decode()
    assert part.lstrip().startswith("<section")
    work(FileImport.objects.get().pk)
    part = page.get(address, headers=HTMX).content.decode()
    assert 'data-note="import-finished"' in part
    assert "hx-get" not in part


def test_an_import_is_stopped_and_its_report_deleted(page: Client) -> None:
    address = send(page, LINES)["Location"]
    refused = page.post(f"{address}delete")
    assert refused.status_code == 409
    assert 'data-reason="import_not_over"' in refused.content.decode()
    assert page.post(f"{address}stop")["Location"] == address
    assert 'data-note="import-stopped"' in page.get(address).content.decode()
    assert "Stopped" in page.get("/settings/exchange/").content.decode()
    assert page.post(f"{address}delete")["Location"] == "/settings/exchange/"
    assert page.get(address).status_code == 404
    assert not Chat.objects.exists()


def test_somebody_elses_import_is_not_there(page: Client, charlie: User) -> None:
    address = send(page, LINES)["Location"]
    page.force_login(charlie)
    assert page.get(address).status_code == 404
    for action in ("stop", "delete"):
        assert page.post(f"{address}{action}").status_code == 404
    assert FileImport.objects.get().state == "queued"
    assert address not in page.get("/settings/exchange/").content.decode()


def test_a_long_report_is_read_in_pieces(page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "SHOWN", 2)
    chats = [
        {"uuid": f"c{n}", "name": f"Chat {n}", "chat_messages": [{"uuid": "m", "text": "x"}]}
        for n in range(3)
    ]
    html = imported(page, json.dumps(chats).encode())
    assert ("Chat 1<" in html, "Chat 2<" in html) == (True, False)
    address = f"/settings/exchange/imports/{FileImport.objects.get().pk}/"
    assert f'href="{address}?after=2"' in html
    html = page.get(f"{address}?after=2").content.decode()
    assert ("Chat 1<" in html, "Chat 2<" in html, "?after" in html) == (False, True, False)
    assert page.get(f"{address}?after=x").status_code == 200


def test_what_could_not_be_taken_is_listed_by_itself(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "SHOWN", 2)
    said = [{"uuid": "m", "text": "x"}]
    chats: list[dict[str, object]] = [
        {"uuid": f"c{n}", "name": f"Chat {n}", "chat_messages": said} for n in range(5)
    ]
    for number in (1, 3, 4):
        chats[number]["chat_messages"] = "nothing"
    html = imported(page, json.dumps(chats).encode())
    address = f"/settings/exchange/imports/{FileImport.objects.get().pk}/"
    assert f'href="{address}?only=missed"' in html
    html = page.get(f"{address}?only=missed").content.decode()
    assert [f"Chat {n}<" in html for n in range(5)] == [False, True, False, True, False]
    assert f"{address}?after=4&amp;only=missed" in html
    html = page.get(f"{address}?after=4&only=missed").content.decode()
    assert [f"Chat {n}<" in html for n in range(5)] == [False] * 4 + [True]


def test_a_chat_is_downloaded_from_its_menu(page: Client, chat: Chat, now: datetime) -> None:
    fill_with_every_kind(chat, 4, now=now)
    address = f"/chats/{chat.pk}/export"
    assert f'href="{address}"' in page.get(f"/chats/{chat.pk}/").content.decode()
    html = page.get(address).content.decode()
    for form, scope in (("markdown", "active"), ("html", "active"), ("ui", "all")):
        assert f"{address}?form={form}&amp;scope={scope}" in html
        data = body_of(page.get(address, {"form": form, "scope": scope})).decode()
        assert "Message 2 asks for Eva" in data
    bundle = body_of(page.get(address, {"form": "bundle"}))
    assert zipfile.ZipFile(io.BytesIO(bundle)).namelist() == ["history.jsonl", "meta.json"]
    assert page.get(address, {"form": "poem"}).status_code == 404


def test_everything_is_downloaded_from_the_settings(
    page: Client, chat: Chat, now: datetime, charlie: User
) -> None:
    fill_with_every_kind(chat, 4, now=now)
    archive = zipfile.ZipFile(io.BytesIO(body_of(page.get("/settings/exchange/everything"))))
    assert len(archive.namelist()) == 3
    assert page.get("/settings/exchange/everything", {"form": "poem"}).status_code == 404
    page.force_login(charlie)
    archive = zipfile.ZipFile(io.BytesIO(body_of(page.get("/settings/exchange/everything"))))
    assert archive.namelist() == ["memory.json", "account.json"]
