"""A user's memory over REST."""

import pytest

from chats.memory.preferences import preferences
from chats.models import Chat, Folder, Preference
from tests.chats.api.programs import Program


@pytest.mark.requirement("S1.2", by="integrator")
@pytest.mark.requirement("S4.9", by="integrator")
def test_memory_is_read_and_written(of_alice: Program) -> None:
    assert of_alice.get("memory").json() == {
        "instructions": "",
        "consented_at": None,
        "paused": False,
        "inferring_since": None,
        "preferences": [],
    }
    off = of_alice.post("memory/preferences", {"slot": "name", "text": "Bob"})
    assert (off.status_code, off.json()["error"]["code"]) == (409, "memory_off")

    changed = of_alice.call("PATCH", "memory", {"instructions": "Be brief.", "consent": True})
    made = of_alice.post("memory/preferences", {"slot": "name", "text": "Bob"})
    other = of_alice.call("PATCH", f"memory/preferences/{made.json()['id']}", {"text": "Robert"})
    found = of_alice.get("memory").json()

    assert changed.json()["instructions"] == "Be brief."
    assert (made.status_code, other.status_code) == (201, 200)
    assert {row["text"]: row["status"] for row in found["preferences"]} == {
        "Robert": "current",
        "Bob": "superseded",
    }
    gone = of_alice.call("DELETE", f"memory/preferences/{other.json()['id']}?reopen=true")
    assert gone.status_code == 204
    assert [row["status"] for row in of_alice.get("memory").json()["preferences"]] == ["current"]


def test_bad_input_gets_a_code(of_alice: Program) -> None:
    of_alice.call("PATCH", "memory", {"consent": True})
    codes = {
        of_alice.post("memory/preferences", body).json()["error"]["code"]
        for body in (
            {"slot": "faith", "text": "x"},
            {"slot": "note", "text": ""},
            {"slot": "note", "text": "x" * 201},
        )
    }
    assert codes == {"unknown_slot", "preference_invalid"}
    long = of_alice.call("PATCH", "memory", {"instructions": "x" * 2_001})
    assert (long.status_code, long.json()["error"]["code"]) == (422, "too_long")


def test_a_proposed_preference_is_accepted(of_alice: Program, chat: Chat) -> None:
    of_alice.call("PATCH", "memory", {"consent": True})
    row = preferences.write_preference(
        owner_id=chat.owner_id, slot="name", text="Bob", now=chat.created_at
    )
    Preference.objects.filter(pk=row.pk).update(status="proposed", kind="inferred")

    accepted = of_alice.call("PATCH", f"memory/preferences/{row.pk}", {})

    assert (accepted.json()["status"], accepted.json()["confidence"]) == ("current", 100)


def test_chats_and_folders_are_left_without_memory(of_alice: Program, chat: Chat) -> None:
    folder = Folder.objects.create(owner_id=chat.owner_id, name="Work")

    told = of_alice.call("PATCH", f"chats/{chat.pk}", {"memory": False}).json()
    kept = of_alice.call("PATCH", f"folders/{folder.pk}", {"memory": False}).json()

    assert (told["memory"], kept["memory"]) == (False, False)
    chat.refresh_from_db()
    folder.refresh_from_db()
    assert chat.without_memory
    assert folder.without_memory


@pytest.mark.requirement("S1.2", by="integrator")
def test_proposals_are_agreed_to_apart(of_alice: Program) -> None:
    refused = of_alice.call("PATCH", "memory", {"inferring": True})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "memory_off")

    both = of_alice.call("PATCH", "memory", {"consent": True, "inferring": True})
    assert both.json()["inferring_since"] is not None
    assert of_alice.call("PATCH", "memory", {"inferring": False}).json()["inferring_since"] is None
