"""Legal holds over REST: place, read, release, and erasures that are pending because of them."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, PendingErasure, Turn
from chats.record import holds
from contextpolicy.models import LegalHold
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.chats.api.programs import MakeProgram, Program
from tests.contextpolicy.people import person

pytestmark = pytest.mark.django_db
HOLD = {"level": "user", "user": "alice", "case": "2026-17", "reason": "Dispute"}


@pytest.fixture
def of_ines(program: MakeProgram) -> Program:
    """The client of Ines, a policy administrator."""
    return program(person("ines", POLICY_ADMIN))


@pytest.mark.policy_case(27)
def test_a_program_places_and_releases_a_hold(of_ines: Program, of_alice: Program) -> None:
    placed = of_ines.post("holds", {**HOLD, "review_on": "2027-01-15"})
    assert placed.status_code == 201
    said = placed.json()
    assert (said["level"], said["user"], said["group"], said["chat"]) == (
        "user",
        "alice",
        None,
        None,
    )
    assert said["ends_at"] is None
    assert of_ines.get(f"holds/{said['id']}").json() == said
    assert of_ines.get("holds").json() == {"data": [said], "next_cursor": None}

    released = of_ines.post(f"holds/{said['id']}/release", {"reason": "Settled"})

    assert released.status_code == 200
    assert released.json()["release_reason"] == "Settled"
    again = of_ines.post(f"holds/{said['id']}/release", {"reason": "Again"})
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "hold_released"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"user": ""}, "user"),
        ({"user": "nobody"}, "user"),
        ({"level": "chat"}, "user"),
        ({"level": "instance"}, "user"),
        ({"case": " "}, "case"),
        ({"reason": "x" * 501}, "reason"),
        ({"placed_by": "user:1"}, "placed_by"),
        ({"review_on": "soon"}, "review_on"),
    ],
)
def test_a_hold_that_is_not_whole_is_refused(
    of_ines: Program, of_alice: Program, wrong: dict[str, str], param: str
) -> None:
    refused = of_ines.post("holds", {**HOLD, **wrong})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param
    assert not LegalHold.objects.exists()


def test_a_hold_without_a_reason_is_refused(of_ines: Program, of_alice: Program) -> None:
    refused = of_ines.post("holds", {**HOLD, "reason": ""})
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "hold_incomplete"


def test_auditors_read_and_users_find_nothing(
    of_ines: Program, of_charlie: Program, of_alice: Program, program: MakeProgram
) -> None:
    pk = of_ines.post("holds", HOLD).json()["id"]
    auditor = program(person("axel", AUDITOR))
    assert auditor.get(f"holds/{pk}").status_code == 200
    assert auditor.post("holds", HOLD).status_code == 403
    assert auditor.post(f"holds/{pk}/release", {"reason": "No"}).status_code == 403
    for method, where in (("GET", "holds"), ("GET", f"holds/{pk}"), ("POST", "holds")):
        assert of_charlie.call(method, where).status_code == 404
    assert of_charlie.post(f"holds/{pk}/release", {"reason": "No"}).status_code == 404


def test_what_is_held_is_refused_and_waits(
    of_ines: Program, of_alice: Program, of_charlie: Program, chat: Chat, turn: Turn
) -> None:
    Turn.objects.update(status=Turn.Status.COMPLETED)
    of_ines.post("holds", HOLD)
    said = f"chats/{chat.pk}/messages/{turn.trigger_id}"
    expected = holds.UnderHold(meanwhile=holds.MESSAGE_STAYS).sentence
    # With an idempotency key as well: the refusal is rolled back, the pending erasure is kept.
    for headers in ({}, {"Idempotency-Key": "one"}):
        refused = of_alice.call("POST", f"{said}/erase", headers=headers)
        assert refused.status_code == 409
        error = refused.json()["error"]
        assert (error["code"], error["message"]) == ("under_legal_hold", expected)
    of_alice.post(f"chats/{chat.pk}/erase")
    assert of_alice.get(f"chats/{chat.pk}").status_code == 404

    waiting = of_alice.get("erasures").json()["data"]

    assert [(row["chat"], row["message"]) for row in waiting] == [
        (str(chat.pk), None),
        (str(chat.pk), str(turn.trigger_id)),
    ]
    assert of_charlie.get("erasures").json()["data"] == []
    where = f"erasures/{waiting[1]['id']}"
    assert of_charlie.call("DELETE", where).status_code == 404
    assert of_alice.call("DELETE", where).status_code == 204
    assert of_alice.call("DELETE", where).status_code == 404
    assert PendingErasure.objects.get().chat == chat
    of_alice.post(f"chats/{chat.pk}/restore")
    assert of_alice.get("erasures").json()["data"] == []


def test_a_preference_that_is_held_is_refused(
    of_ines: Program, of_alice: Program, alice: User
) -> None:
    of_alice.call("PATCH", "memory", {"consent": True})
    row = of_alice.post("memory/preferences", {"slot": "tone", "text": "Short, please."}).json()
    pk = of_ines.post("holds", HOLD).json()["id"]
    refused = of_alice.call("DELETE", f"memory/preferences/{row['id']}")
    assert refused.json()["error"]["code"] == "under_legal_hold"
    assert of_alice.get("memory").json()["preferences"][0]["status"] == "superseded"
    of_ines.post(f"holds/{pk}/release", {"reason": "Settled"})
    LegalHold.objects.update(ends_at=timezone.now() - timedelta(seconds=1))
    assert of_alice.call("DELETE", f"memory/preferences/{row['id']}").status_code == 204
    assert of_alice.get("erasures").json()["data"] == []
