"""The state of a chat over the API."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, ChatState
from tests.chats.api.programs import MakeProgram, Program
from tests.chats.states import SCHEMA, keep_a_state, lay


@pytest.mark.requirement("S2.5")
def test_the_state_is_read_with_its_schema_and_sources(
    of_alice: Program, chat: Chat, kept: ChatState, now: datetime
) -> None:
    answer = of_alice.get(f"chats/{chat.pk}/state")
    assert answer.status_code == 200
    assert answer.json() == {
        "branch": str(kept.branch_id),
        "version": 1,
        "values": {"destination": "Oslo"},
        "origins": {
            "destination": {"seq": 1, "by": "extracted", "at": "2026-11-20T12:00:00+00:00"}
        },
        "to_seq": 1,
        "model": "",
        "updated_at": "2026-11-20T12:00:00Z",
        "policy": "Booking v1",
        "schema": SCHEMA,
    }


def test_a_chat_without_a_state_yet_is_at_version_0(
    of_alice: Program, chat: Chat, now: datetime
) -> None:
    keep_a_state(now=now)
    body = of_alice.get(f"chats/{chat.pk}/state").json()
    assert (body["version"], body["values"], body["updated_at"]) == (0, {}, None)


def test_a_policy_that_keeps_none_says_so(of_alice: Program, chat: Chat) -> None:
    for method, body in (("GET", None), ("PATCH", {"version": 0})):
        answer = of_alice.call(method, f"chats/{chat.pk}/state", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_state")


@pytest.mark.requirement("S2.5")
def test_a_correction_sets_and_removes_fields(
    of_alice: Program, chat: Chat, kept: ChatState
) -> None:
    change = {"version": 1, "values": {"people": 2}, "remove": ["destination"]}
    answer = of_alice.call("PATCH", f"chats/{chat.pk}/state", change)
    assert answer.status_code == 200
    assert (answer.json()["version"], answer.json()["values"]) == (2, {"people": 2})
    again = of_alice.call("PATCH", f"chats/{chat.pk}/state", change)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "state_changed")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({}, 400, "missing_field"),
        ({"version": "1"}, 400, "invalid_value"),
        ({"version": 1, "values": []}, 400, "invalid_value"),
        ({"version": 1, "remove": [1]}, 400, "invalid_value"),
        ({"version": 1, "mood": 1}, 400, "unknown_field"),
        ({"version": 1, "values": {"people": "two"}}, 422, "state_invalid"),
        ({"version": 1, "values": {"mood": "good"}}, 422, "state_invalid"),
        ({"version": 1, "values": {"people": None}}, 422, "state_invalid"),
        ({"version": 1, "values": {"wishes": ["\0"]}}, 422, "state_invalid"),
        ({"version": 1, "values": {"wishes": ["x" * 17_000]}}, 422, "too_long"),
        ({"version": 7, "values": {}}, 409, "state_changed"),
    ],
    ids=range(11),
)
def test_what_cannot_be_is_refused(
    of_alice: Program, chat: Chat, kept: ChatState, change: object, status: int, code: str
) -> None:
    answer = of_alice.call("PATCH", f"chats/{chat.pk}/state", change)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert ChatState.objects.get() == kept


def test_the_scopes_are_those_of_chats(
    program: MakeProgram, alice: User, chat: Chat, kept: ChatState
) -> None:
    path = f"chats/{chat.pk}/state"
    reader = program(alice, scopes=("chats:read",))
    assert reader.get(path).status_code == 200
    assert reader.call("PATCH", path, {"version": 1}).status_code == 403
    assert program(alice, scopes=("policy:read",)).get(path).status_code == 403


def test_another_persons_state_does_not_exist(
    of_charlie: Program, chat: Chat, kept: ChatState
) -> None:
    path = f"chats/{chat.pk}/state"
    assert of_charlie.get(path).status_code == 404
    assert of_charlie.call("PATCH", path, {"version": 1}).status_code == 404


@pytest.mark.requirement("S2.5", by="integrator")
def test_the_history_is_read_and_a_version_restored(
    of_alice: Program, chat: Chat, now: datetime
) -> None:
    keep_a_state(now=now)
    lay(chat, {"destination": "Oslo"}, now=now, seq=1)
    lay(chat, {"destination": "Lima", "people": 2}, now=now, seq=3)
    lay(chat, {"people": 2}, now=now, seq=5, kind="corrected")
    versions = of_alice.get(f"chats/{chat.pk}/state/versions").json()["data"]
    assert [version["version"] for version in versions] == [3, 2, 1]
    assert versions[0]["changes"] == [
        {"name": "destination", "before": "Lima", "after": None, "seq": None}
    ]
    assert versions[1]["changes"][1] == {"name": "people", "before": None, "after": 2, "seq": 3}

    absent = of_alice.post(f"chats/{chat.pk}/state/restore", {"version": 3, "to": 9})
    restored = of_alice.post(f"chats/{chat.pk}/state/restore", {"version": 3, "to": 2})

    assert (absent.status_code, absent.json()["error"]["code"]) == (404, "no_such_version")
    assert restored.json()["values"] == {"destination": "Lima", "people": 2}
