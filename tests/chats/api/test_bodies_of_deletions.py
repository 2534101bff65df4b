"""A DELETE accepts no fields: a body that it would ignore is refused, and nothing is deleted."""

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from chats.models import Chat
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program


@pytest.fixture
def deletions(of_alice: Program, chat: Chat) -> list[str]:
    """The addresses of objects that a DELETE removes or stops."""
    file = SimpleUploadedFile("a.txt", b"words")
    upload = of_alice.client.post("/api/v1/files", {"file": file}).json()
    brought = bring(of_alice, json.dumps([]).encode())
    of_alice.call("PATCH", "memory", {"consent": True})
    preference = of_alice.post("memory/preferences", {"slot": "name", "text": "Bob"}).json()
    return [
        f"files/{upload['id']}",
        f"imports/{brought.row['id']}",
        f"memory/preferences/{preference['id']}",
        f"ui-chats/{chat.pk}/stream",
    ]


def test_a_body_with_fields_is_refused(of_alice: Program, deletions: list[str]) -> None:
    for path in deletions:
        answer = of_alice.call("DELETE", path, {"force": True})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (
            400,
            "unknown_field",
            "force",
        ), path
        assert of_alice.call("DELETE", path).status_code == 204, path


def test_a_body_that_is_not_json_is_refused(of_alice: Program, deletions: list[str]) -> None:
    for path in deletions:
        answer = of_alice.client.delete(f"/api/v1/{path}", "a=b", content_type="text/plain")
        assert answer.status_code == 415, path
        assert answer.json()["error"]["code"] == "unsupported_media_type"
        assert of_alice.client.delete(f"/api/v1/{path}").status_code == 204, path
