"""Compactions in the administration: readable numbers, and actions with a confirmation."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chats.admin import confirm
from chats.admin.compactions.actions import DEEDS
from chats.admin.words import RUNGS
from chats.compaction import maintain
from chats.compaction.people import controls
from chats.compaction.report.skip_reasons import SENTENCES, TRIGGERS
from chats.models import Branch, Chat, Compaction
from chats.people import keys
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.pages import message_codes, opened
from tests.contextpolicy.people import person, signed_in
from tests.support.admin_actions import COMPACTION_LIST, list_actions, run_list_action
from tests.support.chat_summaries import (
    SENTENCE,
    Fold,
    Say,
    SetPolicy,
    add_minutes,
    find_active_summary,
    script_summary,
)
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

HIDDEN = re.compile('<input type="hidden" name="([^"]+)" value="([^"]*)">')
IN_USE = f"Status: {Compaction.Status.PUBLISHED.label}"
MODELS = "/admin/contextpolicy/modelspec/"
Draft = Callable[..., Compaction]


@pytest.fixture
def policy_admin(db: None) -> Client:
    """The browser of Paula, a policy administrator."""
    return signed_in(person("paula", POLICY_ADMIN))


@pytest.fixture
def draft(
    alice: User, long_chat: Chat, set_policy: SetPolicy, now: datetime, counter: ApproximateCounter
) -> Draft:
    """A summary pending approval by the approver that the policy names."""

    def drafting(approval: str = "admins") -> Compaction:
        set_policy(approval=approval)
        controls.compact_now(user=alice, chat=long_chat, now=now)
        maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
        return Compaction.objects.get(status="prepared")

    return drafting


def test_a_compaction_is_shown_in_words_and_never_its_text(
    operator: Client,
    long_chat: Chat,
    now: datetime,
    counter: ApproximateCounter,
    writer: ModelSpec,
    writes: Callable[..., ScriptedProvider],
    alice: User,
) -> None:
    # Enough calls to read the whole chat, because the policy allows only small requests.
    provider = writes(*[script_summary()] * 9)
    controls.compact_now(
        user=alice, chat=long_chat, now=now, focus="canary-focus", model=writer.slug
    )
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    row = find_active_summary(long_chat)
    assert row is not None
    page = opened(operator, reverse("admin:chats_compaction_change", args=[row.pk]))
    for words in (
        str(TRIGGERS["manual"]),
        f"user:{alice.pk}",
        str(RUNGS["model"]),
        IN_USE,
        "Lines: 1. Without a source: 0.",
        "Kept",
        f"{0.003 * len(provider.requests):.3f}",
    ):
        assert words in page.words
    for hidden in ("Anna Berg", "4711", "canary-focus"):
        # Match whole words only: a hash can contain any four digits.
        assert not re.search(rf"\b{hidden}\b", page.words)
    assert page.inline == []


@pytest.mark.requirement("S4.4", by="auditor")
def test_of_several_summaries_one_is_in_force(
    long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    first = fold(long_chat)
    for number in range(6):
        say(long_chat, f"Question {number}. {SENTENCE}", f"Answer {number}. " + SENTENCE * 6)
    second = fold(long_chat, add_minutes(now, 1))

    auditor = signed_in(person("ada", AUDITOR))
    rows = {row.pk: row for row in auditor.get(COMPACTION_LIST).context["cl"].queryset}
    shown = {
        row.pk: opened(auditor, reverse("admin:chats_compaction_change", args=[row.pk])).words
        for row in (first, second)
    }
    assert rows.keys() == {first.pk, second.pk}
    assert IN_USE not in shown[first.pk]
    assert IN_USE in shown[second.pk]
    assert f"Last message: {second.to_seq}" in shown[second.pk]
    assert (first.from_seq, second.from_seq) == (1, 1)
    assert second.to_seq > first.to_seq


def test_a_turn_says_what_followed_it(operator: Client, long_chat: Chat) -> None:
    turn = Branch.objects.get(chat=long_chat).turns.first()
    assert turn is not None
    turn.compaction_outcome = "no_gain"
    turn.save()
    page = opened(operator, reverse("admin:chats_turn_change", args=[turn.pk]))
    assert SENTENCES["no_gain"] in page.words


def test_each_role_is_offered_its_own_actions(
    operator: Client, policy_admin: Client, draft: Draft
) -> None:
    draft()
    auditor = signed_in(person("ada", AUDITOR))
    assert list_actions(operator) == {"reset_breaker", "stop_writing"}
    assert list_actions(policy_admin) == {"approve_waiting", "reject_waiting", *DEEDS}
    assert list_actions(auditor) == set()


def test_an_action_of_another_role_does_nothing(
    operator: Client, policy_admin: Client, draft: Draft
) -> None:
    row = draft()
    auditor = signed_in(person("ada", AUDITOR))
    before = AuditEvent.objects.count()
    for client, action in (
        (operator, "approve_waiting"),
        (operator, "reject_waiting"),
        (policy_admin, "reset_breaker"),
        (auditor, "approve_waiting"),
        (auditor, "reset_breaker"),
    ):
        run_list_action(client, action, row.pk, confirmed="yes")
    row.refresh_from_db()
    assert row.status == "prepared"
    assert AuditEvent.objects.count() == before


def test_the_breaker_is_reset_after_asking(operator: Client, draft: Draft) -> None:
    row = draft()
    asked = run_list_action(operator, "reset_breaker", row.pk)
    assert asked.asks == ["reset_breaker"]
    assert asked.inline == []
    assert Branch.objects.get(pk=row.branch_id).breaker_reset_at is None
    done = run_list_action(operator, "reset_breaker", row.pk, confirmed="yes")
    assert f"Chat {row.branch.chat_id}: Failure count reset." in done.words
    assert Branch.objects.get(pk=row.branch_id).breaker_reset_at is not None
    event = AuditEvent.objects.get(type="compaction.breaker_reset")
    assert event.actor == f"user:{User.objects.get(username='otto').pk}"


def test_two_compactions_of_one_chat_reset_it_once(
    operator: Client, draft: Draft, fold: Fold
) -> None:
    row = draft()
    keys = Compaction.objects.filter(branch=row.branch_id).values_list("pk", flat=True)
    run_list_action(operator, "reset_breaker", *keys, confirmed="yes")
    assert AuditEvent.objects.filter(type="compaction.breaker_reset").count() == 1


def test_a_policy_administrator_approves_after_asking(
    policy_admin: Client, draft: Draft, long_chat: Chat
) -> None:
    row = draft()
    asked = run_list_action(policy_admin, "approve_waiting", row.pk)
    assert asked.asks == ["approve_waiting"]
    assert find_active_summary(long_chat) != row
    run_list_action(policy_admin, "approve_waiting", row.pk, confirmed="yes")
    assert find_active_summary(long_chat) == row
    event = AuditEvent.objects.get(type="compaction.approved")
    assert event.actor == f"user:{User.objects.get(username='paula').pk}"


def test_a_policy_administrator_rejects_with_a_reason(policy_admin: Client, draft: Draft) -> None:
    row = draft()
    asked = run_list_action(policy_admin, "reject_waiting", row.pk)
    assert "reason" in asked.fields
    for reason in ("x" * 401, "odd \x00"):
        refused = run_list_action(
            policy_admin, "reject_waiting", row.pk, confirmed="yes", reason=reason
        )
        assert refused.asks == ["reject_waiting"]
        assert refused.fields["reason"][0][:4] == reason[:4]
    run_list_action(
        policy_admin, "reject_waiting", row.pk, confirmed="yes", reason="Too much was lost."
    )
    row.refresh_from_db()
    assert (row.status, row.remark) == ("rejected", "Too much was lost.")
    assert AuditEvent.objects.filter(type="compaction.rejected").count() == 1


def test_where_the_owner_approves_an_administrator_may_not(
    policy_admin: Client, draft: Draft
) -> None:
    row = draft("owner")
    said = run_list_action(policy_admin, "approve_waiting", row.pk, confirmed="yes")
    assert "does not allow you to approve a summary." in said.words
    row.refresh_from_db()
    assert row.status == "prepared"


def test_a_policy_administrator_undoes_and_redoes_where_the_policy_says_so(
    policy_admin: Client, long_chat: Chat, fold: Fold, set_policy: SetPolicy
) -> None:
    row = fold(long_chat)
    refused = run_list_action(policy_admin, "undo_compaction", row.pk, confirmed="yes")
    assert "does not allow you to undo or redo a compaction." in refused.words
    set_policy(undo_right="admins")
    asked = run_list_action(policy_admin, "undo_compaction", row.pk)
    assert asked.asks == ["undo_compaction"]
    assert find_active_summary(long_chat) == row
    run_list_action(policy_admin, "undo_compaction", row.pk, confirmed="yes")
    assert find_active_summary(long_chat) is None
    assert Branch.objects.get(pk=row.branch_id).compaction_paused
    run_list_action(policy_admin, "end_pause", row.pk, confirmed="yes")
    assert not Branch.objects.get(pk=row.branch_id).compaction_paused
    run_list_action(policy_admin, "redo_compaction", row.pk, confirmed="yes")
    assert find_active_summary(long_chat) == row
    event = AuditEvent.objects.get(type="compaction.redone")
    assert event.actor == f"user:{User.objects.get(username='paula').pk}"


def test_a_policy_administrator_asks_for_summaries(
    policy_admin: Client, long_chat: Chat, fold: Fold, set_policy: SetPolicy
) -> None:
    row = fold(long_chat)
    run_list_action(policy_admin, "compact_now", row.pk, confirmed="yes")
    branch = Branch.objects.get(pk=row.branch_id)
    by = f"user:{User.objects.get(username='paula').pk}"
    assert (branch.asked["by"], branch.asked["compaction"]) == (by, "")
    set_policy(edit_right="admins")
    run_list_action(policy_admin, "write_again", row.pk, confirmed="yes")
    branch.refresh_from_db()
    assert branch.asked["compaction"] == str(row.pk)


def confirm_action(client: Client, action: str, *keys: object, **more: str) -> Any:
    """Choose an action in the list, and submit the form of its confirmation page."""
    chosen = {"action": action, "_selected_action": [str(key) for key in keys], "index": "0"}
    asked = client.post(COMPACTION_LIST, {**chosen, **more})
    fields: dict[str, list[str]] = {}
    for name, value in HIDDEN.findall(asked.content.decode()):
        fields.setdefault(name, []).append(value)
    assert fields["confirmed"] == ["yes"]
    return client.post(COMPACTION_LIST, fields, follow=True)


def test_actions_on_the_chats_of_compactions_are_confirmed_on_their_page(
    policy_admin: Client, long_chat: Chat, fold: Fold
) -> None:
    row = fold(long_chat)
    confirm_action(policy_admin, "compact_now", row.pk)
    assert Branch.objects.get(pk=row.branch_id).asked["compaction"] == ""
    Branch.objects.filter(pk=row.branch_id).update(compaction_paused=True)
    answer = confirm_action(policy_admin, "end_pause", row.pk)
    assert message_codes(answer) == ["end_pause"]
    assert not Branch.objects.get(pk=row.branch_id).compaction_paused


def test_all_rows_of_a_list_are_confirmed(
    policy_admin: Client, long_chat: Chat, fold: Fold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "MOST_NAMED", 1)
    row = fold(long_chat)
    count = 250
    Compaction.objects.bulk_create(
        Compaction(
            branch_id=row.branch_id,
            kind=row.kind,
            status=Compaction.Status.FAILED,
            reason="cancelled",
            from_seq=1,
            to_seq=2,
            effective_policy_id=row.effective_policy_id,
            created_at=row.created_at,
        )
        for _ in range(count)
    )
    Branch.objects.filter(pk=row.branch_id).update(compaction_paused=True)
    across = {"select_across": "1"}
    asked = policy_admin.post(
        COMPACTION_LIST,
        {"action": "end_pause", "_selected_action": [str(row.pk)], "index": "0", **across},
    )
    html = asked.content.decode()
    assert html.count('name="_selected_action"') == 1
    assert f'name="count" value="{count + 1}"' in html
    answer = confirm_action(policy_admin, "end_pause", row.pk, **across)
    assert answer.status_code == 200
    assert not Branch.objects.get(pk=row.branch_id).compaction_paused
    # A row was added after the first page: the page asks again.
    again = policy_admin.post(
        COMPACTION_LIST,
        {
            "action": "end_pause",
            "_selected_action": [str(row.pk)],
            "confirmed": "yes",
            "count": str(count),
            **across,
        },
    )
    assert 'data-reason="end_pause"' in again.content.decode()


def test_an_operator_stops_a_summary_that_is_being_written(
    operator: Client, long_chat: Chat, fold: Fold, now: datetime
) -> None:
    row = fold(long_chat)
    said = run_list_action(operator, "stop_writing", row.pk, confirmed="yes")
    assert said.codes == ["not_being_written"]
    row.pk, row.status, row.lease_token = None, "preparing", "t"
    row.lease_until = add_minutes(now, 60)
    row.save(force_insert=True)
    run_list_action(operator, "stop_writing", row.pk, confirmed="yes")
    row.refresh_from_db()
    assert (row.status, row.reason) == ("failed", "cancelled")


def test_a_learned_limit_is_forgotten_after_asking(operator: Client, demo_model: ModelSpec) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(learned_window=4000)
    asked = run_list_action(operator, "forget_limit", demo_model.pk, where=MODELS)
    assert asked.asks == ["forget_limit"]
    demo_model.refresh_from_db()
    assert demo_model.learned_window == 4000
    done = run_list_action(operator, "forget_limit", demo_model.pk, where=MODELS, confirmed="yes")
    assert done.codes == ["forget_limit"]
    assert ModelSpec.objects.get(pk=demo_model.pk).learned_window is None
    event = AuditEvent.objects.get(type="model.limit_reset")
    assert (event.data["from"], event.actor[:5]) == (4000, "user:")


REVIEW = "/admin/chats/compaction/review/?compaction={}"
REASON = "Complaint 2026-118 about a wrong summary"


def test_an_approver_reads_summary_and_sources_after_a_reason(
    policy_admin: Client, draft: Draft, long_chat: Chat
) -> None:
    row = draft()
    address = REVIEW.format(row.pk)
    first = row.branch.messages.get(seq=1).text
    assert address in policy_admin.get(
        f"{COMPACTION_LIST}{row.pk}/change/"
    ).content.decode().replace("&amp;", "&")
    closed = policy_admin.get(address).content.decode()
    assert 'name="reason"' in closed
    assert row.text[:40] not in closed
    refused = policy_admin.post(address, {"reason": "short"})
    assert message_codes(refused) == ["reason_needed"]
    assert 'value="short"' in refused.content.decode()
    assert 'name="reason"' in refused.content.decode()
    assert not AuditEvent.objects.filter(type__startswith="content.").exists()

    policy_admin.post(address, {"reason": REASON})
    page = opened(policy_admin, address)
    assert " ".join(row.text.split())[:40] in page.words
    assert " ".join(first.split())[:40] in page.words
    rows = AuditEvent.objects.filter(type__startswith="content.").order_by("pk")
    kinds = list(rows.values_list("type", flat=True))
    assert kinds == ["content.opened", "content.read"]

    answer = policy_admin.post(address, {"approve": "1"}, follow=True)
    assert message_codes(answer) == ["summary_approved"]
    assert find_active_summary(long_chat) == row


def test_a_review_can_end_with_a_rejection(policy_admin: Client, draft: Draft) -> None:
    row = draft()
    policy_admin.post(REVIEW.format(row.pk), {"reason": REASON})
    long = policy_admin.post(REVIEW.format(row.pk), {"reject": "1", "reason": "Typed " * 80})
    assert 'value="Typed Typed ' in long.content.decode()
    policy_admin.post(REVIEW.format(row.pk), {"reject": "1", "reason": "Wrong name"})
    row.refresh_from_db()
    assert (row.status, row.remark) == ("rejected", "Wrong name")
    gone = policy_admin.get(REVIEW.format(row.pk), follow=True)
    assert message_codes(gone) == ["summary_rejected", "not_waiting"]


@pytest.mark.parametrize("key", ["", "x", "00000000-0000-0000-0000-000000000000"])
def test_a_review_of_nothing_leads_to_the_list(policy_admin: Client, key: str) -> None:
    assert policy_admin.get(REVIEW.format(key)).headers["Location"] == COMPACTION_LIST


def test_only_who_may_approve_reads_it(draft: Draft) -> None:
    row = draft()
    auditor = signed_in(person("audrey", AUDITOR))
    assert auditor.get(REVIEW.format(row.pk)).status_code == 403
    assert not AuditEvent.objects.filter(type__startswith="content.").exists()


def test_a_policy_that_asks_the_owner_shows_the_administrator_nothing(
    policy_admin: Client, draft: Draft
) -> None:
    row = draft("owner")
    answer = policy_admin.post(REVIEW.format(row.pk), {"reason": REASON}, follow=True)
    assert "does not allow you to approve" in answer.content.decode()
    assert not AuditEvent.objects.filter(type__startswith="content.").exists()


def test_programs_of_approvers_read_it_with_a_reason(draft: Draft) -> None:
    row = draft()
    paula = person("paula", POLICY_ADMIN)
    _, secret = keys.create_key(
        owner=paula, name="review", scopes=("audit:read",), now=timezone.now()
    )
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    address = f"/api/v1/summaries/{row.pk}/review"
    refused = client.post(address, "{}", content_type="application/json")
    assert refused.json()["error"]["code"] == "reading_not_open"
    body = json.dumps({"reason": REASON})
    found = client.post(address, body, content_type="application/json").json()
    assert found["text"] == row.text
    assert found["sources"][0]["seq"] == row.from_seq
    assert AuditEvent.objects.filter(type="content.read").count() == 1
    again = client.post(address, "{}", content_type="application/json")
    assert again.status_code == 200
