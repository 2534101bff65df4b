"""S13: keys are shown once, hashed, scoped, revocable, and accepted only in their header."""

import json
from datetime import datetime, timedelta

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.core import serializers
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.models import ApiKey, Chat, LoginFailure
from chats.people import keys
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import MakeProgram, Program
from tests.support.api_bodies import NEW_KEY
from tests.support.api_schema import describe_api

# The scope of each operation. None: any key. Session: no key is accepted.
MATRIX = {
    "audit_events_list": "audit:read",
    "audit_export": "audit:read",
    "audit_checkpoints_list": "audit:read",
    "audit_proof": "audit:read",
    "audit_readings_list": "audit:read",
    "audit_readings_open": "audit:read",
    "audit_readings_asked": "audit:read",
    "audit_readings_grant": "audit:read",
    "audit_readings_refuse": "audit:read",
    "audit_readings_get": "audit:read",
    "audit_readings_end": "audit:read",
    "audit_receipts_request": "audit:read",
    "audit_receipts_request_file": "audit:read",
    "audit_compactions_request": "audit:read",
    "audit_compactions_request_file": "audit:read",
    "chats_turns_request": "chats:read",
    "chats_turns_request_file": "chats:read",
    "chats_compactions_request": "chats:read",
    "chats_compactions_request_file": "chats:read",
    "policies_trial": "policy:write",
    "chats_list": "chats:read",
    "chats_create": "chats:write",
    "chats_get": "chats:read",
    "chats_change": "chats:write",
    "chats_delete": "chats:write",
    "chats_restore": "chats:write",
    "folders_list": "chats:read",
    "folders_create": "chats:write",
    "folders_get": "chats:read",
    "folders_rename": "chats:write",
    "folders_delete": "chats:write",
    "chats_erase": "chats:erase",
    "chats_branches_list": "chats:read",
    "chats_branches_choose": "chats:write",
    "chats_compactions_list": "chats:read",
    "chats_compactions_create": "chats:write",
    "chats_compactions_resume": "chats:write",
    "chats_compactions_compare": "chats:read",
    "chats_compactions_cancel": "chats:write",
    "chats_compactions_undo": "chats:write",
    "chats_compactions_redo": "chats:write",
    "chats_compactions_rerun": "chats:write",
    "chats_compactions_revise": "chats:write",
    "chats_compactions_approve": "chats:write",
    "chats_compactions_reject": "chats:write",
    "chats_compactions_get": "chats:read",
    "messages_recent": "chats:read",
    "usage": "chats:read",
    "search": "chats:read",
    "memory_get": "chats:read",
    "memory_change": "chats:write",
    "preferences_create": "chats:write",
    "preferences_change": "chats:write",
    "preferences_delete": "chats:write",
    "chats_messages_list": "chats:read",
    "chats_messages_send": "chats:write",
    "chats_state_get": "chats:read",
    "chats_state_change": "chats:write",
    "chats_state_versions": "chats:read",
    "chats_state_restore": "chats:write",
    "chats_messages_pin": "chats:write",
    "chats_messages_unpin": "chats:write",
    "chats_messages_exclude": "chats:write",
    "chats_messages_include": "chats:write",
    "chats_messages_keep": "chats:write",
    "chats_messages_edit": "chats:write",
    "chats_messages_regenerate": "chats:write",
    "chats_messages_branch": "chats:write",
    "chats_messages_erase": "chats:erase",
    "chats_pins_get": "chats:read",
    "chats_policy_get": "policy:read",
    "chats_policy_explain": "policy:read",
    "ui_chats_send": "chats:write",
    "ui_chats_get": "chats:read",
    "ui_chats_resume": "chats:read",
    "ui_chats_stop": "chats:write",
    "policies_effective": "policy:read",
    "policies_preview": "policy:read",
    "policies_sample": "policy:read",
    "radii_list": "policy:read",
    "radii_begin": "policy:write",
    "radii_get": "policy:read",
    "radii_stop": "policy:write",
    "radii_resume": "policy:write",
    "evaluations_list": "policy:read",
    "evaluations_begin": "policy:write",
    "evaluations_get": "policy:read",
    "evaluations_end": "policy:write",
    "evaluations_promote": "policy:write",
    "policies_list": "policy:read",
    "policies_create": "policy:write",
    "policies_get": "policy:read",
    "policies_change": "policy:write",
    "policies_lint": "policy:read",
    "policies_export": "policy:read",
    "policies_import": "policy:write",
    "summaries_review": "audit:read",
    "policies_recommended_create": "policy:write",
    "policies_recommended_list": "policy:read",
    "policies_versions_list": "policy:read",
    "policies_versions_create": "policy:write",
    "policies_versions_get": "policy:read",
    "policies_versions_activate": "policy:write",
    "policies_versions_restore": "policy:write",
    "policies_assignments_list": "policy:read",
    "policies_assignments_create": "policy:write",
    "policies_assignments_delete": "policy:write",
    "chats_archive_search": "chats:read",
    "chats_team_get": "chats:read",
    "chats_team_change": "chats:write",
    "chats_team_messages_list": "chats:read",
    "chats_team_messages_add": "chats:write",
    "chats_team_context": "chats:read",
    "chats_team_prompt": "chats:read",
    "chats_team_snapshot_get": "chats:read",
    "chats_team_snapshot_read": "chats:write",
    "chats_team_clear": "chats:write",
    "chats_agents_context": "chats:read",
    "chats_rounds_list": "chats:read",
    "chats_rounds_go_on": "chats:write",
    "chats_turns_get": "chats:read",
    "chats_export": "chats:read",
    "export_all": "chats:read",
    "files_list": "chats:read",
    "files_upload": "chats:write",
    "files_get": "chats:read",
    "files_delete": "chats:write",
    "files_download": "chats:read",
    "chats_messages_image": "chats:read",
    "imports_list": "chats:read",
    "imports_conditions": "chats:read",
    "imports_create": "chats:write",
    "imports_get": "chats:read",
    "imports_delete": "chats:write",
    "imports_stop": "chats:write",
    "imports_chats": "chats:read",
    "chats_context_get": "chats:read",
    "chats_context_ask": "chats:read",
    "chats_turns_receipts": "chats:read",
    "chats_turns_consent": "chats:write",
    "chats_turns_stop": "chats:write",
    "chats_turns_retry": "chats:write",
    "chats_turns_continue": "chats:write",
    "chats_turns_events": "chats:read",
    "keys_list": "session",
    "keys_create": "session",
    "keys_revoke": "session",
    "models_list": "chats:read",
    "skills_list": "policy:read",
    "skills_create": "policy:write",
    "skills_get": "policy:read",
    "skills_change": "policy:write",
    "skills_delete": "policy:write",
    "skills_export": "policy:read",
    "skills_files": "policy:read",
    "skills_import": "policy:write",
    "teams_list": "chats:read",
    "teams_create": "chats:write",
    "teams_get": "chats:read",
    "teams_change": "chats:write",
    "teams_delete": "chats:write",
    "teams_copy": "chats:write",
    "erasures_list": "chats:read",
    "erasures_withdraw": "chats:erase",
    "holds_list": "policy:read",
    "holds_place": "policy:write",
    "holds_retrieve": "policy:read",
    "holds_release": "policy:write",
    "counts": "policy:read",
    "chats_balance": "chats:read",
    "policies_balance": "policy:read",
    "retention_preview": "policy:read",
    "retention_runs_list": "policy:read",
    "retention_runs_begin": "policy:write",
    "retention_certificate": "policy:read",
    "webhooks_list": "webhooks",
    "webhooks_create": "webhooks",
    "webhooks_retrieve": "webhooks",
    "webhooks_change": "webhooks",
    "webhooks_delete": "webhooks",
    "webhooks_test": "webhooks",
    "webhooks_deliveries_list": "webhooks",
    "webhooks_deliveries_send": "webhooks",
}


def test_S13_secret_is_shown_once_and_nowhere_stored(
    alice: User, browser: Program, demo_model: object
) -> None:
    made = browser.post("keys", NEW_KEY)
    secret = made.json()["secret"]
    assert (made.status_code, secret[:4], len(secret)) == (201, "plm_", 47)
    assert "secret" not in browser.get("keys").json()["data"][0]
    rows = [*ApiKey.objects.all(), *AuditEvent.objects.all()]
    assert secret not in serializers.serialize("json", rows)
    assert Program(secret).get("models").status_code == 200


@pytest.mark.parametrize("scope", keys.SCOPES)
def test_S13_scope_matrix(scope: str, alice: User, program: MakeProgram, chat: Chat) -> None:
    schema = describe_api()
    client = program(alice, scopes=(scope,))
    nobody = "00000000-0000-4000-8000-000000000000"
    kinds = ["chat", "turn", "message", "branch", "compaction", "key", "folder", "team", "role"]
    kinds += ["preference", "webhook", "delivery", "hold", "run", "erasure", "radius", "evaluation"]
    kinds += ["import", "receipt", "asked", "client", "file"]
    ids = dict.fromkeys((f"{kind}_id" for kind in kinds), nobody)
    ids |= {"slug": "none", "number": "1", "assignment_id": "1", "sha256": "0" * 64}
    seen = set()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"]
            seen.add(name)
            answer = client.call(method.upper(), path.format(**ids).removeprefix("/api/v1/"), {})
            allowed = MATRIX[name] == scope
            assert (answer.status_code in {401, 403}) != allowed, name
    assert seen == set(MATRIX)


def test_S13_missing_scope_is_named(alice: User, program: MakeProgram, chat: Chat) -> None:
    client = program(alice, scopes=("chats:read",))
    answer = client.post("chats", {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")
    assert "chats:write" in answer.json()["error"]["message"]


def test_S13_ended_keys_open_nothing_at_once(
    alice: User, browser: Program, demo_model: object
) -> None:
    made = browser.post("keys", NEW_KEY).json()
    client = Program(made["secret"])
    assert client.get("models").status_code == 200
    revoked = browser.call("DELETE", f"keys/{made['id']}")
    assert revoked.json()["revoked_at"]
    assert client.get("models").json()["error"]["code"] == "invalid_api_key"
    assert list(AuditEvent.objects.order_by("pk").values_list("type", flat=True))[:3] == [
        "api_key.created",
        "api_key.used",
        "api_key.revoked",
    ]


def test_S13_expired_key_and_key_of_an_inactive_owner_open_nothing(
    alice: User, program: MakeProgram, demo_model: object
) -> None:
    client = program(alice)
    with time_machine.travel(timezone.now() + timedelta(days=91)):
        assert client.get("models").status_code == 401
    assert client.get("models").status_code == 200
    alice.is_active = False
    alice.save()
    assert client.get("models").status_code == 401


def test_S13_key_is_worth_what_its_owner_is_worth_now(
    alice: User, program: MakeProgram, chat: Chat
) -> None:
    client = program(alice)
    right = Permission.objects.get(codename="view_auditevent")
    alice.user_permissions.add(right)
    types = {event["type"] for event in client.get("audit/events").json()["data"]}
    assert "api_key.created" in types
    alice.user_permissions.remove(right)
    types = {event["type"] for event in client.get("audit/events").json()["data"]}
    assert types == {"chat.created"}


@pytest.mark.parametrize("name", ["key", "api_key", "access_token", "plm"])
def test_S13_key_in_an_address_is_refused(
    name: str, alice: User, demo_model: object, now: datetime
) -> None:
    _, secret = keys.create_key(owner=alice, name="x", scopes=keys.SCOPES, now=timezone.now())
    for client in (Program(""), Program(secret)):
        answer = client.get("models", **{name: secret})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "key_in_address")


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer x", "Basic YTpi", "plm_x", "Bearer plm_wrong"]
)
def test_S13_session_does_not_help_a_request_with_a_wrong_header(
    header: str, alice: User, browser: Program
) -> None:
    assert browser.get("models").status_code == 200
    answer = browser.call("GET", "models", HTTP_AUTHORIZATION=header)
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_S09_a_key_beside_a_cookie_is_judged_alone(
    alice: User, charlie: User, demo_model: object
) -> None:
    _, secret = keys.create_key(owner=charlie, name="x", scopes=keys.SCOPES, now=timezone.now())
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice)
    answer = browser.post(
        "/api/v1/chats", {}, "application/json", headers={"Authorization": f"Bearer {secret}"}
    )
    assert answer.status_code == 201
    assert Chat.objects.get().owner == charlie


def test_S12_twelve_wrong_keys_end_in_429(
    alice: User, program: MakeProgram, demo_model: object
) -> None:
    statuses = [Program(f"plm_{n}").get("models").status_code for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert LoginFailure.objects.count() == 10
    assert program(alice).get("models").status_code == 200


def test_keys_need_a_fresh_sign_in(browser: Program) -> None:
    with time_machine.travel(timezone.now() + timedelta(minutes=16)):
        answer = browser.post("keys", NEW_KEY)
    assert answer.json()["error"]["code"] == "reauthentication_required"
    assert not ApiKey.objects.exists()


REFUSED = {
    "no name": ({"name": " "}, 422, "invalid_name"),
    "a long name": ({"name": "x" * 201}, 422, "too_long"),
    "a NUL in the name": ({"name": "a\x00"}, 422, "invalid_name"),
    "no scope": ({"scopes": []}, 422, "unknown_scope"),
    "a scope that is none": ({"scopes": ["chats:read", "admin"]}, 422, "unknown_scope"),
    "scopes as text": ({"scopes": "chats:read"}, 400, "invalid_value"),
    "no days": ({"lifetime_days": 0}, 422, "invalid_lifetime"),
    "a year and a day": ({"lifetime_days": 366}, 422, "invalid_lifetime"),
    "days as text": ({"lifetime_days": "7"}, 400, "invalid_value"),
    "days as true": ({"lifetime_days": True}, 400, "invalid_value"),
    "an owner": ({"owner": 1}, 400, "unknown_field"),
}


@pytest.mark.parametrize(("change", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_bad_key_is_refused(
    change: dict[str, object], status: int, code: str, browser: Program
) -> None:
    answer = browser.post("keys", {**NEW_KEY, **change})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert not ApiKey.objects.exists()


def test_twenty_living_keys_are_enough(alice: User, browser: Program) -> None:
    made = [browser.post("keys", {**NEW_KEY, "name": str(n)}) for n in range(20)]
    assert {answer.status_code for answer in made} == {201}
    refused = browser.post("keys", NEW_KEY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "too_many_keys")
    browser.call("DELETE", f"keys/{made[0].json()['id']}")
    assert browser.post("keys", NEW_KEY).status_code == 201


def test_S13_a_key_lives_ninety_days_unless_it_is_told_otherwise(browser: Program) -> None:
    made = browser.post("keys", {"name": "CI", "scopes": ["chats:read"]}).json()
    lives = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert lives == timedelta(days=90)


def test_S13_last_use_is_noted_once_a_minute(alice: User, now: datetime) -> None:
    _, secret = keys.create_key(owner=alice, name="x", scopes=["chats:read"], now=now)
    noted = []
    for seconds in (0, 30, 59, 61, 100):
        keys.authenticate_api_key(secret=secret, now=now + timedelta(seconds=seconds))
        last = ApiKey.objects.get().last_used_at
        assert last
        noted.append((last - now).total_seconds())
    assert noted == [0, 0, 0, 61, 61]


def test_S13_the_first_use_of_a_day_stands_in_the_ledger(alice: User, now: datetime) -> None:
    key, secret = keys.create_key(owner=alice, name="x", scopes=["chats:read"], now=now)
    for hours in (0, 1, 11.99, 12, 13, 36):
        keys.authenticate_api_key(secret=secret, now=now + timedelta(hours=hours))
    used = AuditEvent.objects.filter(type="api_key.used").order_by("pk")
    assert [(event.at - now) / timedelta(hours=1) for event in used] == [0, 12, 36]
    assert {event.actor for event in used} == {f"user:{alice.pk}"}
    assert {event.data["key"] for event in used} == {str(key.pk)}
    assert secret not in json.dumps([event.data for event in used])


def test_S13_each_key_has_a_rate_of_its_own_that_says_when(
    alice: User, program: MakeProgram, demo_model: object, settings: Settings
) -> None:
    settings.API_REQUESTS_PER_MINUTE = 3
    client, other = program(alice), program(alice)
    answers = [client.get("models") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer["X-RateLimit-Remaining"] for answer in answers[:3]] == ["2", "1", "0"]
    assert 1 <= int(answers[3]["Retry-After"]) <= 20
    assert answers[3].json()["error"]["code"] == "rate_limit_exceeded"
    told = [answers[3][f"X-RateLimit-{name}"] for name in ("Limit", "Remaining", "Reset")]
    assert told[:2] == ["3", "0"]
    assert 41 <= int(told[2]) <= 60
    assert other.get("models").status_code == 200
