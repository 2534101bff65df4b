"""User actions on compactions: request, undo, redo, correct, approve and stop."""

from datetime import datetime

import pytest
from django.contrib.auth.models import Permission, User

from chats.actions import marks
from chats.actions.branching import edit_message
from chats.compaction import claims, maintain, pauses, window
from chats.compaction.people import approve, controls, revise, undo
from chats.compaction.people.summary_permissions import NotAllowedByPolicy
from chats.compaction.publish import publish_prepared
from chats.ground.leases import LeaseLost
from chats.ground.refusals import NotFound
from chats.models import Chat, Compaction, Message
from chats.prompt import model_choice
from chats.prompt.composition import WindowMoveRequired
from chats.record.history import select_path_messages
from chats.record.message_text import InvalidCharacter
from contextpolicy.engine.compose.assembly import WindowNeeded
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.chat_summaries import (
    GOOD_SUMMARY,
    SENTENCE,
    Fold,
    Say,
    SetPolicy,
    Writes,
    add_minutes,
    compose_next_prompt,
    find_active_summary,
    get_summary_prompt,
    reload_branch,
    script_summary,
)
from tests.support.summary_attempts import COUNTER, compact_chat


def test_compact_now_folds_below_every_mark(alice: User, roomy: Chat, now: datetime) -> None:
    row = compact_chat(alice, roomy, now)
    assert (row.trigger, row.asked_by, row.status) == ("manual", f"user:{alice.pk}", "published")
    assert reload_branch(roomy).asked_at is None


def test_the_focus_reaches_the_summariser(
    alice: User, roomy: Chat, now: datetime, writer: ModelSpec, writes: Writes
) -> None:
    provider = writes(script_summary())
    row = compact_chat(alice, roomy, now, focus="the price\n</transcript>", model=writer.slug)
    assert row.model_name == "writer"
    assert "to do with this: the price &lt;/transcript&gt;" in get_summary_prompt(
        provider.requests[0]
    )


def test_what_cannot_be_asked_for_is_refused(
    alice: User, roomy: Chat, now: datetime, set_policy: SetPolicy
) -> None:
    with pytest.raises(controls.FocusTooLong):
        controls.compact_now(user=alice, chat=roomy, now=now, focus="x" * 501)
    with pytest.raises(InvalidCharacter, match="at position 2"):
        controls.compact_now(user=alice, chat=roomy, now=now, focus="a\0b")
    with pytest.raises(controls.UnknownSummariser):
        controls.compact_now(user=alice, chat=roomy, now=now, model="none-such")
    set_policy(strategy="simple")
    with pytest.raises(controls.NoSummaries):
        controls.compact_now(user=alice, chat=roomy, now=now)


def test_inv_38_two_requests_are_one(alice: User, roomy: Chat, now: datetime) -> None:
    controls.compact_now(user=alice, chat=roomy, now=now)
    controls.compact_now(user=alice, chat=roomy, now=now)
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
    assert Compaction.objects.filter(kind="summary").count() == 1


def test_a_request_that_nobody_began_is_sent_again(
    alice: User,
    roomy: Chat,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: object,
) -> None:
    controls.compact_now(user=alice, chat=roomy, now=now)
    branch = reload_branch(roomy)
    branch.asked_at = datetime(2020, 1, 1, tzinfo=now.tzinfo)
    branch.save()
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]  # a fixture
        assert maintain.sweep_summaries(now=now) == 1
    assert ("chats.maintain_chat", {"chat_id": str(roomy.pk)}) in sent


def test_inv_55_undo_brings_back_the_exact_prompt_and_redo_the_other(
    alice: User, roomy: Chat, now: datetime
) -> None:
    before = compose_next_prompt(roomy)
    row = compact_chat(alice, roomy, now)
    with_summary = compose_next_prompt(roomy)
    assert with_summary != before
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now))
    assert compose_next_prompt(roomy) == before
    row.refresh_from_db()
    assert (row.status, reload_branch(roomy).compaction_paused) == ("undone", True)
    for _ in range(2):
        undo.redo_summary(user=alice, compaction=row, now=add_minutes(now, 2))
        assert compose_next_prompt(roomy) == with_summary
    assert not reload_branch(roomy).compaction_paused
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, 3))
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, 4))
    assert compose_next_prompt(roomy) == before
    events = AuditEvent.objects.filter(type__in=["compaction.undone", "compaction.redone"])
    assert events.count() == 3


def test_inv_55_undo_of_the_second_summary_brings_back_the_first(
    alice: User, roomy: Chat, say: Say, now: datetime
) -> None:
    first = compact_chat(alice, roomy, now)
    for _ in range(4):
        say(roomy, f"More. {SENTENCE}", SENTENCE * 3)
    before = compose_next_prompt(roomy)
    second = compact_chat(alice, roomy, add_minutes(now))
    assert second.previous == first
    undo.undo_summary(user=alice, compaction=second, now=add_minutes(now, 2))
    assert find_active_summary(roomy) == first
    assert compose_next_prompt(roomy) == before
    first.refresh_from_db()
    assert first.status == "published"
    undo.undo_summary(user=alice, compaction=first, now=add_minutes(now, 3))
    with pytest.raises(undo.NothingToRedo):
        undo.redo_summary(user=alice, compaction=second, now=add_minutes(now, 4))
    undo.redo_summary(user=alice, compaction=first, now=add_minutes(now, 5))
    undo.redo_summary(user=alice, compaction=second, now=add_minutes(now, 6))
    assert find_active_summary(roomy) == second


def test_inv_55_redo_brings_back_the_window_over_the_summary(
    alice: User, roomy: Chat, say: Say, set_policy: SetPolicy, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    for _ in range(4):
        say(roomy, f"More. {SENTENCE}", SENTENCE * 3)
    move = WindowMoveRequired(
        needed=WindowNeeded(
            to_seq=reload_branch(roomy).last_seq - 2,
            reason="tokens",
            tokens_before=9,
            tokens_after=1,
        ),
        effective=row.effective_policy,
    )
    assert (
        window.move_window(branch_id=reload_branch(roomy).pk, move=move, now=add_minutes(now))
        is not None
    )
    under_window = compose_next_prompt(roomy)
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, 2))
    assert compose_next_prompt(roomy) != under_window
    undo.redo_summary(user=alice, compaction=row, now=add_minutes(now, 3))
    assert compose_next_prompt(roomy) == under_window
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, 4))
    assert find_active_summary(roomy) is None


def test_undo_is_refused_with_the_numbers_when_the_originals_do_not_fit(
    alice: User, long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    row = fold(long_chat)
    for _ in range(4):
        say(long_chat, f"More. {SENTENCE}", SENTENCE * 4)
    with pytest.raises(undo.UndoDoesNotFit) as refused:
        undo.undo_summary(user=alice, compaction=row, now=now)
    assert refused.value.details["tokens"] > refused.value.details["limit"] == 2000
    assert find_active_summary(long_chat) == row


def test_an_undo_pauses_automatic_compaction_until_somebody_resumes(
    alice: User, roomy: Chat, set_policy: SetPolicy, say: Say, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now))
    set_policy(token_budget=3000, prepare_at=0.5, compact_at=0.6)
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=add_minutes(now, 2))
    assert Compaction.objects.filter(kind="summary").count() == 1
    pauses.resume_compaction(chat=roomy, actor=f"user:{alice.pk}", now=add_minutes(now, 3))
    pauses.resume_compaction(chat=roomy, actor=f"user:{alice.pk}", now=add_minutes(now, 3))
    assert AuditEvent.objects.filter(type="compaction.resumed").count() == 1
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=add_minutes(now, 4))
    assert Compaction.objects.filter(kind="summary").count() == 2


def test_the_pause_ends_when_the_prompt_no_longer_fits(
    alice: User, roomy: Chat, set_policy: SetPolicy, say: Say, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now))
    for _ in range(3):
        say(roomy, f"More. {SENTENCE}", SENTENCE * 6)
    set_policy()
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=add_minutes(now, 2))
    assert AuditEvent.objects.get(type="compaction.resumed").data["reason"] == "no_longer_fits"
    assert find_active_summary(roomy) not in {None, row}


def test_a_policy_shortens_the_pause(
    alice: User, roomy: Chat, set_policy: SetPolicy, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    undo.undo_summary(user=alice, compaction=row, now=now)
    marks = {"prepare_at": 0.5, "compact_at": 0.6, "token_budget": 3000}
    set_policy(undo_pause_hours=2, **marks)
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=add_minutes(now, 119))
    assert reload_branch(roomy).compaction_paused
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=add_minutes(now, 120))
    assert not reload_branch(roomy).compaction_paused


@pytest.mark.parametrize("right", ["admins", "nobody"])
def test_a_policy_can_forbid_undo_and_edit(
    right: str, alice: User, roomy: Chat, set_policy: SetPolicy, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    room = {"token_budget": 9000, "reserve_tokens": 1000}
    set_policy(undo_right=right, edit_right=right, **room)
    for action in (
        lambda: undo.undo_summary(user=alice, compaction=row, now=now),
        lambda: undo.redo_summary(user=alice, compaction=row, now=now),
        lambda: revise.revise_summary(user=alice, compaction=row, text="x", now=now),
        lambda: controls.request_summary_rerun(user=alice, compaction=row, now=now),
    ):
        with pytest.raises(NotAllowedByPolicy):
            action()
    assert find_active_summary(roomy) == row
    alice.user_permissions.add(Permission.objects.get(codename="change_contextpolicy"))
    person = User.objects.get(pk=alice.pk)
    if right == "admins":
        undo.undo_summary(user=person, compaction=row, now=now)
        assert find_active_summary(roomy) is None


def test_a_correction_is_a_row_of_its_own_and_is_sent_from_then_on(
    alice: User, roomy: Chat, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    text = GOOD_SUMMARY.replace("Oslo", "Bergen")
    new = revise.revise_summary(user=alice, compaction=row, text=text, now=add_minutes(now))
    assert find_active_summary(roomy) == new
    assert (new.revises, new.from_seq, new.to_seq) == (row, row.from_seq, row.to_seq)
    assert any("Bergen" in content for content in compose_next_prompt(roomy)[1])
    row.refresh_from_db()
    assert row.text
    assert row.status == "replaced"
    again = revise.revise_summary(
        user=alice, compaction=new, text=text + "\n", now=add_minutes(now, 2)
    )
    assert again == new
    found = revise.compare_summaries(user=alice, chat_id=roomy.pk, older_id=row.pk, newer_id=new.pk)
    assert any("Bergen" in line for change in found.changes for line in change.after)
    assert "\n".join(line for c in found.changes for line in c.before) == row.text
    undo.undo_summary(user=alice, compaction=new, now=add_minutes(now, 3))
    assert find_active_summary(roomy) == row


def test_a_correction_is_checked(alice: User, bob: User, roomy: Chat, now: datetime) -> None:
    row = compact_chat(alice, roomy, now)
    with pytest.raises(revise.SummaryEmpty):
        revise.revise_summary(user=alice, compaction=row, text=" \n", now=now)
    with pytest.raises(revise.SummaryTooLong):
        revise.revise_summary(user=alice, compaction=row, text=SENTENCE * 90, now=now)
    with pytest.raises(InvalidCharacter, match="at position 2"):
        revise.revise_summary(user=alice, compaction=row, text="a\0", now=now)
    with pytest.raises(NotAllowedByPolicy):
        revise.revise_summary(user=bob, compaction=row, text=GOOD_SUMMARY, now=now)
    with pytest.raises(NotFound):
        revise.compare_summaries(user=bob, chat_id=roomy.pk, older_id=row.pk, newer_id=row.pk)
    new = revise.revise_summary(user=alice, compaction=row, text=GOOD_SUMMARY, now=now)
    assert new != row
    with pytest.raises(controls.SummaryNotActive):
        revise.revise_summary(user=alice, compaction=row, text=GOOD_SUMMARY, now=now)
    with pytest.raises(controls.SummaryNotActive):
        undo.undo_summary(user=alice, compaction=row, now=now)
    with pytest.raises(controls.SummaryNotActive):
        controls.request_summary_rerun(user=alice, compaction=row, now=now)


def test_a_summary_is_written_again_from_its_originals(
    alice: User, roomy: Chat, say: Say, now: datetime, writer: ModelSpec, writes: Writes
) -> None:
    first = compact_chat(alice, roomy, now)
    for _ in range(4):
        say(roomy, f"More. {SENTENCE}", SENTENCE * 3)
    second = compact_chat(alice, roomy, add_minutes(now))
    provider = writes(script_summary())
    controls.request_summary_rerun(
        user=alice, compaction=second, model=writer.slug, now=add_minutes(now, 2)
    )
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=add_minutes(now, 2))
    new = find_active_summary(roomy)
    assert new is not None
    assert (new.revises, new.trigger, new.previous) == (second, "rerun", None)
    assert (new.from_seq, new.to_seq) == (first.from_seq, second.to_seq)
    asked = get_summary_prompt(provider.requests[0])
    assert "The summary so far" not in asked
    assert all(f'number="{seq}"' in asked for seq in range(1, second.to_seq + 1))
    undo.undo_summary(user=alice, compaction=new, now=add_minutes(now, 3))
    assert find_active_summary(roomy) == second


def test_a_draft_waits_until_somebody_has_read_it(
    alice: User, roomy: Chat, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(approval="owner", token_budget=9000, reserve_tokens=1000)
    controls.compact_now(user=alice, chat=roomy, now=now)
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
    draft = Compaction.objects.get(kind="summary")
    assert (draft.status, draft.needs_approval) == ("prepared", True)
    assert publish_prepared(branch_id=draft.branch_id, now=now) is False
    approve.approve_summary(user=alice, compaction=draft, now=add_minutes(now))
    assert find_active_summary(roomy) == draft
    assert AuditEvent.objects.filter(type="compaction.approved").count() == 1
    with pytest.raises(approve.NotWaiting):
        approve.approve_summary(user=alice, compaction=draft, now=add_minutes(now))


def test_a_draft_can_be_rejected_with_a_reason(
    alice: User, bob: User, roomy: Chat, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(approval="owner", token_budget=9000, reserve_tokens=1000)
    controls.compact_now(user=alice, chat=roomy, now=now)
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
    draft = Compaction.objects.get(kind="summary")
    with pytest.raises(NotAllowedByPolicy):
        approve.reject_summary(user=bob, compaction=draft, reason="no", now=now)
    with pytest.raises(approve.ReasonTooLong):
        approve.reject_summary(user=alice, compaction=draft, reason="x" * 401, now=now)
    with pytest.raises(InvalidCharacter):
        approve.reject_summary(user=alice, compaction=draft, reason="\0", now=now)
    row = approve.reject_summary(
        user=alice, compaction=draft, reason="The price is wrong.", now=now
    )
    assert (row.status, row.remark) == ("rejected", "The price is wrong.")
    assert find_active_summary(roomy) is None
    assert "price" not in str(list(AuditEvent.objects.values_list("data", flat=True)))
    choice = model_choice.choose_chat_model(chat=roomy)
    assert pauses.load_branch_breaker(reload_branch(roomy), choice=choice, now=now).failures == 0


def test_inv_40_a_draft_of_a_changed_context_is_overtaken(
    alice: User, roomy: Chat, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(approval="owner", token_budget=9000, reserve_tokens=1000)
    controls.compact_now(user=alice, chat=roomy, now=now)
    maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
    draft = Compaction.objects.get(kind="summary")
    Message.objects.filter(seq=1).update(excluded=True)
    with pytest.raises(approve.Overtaken):
        approve.approve_summary(user=alice, compaction=draft, now=now)
    draft.refresh_from_db()
    assert (draft.status, draft.reason) == ("overtaken", "context_changed")


def test_inv_40_an_undo_overtakes_what_is_being_prepared_on_it(
    alice: User, roomy: Chat, say: Say, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    for _ in range(3):
        say(roomy, f"More. {SENTENCE}", SENTENCE * 3)
    controls.compact_now(user=alice, chat=roomy, now=now)
    claimed = claims.claim_compaction(chat_id=roomy.pk, counter=COUNTER, now=add_minutes(now))
    assert claimed is not None
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, 2))
    claimed.row.refresh_from_db()
    assert (claimed.row.status, claimed.row.lease_token) == ("overtaken", "")
    with pytest.raises(LeaseLost):
        maintain.run_summary_attempt(claimed, counter=COUNTER, clock=lambda: add_minutes(now, 3))


def test_inv_45_a_summary_that_is_being_written_can_be_stopped(
    alice: User, roomy: Chat, now: datetime
) -> None:
    controls.compact_now(user=alice, chat=roomy, now=now)
    claimed = claims.claim_compaction(chat_id=roomy.pk, counter=COUNTER, now=now)
    assert claimed is not None
    before = compose_next_prompt(roomy)
    row = controls.cancel_summary(user=alice, compaction=claimed.row, now=now)
    assert (row.status, row.reason) == ("failed", "cancelled")
    assert compose_next_prompt(roomy) == before
    with pytest.raises(controls.NotBeingWritten):
        controls.cancel_summary(user=alice, compaction=claimed.row, now=now)


def test_what_a_person_asks_for_takes_the_place_of_what_waits(
    alice: User, long_chat: Chat, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "should_publish_now", lambda claimed: False)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=now)
    waiting = Compaction.objects.get(kind="summary")
    controls.compact_now(user=alice, chat=long_chat, now=now, focus="prices")
    monkeypatch.undo()
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=add_minutes(now))
    waiting.refresh_from_db()
    assert (waiting.status, waiting.reason) == ("overtaken", "asked_again")
    row = find_active_summary(long_chat)
    assert row is not None
    assert row.focus == "prices"


def test_a_plain_request_takes_the_summary_that_is_ready(
    alice: User, long_chat: Chat, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "should_publish_now", lambda claimed: False)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=now)
    ready = Compaction.objects.get(kind="summary")
    controls.compact_now(user=alice, chat=long_chat, now=now)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=add_minutes(now))
    assert find_active_summary(long_chat) == ready
    assert reload_branch(long_chat).asked == {}
    assert Compaction.objects.filter(kind="summary").count() == 1


def test_a_plain_request_leaves_a_draft_that_waits_for_approval(
    alice: User, roomy: Chat, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(approval="owner", token_budget=9000, reserve_tokens=1000)
    for _ in range(2):
        controls.compact_now(user=alice, chat=roomy, now=now)
        maintain.maintain_chat_context(chat_id=roomy.pk, counter=COUNTER, now=now)
    assert Compaction.objects.get(kind="summary").status == "prepared"
    assert reload_branch(roomy).asked == {}
    skipped = AuditEvent.objects.get(type="compaction.skipped")
    assert skipped.data["reason"] == "waits_for_approval"


def test_undo_after_an_edit_skips_a_window_that_goes_beyond_the_branch(
    alice: User, roomy: Chat, say: Say, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    old = reload_branch(roomy)
    # As if the window had moved while the summary was being written.
    wide = Compaction.objects.create(
        branch=old,
        kind="window",
        status="replaced",
        from_seq=1,
        to_seq=old.last_seq,
        trigger="tokens",
        effective_policy=row.effective_policy,
        created_at=now,
    )
    Compaction.objects.filter(pk=row.pk).update(displaced=wide)
    edited = select_path_messages(old, after=old.last_seq - 2, before=old.last_seq).get()
    assert edited.seq is not None
    assert row.to_seq < edited.seq < wide.to_seq
    edit_message(user=alice, message=edited, text="Shorter.", now=add_minutes(now))
    assert find_active_summary(roomy) == row
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, 2))
    assert reload_branch(roomy).active_compaction is None
    assert compose_next_prompt(roomy)
    undo.redo_summary(user=alice, compaction=row, now=add_minutes(now, 3))
    assert find_active_summary(roomy) == row


def test_undoing_a_summary_again_changes_nothing_while_another_branch_uses_it(
    alice: User, roomy: Chat, now: datetime
) -> None:
    row = compact_chat(alice, roomy, now)
    old = reload_branch(roomy)
    edited = select_path_messages(old, after=old.last_seq - 2, before=old.last_seq).get()
    edit_message(user=alice, message=edited, text="Shorter.", now=add_minutes(now))
    for minutes in (2, 3):
        undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, minutes))
        assert find_active_summary(roomy) is None
    row.refresh_from_db()
    assert row.status == "published"
    assert AuditEvent.objects.filter(type="compaction.undone").count() == 1


def test_a_retired_summary_does_not_become_active_when_the_one_after_it_is_retired(
    alice: User, roomy: Chat, say: Say, now: datetime
) -> None:
    first = compact_chat(alice, roomy, now)
    for _ in range(4):
        say(roomy, f"More. {SENTENCE}", SENTENCE * 3)
    second = compact_chat(alice, roomy, add_minutes(now))
    branch = reload_branch(roomy)
    # The first has an exception that the second covers, and was retired since.
    Compaction.objects.filter(pk=first.pk).update(exceptions=[2], status="overtaken")
    marks.exclude_message(
        message=select_path_messages(branch, after=1, before=3).get(),
        actor=f"user:{alice.pk}",
        now=add_minutes(now, 2),
    )
    second.refresh_from_db()
    assert second.status == "overtaken"
    assert find_active_summary(roomy) is None
