"""API hardening: read-only fields, requests without CSRF token, hostile input, the docs."""

import logging
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import RequestDataTooBig
from django.forms.models import model_to_dict
from django.http import Http404
from rest_framework import exceptions

from chats.api.core.errors import convert_exception
from chats.ground import rates
from chats.models import Chat, Message, Turn
from chats.record import access
from tests.chats.api.programs import Program
from tests.support.api_operations import READ_ONLY_FIELDS
from tests.support.api_schema import describe_api

NOBODY = "00000000-0000-4000-8000-000000000000"
# Every request body with all its fields.
OFFERS = {
    "NewWebhook": ["events", "url"],
    "PatchedWebhookChange": ["events", "is_on", "url"],
    "ConsentIn": ["call", "decision"],
    "NewChat": [
        "allow_unread",
        "files",
        "inline_files",
        "model",
        "team",
        "temporary",
        "text",
        "title",
    ],
    "PatchedChatChange": [
        "archived",
        "folder",
        "memory",
        "model",
        "pinned",
        "system_text",
        "team",
        "title",
    ],
    "FolderName": ["name"],
    "PatchedFolderChange": ["memory", "name"],
    "PatchedMemoryChange": ["consent", "inferring", "instructions", "paused"],
    "NewPreference": ["folder", "slot", "text"],
    "PatchedPreferenceChange": ["text"],
    "FileUpload": ["file"],
    "NewMessage": ["allow_unread", "as_role", "files", "inline_files", "stream", "text"],
    "UIRequestIn": ["id", "message", "messageId", "messages", "model", "trigger"],
    "NextMessage": ["allow_unread", "files", "form", "include_system", "question"],
    "PatchedStateChange": ["remove", "values", "version"],
    "StateRestoration": ["to", "version"],
    "ErasureRequest": ["quotes"],
    "EditRequest": ["text"],
    "RegenerateRequest": ["play_on"],
    "NewCompaction": ["focus", "model"],
    "Revision": ["text"],
    "Rejection": ["reason"],
    "ReviewRequest": ["reason"],
    "PreviewRequest": ["chat", "locks", "place", "policy", "values"],
    "Activation": ["emergency"],
    "SampleRequest": ["locks", "place", "policy", "values"],
    "NewLedgerExport": ["form", "q"],
    "NewReading": ["chat", "reason"],
    "NewRadius": ["group", "locks", "place", "policy", "values"],
    "NewEvaluation": ["days", "place", "policy", "share", "version"],
    "Lint": ["locks", "values"],
    "NewPolicy": ["description", "draft", "locks", "name", "note", "slug", "values"],
    "PatchedPolicyChange": ["description", "name", "retired"],
    "NewVersion": ["based_on", "draft", "locks", "note", "values"],
    "PolicyImport": ["form", "into", "name"],
    "NewAssignment": ["chat", "group", "level", "policy", "user"],
    "NewHold": ["case", "chat", "group", "level", "reason", "review_on", "user"],
    "HoldRelease": ["reason"],
    "NewKey": ["lifetime_days", "name", "scopes", "unmanaged"],
    "PatchedTeamTask": ["teamTask"],
    "NewTeamMessage": ["message"],
    "AgentQuery": [
        "agentId",
        "agentType",
        "instructionFileText",
        "systemInstruction",
        "windowSizeOverride",
    ],
    "NewSnapshot": ["snapshot"],
    "NewSkill": ["description", "enabled", "files", "group", "mode", "name", "team", "text"],
    "PatchedSkillChange": ["description", "enabled", "files", "mode", "name", "text"],
    "SkillArchive": ["archive", "group", "team"],
    "TeamBody": [
        "agents",
        "goes_on_after_failure",
        "hop_limit",
        "independent",
        "max_bytes",
        "message_cap",
        "name",
        "routing",
        "seconds_limit",
        "shared",
        "task",
        "token_limit",
    ],
}
# Objects nested in other bodies.
INSIDE = {
    "SkillFileChange": ["name", "text"],
    "AgentBody": [
        "agent_type",
        "instruction",
        "instruction_file_text",
        "model",
        "name",
        "policy",
        "prompt_form",
        "rests",
        "role_id",
        "type",
        "window_size",
    ],
}
HOSTILE = [
    "' OR '1'='1",
    '"; DROP TABLE chats_chat; --',
    "1 UNION SELECT password FROM auth_user",
    "NEAR(a b)",
    "*",
    "%",
    "\\",
    "$(id)",
    "{{7*7}}",
    "../../etc/passwd",
    "x\r\nSet-Cookie: a=b",
    "\x00",
    "🙂" * 50,
]


def test_S03_fields_that_are_not_offered_cannot_be_set(
    of_alice: Program, chat: Chat, bob: User
) -> None:
    before = model_to_dict(chat)
    wanted = (
        ("PATCH", f"chats/{chat.pk}", {"title": "New"}),
        ("POST", "chats", {"title": "New"}),
        ("POST", f"chats/{chat.pk}/messages", {"text": "Hello"}),
    )
    for field in READ_ONLY_FIELDS:
        rates.REQUESTS.clear()
        for method, path, body in wanted:
            answer = of_alice.call(method, path, {**body, field: bob.pk})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "unknown_field"), field
            assert error["param"] == field
    chat.refresh_from_db()
    assert model_to_dict(chat) == before
    assert Chat.objects.count() == 1
    assert not Message.objects.exists()


def test_S03_schema_offers_nothing_else() -> None:
    schema = describe_api()
    wanted = OFFERS | INSIDE
    offered = {name: sorted(schema["components"]["schemas"][name]["properties"]) for name in wanted}
    assert offered == wanted
    sent = {
        body["schema"]["$ref"].rpartition("/")[2]
        for operations in schema["paths"].values()
        for operation in operations.values()
        for body in operation.get("requestBody", {"content": {}})["content"].values()
        # A file has no fields.
        if "$ref" in body["schema"]
    }
    assert sent == set(OFFERS)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "chats"),
        ("PATCH", "chats/{chat}"),
        ("DELETE", "chats/{chat}"),
        ("POST", "chats/{chat}/messages"),
        ("POST", "chats/{chat}/turns/{turn}/consent"),
        ("POST", "chats/{chat}/turns/{turn}/stop"),
        ("POST", "chats/{chat}/turns/{turn}/retry"),
        ("POST", "chats/{chat}/turns/{turn}/continue"),
        ("POST", "chats/{chat}/erase"),
        ("POST", "chats/{chat}/compactions"),
        ("POST", "chats/{chat}/compactions/resume"),
        *[
            ("POST", f"chats/{{chat}}/compactions/{NOBODY}/{action}")
            for action in ("cancel", "undo", "redo", "rerun", "revise", "approve", "reject")
        ],
        *[
            ("POST", f"chats/{{chat}}/messages/{NOBODY}/{action}")
            for action in ("pin", "unpin", "exclude", "include", "keep", "edit", "erase")
        ],
        ("POST", f"chats/{{chat}}/messages/{NOBODY}/regenerate"),
        ("POST", f"chats/{{chat}}/messages/{NOBODY}/branch"),
        ("POST", f"chats/{{chat}}/branches/{NOBODY}/choose"),
        ("POST", "chats/{chat}/rounds/go-on"),
        ("POST", "chats/{chat}/context"),
        ("POST", "imports"),
        ("POST", f"imports/{NOBODY}/stop"),
        ("DELETE", f"imports/{NOBODY}"),
        ("POST", "files"),
        ("DELETE", f"files/{NOBODY}"),
        ("POST", "teams"),
        ("PUT", f"teams/{NOBODY}"),
        ("DELETE", f"teams/{NOBODY}"),
        ("POST", f"teams/{NOBODY}/copy"),
        ("POST", "policies"),
        ("POST", "policies/assignments"),
        ("DELETE", "policies/assignments/1"),
        ("POST", "policies/none/versions"),
        ("PATCH", "policies/none"),
        ("POST", "keys"),
        ("DELETE", "keys/00000000-0000-4000-8000-000000000000"),
    ],
)
def test_S09_session_needs_its_token_and_a_key_does_not(
    method: str, path: str, alice: User, of_alice: Program, turn: Turn
) -> None:
    address = path.format(chat=turn.branch.chat_id, turn=turn.pk)
    session = Program("", enforce_csrf_checks=True)
    session.client.force_login(alice)
    refused = session.call(method, address, {})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf_failed")
    session.client.get("/login/")
    token = session.client.cookies["csrftoken"].value
    allowed = session.call(method, address, {}, HTTP_X_CSRFTOKEN=token)
    assert allowed.status_code != 403 or allowed.json()["error"]["code"] != "csrf_failed"
    of_alice.client.handler.enforce_csrf_checks = True
    with_key = of_alice.call(method, address, {})
    assert with_key.status_code != 403 or with_key.json()["error"]["code"] == "session_required"


@pytest.mark.parametrize("text", HOSTILE)
def test_S23_hostile_input_is_only_text(text: str, of_alice: Program, chat: Chat) -> None:
    for name in ("cursor", "limit", "type", "chat", "since", "order", "q"):
        assert of_alice.get("audit/events", **{name: text}).status_code == 400
    for path in ("chats", f"chats/{chat.pk}/messages", f"chats/{chat.pk}/compactions"):
        assert of_alice.get(path, cursor=text).status_code == 400
    sent = of_alice.post(
        f"chats/{chat.pk}/messages",
        {"text": text},
        HTTP_IDEMPOTENCY_KEY=text.replace("\r\n", " ").encode().decode("latin-1"),
    )
    assert sent.status_code in {202, 400, 422}
    assert "Set-Cookie" not in sent
    assert of_alice.get("chats").status_code == 200


def test_S24_logs_hold_neither_keys_nor_texts(
    of_alice: Program, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    secret = str(of_alice.client.defaults["HTTP_AUTHORIZATION"]).split()[1]
    with caplog.at_level(logging.DEBUG):
        of_alice.post(f"chats/{chat.pk}/messages", {"text": "canary-77"})
        of_alice.post(f"chats/{chat.pk}/messages", b"canary-77")
        of_alice.get("nowhere", canary="canary-77")
        Program("plm_canary-77").get("chats")
    ours = [record for record in caplog.records if not record.name.startswith("django.db")]
    text = "\n".join(record.getMessage() for record in ours)
    assert secret not in text
    assert "canary-77" not in text


def test_S10_answers_carry_the_security_headers(of_alice: Program, chat: Chat) -> None:
    for answer in (of_alice.get("chats"), of_alice.get("nowhere"), Program("").get("chats")):
        assert answer["Cache-Control"] == "no-store"
        assert "default-src 'none'" in answer["Content-Security-Policy"]
        assert answer["X-Content-Type-Options"] == "nosniff"


def test_options_tells_nothing(of_alice: Program, chat: Chat) -> None:
    answer = of_alice.call("OPTIONS", "chats")
    assert answer.status_code == 405
    assert set(answer.json()) == {"error"}


def test_head_is_a_get_without_its_body(of_alice: Program, chat: Chat) -> None:
    answer = of_alice.call("HEAD", "chats")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer["Allow"] == "GET, HEAD, POST"


def test_what_is_not_json_is_not_offered(of_alice: Program) -> None:
    answer = of_alice.call("GET", "chats", HTTP_ACCEPT="text/html")
    assert (answer.status_code, answer.json()["error"]["code"]) == (406, "not_acceptable")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Http404(), "not_found"),
        (exceptions.PermissionDenied(), "permission_denied"),
        (exceptions.PermissionDenied("CSRF Failed: no cookie"), "csrf_failed"),
        (exceptions.NotAuthenticated(), "not_authenticated"),
        (RequestDataTooBig(), "unsupported_media_type"),
    ],
)
def test_errors_of_the_framework_get_a_stable_code(error: Exception, code: str) -> None:
    refusal = convert_exception(error, method="POST")
    assert refusal is not None
    assert refusal.code == code


def test_error_that_nobody_foresaw_is_left_to_the_server(
    of_alice: Program, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_arguments: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(access, "get_chat", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        of_alice.get(f"chats/{chat.pk}")


def test_schema_has_no_warnings_and_names_the_stream(
    of_alice: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = of_alice.get("schema").json()
    assert "Warning" not in capsys.readouterr().err
    stream = "/api/v1/chats/{chat_id}/turns/{turn_id}/events"
    assert "text/event-stream" in schema["paths"][stream]["get"]["responses"]["200"]["content"]
    assert schema["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert "401" in operation["responses"]
            assert operation["description"]


def test_S10_docs_have_no_inline_code_and_need_a_session(alice: User, of_alice: Program) -> None:
    assert of_alice.get("docs").status_code == 302
    browser = Program("")
    browser.client.force_login(alice)
    page = browser.get("docs").content.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", page)
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page)
    links = set(re.findall(r'<a href="([^"]+)"', page))
    for address in set(re.findall(r'(?:src|href|data-schema)="([^"]+)"', page)) - links:
        assert address.startswith(("/static/", "/api/v1/"))
    assert all(address.startswith("/") for address in links)
    script = browser.get("docs.js")
    assert script["Content-Type"].startswith("text/javascript")


def test_bucket_refills_evenly_and_forgets_the_oldest(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.API_REQUESTS_PER_MINUTE = 60
    buckets = rates.Buckets("API_REQUESTS_PER_MINUTE")
    for _ in range(60):
        buckets.take("a", now=100.0)
    with pytest.raises(rates.RateLimited) as refused:
        buckets.take("a", now=100.5)
    assert refused.value.retry_after == 1
    assert buckets.take("a", now=101.0).remaining == 0
    assert buckets.take("a", now=1000.0).remaining == 59
    monkeypatch.setattr(rates, "CLIENTS", 2)
    for client in "bcd":
        buckets.take(client, now=1000.0)
    assert list(buckets.levels) == ["c", "d"]
