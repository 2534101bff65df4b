"""A chat's system text over REST, and its segments in receipts."""

from collections.abc import Callable
from typing import Any

import pytest

from chats.actions import system_texts
from chats.models import Chat, Turn
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent, ContextPolicy
from tests.chats.api.programs import MakeProgram, Program
from tests.support.chat_summaries import SetPolicy
from tests.support.clocks import NOON
from tests.support.error_codes import read_status_and_code

OWN = "Answer like a pirate."


def change(program: Program, chat: Chat, **body: Any) -> Any:
    """Send a PATCH of the chat."""
    return program.call("PATCH", f"chats/{chat.pk}", body)


def test_it_is_set_read_and_taken_away(of_alice: Program, chat: Chat, demo_model: object) -> None:
    assert change(of_alice, chat, system_text=OWN).json()["system_text"] == OWN
    assert of_alice.get(f"chats/{chat.pk}").json()["system_text"] == OWN
    assert "system_text" not in of_alice.get("chats").json()["data"][0]
    assert change(of_alice, chat, system_text="").json()["system_text"] == ""
    assert AuditEvent.objects.filter(type="chat.system_text_changed").count() == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 20_001, (422, "too_long")),
        ("a\0", (422, "invalid_character")),
        ("word " * 3_900, (422, "policy_impossible")),
        (7, (400, "invalid_value")),
        (None, (400, "invalid_value")),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    of_alice: Program,
    chat: Chat,
    set_policy: SetPolicy,
    text: object,
    expected: tuple[int, str],
) -> None:
    set_policy()
    refused = change(of_alice, chat, system_text=text, title="New")
    assert read_status_and_code(refused) == expected
    assert refused.json()["error"]["param"] == "system_text"
    chat.refresh_from_db()
    assert (chat.system_text, chat.title) == ("", "")


def test_a_policy_that_locks_it_refuses_with_a_stable_code(
    of_alice: Program, chat: Chat, set_policy: SetPolicy
) -> None:
    set_policy(chat_system="ignore")
    refused = change(of_alice, chat, system_text=OWN)
    assert read_status_and_code(refused) == (403, "system_text_locked")
    locked = system_texts.SystemTextLocked(policy=f"{ContextPolicy.objects.get().name} v1")
    assert refused.json()["error"]["message"] == locked.sentence


def test_charlie_and_a_reading_key_cannot(
    of_charlie: Program, program: MakeProgram, chat: Chat, alice: Any
) -> None:
    assert change(of_charlie, chat, system_text=OWN).status_code == 404
    reader = program(alice, scopes=("chats:read",))
    assert change(reader, chat, system_text=OWN).status_code == 403
    chat.refresh_from_db()
    assert chat.system_text == ""


def test_a_receipt_carries_its_segments_with_their_cuts(
    of_alice: Program,
    chat: Chat,
    set_policy: SetPolicy,
    work: Callable[..., Any],
    alice: Any,
) -> None:
    set_policy(system_text="Be brief.", max_chars_per_message=120)
    change(of_alice, chat, system_text=OWN)

    def say(text: str) -> Turn:
        turn = start_turn(user=alice, chat=chat, text=text, now=NOON).turn
        work(turn, [TextDelta("Arr."), Finished("stop")])
        return turn

    say("word " * 100)
    turn = say("And now?")
    (receipt,) = of_alice.get(f"chats/{chat.pk}/turns/{turn.pk}").json()["receipts"]
    found = receipt["segments"]

    assert [(part["origin"], part["part"], part["seq"]) for part in found] == [
        ("system", "policy", None),
        ("system", "chat", None),
        ("history", "", 1),
        ("history", "", 2),
        ("question", "", 3),
    ]
    assert [part["cut_to"] for part in found] == [None, None, 120, None, None]
    assert sum(part["tokens"] for part in found) == receipt["prompt_tokens"]
    assert found[4]["message"] == str(turn.trigger_id)


def test_the_schema_describes_both(of_alice: Program) -> None:
    schema = of_alice.get("schema").json()["components"]["schemas"]
    assert schema["ReceiptOut"]["properties"]["segments"]["items"]["$ref"].endswith("/SegmentOut")
    assert set(schema["SegmentOut"]["properties"]) == {
        "origin",
        "part",
        "message",
        "seq",
        "tokens",
        "cut_to",
        "results_cut_to",
    }
    assert "system_text" in schema["ChatDetailOut"]["properties"]
