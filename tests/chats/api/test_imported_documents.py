"""Documents in the archive of ChatGPT are imported with their messages."""

import hashlib
import io
import json
import zipfile
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from chats.files.excerpts import find_file_excerpts
from chats.models import Branch, Message, MessageFile, MessageImage, StoredFile
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.bringing import bring, brought
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_pdf, make_png
from tests.support.exchange_files import PNG, build_chatgpt_node
from tests.support.file_uploads import read_like_a_worker

pytestmark = pytest.mark.usefixtures("streams")


def build_attached_chat(*attached: Any) -> bytes:
    """Return a ChatGPT export with a message that has these attachments."""
    pointer = {"asset_pointer": "file-service://file-Ab1"}
    content = {"content_type": "multimodal_text", "parts": ["Look", pointer]}
    node = build_chatgpt_node("u1", None, ["a1"], "user", content=content)
    node["message"]["metadata"] = {"attachments": list(attached)}
    mapping = {"u1": node, "a1": build_chatgpt_node("a1", "u1", [], "assistant", "Nice.")}
    chat = {"title": "C", "conversation_id": "g", "current_node": "a1", "mapping": mapping}
    return json.dumps([chat]).encode()


def zip_files(**entries: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "-").replace("_dot_", "."), content)
    return held.getvalue()


def test_documents_in_the_archive_of_chatgpt_are_imported(of_alice: Program) -> None:
    report = make_pdf(*["The hotel is in Alfama."] * 3)
    data = build_attached_chat(
        {"id": "file-Ab1", "name": "cat.png", "mimeType": "image/png"},
        {"id": "file-Pdf", "name": "report.pdf", "mimeType": "application/pdf"},
        {"id": "file-Gone", "name": "gone.docx"},
        {"id": "file-Exe", "name": "setup.exe"},
        {"id": "file-Pic", "name": "map.png"},
        "no object",
        {"id": 7},
    )
    archive = zip_files(
        conversations_dot_json=data,
        file__Ab1__cat_dot_png=PNG,
        file__Pdf__report_dot_pdf=report,
        file__Exe__setup_dot_exe=b"MZ" + bytes(range(256)) * 40,
        file__Pic__map_dot_png=make_png(3, 4),
    )
    chat = brought(of_alice, archive)
    kinds = sorted(loss.partition(":")[0] for loss in chat["losses"])
    assert kinds == ["file_by_name_only", "file_by_name_only", "file_dropped"]
    assert MessageImage.objects.filter(message__branch__chat=chat["chat"]).count() == 2
    (link,) = MessageFile.objects.filter(message__branch__chat=chat["chat"])
    assert (link.file.name, link.file.kind, link.file.sha256) == (
        "report.pdf",
        "pdf",
        hashlib.sha256(report).hexdigest(),
    )
    names = [part["name"] for part in link.message.parts if part["type"] == "file"]
    assert names == ["cat.png", "report.pdf", "gone.docx", "setup.exe", "map.png", ""]
    read_like_a_worker(str(link.file.pk))
    branch = Branch.objects.get(chat=chat["chat"])
    found = find_file_excerpts(
        branch,
        question="Where is the hotel?",
        before=branch.last_seq + 1,
        sent=[],
        room=1_000,
        counter=ApproximateCounter(),
    )
    assert found
    again = bring(of_alice, archive)
    assert (again.row["added"], StoredFile.objects.count()) == (0, 1)


def test_a_large_document_is_named_and_not_imported(of_alice: Program, settings: Settings) -> None:
    settings.FILE_BYTES = 10
    data = build_attached_chat({"id": "file-Txt", "name": "notes.txt"})
    archive = zip_files(conversations_dot_json=data, file__Txt__notes_dot_txt=b"x" * 11)
    chat = brought(of_alice, archive)
    assert "file_dropped" in [loss.partition(":")[0] for loss in chat["losses"]]
    assert "notes.txt" in str(Message.objects.get(role="user").parts)
    assert not StoredFile.objects.exists()
