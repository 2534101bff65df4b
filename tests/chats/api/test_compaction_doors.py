"""Compactions over the API: request, undo, redo, correct, approve, compare."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from chats.compaction import maintain
from chats.compaction.report import skip_reasons
from chats.models import Branch, Chat, Compaction, Message, Turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from tests.chats.api.programs import MakeProgram, Program
from tests.security.addresses import routes
from tests.support.api_schema import describe_api
from tests.support.chat_summaries import (
    GOOD_SUMMARY,
    SENTENCE,
    Say,
    SetPolicy,
    Writes,
    compose_next_prompt,
    find_active_summary,
    reload_branch,
    script_summary,
)
from tests.support.error_codes import read_status_and_code

COUNTER = ApproximateCounter()
Fold = Callable[..., Compaction]
ROOM = {"token_budget": 9000, "reserve_tokens": 1000}


@pytest.fixture
def compact(of_alice: Program, roomy: Chat, now: datetime) -> Fold:
    """Request a compaction, run the worker and return the active row."""

    def compacting(**options: Any) -> Compaction:
        answer = of_alice.post(f"chats/{roomy.pk}/compactions", options)
        assert answer.status_code == 202, answer.content
        assert answer.json()["compaction_asked_at"]
        maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
        row = find_active_summary(roomy)
        assert row is not None
        return row

    return compacting


def place(row: Compaction) -> str:
    """Return the path of a compaction."""
    return f"chats/{row.branch.chat_id}/compactions/{row.pk}"


def test_compact_now_with_focus_and_model_and_read_everything_about_it(
    compact: Fold, of_alice: Program, alice: User, writer: ModelSpec, writes: Writes
) -> None:
    writes(script_summary(GOOD_SUMMARY.replace("[#1, #2]", "[#1, #99]")))
    row = compact(focus="the price", model=writer.slug)
    seen = of_alice.get(place(row)).json()
    assert (seen["focus"], seen["model"], seen["trigger"]) == ("the price", "writer", "manual")
    assert (seen["asked_by"], seen["status"]) == (f"user:{alice.pk}", "published")
    bullet = seen["sections"][0]["bullets"][0]
    first = Message.objects.get(branch=row.branch, seq=1)
    assert (bullet["sources"], bullet["source_ids"]) == ([1], [str(first.pk)])
    assert (bullet["invalid"], bullet["unsupported"]) == ([99], False)
    assert seen["retention"]
    assert (seen["cost"], seen["rung"], seen["attempt"]) == ("0.00300000", "model", 1)
    assert seen["duration_ms"] is not None
    assert seen["summary_tokens"] > 0
    assert (seen["displaced"], seen["revises"], seen["erased"]) == (None, None, False)
    assert "lease_token" not in seen


def test_undo_and_redo_bring_back_the_exact_prompt(
    compact: Fold, of_alice: Program, roomy: Chat
) -> None:
    before = compose_next_prompt(roomy)
    row = compact()
    with_summary = compose_next_prompt(roomy)
    for _ in range(2):
        undone = of_alice.post(f"{place(row)}/undo")
        assert (undone.status_code, undone.json()["status"]) == (200, "undone")
        assert compose_next_prompt(roomy) == before
    (branch,) = of_alice.get(f"chats/{roomy.pk}/branches").json()["data"]
    assert (branch["compaction_paused"], branch["compaction"]) == (True, None)
    for _ in range(2):
        redone = of_alice.post(f"{place(row)}/redo")
        assert (redone.status_code, redone.json()["status"]) == (200, "published")
        assert compose_next_prompt(roomy) == with_summary


def test_resume_ends_the_pause_of_an_undo(compact: Fold, of_alice: Program, roomy: Chat) -> None:
    of_alice.post(f"{place(compact())}/undo")
    for _ in range(2):
        resumed = of_alice.post(f"chats/{roomy.pk}/compactions/resume")
        assert (resumed.status_code, resumed.json()["compaction_paused"]) == (200, False)
    assert AuditEvent.objects.filter(type="compaction.resumed").count() == 1


def test_undo_is_refused_with_the_numbers_when_the_originals_do_not_fit(
    of_alice: Program, long_chat: Chat, fold: Fold, say: Say
) -> None:
    row = fold(long_chat)
    for _ in range(4):
        say(long_chat, f"More. {SENTENCE}", SENTENCE * 4)
    answer = of_alice.post(f"{place(row)}/undo")
    assert read_status_and_code(answer) == (409, "undo_does_not_fit")
    assert "2,000" in answer.json()["error"]["message"]


def test_a_correction_is_a_new_one_and_is_compared_with_the_old(
    compact: Fold, of_alice: Program, roomy: Chat, alice: User
) -> None:
    row = compact()
    text = GOOD_SUMMARY.replace("Oslo", "Bergen").strip()
    made = of_alice.post(f"{place(row)}/revise", {"text": text})
    assert made.status_code == 200
    new = made.json()
    assert (new["revises"], new["trigger"]) == (str(row.pk), "revision")
    assert (new["asked_by"], new["text"]) == (f"user:{alice.pk}", text)
    assert of_alice.get(place(row)).json()["status"] == "replaced"
    compared = of_alice.get(
        f"chats/{roomy.pk}/compactions/compare", older=row.pk, newer=new["id"]
    ).json()
    assert compared["older"]["id"] == str(row.pk)
    assert any("Bergen" in line for change in compared["changes"] for line in change["after"])
    kinds = {change["kind"] for change in compared["changes"]}
    assert kinds <= {"equal", "replace", "delete", "insert"}


def test_a_summary_is_written_again_from_its_originals(
    compact: Fold,
    of_alice: Program,
    roomy: Chat,
    now: datetime,
    writer: ModelSpec,
    writes: Writes,
) -> None:
    row = compact()
    writes(script_summary())
    asked = of_alice.post(f"{place(row)}/rerun", {"model": writer.slug})
    assert (asked.status_code, asked.json()["compaction"]) == (202, str(row.pk))
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
    new = find_active_summary(roomy)
    assert new is not None
    assert (new.revises, new.model_name) == (row, "writer")


@pytest.fixture
def draft(of_alice: Program, roomy: Chat, set_policy: SetPolicy, now: datetime) -> Compaction:
    """A summary that is pending approval by Alice."""
    set_policy(approval="owner", **ROOM)
    of_alice.post(f"chats/{roomy.pk}/compactions", {})
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
    return Compaction.objects.get(kind="summary")


def test_a_draft_is_approved(draft: Compaction, of_alice: Program, roomy: Chat) -> None:
    assert of_alice.get(place(draft)).json()["needs_approval"] is True
    approved = of_alice.post(f"{place(draft)}/approve")
    assert (approved.status_code, approved.json()["status"]) == (200, "published")
    assert find_active_summary(roomy) == draft
    assert read_status_and_code(of_alice.post(f"{place(draft)}/approve")) == (409, "not_waiting")


def test_a_draft_is_rejected_with_a_reason(
    draft: Compaction, of_alice: Program, roomy: Chat
) -> None:
    too_long = of_alice.post(f"{place(draft)}/reject", {"reason": "x" * 401})
    assert read_status_and_code(too_long) == (422, "reason_too_long")
    rejected = of_alice.post(f"{place(draft)}/reject", {"reason": "The price is wrong."})
    assert (rejected.status_code, rejected.json()["status"]) == (200, "rejected")
    assert rejected.json()["remark"] == "The price is wrong."
    assert find_active_summary(roomy) is None


def test_a_draft_that_the_chat_outgrew_says_so(
    draft: Compaction, of_alice: Program, roomy: Chat
) -> None:
    Branch.objects.filter(pk=draft.branch_id).update(context_revision=99)
    assert read_status_and_code(of_alice.post(f"{place(draft)}/approve")) == (
        409,
        "draft_overtaken",
    )
    assert of_alice.get(place(draft)).json()["status"] == "overtaken"


def test_a_summary_that_is_being_written_can_be_stopped(
    compact: Fold, of_alice: Program, now: datetime
) -> None:
    row = compact()
    assert read_status_and_code(of_alice.post(f"{place(row)}/cancel")) == (409, "not_being_written")
    Compaction.objects.filter(pk=row.pk).update(
        status="preparing", lease_token="t", lease_until=now
    )
    Branch.objects.filter(pk=row.branch_id).update(active_compaction=None)
    stopped = of_alice.post(f"{place(row)}/cancel").json()
    assert (stopped["status"], stopped["reason"]) == ("failed", "cancelled")


REFUSED: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "focus too long": ("compactions", {"focus": "x" * 501}, 422, "focus_too_long"),
    "focus with NUL": ("compactions", {"focus": "a\0"}, 422, "invalid_character"),
    "unknown model": ("compactions", {"model": "none"}, 422, "unknown_summariser"),
    "unknown field": ("compactions", {"trigger": "x"}, 400, "unknown_field"),
    "rerun by an unknown model": ("{row}/rerun", {"model": "none"}, 422, "unknown_summariser"),
    "empty words": ("{row}/revise", {"text": " \n"}, 422, "summary_empty"),
    "too many words": ("{row}/revise", {"text": SENTENCE * 90}, 422, "summary_too_long"),
    "no words": ("{row}/revise", {}, 400, "missing_field"),
    "not a draft": ("{row}/approve", {}, 409, "not_waiting"),
    "not a draft either": ("{row}/reject", {}, 409, "not_waiting"),
    "a field of nothing": ("{row}/undo", {"force": True}, 400, "unknown_field"),
    "a redo of nothing": ("{other}/redo", {}, 409, "nothing_to_redo"),
    "an undo of the past": ("{other}/undo", {}, 409, "not_in_force"),
    "a rerun of the past": ("{other}/rerun", {}, 409, "not_in_force"),
    "words for the past": ("{other}/revise", {"text": GOOD_SUMMARY}, 409, "not_in_force"),
}


@pytest.mark.parametrize(("path", "body", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_refused_with_a_code_and_changes_nothing(
    path: str,
    body: dict[str, Any],
    status: int,
    code: str,
    compact: Fold,
    of_alice: Program,
    roomy: Chat,
) -> None:
    row = compact()
    fields = [f.attname for f in Compaction._meta.fields if f.name not in {"id", "status"}]
    values = {name: getattr(row, name) for name in fields}
    other = Compaction.objects.create(**values, status="overtaken")
    state = list(Compaction.objects.order_by("pk").values()), compose_next_prompt(roomy)
    names = {"row": f"compactions/{row.pk}", "other": f"compactions/{other.pk}"}
    answer = of_alice.post(f"chats/{roomy.pk}/{path.format(**names)}", body)
    assert read_status_and_code(answer) == (status, code)
    assert len(answer.json()["error"]["message"]) > 15
    assert (list(Compaction.objects.order_by("pk").values()), compose_next_prompt(roomy)) == state


def test_a_policy_without_summaries_says_so(
    of_alice: Program, roomy: Chat, set_policy: SetPolicy
) -> None:
    set_policy(strategy="simple")
    assert read_status_and_code(of_alice.post(f"chats/{roomy.pk}/compactions", {})) == (
        409,
        "no_summaries",
    )


def test_a_policy_can_leave_undo_and_edit_to_others(
    compact: Fold, of_alice: Program, alice: User, set_policy: SetPolicy
) -> None:
    row = compact()
    set_policy(undo_right="admins", edit_right="admins", **ROOM)
    for action, body in (
        ("undo", {}),
        ("redo", {}),
        ("revise", {"text": GOOD_SUMMARY}),
        ("rerun", {}),
    ):
        answer = of_alice.post(f"{place(row)}/{action}", body)
        assert read_status_and_code(answer) == (403, "not_allowed_by_policy")
    alice.user_permissions.add(Permission.objects.get(codename="change_contextpolicy"))
    assert of_alice.post(f"{place(row)}/undo").status_code == 200


@pytest.mark.requirement("S4.5")
def test_the_list_says_how_far_the_summaries_reach(
    compact: Fold, of_alice: Program, program: MakeProgram, charlie: User, roomy: Chat
) -> None:
    path = f"chats/{roomy.pk}/compactions"
    assert of_alice.get(path).json()["summarised"] == {
        "cursor": 0,
        "compacted_at": None,
        "version": 0,
    }
    row = compact()
    found = of_alice.get(path).json()
    assert found["summarised"] == {
        "cursor": row.to_seq,
        "compacted_at": "2026-11-20T12:00:00Z",
        "version": 1,
    }
    assert (found["data"][0]["id"], found["next_cursor"]) == (str(row.pk), None)
    assert program(charlie).get(path).status_code == 404


def test_compare_needs_two_compactions_of_this_chat(
    compact: Fold, of_alice: Program, roomy: Chat
) -> None:
    path = f"chats/{roomy.pk}/compactions/compare"
    row = compact()
    assert read_status_and_code(of_alice.get(path, older=row.pk)) == (400, "missing_field")
    assert read_status_and_code(of_alice.get(path, older=row.pk, newer="x")) == (
        400,
        "invalid_value",
    )
    assert read_status_and_code(of_alice.get(path, older=row.pk, newer=roomy.pk)) == (
        404,
        "not_found",
    )


def test_nothing_of_somebody_elses_chat_can_be_named_from_ones_own(
    compact: Fold, of_charlie: Program, charlie: User, program: MakeProgram, roomy: Chat
) -> None:
    row = compact()
    own = of_charlie.post("chats", {"title": "mine"}).json()["id"]
    own_path = f"chats/{own}/compactions"
    compared = of_charlie.get(f"{own_path}/compare", older=row.pk, newer=row.pk)
    assert read_status_and_code(compared) == (404, "not_found")
    for action in ("cancel", "undo", "redo", "rerun", "revise", "approve", "reject"):
        for chat_id in (own, roomy.pk):
            answer = of_charlie.post(
                f"chats/{chat_id}/compactions/{row.pk}/{action}", {"text": "x"}
            )
            assert read_status_and_code(answer) == (404, "not_found"), action


def test_a_turn_says_why_it_was_followed_by_no_summary(
    of_alice: Program, roomy: Chat, say: Say
) -> None:
    turn = say(roomy)
    Turn.objects.filter(pk=turn.pk).update(compaction_outcome="below_threshold")
    seen = of_alice.get(f"chats/{roomy.pk}/turns/{turn.pk}").json()["compaction"]
    assert (seen["code"], seen["started"]) == ("below_threshold", False)
    assert seen["message"] == skip_reasons.SENTENCES["below_threshold"]
    assert seen["tokens"] > 0


def test_the_schema_describes_every_address_of_the_api() -> None:
    schema = describe_api()
    described = set(schema["paths"])
    plain = {"schema", "docs", "docs.js", "nowhere", ""}
    answered = {
        route.text.removeprefix("api/v1/") for route in routes() if route.text.startswith("api/v1/")
    }
    wanted = {
        "/api/v1/" + re.sub(r"<[a-z]+:([a-z0-9_]+)>", r"{\1}", text) for text in answered - plain
    }
    assert wanted == described


def test_the_schema_has_an_example_of_each_body_of_a_compaction() -> None:
    schema = describe_api()
    for path, operations in schema["paths"].items():
        body = operations.get("post", {}).get("requestBody")
        if body and ("/compactions" in path or path.endswith("/edit")):
            assert body["content"]["application/json"]["examples"], path


def test_branch_of_the_active_one_is_told(of_alice: Program, roomy: Chat) -> None:
    (seen,) = of_alice.get(f"chats/{roomy.pk}/branches").json()["data"]
    branch = reload_branch(roomy)
    assert (seen["id"], seen["active"], seen["parent"]) == (str(branch.pk), True, None)
    assert seen["message_count"] == branch.last_seq
