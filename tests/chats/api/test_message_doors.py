"""Actions on a message over the API: mark, edit, regenerate, branch, erase."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Branch, Chat, Message, Turn
from chats.people import sessions
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import MakeProgram, Program
from tests.support.chat_summaries import (
    Fold,
    Say,
    SetPolicy,
    compose_next_prompt,
    find_active_summary,
)
from tests.support.error_codes import read_status_and_code

DEEDS = ("pin", "unpin", "exclude", "include", "keep", "edit", "regenerate", "branch", "erase")


def message(chat: Chat, seq: int) -> Message:
    """Return the message at a position of the chat's first branch."""
    return Message.objects.get(branch__chat=chat, branch__parent=None, seq=seq)


def place(chat: Chat, seq: int) -> str:
    """Return the path of a message."""
    return f"chats/{chat.pk}/messages/{message(chat, seq).pk}"


def alices_session(alice: User, *, minutes_ago: int = 0) -> Program:
    """Alice's browser with an old sign-in."""
    program = Program("")
    program.client.force_login(alice)
    session = program.client.session
    sessions.begin_session(session=session, now=timezone.now() - timedelta(minutes=minutes_ago))
    session.save()
    return program


def test_pins_take_room_and_can_be_taken_out(of_alice: Program, roomy: Chat) -> None:
    empty = of_alice.get(f"chats/{roomy.pk}/pins").json()
    assert empty["used"] == 0 < empty["limit"]
    for _ in range(2):
        pinned = of_alice.post(f"{place(roomy, 1)}/pin")
        assert (pinned.status_code, pinned.json()["pinned"]) == (200, True)
    used = of_alice.get(f"chats/{roomy.pk}/pins").json()["used"]
    assert used == message(roomy, 1).token_count
    assert of_alice.post(f"{place(roomy, 1)}/unpin").json()["pinned"] is False
    assert of_alice.get(f"chats/{roomy.pk}/pins").json() == empty


def test_pins_are_refused_when_their_room_is_full(
    of_alice: Program, roomy: Chat, set_policy: SetPolicy
) -> None:
    set_policy(token_budget=9000, reserve_tokens=1000, pins_tokens=10)
    answer = of_alice.post(f"{place(roomy, 2)}/pin")
    assert read_status_and_code(answer) == (409, "pins_full")
    assert "Unpin another" in answer.json()["error"]["message"]


def test_an_excluded_message_leaves_the_prompt_and_its_summaries(
    of_alice: Program, long_chat: Chat, fold: Fold
) -> None:
    row = fold(long_chat)
    assert of_alice.post(f"{place(long_chat, 1)}/exclude").json()["excluded"] is True
    assert find_active_summary(long_chat) != row
    assert not any("Question 0" in text for text in compose_next_prompt(long_chat)[1])
    assert of_alice.post(f"{place(long_chat, 1)}/include").json()["excluded"] is False


def test_only_an_incomplete_reply_can_be_kept(of_alice: Program, roomy: Chat) -> None:
    assert read_status_and_code(of_alice.post(f"{place(roomy, 2)}/keep")) == (
        409,
        "nothing_to_keep",
    )
    Message.objects.filter(pk=message(roomy, 2).pk).update(finish="incomplete")
    assert of_alice.post(f"{place(roomy, 2)}/keep").json()["kept"] is True


def test_a_waiting_message_cannot_be_marked_or_branched_from(of_alice: Program, turn: Turn) -> None:
    at = f"chats/{turn.branch.chat_id}/messages/{turn.trigger_id}"
    for action in ("pin", "unpin", "exclude", "include"):
        assert read_status_and_code(of_alice.post(f"{at}/{action}")) == (409, "not_taken_up")
    assert read_status_and_code(of_alice.post(f"{at}/edit", {"text": "x"})) == (
        409,
        "still_waiting",
    )
    assert read_status_and_code(of_alice.post(f"{at}/branch")) == (409, "still_waiting")


def test_an_edit_is_a_new_branch_with_its_turn_once_per_key(of_alice: Program, roomy: Chat) -> None:
    old = roomy.active_branch_id
    path, body = f"{place(roomy, 3)}/edit", {"text": " other words "}
    first = of_alice.post(path, body, HTTP_IDEMPOTENCY_KEY="k")
    again = of_alice.post(path, body, HTTP_IDEMPOTENCY_KEY="k")
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["message"]["id"] == again.json()["message"]["id"]
    assert first.json()["turn"]["id"] == again.json()["turn"]["id"]
    assert first.json()["message"]["text"] == " other words "
    reused = of_alice.post(path, {"text": "else"}, HTTP_IDEMPOTENCY_KEY="k")
    assert read_status_and_code(reused) == (422, "idempotency_key_reused")
    branches = of_alice.get(f"chats/{roomy.pk}/branches").json()["data"]
    assert [(row["fork_seq"], row["active"]) for row in branches] == [(0, False), (2, True)]
    assert branches[1]["parent"] == str(old)
    assert Message.objects.filter(branch=old).count() == 16


def test_a_reply_is_asked_for_again_once_per_key(of_alice: Program, roomy: Chat) -> None:
    path = f"{place(roomy, 4)}/regenerate"
    turns = [of_alice.post(path, {}, HTTP_IDEMPOTENCY_KEY="k").json() for _ in range(2)]
    assert turns[0]["id"] == turns[1]["id"]
    assert (turns[0]["status"], turns[0]["message"]) == ("queued", str(message(roomy, 3).pk))
    assert Branch.objects.filter(chat=roomy).count() == 2
    bad = of_alice.post(path, {}, HTTP_IDEMPOTENCY_KEY="ü")
    assert read_status_and_code(bad) == (400, "invalid_idempotency_key")


def test_only_ones_own_words_are_edited_and_only_replies_asked_for_again(
    of_alice: Program, roomy: Chat
) -> None:
    edited = of_alice.post(f"{place(roomy, 2)}/edit", {"text": "x"})
    assert read_status_and_code(edited) == (409, "not_a_user_message")
    assert read_status_and_code(of_alice.post(f"{place(roomy, 1)}/regenerate")) == (
        409,
        "not_a_reply",
    )
    empty = of_alice.post(f"{place(roomy, 1)}/edit", {"text": " "})
    assert read_status_and_code(empty) == (422, "message_empty")
    assert Branch.objects.filter(chat=roomy).count() == 1


def test_a_chat_goes_on_from_a_message_and_back(of_alice: Program, roomy: Chat) -> None:
    old = roomy.active_branch_id
    made = of_alice.post(f"{place(roomy, 4)}/branch")
    assert made.status_code == 201
    assert (made.json()["fork_seq"], made.json()["active"]) == (4, True)
    assert len(of_alice.get(f"chats/{roomy.pk}/messages").json()["data"]) == 4
    back = of_alice.post(f"chats/{roomy.pk}/branches/{old}/choose")
    assert (back.status_code, back.json()["active"]) == (200, True)
    assert len(of_alice.get(f"chats/{roomy.pk}/messages").json()["data"]) == 16
    assert read_status_and_code(of_alice.post(f"chats/{roomy.pk}/branches/{roomy.pk}/choose")) == (
        404,
        "not_found",
    )


def test_erasing_takes_the_words_and_leaves_a_certificate(of_alice: Program, roomy: Chat) -> None:
    for _ in range(2):
        erased = of_alice.post(f"{place(roomy, 1)}/erase")
        assert erased.status_code == 200
        assert (erased.json()["erased"], erased.json()["text"]) == (True, "")
    assert AuditEvent.objects.filter(type="message.erased").count() == 1
    for action in ("pin", "branch"):
        assert read_status_and_code(of_alice.post(f"{place(roomy, 1)}/{action}")) == (
            409,
            "message_erased",
        )


def test_what_quotes_it_is_told_and_erased_when_asked(
    of_alice: Program, roomy: Chat, say: Say
) -> None:
    secret = "The door in Prinsens gate 12 opens with the code 7781, then the blue key."
    say(roomy, secret, f"Noted: {secret}")
    question = Message.objects.filter(branch__chat=roomy, role="user").latest("accepted")
    reply = Message.objects.filter(branch__chat=roomy).latest("accepted")
    at = f"chats/{roomy.pk}/messages/{question.pk}/erase"

    assert of_alice.post(at).json()["quoted_by"] == [str(reply.pk)]
    assert read_status_and_code(of_alice.post(at, {"quotes": "all"}))[0] == 400
    assert of_alice.post(at, {"quotes": "erase"}).json()["quoted_by"] == []
    reply.refresh_from_db()
    assert reply.erased_at is not None


def test_a_chat_is_erased(of_alice: Program, roomy: Chat) -> None:
    answer = of_alice.post(f"chats/{roomy.pk}/erase")
    assert answer.status_code == 200
    assert of_alice.get(f"chats/{roomy.pk}").status_code == 404
    event = AuditEvent.objects.get(type="chat.erased")
    assert answer.json()["commitment"] == event.data["commitment"]
    assert len(answer.json()["salt"]) == 64


def test_nothing_is_erased_while_its_reply_is_written(of_alice: Program, turn: Turn) -> None:
    chat = f"chats/{turn.branch.chat_id}"
    for path in (f"{chat}/erase", f"{chat}/messages/{turn.trigger_id}/erase"):
        assert read_status_and_code(of_alice.post(path)) == (409, "turn_not_over")


@pytest.mark.parametrize("what", ["chat", "message"])
def test_erasing_needs_its_own_scope_or_a_fresh_sign_in(
    what: str, alice: User, program: MakeProgram, roomy: Chat
) -> None:
    at = f"chats/{roomy.pk}/erase" if what == "chat" else f"{place(roomy, 1)}/erase"
    writer = program(alice, scopes=("chats:read", "chats:write"))
    assert read_status_and_code(writer.post(at)) == (403, "insufficient_scope")
    stale = alices_session(alice, minutes_ago=20)
    assert read_status_and_code(stale.post(at)) == (403, "reauthentication_required")
    assert not AuditEvent.objects.filter(type__endswith=".erased").exists()
    assert alices_session(alice).post(at).status_code in {200, 204}
    assert AuditEvent.objects.filter(type=f"{what}.erased").exists()


def test_somebody_elses_message_does_not_exist(of_charlie: Program, roomy: Chat, say: Say) -> None:
    events = AuditEvent.objects.filter(chat_id=roomy.pk).count()
    own = of_charlie.post("chats", {"title": "mine"}).json()["id"]
    for chat_id in (roomy.pk, own):
        for action in DEEDS:
            at = f"chats/{chat_id}/messages/{message(roomy, 1).pk}/{action}"
            assert read_status_and_code(of_charlie.post(at, {"text": "x"})) == (404, "not_found"), (
                action
            )
        choose = f"chats/{chat_id}/branches/{roomy.active_branch_id}/choose"
        assert read_status_and_code(of_charlie.post(choose)) == (404, "not_found")
    assert read_status_and_code(of_charlie.get(f"chats/{roomy.pk}/pins")) == (404, "not_found")
    assert read_status_and_code(of_charlie.get(f"chats/{roomy.pk}/branches")) == (404, "not_found")
    assert AuditEvent.objects.filter(chat_id=roomy.pk).count() == events


def test_an_excluded_question_is_not_answered_again(of_alice: Program, roomy: Chat) -> None:
    question, reply = place(roomy, 3), place(roomy, 4)
    assert of_alice.post(f"{question}/exclude").status_code == 200
    refused = of_alice.post(f"{reply}/regenerate")
    assert read_status_and_code(refused) == (409, "message_excluded")
    assert of_alice.post(f"{question}/include").status_code == 200
    assert of_alice.post(f"{reply}/regenerate").status_code == 202
