"""Turns over the API: read, stop, retry, continue."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from chats.models import Message, Receipt, Turn
from chats.providers.base import ProviderError, TextDelta
from contextpolicy.models import EffectivePolicy
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code


def path(turn: Turn, action: str = "") -> str:
    """Return the path of the turn or of an action on it."""
    return f"chats/{turn.branch.chat_id}/turns/{turn.pk}" + (f"/{action}" if action else "")


def end(turn: Turn, now: datetime, *, status: str, finish: str = "stop", text: str = "Hi") -> None:
    """Write the end of a turn."""
    reply = Message.objects.create(
        branch_id=turn.branch_id,
        accepted=50,
        seq=50,
        role="assistant",
        parts=[{"type": "reasoning", "text": "hm"}, {"type": "text", "text": text}],
        finish=finish,
        created_at=now,
    )
    failed = {"error_code": "provider_timeout", "error_sentence": "The provider was silent."}
    Turn.objects.filter(pk=turn.pk).update(
        status=status, reply=reply, finished_at=now, **(failed if status == "failed" else {})
    )


def test_turn_shows_its_text_so_far(of_alice: Program, turn: Turn) -> None:
    Turn.objects.filter(pk=turn.pk).update(partial_text="So f")
    seen = of_alice.get(path(turn)).json()
    assert (seen["status"], seen["over"]) == ("queued", False)
    assert seen["partial_text"] == "So f"
    assert seen["message"] == str(turn.trigger_id)
    assert (seen["reply"], seen["error"], seen["receipts"]) == (None, None, [])


def test_turn_that_is_over_shows_reply_usage_and_receipts(
    of_alice: Program, turn: Turn, now: datetime
) -> None:
    end(turn, now, status="completed")
    policy = EffectivePolicy.objects.create(digest="d" * 64, values={}, sources={})
    Receipt.objects.create(
        turn=turn,
        attempt=1,
        step=1,
        effective_policy=policy,
        model_name="demo",
        segments=[["history", "id", 1, 10, None, ""], ["question", "id", 2, 10, None, ""]],
        left_out=[[1, 4, "window"]],
        budget={"prompt_limit": 12_000},
        prompt_tokens=20,
        prompt_sha256="e" * 64,
        last_seq=2,
        created_at=now,
    )
    seen = of_alice.get(path(turn)).json()
    assert (seen["status"], seen["over"]) == ("completed", True)
    assert seen["reply"]["text"] == "Hi"
    assert [part["type"] for part in seen["reply"]["parts"]] == ["reasoning", "text"]
    (receipt,) = seen["receipts"]
    assert receipt["prompt_tokens"] == 20
    assert receipt["segments"] == [
        {
            "origin": origin,
            "part": "",
            "message": "id",
            "seq": seq,
            "tokens": 10,
            "cut_to": None,
            "results_cut_to": None,
        }
        for origin, seq in (("history", 1), ("question", 2))
    ]
    assert receipt["left_out"] == [[1, 4, "window"]]
    assert receipt["budget"] == {"prompt_limit": 12_000}


def test_failed_turn_names_the_cause(of_alice: Program, turn: Turn, now: datetime) -> None:
    end(turn, now, status="failed", finish="incomplete")
    seen = of_alice.get(path(turn)).json()
    assert seen["error"] == {"code": "provider_timeout", "message": "The provider was silent."}


def test_queued_turn_is_stopped_once(of_alice: Program, turn: Turn) -> None:
    stopped = of_alice.post(path(turn, "stop"))
    assert (stopped.status_code, stopped.json()["status"]) == (202, "stopped")
    assert read_status_and_code(of_alice.post(path(turn, "stop"))) == (409, "turn_is_over")


def test_failed_turn_is_tried_again_as_a_new_turn(
    of_alice: Program, turn: Turn, now: datetime
) -> None:
    assert read_status_and_code(of_alice.post(path(turn, "retry"))) == (409, "turn_not_over")
    end(turn, now, status="failed", finish="incomplete")
    again = of_alice.post(path(turn, "retry"))
    assert again.status_code == 202
    assert again.json()["message"] == str(turn.trigger_id)
    assert again.json()["id"] != str(turn.pk)
    assert read_status_and_code(of_alice.post(path(turn, "retry"))) == (409, "not_the_last_turn")


@pytest.mark.parametrize(
    ("status", "code"),
    [("completed", "turn_completed"), ("absorbed", "turn_absorbed")],
)
def test_only_a_failed_or_stopped_turn_is_tried_again(
    of_alice: Program, turn: Turn, now: datetime, status: str, code: str
) -> None:
    end(turn, now, status="completed", finish="stop")
    Turn.objects.filter(pk=turn.pk).update(status=status)
    before = Turn.objects.count()
    refused = of_alice.post(path(turn, "retry"))
    assert read_status_and_code(refused) == (409, code)
    assert Turn.objects.count() == before
    Turn.objects.filter(pk=turn.pk).update(status="stopped")
    assert of_alice.post(path(turn, "retry")).status_code == 202


def test_cut_reply_is_continued_and_a_complete_one_is_not(
    of_alice: Program, turn: Turn, now: datetime
) -> None:
    end(turn, now, status="completed", finish="stop")
    assert read_status_and_code(of_alice.post(path(turn, "continue"))) == (
        409,
        "nothing_to_continue",
    )
    Message.objects.filter(accepted=50).update(finish="length")
    onward = of_alice.post(path(turn, "continue"))
    assert (onward.status_code, onward.json()["continues"]) == (202, str(turn.pk))


@pytest.mark.parametrize("action", ["stop", "retry", "continue"])
def test_actions_take_no_fields(action: str, of_alice: Program, turn: Turn) -> None:
    assert read_status_and_code(of_alice.post(path(turn, action), {"status": "x"})) == (
        400,
        "unknown_field",
    )
    turn.refresh_from_db()
    assert turn.stop_requested_at is None


def test_retries_count_as_messages(of_alice: Program, turn: Turn, settings: Settings) -> None:
    settings.MESSAGES_PER_MINUTE = 1
    of_alice.post(path(turn, "retry"))
    assert read_status_and_code(of_alice.post(path(turn, "retry"))) == (429, "rate_limit_exceeded")


def test_a_reply_cut_by_a_content_filter_says_so_everywhere(
    of_alice: Program, turn: Turn, work: Callable[..., Any]
) -> None:
    work(turn, [TextDelta("Half of"), ProviderError("content_filtered")])
    seen = of_alice.get(path(turn)).json()
    assert (seen["status"], seen["error"]["code"]) == ("failed", "content_filtered")
    assert "content filter" in seen["error"]["message"]
    assert (seen["reply"]["text"], seen["reply"]["finish"]) == ("Half of", "incomplete")
    (receipt,) = seen["receipts"]
    assert (receipt["outcome"], receipt["error_code"]) == ("failed", "content_filtered")
    listed = of_alice.get(f"chats/{turn.branch.chat_id}/messages").json()["data"]
    assert [message["finish"] for message in listed] == ["", "incomplete"]
