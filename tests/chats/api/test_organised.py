"""Organised chats over the API: pins, folders, deletion and restoring, temporary chats."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from chats.models import Chat, Folder
from chats.people import keys
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.programs import MakeProgram, Program
from tests.support.api_schema import describe_api
from tests.support.error_codes import read_status_and_code


def ids(program: Program, **query: object) -> list[str]:
    """Return the ids of a list of chats."""
    return [row["id"] for row in program.get("chats", **query).json()["data"]]


def test_a_chat_is_pinned_archived_and_filed(of_alice: Program, chat: Chat) -> None:
    folder = of_alice.post("folders", {"name": "Cases"})
    assert folder.status_code == 201
    where = folder.json()["id"]
    change = {"pinned": True, "archived": True, "folder": where}
    changed = of_alice.call("PATCH", f"chats/{chat.pk}", change).json()
    assert {name: changed[name] for name in change} == change
    assert ids(of_alice, archived="true") == ids(of_alice, folder=where) == [str(chat.pk)]
    assert ids(of_alice, archived="false") == []
    out = of_alice.call("PATCH", f"chats/{chat.pk}", {"folder": None, "archived": False}).json()
    assert (out["folder"], out["archived"], out["pinned"]) == (None, False, True)
    assert not AuditEvent.objects.filter(chat_id=chat.pk).exclude(type="chat.created").exists()


def test_a_change_is_made_whole_or_not_at_all(of_alice: Program, chat: Chat) -> None:
    nowhere = "00000000-0000-4000-8000-000000000000"
    refused = of_alice.call("PATCH", f"chats/{chat.pk}", {"title": "New", "folder": nowhere})
    assert read_status_and_code(refused) == (422, "unknown_folder")
    chat.refresh_from_db()
    assert chat.title == ""


def test_folders_are_made_renamed_and_deleted_and_keep_their_chats(
    of_alice: Program, chat: Chat
) -> None:
    first, second = (of_alice.post("folders", {"name": name}).json() for name in ("B", "A"))
    assert [row["name"] for row in of_alice.get("folders").json()["data"]] == ["A", "B"]
    assert read_status_and_code(of_alice.post("folders", {"name": " A "})) == (409, "folder_exists")
    assert read_status_and_code(of_alice.post("folders", {"name": "a"})) == (409, "folder_exists")
    assert read_status_and_code(of_alice.post("folders", {"name": " "})) == (422, "invalid_name")
    assert read_status_and_code(of_alice.post("folders", {"name": "x" * 101})) == (422, "too_long")
    path = f"folders/{first['id']}"
    assert read_status_and_code(of_alice.call("PATCH", path, {"name": "A"})) == (
        409,
        "folder_exists",
    )
    assert of_alice.call("PATCH", path, {"name": "B"}).status_code == 200
    assert of_alice.call("PATCH", path, {"name": "C"}).json()["name"] == "C"
    of_alice.call("PATCH", f"chats/{chat.pk}", {"folder": first["id"]})
    assert of_alice.call("DELETE", path).status_code == 204
    assert of_alice.get(f"chats/{chat.pk}").json()["folder"] is None
    assert list(Folder.objects.values_list("name", flat=True)) == [second["name"]]


def test_charlie_has_none_of_alices_folders(
    of_alice: Program, of_charlie: Program, chat: Chat
) -> None:
    folder = of_alice.post("folders", {"name": "Cases"}).json()["id"]
    assert of_charlie.get("folders").json()["data"] == []
    assert of_charlie.call("PATCH", f"folders/{folder}", {"name": "X"}).status_code == 404
    assert of_charlie.call("DELETE", f"folders/{folder}").status_code == 404
    assert ids(of_charlie, folder=folder) == []
    assert read_status_and_code(of_charlie.post(f"chats/{chat.pk}/restore")) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "folders"), ("POST", "chats/{chat}/restore"), ("DELETE", "chats/{chat}")],
)
def test_a_key_that_only_reads_changes_nothing(
    program: MakeProgram, alice: User, chat: Chat, method: str, path: str
) -> None:
    reader = program(alice, scopes=("chats:read",))
    answer = reader.call(method, path.format(chat=chat.pk), {})
    assert read_status_and_code(answer) == (403, "insufficient_scope")
    assert reader.get("folders").status_code == 200


def test_a_deleted_chat_is_brought_back(of_alice: Program, chat: Chat) -> None:
    assert of_alice.call("DELETE", f"chats/{chat.pk}").status_code == 204
    (row,) = of_alice.get("chats", deleted="true").json()["data"]
    assert row["id"] == str(chat.pk)
    assert row["deleted_at"] < row["erase_at"]
    assert read_status_and_code(of_alice.post(f"chats/{chat.pk}/messages", {"text": "x"})) == (
        404,
        "not_found",
    )
    for _ in range(2):
        back = of_alice.post(f"chats/{chat.pk}/restore")
        assert (back.status_code, back.json()["deleted_at"]) == (200, None)
    assert ids(of_alice) == [str(chat.pk)]
    kinds = AuditEvent.objects.filter(chat_id=chat.pk).order_by("seq")
    assert list(kinds.values_list("type", flat=True)) == [
        "chat.created",
        "chat.deleted",
        "chat.restored",
    ]


def test_a_deleted_chat_can_be_erased_at_once(of_alice: Program, chat: Chat) -> None:
    of_alice.call("DELETE", f"chats/{chat.pk}")
    assert of_alice.post(f"chats/{chat.pk}/erase").status_code == 200
    assert not Chat.objects.exists()


def test_a_temporary_chat_cannot_be_brought_back(of_alice: Program) -> None:
    chat = of_alice.post("chats", {"temporary": True}).json()
    assert chat["temporary"] is True
    of_alice.call("DELETE", f"chats/{chat['id']}")
    assert ids(of_alice, deleted="true") == []
    answer = of_alice.post(f"chats/{chat['id']}/restore")
    assert read_status_and_code(answer) == (409, "chat_cannot_come_back")


def test_a_policy_may_forbid_temporary_chats(of_alice: Program) -> None:
    values = {"temporary_chats": False}
    now = timezone.now()
    policy = create_policy(slug="kept", name="Kept", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    for body in ({"temporary": True}, {"temporary": True, "text": "hello"}):
        assert read_status_and_code(of_alice.post("chats", body)) == (403, "temporary_not_allowed")
    assert not Chat.objects.exists()


def test_a_cursor_of_another_filter_is_refused(of_alice: Program, chat: Chat) -> None:
    of_alice.post("chats", {})
    cursor = of_alice.get("chats", limit=1).json()["next_cursor"]
    other = of_alice.get("chats", limit=1, archived="false", cursor=cursor)
    assert read_status_and_code(other) == (400, "invalid_cursor")


def test_the_schema_names_the_scopes() -> None:
    schema = describe_api()
    schemas = schema["components"]["schemas"]
    for body in ("NewKey", "KeyOut"):
        scope = schemas[body]["properties"]["scopes"]["items"]
        scope = schemas[scope["$ref"].rpartition("/")[2]] if "$ref" in scope else scope
        assert scope["enum"] == list(keys.SCOPES)


@pytest.mark.parametrize("path", ["/api/v1/nowhere", "/api/", "/api/v2/chats", "/api/nowhere"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_address_answers_json(client: Client, path: str, method: str) -> None:
    answer = client.generic(method, path)
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/json")
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code", "request_id"}
    assert error["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/models", 401),
        ("/v1/chat/completions", 401),
        ("/v1/assistants", 404),
        ("/v1/", 404),
        ("/v1", 404),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_openai_address_answers_in_openais_form(
    client: Client, db: None, path: str, status: int, method: str
) -> None:
    answer = client.generic(method, path)
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/json")
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


def test_a_restored_chat_counts_towards_the_limit(
    of_alice: Program, chat: Chat, settings: Settings
) -> None:
    assert of_alice.call("DELETE", f"chats/{chat.pk}").status_code == 204
    settings.CHATS_PER_USER = 1
    other = of_alice.post("chats", {}).json()["id"]
    restored = f"chats/{chat.pk}/restore"
    assert read_status_and_code(of_alice.post(restored)) == (409, "too_many_chats")
    assert of_alice.call("DELETE", f"chats/{other}").status_code == 204
    assert of_alice.post(restored).status_code == 200
    # Nothing is counted for a chat that is not deleted.
    assert of_alice.post(restored).status_code == 200
