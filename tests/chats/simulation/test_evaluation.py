"""Shadow evaluations: no effect on chats, a reported sample size, and an automatic end."""

import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from chats.actions import lifecycle, marks
from chats.admin.words import ENDED
from chats.compaction import maintain
from chats.ground import leases
from chats.ground.leases import LeaseLost
from chats.models import Branch, Chat, Message, Receipt, Turn
from chats.models.compactions import EXTRACTIVE
from chats.providers.base import Finished, TextDelta
from chats.simulation import due, evaluating, shadow, upkeep
from chats.simulation.evaluated import load_evaluation_results
from chats.simulation.evaluating import (
    EvaluationOver,
    NothingToEvaluate,
    TooManyEvaluations,
    end_evaluation_early,
    promote_evaluation,
    start_evaluation,
)
from chats.turns.start import start_turn
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import (
    AuditEvent,
    ContextPolicy,
    EvaluatedTurn,
    Evaluation,
    ModelSpec,
    PolicyVersion,
    VirtualCoverage,
)
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.policy_refusals import PolicyChangedMeanwhile
from contextpolicy.publish import create_policy, create_policy_version, restore_policy_version
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from contextpolicy.two_persons import SecondPersonNeeded
from tests.chats.states import SCHEMA
from tests.contextpolicy.pages import Page, message_codes, opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_messages import activate_compaction
from tests.support.ledger_events import list_events

pytestmark = pytest.mark.django_db

WIDE, NARROW = ({"strategy": "simple", "window_size": size} for size in (30, 3))
SLIDING = {"strategy": "sliding_window", "token_budget": 1_400, "reserve_tokens": 300}
SUMMARIES = {
    "strategy": "dynamic_summary",
    "token_budget": 2_200,
    "reserve_tokens": 600,
    "keep_last_messages": 2,
    "summary_max_tokens": 200,
}
WORDS = "The order goes to Oslo and the bill to Bergen, as it was agreed upon last week. " * 4
Work = Callable[..., Any]


@pytest.fixture(autouse=True)
def model(demo_model: ModelSpec) -> ModelSpec:
    """The model of every chat, and a model that no chat uses."""
    ModelSpec.objects.create(slug="another", provider="x", name="m")
    return demo_model


@pytest.fixture
def policy(now: datetime) -> ContextPolicy:
    """An instance-wide policy whose window is larger than any chat."""
    made = create_policy(slug="house", name="House", values=WIDE, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now, is_agreed=True)
    return made


@pytest.fixture
def chat(alice: User, now: datetime, policy: ContextPolicy) -> Chat:
    """A chat of Alice under that policy."""
    return lifecycle.create_chat(owner=alice, now=now)


def drafted(policy: ContextPolicy, values: Any, *, now: datetime) -> PolicyVersion:
    """A draft of the policy."""
    return create_policy_version(
        policy=policy, values=values, locks=[], note="", actor="user:7", now=now, is_draft=True
    )


def evaluated(policy: ContextPolicy, values: Any, *, now: datetime, **more: Any) -> Evaluation:
    """A started evaluation."""
    draft = drafted(policy, values, now=now)
    return start_evaluation(policy=policy, number=draft.number, actor="user:7", now=now, **more)


def say(chat: Chat, count: int, *, work: Work, text: str = WORDS, first: int = 0) -> list[Turn]:
    """Add this number of messages, each with a reply."""
    turns = []
    for number in range(first, first + count):
        chat = Chat.objects.select_related("owner").get(pk=chat.pk)
        turn = start_turn(
            user=chat.owner, chat=chat, text=f"{number}: {text}", now=timezone.now()
        ).turn
        work(turn, [TextDelta(f"Reply {number}. {text}"), Finished("stop")])
        assert turn.status == "completed"
        turns.append(turn)
    return turns


def judge_all(row: Evaluation, now: datetime) -> Evaluation:
    """Return the evaluation after one task processed it."""
    upkeep.continue_evaluation(evaluation_id=row.pk, clock=lambda: now, is_closing=lambda: False)
    row.refresh_from_db()
    return row


def rows_of(turns: list[Turn]) -> list[EvaluatedTurn]:
    """Return the evaluated turns in order."""
    found = {row.turn_id: row for row in EvaluatedTurn.objects.all()}
    return [found[turn.pk] for turn in turns]


class TestJudgement:
    """The simulated decisions of a draft."""

    @pytest.mark.policy_case(6)
    @pytest.mark.parametrize(
        "values",
        [
            NARROW,
            SLIDING,
            {**NARROW, "max_chars_per_message": 60},
            {**WIDE, "layout": "A", "token_budget": 1_600, "reserve_tokens": 500},
        ],
        ids=["window", "sliding", "cut", "layout"],
    )
    def test_it_is_what_a_run_under_the_draft_does(
        self, values: Any, chat: Chat, policy: ContextPolicy, now: datetime, work: Work, bob: User
    ) -> None:
        row = evaluated(policy, values, now=now)
        turns = say(chat, 12, work=work)
        row = judge_all(row, now)
        twin_policy = create_policy(
            slug="twin", name="Twin", values=values, actor="system", now=now
        )
        assign_policy(policy=twin_policy, level="user", user=bob, actor="system", now=now)
        twins = say(lifecycle.create_chat(owner=bob, now=now), 12, work=work)
        receipts = [Receipt.objects.get(turn=turn, step=1, call=1) for turn in twins]
        wanted = [shadow.build_recorded_side(receipt) for receipt in receipts]
        got = rows_of(turns)
        assert [each.full_then for each in got] == [side.full for side in wanted]
        for each, side in zip(got, wanted, strict=True):
            assert abs(each.tokens_then - side.tokens) <= max(8, side.tokens // 20)
        moves = [receipt.compaction_id for receipt in receipts]
        assert row.compactions_then == sum(a != b for a, b in pairwise(moves))
        assert row.unknown == 0
        assert 0 < row.changed < 12

    @pytest.mark.policy_case(6)
    def test_a_draft_that_says_the_same_is_equal_at_every_reply(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, {**WIDE}, now=now)
        say(chat, 4, work=work)
        row = judge_all(row, now)
        assert (row.turns, row.judged, row.changed) == (4, 4, 0)
        assert row.tokens_now == row.tokens_then > 0

    @pytest.mark.parametrize(
        "change",
        [
            {"system_text": "Be quick."},
            {"layout": "C"},
            {"show_date": True},
            {"dates": True},
            {"budget_note": True},
            {"cut_style": "head_tail"},
        ],
        ids=str,
    )
    def test_a_draft_with_another_text_changes_replies(
        self,
        change: dict[str, Any],
        chat: Chat,
        policy: ContextPolicy,
        now: datetime,
        work: Work,
    ) -> None:
        """Even if it sends the same messages."""
        values = {**WIDE, "system_text": "Be brief.", "max_chars_per_message": 60}
        create_policy_version(
            policy=policy, values=values, locks=[], note="", actor="user:7", now=now
        )
        row = evaluated(policy, {**values, **change}, now=now)
        say(chat, 3, work=work)
        row = judge_all(row, now)
        # A first question without history has no separate form.
        has_history_only = {"layout", "cut_style"} & change.keys()
        assert (row.judged, row.changed) == (3, 2 if has_history_only else 3)

    def test_its_own_history_is_carried_along(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        """Without the simulated state, every turn after the first full prompt compacts again."""
        row = evaluated(policy, SUMMARIES, now=now)
        turns = say(chat, 14, work=work)
        row = judge_all(row, now)
        folded = [number for number, each in enumerate(rows_of(turns)) if each.compacts_then]
        assert 1 <= len(folded) <= 4
        assert row.compactions_then == len(folded)
        assert all(later - earlier > 1 for earlier, later in pairwise(folded))
        coverage = VirtualCoverage.objects.get()
        assert 0 < coverage.to_seq < 28
        assert coverage.tokens == int(200 * 0.6)
        assert row.compactions_now == 0

    def test_its_summaries_are_as_long_as_recent_ones_of_the_same_writer(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work, bob: User
    ) -> None:
        """The draft names no model, so the built-in extractor would write them."""
        for tokens in (30, 40, 50):
            other = lifecycle.create_chat(owner=bob, now=now).active_branch
            assert other is not None
            written = {"model_name": EXTRACTIVE, "summary_tokens": tokens}
            activate_compaction(other, 2, now=now, **written)
        row = evaluated(policy, SUMMARIES, now=now)
        say(chat, 14, work=work)
        judge_all(row, now)
        assert VirtualCoverage.objects.get().tokens == 40

    def test_what_it_would_have_folded_is_about_what_a_run_folds(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work, bob: User
    ) -> None:
        """Summary lengths are estimates, so a compaction may happen one turn earlier or later."""
        row = evaluated(policy, SUMMARIES, now=now)
        turns = say(chat, 20, work=work)
        row = judge_all(row, now)
        twin_policy = create_policy(
            slug="twin", name="Twin", values=SUMMARIES, actor="system", now=now
        )
        assign_policy(policy=twin_policy, level="user", user=bob, actor="system", now=now)
        twin, receipts = lifecycle.create_chat(owner=bob, now=now), []
        for number in range(20):
            (turn,) = say(twin, 1, work=work, first=number)
            receipts.append(Receipt.objects.get(turn=turn, step=1, call=1))
            # Run maintenance as the background worker does between messages.
            maintain.maintain_chat_context(chat_id=twin.pk, counter=ApproximateCounter(), now=now)
        folds = [receipt.compaction_id for receipt in receipts]
        wanted = [n for n, (one, other) in enumerate(pairwise(folds), 1) if one != other]
        got = [n for n, each in enumerate(rows_of(turns)) if each.compacts_then]
        assert len(wanted) >= 2
        assert abs(len(got) - len(wanted)) <= 1
        assert abs(got[0] - wanted[0]) <= 1
        full = [shadow.build_recorded_side(receipt).full for receipt in receipts]
        near = [
            abs(each.full_then - of) <= 2 for each, of in zip(rows_of(turns), full, strict=True)
        ]
        assert sum(near) >= 16
        assert row.unknown == 0

    def test_a_branch_goes_on_with_what_its_parent_carried(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, SUMMARIES, now=now)
        say(chat, 12, work=work)
        judge_all(row, now)
        parent = VirtualCoverage.objects.get()
        branch = Branch.objects.get(pk=parent.branch_id)
        fork = Branch(pk=uuid.uuid4(), chat=chat, parent=branch, fork_seq=parent.to_seq + 2)
        made = shadow.find_draft_coverage(row, fork)
        assert (made.to_seq, made.tokens, made.follows) == (parent.to_seq, parent.tokens, False)
        fork.fork_seq = parent.to_seq - 2
        assert shadow.find_draft_coverage(row, fork).follows

    def test_a_refusal_is_counted_apart(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, {**WIDE, "allowed_models": ["another"]}, now=now)
        turns = say(chat, 2, work=work)
        row = judge_all(row, now)
        assert (row.would_refuse, row.changed) == (2, 2)
        assert rows_of(turns)[0].reason == "model_not_allowed"
        assert load_evaluation_results(row).worst[0].outcome == "refused"

    def test_nobody_is_asked_and_the_ledger_has_no_row_for_a_turn(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, SUMMARIES, now=now)
        say(chat, 6, work=work)
        before = AuditEvent.objects.count(), Receipt.objects.count(), Message.objects.count()
        judge_all(row, now)
        after = AuditEvent.objects.count(), Receipt.objects.count(), Message.objects.count()
        assert before == after
        assert WORDS[:20] not in str(list(EvaluatedTurn.objects.values()))
        assert WORDS[:20] not in str(list(VirtualCoverage.objects.values()))


class TestUnknown:
    """A fact that was not recorded makes the row unknown, never equal."""

    def reason(self, row: Evaluation, turn: Turn) -> str:
        """Return the reason why a turn could not be evaluated."""
        found = shadow.evaluate_turn(row, turn=turn)
        assert found.counts == {"turns": 1, "unknown": 1}
        return found.row.reason

    @pytest.mark.policy_case(6)
    def test_each_reason(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        turn = shadow.find_completed_turn(say(chat, 3, work=work)[-1].pk)
        assert turn is not None
        assert shadow.evaluate_turn(row, turn=turn).row.outcome == "changed"
        turn.client = {}
        assert self.reason(row, turn) == "program"
        turn.client, turn.continues_id = None, turn.pk
        assert self.reason(row, turn) == "continued"
        turn.continues_id = None
        Receipt.objects.filter(turn=turn).update(model_name="gone")
        assert self.reason(row, turn) == "model_changed"
        Receipt.objects.filter(turn=turn).update(erased_at=now)
        assert self.reason(row, turn) == "erased"
        Receipt.objects.filter(turn=turn).delete()
        assert self.reason(row, turn) == "no_receipt"

    def test_a_mark_since_then_and_a_question_that_is_gone(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work, alice: User
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        turn = shadow.find_completed_turn(say(chat, 3, work=work)[-1].pk)
        assert turn is not None
        question = Message.objects.filter(triggered=turn)
        question.update(erased_at=now)
        assert self.reason(row, turn) == "erased"
        question.update(erased_at=None)
        said = Message.objects.filter(branch=turn.branch, role="user").earliest("seq")
        marks.exclude_message(message=said, actor=f"user:{alice.pk}", now=timezone.now())
        assert self.reason(row, turn) == "marked_since"

    def test_a_state_is_not_guessed(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, {"strategy": "entity_state", "state_schema": SCHEMA}, now=now)
        say(chat, 2, work=work)
        row = judge_all(row, now)
        assert (row.turns, row.unknown, row.changed) == (2, 2, 0)
        found = load_evaluation_results(row)
        assert (found.coverage, list(found.unknown)) == (0, [("state", 2)])

    def test_what_fails_is_unknown_and_holds_up_no_other(
        self,
        chat: Chat,
        policy: ContextPolicy,
        now: datetime,
        work: Work,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        turns = say(chat, 3, work=work)
        judge = shadow.evaluate_turn

        def broken(evaluation: Evaluation, *, turn: Turn) -> Any:
            if turn.pk == turns[0].pk:
                raise ValueError("words of a person")
            return judge(evaluation, turn=turn)

        monkeypatch.setattr("chats.simulation.upkeep.evaluate_turn", broken)
        row = judge_all(row, now)
        assert (row.turns, row.unknown) == (3, 1)
        assert rows_of(turns)[0].reason == "failed"


class TestUpkeep:
    """Turns are evaluated after the reply, each once."""

    def steps(self, row: Evaluation) -> Iterator[None]:
        """Return the steps of a worker that claimed the evaluation."""
        lease = due.EVALUATIONS.claim(row.pk)
        assert lease is not None
        return upkeep.run_evaluation_steps(row, lease=lease)

    def test_a_killed_worker_leaves_the_rest_to_the_next(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        assert due.enqueue_due(now=now) == 0
        turns = say(chat, 4, work=work)
        assert due.enqueue_due(now=now) == 1
        working = self.steps(row)
        next(working), next(working)
        assert due.enqueue_due(now=now) == 0
        Evaluation.objects.update(
            lease_until=leases.compute_expired_end(), lease_token=uuid.uuid4()
        )
        with pytest.raises(LeaseLost):
            next(working)
        row.refresh_from_db()
        row = judge_all(row, timezone.now() + timedelta(seconds=61))
        assert (row.turns, len(rows_of(turns))) == (4, 4)
        assert due.enqueue_due(now=now) == 0

    def test_a_reply_whose_row_came_late_is_not_left_out(
        self, chat: Chat, policy: ContextPolicy, work: Work
    ) -> None:
        """Ledger rows can become visible after rows with a higher number."""
        row = evaluated(policy, NARROW, now=timezone.now())
        turns = say(chat, 2, work=work)
        late = AuditEvent.objects.get(turn_id=turns[0].pk, type="turn.completed")
        hidden = AuditEvent.objects.exclude(pk=late.pk)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AuditEvent, "objects", hidden)
            row = judge_all(row, timezone.now())
        assert row.turns == 1
        assert judge_all(row, timezone.now()).turns == 2

    def test_it_hands_on_when_its_process_is_to_end(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        say(chat, 3, work=work)
        upkeep.continue_evaluation(evaluation_id=row.pk, clock=lambda: now, is_closing=lambda: True)
        row.refresh_from_db()
        assert (row.turns, row.lease_until) == (1, None)
        assert judge_all(row, now).turns == 3

    def test_it_ends_by_itself_and_its_rows_go_after_thirty_days(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, SUMMARIES, now=timezone.now())
        say(chat, 3, work=work)
        later = timezone.now() + timedelta(days=7, seconds=5)
        row = judge_all(row, later)
        assert (row.state, row.reason, row.turns) == ("ended", "time", 3)
        assert not VirtualCoverage.objects.exists()
        told = list_events("evaluation.ended")[0].data
        assert (told["reason"], told["turns"], told["judged"]) == ("time", 3, 3)
        due.enqueue_due(now=later)
        assert EvaluatedTurn.objects.count() == 3
        due.enqueue_due(now=later + due.KEPT)
        assert not EvaluatedTurn.objects.exists()

    def test_a_share_is_of_branches(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, NARROW, now=now, share=50)
        turns = say(chat, 2, work=work)
        is_in = turns[0].branch_id.int % 100 < 50
        assert judge_all(row, now).turns == (2 if is_in else 0)


class TestLife:
    """Start, end and publication."""

    def test_only_the_newest_draft_and_few_at_a_time(
        self, chat: Chat, policy: ContextPolicy, now: datetime
    ) -> None:
        with pytest.raises(NothingToEvaluate):
            start_evaluation(policy=policy, number=1, actor="user:7", now=now)
        row = evaluated(policy, NARROW, now=now)
        assert start_evaluation(policy=policy, number=2, actor="user:7", now=now) == row
        other = evaluated(policy, SLIDING, now=now)
        row.refresh_from_db()
        assert (row.state, row.reason, other.state) == ("ended", "other_version", "open")
        for number in range(evaluating.MOST_OPEN):
            more = create_policy(slug=f"p{number}", name="P", values=WIDE, actor="user:7", now=now)
            if number < evaluating.MOST_OPEN - 1:
                evaluated(more, NARROW, now=now)
        with pytest.raises(TooManyEvaluations, match="3 evaluations"):
            evaluated(more, NARROW, now=now)
        end_evaluation_early(evaluation_id=other.pk, actor="user:7", now=now)
        with pytest.raises(EvaluationOver):
            end_evaluation_early(evaluation_id=other.pk, actor="user:7", now=now)
        assert due.EVALUATIONS.claim(other.pk) is None

    def test_it_is_over_once_another_version_is_in_force(
        self, chat: Chat, policy: ContextPolicy, now: datetime
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        create_policy_version(
            policy=policy, values=SLIDING, locks=[], note="", actor="user:7", now=now
        )
        assert due.enqueue_due(now=now) == 1
        assert judge_all(row, now).reason == "other_version"

    def test_it_is_put_in_force_with_its_numbers_and_taken_back_with_one_click(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        say(chat, 3, work=work)
        judge_all(row, now)
        row = promote_evaluation(evaluation_id=row.pk, actor="user:8", now=now)
        policy.refresh_from_db()
        assert policy.current is not None
        assert (row.state, policy.current.number) == ("promoted", 2)
        told = list_events("evaluation.promoted")[0].data
        assert (told["turns"], told["version"]) == (3, 2)
        assert len(list_events("policy.version_activated")) == 1
        assert (
            restore_policy_version(policy=policy, number=1, actor="user:8", now=now).values == WIDE
        )

    def test_its_way_into_force_is_that_of_every_version(
        self, chat: Chat, policy: ContextPolicy, now: datetime, settings: Settings
    ) -> None:
        row = evaluated(policy, NARROW, now=now)
        settings.TWO_PERSONS = True
        with pytest.raises(SecondPersonNeeded):
            promote_evaluation(evaluation_id=row.pk, actor="user:7", now=now)
        settings.BLAST_RADIUS_LIMIT = 0.1
        with pytest.raises(BlastRadiusNeeded):
            promote_evaluation(evaluation_id=row.pk, actor="user:8", now=now)
        settings.BLAST_RADIUS_LIMIT = None
        drafted(policy, SLIDING, now=now)
        with pytest.raises(PolicyChangedMeanwhile):
            promote_evaluation(evaluation_id=row.pk, actor="user:8", now=now)
        row.refresh_from_db()
        assert row.state == "open"


class TestDoors:
    """The administration and the REST API."""

    @pytest.mark.policy_case(7)
    def test_the_page_says_first_how_much_it_could_judge(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work
    ) -> None:
        ines = signed_in(person("ines", POLICY_ADMIN))
        draft = drafted(policy, NARROW, now=now)
        address = f"/admin/contextpolicy/contextpolicy/{policy.pk}/change/"
        form = opened(ines, address).fields
        answer = ines.post(address, {**form, "_evaluate": str(draft.number)})
        row = Evaluation.objects.get()
        page = f"/admin/contextpolicy/evaluation/{row.pk}/compare/"
        assert answer["Location"] == page
        assert 'data-note="no-replies-yet"' in ines.get(page).content.decode()
        turns = say(chat, 4, work=work)
        Receipt.objects.filter(turn=turns[0]).delete()
        judge_all(row, now)
        html = ines.get(page).content.decode()
        words = Page(html).words
        assert "3 of 4 replies were evaluated (75 %)" in words
        assert "1 without a receipt" in words
        assert words.index("evaluated replies") < words.index("By day")
        assert WORDS[:20] not in html
        assert str(turns[3].pk) in html
        assert page in ines.get(address).content.decode()
        olga = signed_in(person("olga", AUDITOR))
        assert olga.get(page).status_code == 200
        assert olga.post(page, {"act": "end"}).status_code == 403

    def test_it_is_put_in_force_from_its_page(
        self, chat: Chat, policy: ContextPolicy, now: datetime, settings: Settings
    ) -> None:
        author = person("ines", POLICY_ADMIN)
        ines = signed_in(author)
        row = evaluated(policy, NARROW, now=now)
        PolicyVersion.objects.filter(pk=row.version_id).update(created_by_id=author.pk)
        page = f"/admin/contextpolicy/evaluation/{row.pk}/compare/"
        settings.TWO_PERSONS = True
        refused = ines.post(page, {"act": "promote"}, follow=True)
        assert message_codes(refused) == ["second_person_needed"]
        settings.TWO_PERSONS = False
        done = ines.post(page, {"act": "promote"}, follow=True)
        assert message_codes(done) == ["version_published"]
        assert "House v2 is published" in Page(done.content.decode()).words
        assert str(ENDED["promoted"]) in Page(done.content.decode()).words
        late = ines.post(page, {"act": "end"}, follow=True)
        assert message_codes(late) == ["evaluation_over"]

    def test_the_form_says_why_nothing_is_evaluated(
        self, chat: Chat, policy: ContextPolicy
    ) -> None:
        ines = signed_in(person("ines", POLICY_ADMIN))
        address = f"/admin/contextpolicy/contextpolicy/{policy.pk}/change/"
        answer = ines.post(address, {"_evaluate": "1"}, follow=True)
        assert message_codes(answer) == ["nothing_to_evaluate"]

    def asked(self, who: Client, path: str = "", body: Any = None) -> Any:
        """Return the response to a POST."""
        return who.post(f"/api/v1/evaluations{path}", body or {}, content_type="application/json")

    def test_a_program_begins_reads_ends_and_promotes(
        self, chat: Chat, policy: ContextPolicy, now: datetime, work: Work, alice: User
    ) -> None:
        ines = signed_in(person("ines", POLICY_ADMIN))
        body = {"policy": "house", "version": 1}
        refused = self.asked(ines, body=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            409,
            "nothing_to_evaluate",
        )
        drafted(policy, NARROW, now=now)
        made = self.asked(ines, body={**body, "version": 2, "days": 3}).json()
        assert (made["state"], made["version"], made["base"]) == ("open", 2, 1)
        say(chat, 3, work=work)
        judge_all(Evaluation.objects.get(), now)
        one = f"/{made['id']}"
        told = ines.get(f"/api/v1/evaluations{one}").json()
        assert (told["turns"], told["judged"], told["reasons"]) == (3, 3, [])
        assert told["days"][0]["judged"] == 3
        assert told["worst"][0]["outcome"] == "changed"
        assert ines.get("/api/v1/evaluations").json()["data"][0]["id"] == made["id"]
        assert self.asked(ines, f"{one}/end").json()["reason"] == "person"
        assert self.asked(ines, f"{one}/end").json()["error"]["code"] == "evaluation_over"
        again = self.asked(ines, body={**body, "version": 2}).json()
        done = self.asked(ines, f"/{again['id']}/promote")
        assert (done.status_code, done.json()["state"]) == (200, "promoted")
        for path in ("", one, f"{one}/end"):
            answer = self.asked(signed_in(alice), path, body if not path else None)
            assert answer.status_code in {404, 405}
