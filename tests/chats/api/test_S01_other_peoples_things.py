"""S1: objects of other users answer 404, for every path and method of the schema."""

import hashlib
import io
import uuid
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from chats.actions import lifecycle, organising
from chats.files import uploads
from chats.memory.preferences import memory_settings, preferences
from chats.models import (
    ApiKey,
    Chat,
    Compaction,
    FileImport,
    ImportOutcome,
    MessageImage,
    PendingErasure,
    Receipt,
    RetentionRun,
    TeamVersion,
    Turn,
)
from chats.people import keys
from chats.record import audit_access
from chats.teams import rosters, team_drafts
from chats.turns.start import start_turn
from chats.webhooks import managing as webhooks
from contextpolicy import holds, ledger, policy_assignments, publish
from contextpolicy.models import (
    AuditEvent,
    BlastRadius,
    ContextPolicy,
    EffectivePolicy,
    Evaluation,
    PolicyAssignment,
)
from tests.chats.api.programs import MakeProgram, Program
from tests.support.api_operations import METHODS, PATHS, VALID_BODIES, replace_ids

CANARY = "canary-5f1c"


ABOUT_ONE = sorted(path for path in PATHS if "{" in path)
# Paths without a list in the response. The export of all data is an archive with a separate test.
# Users without access to policies, holds, retention or counts get a refusal.
NO_LISTS = {
    "/api/v1/audit/checkpoints",
    "/api/v1/audit/proof",
    "/api/v1/audit/readings",
    "/api/v1/audit/readings/asked",
    "/api/v1/blast-radius",
    "/api/v1/evaluations",
    "/api/v1/counts",
    "/api/v1/export",
    "/api/v1/holds",
    "/api/v1/retention",
    "/api/v1/retention/runs",
    "/api/v1/policies",
    "/api/v1/policies/assignments",
    "/api/v1/policies/effective",
    "/api/v1/policies/recommended-drafts",
}
LISTS = sorted(path for path in set(PATHS) - set(ABOUT_ONE) - NO_LISTS if "get" in PATHS[path])


@pytest.fixture
def of_alice_ids(alice: User, chat: Chat, demo_model: object, now: datetime) -> dict[str, str]:
    """One object of each kind that Alice owns, with a marker word in its text."""
    lifecycle.rename_chat(chat=chat, title=CANARY, actor=f"user:{alice.pk}", now=now)
    turn = start_turn(user=alice, chat=chat, text=CANARY, now=now).turn
    policy = EffectivePolicy.objects.create(digest="d" * 64, values={}, sources={}, label=CANARY)
    compaction = Compaction.objects.create(
        branch=turn.branch,
        kind="summary",
        status="published",
        from_seq=1,
        to_seq=1,
        text=CANARY,
        trigger="test",
        effective_policy=policy,
        created_at=now,
    )
    receipt = receipt_of(turn, policy)
    key, _ = keys.create_key(owner=alice, name=CANARY, scopes=keys.SCOPES, now=now)
    agent = team_drafts.AgentDraft(name="Planner", instruction=CANARY)
    draft = team_drafts.TeamDraft(name=CANARY, agents=[agent], task=CANARY)
    team = rosters.create_team(user=alice, draft=draft, shared=False, now=now).team
    Chat.objects.filter(pk=chat.pk).update(team=team)
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    kept = preferences.write_preference(owner_id=alice.pk, slot="note", text=CANARY, now=now)
    governing = publish.create_policy(
        slug=CANARY, name=CANARY, values={"strategy": "simple"}, actor="system", now=now
    )
    assigned = policy_assignments.assign_policy(
        policy=governing, level="instance", actor="system", now=now
    )
    url = f"https://example.org/{CANARY}"
    webhook, _ = webhooks.create_webhook(owner=alice, url=url, events=["task.changed"], now=now)
    hold = holds.place_hold(
        level="chat", chat_id=chat.pk, case=CANARY, reason=CANARY, actor="system", now=now
    )
    run = RetentionRun.objects.create(started_at=now, is_open=False, digest="0" * 64)
    counted = BlastRadius.objects.create(
        policy=governing, digest="0" * 64, base=1, place="instance", started_at=now
    )
    evaluation = Evaluation.objects.create(
        policy=governing, version=governing.versions.get(), base=1, started_at=now, ends_at=now
    )
    pending = PendingErasure.objects.create(owner=alice, chat=chat, asked_at=now)
    file = FileImport.objects.create(owner=alice, size=1, reason=CANARY, created_at=now)
    ImportOutcome.objects.create(file=file, place=1, title=CANARY, reason=CANARY)
    upload, _ = uploads.accept_upload(
        io.BytesIO(CANARY.encode()), name=f"{CANARY}.txt", owner=alice, now=now
    )
    image = MessageImage.objects.create(
        message_id=str(turn.trigger_id),
        sha256=hashlib.sha256(CANARY.encode()).hexdigest(),
        media_type="image/png",
        data=CANARY.encode(),
    )
    return {
        "sha256": image.sha256,
        "file_id": str(upload.pk),
        "import_id": str(file.pk),
        "hold_id": str(hold.pk),
        "run_id": str(run.pk),
        "radius_id": str(counted.pk),
        "asked_id": str(asked_for(chat, now=now)),
        "evaluation_id": str(evaluation.pk),
        "erasure_id": str(pending.pk),
        "webhook_id": str(webhook.pk),
        "delivery_id": str(webhooks.queue_test_event(webhook=webhook, now=now).public_id),
        "slug": CANARY,
        "number": "1",
        "assignment_id": str(assigned.pk),
        "preference_id": str(kept.pk),
        "chat_id": str(chat.pk),
        "turn_id": str(turn.pk),
        "message_id": str(turn.trigger_id),
        "branch_id": str(turn.branch_id),
        "compaction_id": str(compaction.pk),
        "receipt_id": str(receipt.pk),
        "key_id": str(key.pk),
        "folder_id": str(organising.create_folder(owner=alice, name=CANARY).pk),
        "team_id": str(team.pk),
        "role_id": "planner",
        "client_id": str(chat.pk),
    }


def asked_for(chat: Chat, *, now: datetime) -> uuid.UUID:
    """Store an auditor's request to read the chat."""
    data = {"reason": CANARY}
    with transaction.atomic():
        row = ledger.record_event(
            "content.asked", actor="user:7", now=now, chat_id=chat.pk, data=data
        )
    return audit_access.derive_request_id(row)


def receipt_of(turn: Turn, policy: EffectivePolicy) -> Receipt:
    """Store the receipt of a turn's call."""
    return Receipt.objects.create(
        turn=turn,
        attempt=1,
        step=1,
        effective_policy=policy,
        model_name=CANARY,
        segments=[],
        left_out=[],
        budget={},
        prompt_tokens=0,
        prompt_sha256=CANARY,
        last_seq=1,
        created_at=turn.queued_at,
    )


def answer_of(client: Any, path: str, method: str, ids: dict[str, str]) -> tuple[int, str]:
    """Return status and body without the request id."""
    operation = PATHS[path].get(method.lower(), {}).get("operationId", "")
    filled = path.format(**ids).removeprefix("/api/v1/")
    answer = client.call(method, filled, VALID_BODIES.get(operation))
    assert not answer.streaming, f"{method} {path} opened a stream"
    text = answer.content.decode()
    return answer.status_code, text.replace(answer["X-Request-ID"], "")


def in_session(user: User, client: Program) -> Program:
    """A client with a browser session instead of a key."""
    client.client.defaults.pop("HTTP_AUTHORIZATION", None)
    browser = Program("")
    browser.client.force_login(user)
    return browser


def refusal_of(path: str, method: str, door: str) -> int:
    """The status of a request with the ids of another person."""
    if method.lower() not in PATHS[path]:
        return 405
    return 403 if path.startswith("/api/v1/keys") and door == "key" else 404


# One test for all paths, here and below, because the objects take longer to create than the
# requests. Charlie changes none of them (`test_S01_charlie_changed_nothing`).
@pytest.mark.parametrize("door", ["key", "session"])
def test_S01_foreign_and_absent_ids_get_the_same_answer(
    door: str, of_alice_ids: dict[str, str], charlie: User, of_charlie: Program
) -> None:
    client = of_charlie if door == "key" else in_session(charlie, of_charlie)
    wrong = []
    for path in ABOUT_ONE:
        for method in METHODS:
            foreign = answer_of(client, path, method, of_alice_ids)
            absent = answer_of(client, path, method, replace_ids(of_alice_ids))
            is_right = foreign == absent and foreign[0] == refusal_of(path, method, door)
            if not is_right or CANARY in foreign[1]:
                wrong.append((method, path, foreign, absent))
    assert wrong == []


def test_S01_ids_are_checked_as_a_chain(
    of_alice_ids: dict[str, str],
    alice: User,
    charlie: User,
    program: MakeProgram,
    now: datetime,
) -> None:
    chains = [(path, method) for path in ABOUT_ONE if path.count("{") > 1 for method in PATHS[path]]
    wrong = []
    for owner in (alice, charlie):
        other = lifecycle.create_chat(owner=owner, now=now)
        url = "https://example.org/other"
        told, _ = webhooks.create_webhook(owner=owner, url=url, events=["task.changed"], now=now)
        ids = {**of_alice_ids, "chat_id": str(other.pk), "webhook_id": str(told.pk)}
        client = program(owner)
        for path, method in chains:
            status, _ = answer_of(client, path, method.upper(), ids)
            if status != 404:
                wrong.append((owner.username, method, path, status))
    assert len(chains) > 10
    assert wrong == []


def test_S01_lists_hold_ones_own_only(
    of_alice_ids: dict[str, str], charlie: User, of_charlie: Program
) -> None:
    browser = in_session(charlie, of_charlie)
    private = {CANARY, *(own_id for own_id in of_alice_ids.values() if not own_id.isdecimal())}
    addresses = [path + (f"?q={CANARY}" if path.endswith("/search") else "") for path in LISTS]
    chat = of_alice_ids["chat_id"]
    addresses += [f"{path}?chat={chat}" for path in LISTS if "events" in path]
    wrong = []
    for address in addresses:
        answer = browser.call("GET", address.removeprefix("/api/v1/"))
        told = sorted(text for text in private if text in answer.content.decode())
        if answer.status_code != 200 or told:
            wrong.append((address, answer.status_code, told))
    assert wrong == []


def test_S01_charlie_changed_nothing(
    of_alice_ids: dict[str, str], charlie: User, of_charlie: Program
) -> None:
    # The use of Charlie's key is a separate event.
    others = AuditEvent.objects.exclude(type="api_key.used", actor=f"user:{charlie.pk}")
    events = others.count()
    for path in ABOUT_ONE:
        for method in METHODS:
            answer_of(of_charlie, path, method, of_alice_ids)
    assert others.count() == events
    assert Chat.objects.get(pk=of_alice_ids["chat_id"]).title == CANARY
    assert Turn.objects.get().stop_requested_at is None
    assert ApiKey.objects.get(pk=of_alice_ids["key_id"]).revoked_at is None
    assert TeamVersion.objects.get().name == CANARY
    assert ContextPolicy.objects.get().name == CANARY
    assert PolicyAssignment.objects.count() == 1


def test_S01_nothing_opens_without_signing_in(of_alice_ids: dict[str, str]) -> None:
    wrong = []
    for path in (*sorted(PATHS), "/api/v1/schema", "/api/v1/nowhere"):
        status, code = (
            (404, "not_found") if path.endswith("nowhere") else (401, "not_authenticated")
        )
        for method in METHODS:
            answer = Program("").call(method, path.format(**of_alice_ids).removeprefix("/api/v1/"))
            if answer.status_code != status or answer.json()["error"]["code"] != code:
                wrong.append((method, path, answer.status_code))
    assert wrong == []


def test_S01_unknown_addresses_and_malformed_ids_answer_like_absent_ones(
    of_charlie: Program,
) -> None:
    bodies = set()
    for path in ("chats/7", "chats/../keys", f"chats/{uuid.uuid4()}", "nowhere/at/all", ""):
        answer = of_charlie.get(path)
        assert answer.status_code == 404
        error = answer.json()["error"]
        bodies.add(str({**error, "request_id": ""}))
    assert len(bodies) == 1
