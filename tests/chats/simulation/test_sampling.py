"""Sampled previews: the share of recently used chats whose prompts a policy would change."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from chats.actions import lifecycle
from chats.models import Chat
from chats.simulation import sampling
from chats.simulation.proposals import ASSIGNED, PolicyProposal
from chats.simulation.sampling import Sampled, calculate_confidence_interval, sample_chats
from contextpolicy.models import AuditEvent, ContextPolicy, EffectivePolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.roles import POLICY_ADMIN
from tests.contextpolicy.pages import Page, opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_messages import fill_with_every_kind

pytestmark = pytest.mark.django_db


def proposed(level: str = "instance", **values: Any) -> PolicyProposal:
    """Return a proposed policy."""
    said = {"strategy": "simple", **values}
    return PolicyProposal(slug="trial", name="Trial", version=0, values=said, locks=[], level=level)


@pytest.fixture
def chats(alice: User, bob: User, demo_model: ModelSpec, now: datetime) -> list[Chat]:
    """Three long chats and three short ones, of two people."""
    made = []
    for number in range(6):
        chat = lifecycle.create_chat(owner=(alice, bob)[number % 2], now=now)
        fill_with_every_kind(chat, 20 if number < 3 else 3, now=now)
        Chat.objects.filter(pk=chat.pk).update(updated_at=now)
        made.append(Chat.objects.get(pk=chat.pk))
    return made


def test_outcomes_are_counted_and_not_chats_under_the_policy(
    chats: list[Chat], now: datetime
) -> None:
    """The policy applies to all chats. Only three are longer than its window."""
    rows = [model.objects.count() for model in (EffectivePolicy, AuditEvent, ContextPolicy)]

    found = sample_chats(proposal=proposed(window_size=6), now=now)

    assert (found.in_use, found.judged, found.changed, found.would_refuse) == (6, 6, 3, 0)
    # All chats were examined, so the interval has no width.
    assert (found.low, found.high) == (0.5, 0.5)
    assert {each.chat.pk for each in found.worst} == {chat.pk for chat in chats[:3]}
    assert rows == [m.objects.count() for m in (EffectivePolicy, AuditEvent, ContextPolicy)]
    assert all(each.now.outlook is None for each in found.worst)


def test_a_text_of_the_same_length_is_a_change(chats: list[Chat], now: datetime) -> None:
    values = {"strategy": "simple", "window_size": 30, "system_text": "Be brief."}
    policy = create_policy(slug="trial", name="Trial", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    same = sample_chats(proposal=proposed(ASSIGNED, **values), now=now)
    other = sample_chats(
        proposal=proposed(ASSIGNED, **{**values, "system_text": "Be quick."}), now=now
    )
    assert (same.changed, other.changed) == (0, 6)
    assert all(each.now.tokens == each.proposed.tokens for each in other.worst)


def test_a_refusal_is_counted_apart_and_stands_first(chats: list[Chat], now: datetime) -> None:
    nothing = proposed(token_budget=900, reserve_tokens=880)
    found = sample_chats(proposal=nothing, now=now)
    assert found.would_refuse == found.changed == 6
    assert found.worst[0].proposed.code


def test_a_policy_counts_where_it_is_assigned(
    chats: list[Chat], alice: User, now: datetime
) -> None:
    values = {"strategy": "simple", "window_size": 30}
    policy = create_policy(slug="trial", name="Trial", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="user", user=alice, actor="system", now=now)
    found = sample_chats(proposal=proposed(ASSIGNED, window_size=6), now=now)
    # Alice owns two of the three long chats.
    assert (found.judged, found.changed) == (6, 2)


def test_a_smaller_sample_is_less_certain_and_time_ends_it(
    chats: list[Chat], now: datetime
) -> None:
    found = sample_chats(proposal=proposed(window_size=1), now=now, size=3)
    assert (found.in_use, found.judged, found.changed) == (6, 3, 3)
    assert found.low < 1 == found.high
    times = iter([0.0, 1.0, sampling.PATIENCE + 1])
    late = sample_chats(proposal=proposed(window_size=1), now=now, clock=lambda: next(times))
    assert (late.in_use, late.judged) == (6, 1)
    none = sample_chats(proposal=proposed(window_size=1), now=now + timedelta(days=200))
    assert (none.in_use, none.judged, none.low, none.high) == (0, 0, 0.0, 0.0)


@given(st.integers(0, 200), st.integers(1, 200), st.integers(1, 100_000))
def test_an_interval_holds_the_share_that_was_seen(changed: int, of: int, among: int) -> None:
    of = min(of, among)
    changed = min(changed, of)
    low, high = calculate_confidence_interval(changed, of=of, among=among)
    assert 0 <= low <= changed / of + 1e-9
    assert changed / of - 1e-9 <= high <= 1
    assert (low == high) == (of == among)


def test_the_interval_is_wilsons() -> None:
    """Value from published tables: 10 of 100 gives an interval of 5.5 to 17.4 percent."""
    low, high = calculate_confidence_interval(10, of=100, among=10**9)
    assert (round(low, 3), round(high, 3)) == (0.055, 0.174)


class TestPage:
    """*Preview* in the policy editor."""

    def asked(self, browser: Client, policy: ContextPolicy, **changed: str) -> str:
        """Return the page after *Preview* was pressed."""
        address = f"/admin/contextpolicy/contextpolicy/{policy.pk}/change/"
        form = {**opened(browser, address).fields, "try-chat": "sample", "_preview": "1", **changed}
        return browser.post(address, form).content.decode()

    def test_the_share_and_the_worst_are_told_without_words(
        self, chats: list[Chat], now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("django.utils.timezone.now", lambda: now)
        ines = signed_in(person("ines", POLICY_ADMIN))
        values = {"strategy": "simple", "window_size": 30}
        policy = create_policy(slug="own", name="Own", values=values, actor="system", now=now)
        html = self.asked(ines, policy, window_size="6")
        words = Page(html).words
        assert (
            "The next prompts of all 6 chats in use were compared: 3 would change (50%)." in words
        )
        assert 'data-note="most-changed-chats"' in html
        assert str(chats[0].pk) in words
        assert "asks for Eva" not in html
        assert policy.versions.count() == 1

    @pytest.mark.usefixtures("chats")
    def test_no_transaction_is_open_while_chats_are_compared(
        self, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On SQLite, it would block all writers for up to 20 seconds."""
        depths = []

        def noted(**options: Any) -> Sampled:
            depths.append(len(connection.savepoint_ids))
            return sample_chats(**options)

        monkeypatch.setattr("chats.admin.policies.editor_preview.sample_chats", noted)
        ines = signed_in(person("ines", POLICY_ADMIN))
        policy = create_policy(slug="own", name="Own", values={}, actor="system", now=now)
        self.asked(ines, policy)
        # The transaction of the test has no savepoint.
        assert depths == [0]


class TestREST:
    """`POST /policies/preview/sample`."""

    def test_the_counts_are_told_to_those_who_may_change_policies(
        self, chats: list[Chat], alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("django.utils.timezone.now", lambda: now)
        ines, address = signed_in(person("ines", POLICY_ADMIN)), "/api/v1/policies/preview/sample"

        def asked(who: Client, **body: Any) -> Any:
            return who.post(address, body, content_type="application/json")

        told = asked(ines, values={"strategy": "simple", "window_size": 6}).json()
        assert {name: told[name] for name in ("in_use", "judged", "changed", "low", "high")} == {
            "in_use": 6,
            "judged": 6,
            "changed": 3,
            "low": 0.5,
            "high": 0.5,
        }
        assert len(told["worst"]) == 3
        worst = told["worst"][0]
        assert worst["now"]["full"] > worst["proposed"]["full"]
        broken = asked(ines, values={"colour": 1}).json()
        assert [each["code"] for each in broken["findings"]] == ["malformed_policy"]
        assert (broken["judged"], broken["worst"]) == (0, [])
        assert asked(signed_in(alice), values={}).status_code == 404
