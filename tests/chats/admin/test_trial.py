"""“Write test summary”: one call with recorded cost. Its result is shown once and not stored."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chats.admin.policies.previews import SUMMARY_LENGTH
from chats.counts import keeping
from chats.models import Chat, Compaction, DailyCount, PassedOn
from chats.providers import registry
from chats.providers.base import ProviderError
from chats.record import passthrough_requests
from chats.record.usage import sum_person_usage
from chats.simulation import trial
from chats.simulation.proposals import PolicyProposal
from contextpolicy.engine.policy.costs import Money
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec
from contextpolicy.roles import POLICY_ADMIN, seed_roles
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import GOOD_SUMMARY, SMALL_POLICY, Writes, script_summary
from tests.support.scripted_worker import ScriptedProvider
from tests.support.summary_attempts import SUMMARY_IN_ONE_REQUEST

pytestmark = pytest.mark.django_db

Try = Callable[..., trial.Trial]


def proposal(**values: Any) -> PolicyProposal:
    """Return a proposed policy whose summaries use the writer model."""
    said = {**SMALL_POLICY, **SUMMARY_IN_ONE_REQUEST, "summarization_model": "writer", **values}
    return PolicyProposal(slug="trial", name="Trial", version=0, values=said, locks=[])


@pytest.fixture
def attempt(alice: User, long_chat: Chat) -> Try:
    """Try a summary of Alice's chat."""

    def trying(user: User = alice, **values: Any) -> trial.Trial:
        return trial.run_trial(
            user=user, chat=long_chat, proposal=proposal(**values), clock=timezone.now
        )

    return trying


@pytest.fixture
def editor(alice: User) -> Client:
    """The browser of Alice, with permission to change policies."""
    seed_roles()
    alice.groups.add(Group.objects.get(name=POLICY_ADMIN))
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    return signed_in(User.objects.get(pk=alice.pk))


def test_it_is_one_call_of_which_only_the_account_stays(
    attempt: Try, writes: Writes, writer: ModelSpec, alice: User, long_chat: Chat
) -> None:
    writer.currency = "USD"
    writer.save()
    provider = writes(script_summary())
    before = Compaction.objects.count()
    made = attempt()
    assert len(provider.requests) == 1
    assert (made.text, made.reasons) == (GOOD_SUMMARY, ())
    assert made.cost == Money({"USD": Decimal("0.003")})
    assert (made.input, made.output) == (1_000, 100)
    assert made.replaced > made.tokens > 0
    assert (made.kept > 0, made.messages > 0) == (True, True)
    assert Compaction.objects.count() == before
    row = PassedOn.objects.get()
    assert (row.kind, row.outcome, row.usage["input"]) == ("summary", "ok", 1_000)
    event = AuditEvent.objects.get(type="summary.tried")
    assert (event.actor, event.data["input_tokens"]) == (f"user:{alice.pk}", 1_000)
    assert "Oslo" not in str(event.data)
    since = timezone.now() - timedelta(days=1)
    (group,) = [
        each
        for each in sum_person_usage(owner=alice, since=since, until=timezone.now(), by="model")
        if each.group == "writer"
    ]
    assert (group.calls, group.input) == (1, 1_000)
    while keeping.count_next_events(now=timezone.now()):
        pass
    assert DailyCount.objects.get(model="writer").cost == Decimal("0.003")


def test_a_summary_that_would_be_rejected_says_why(attempt: Try, writes: Writes) -> None:
    writes(script_summary("I'm sorry, but no."))
    assert attempt().reasons


def test_a_failure_is_accounted_for_too(
    attempt: Try, writer: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ScriptedProvider([[ProviderError("provider_timeout")]])
    monkeypatch.setattr(registry, "get_provider", lambda *_a, **_k: provider)
    with pytest.raises(trial.TrialFailed) as failed:
        attempt()
    assert failed.value.code == "trial_failed"
    assert ProviderError("provider_timeout").sentence in failed.value.sentence
    assert AuditEvent.objects.get(type="summary.tried").data["code"] == "provider_timeout"


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"summarization_model": ""}, trial.NoSummariser),
        ({"strategy": "sliding_window"}, trial.NoSummariser),
    ],
)
def test_what_cannot_be_tried_costs_nothing(
    attempt: Try, writes: Writes, values: dict[str, Any], refusal: type[Exception]
) -> None:
    provider = writes(script_summary())
    with pytest.raises(refusal):
        attempt(**values)
    assert provider.requests == []
    assert not PassedOn.objects.exists()


def test_more_than_one_call_would_take_is_refused(
    attempt: Try, writes: Writes, writer: ModelSpec
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=450)
    writes(script_summary())
    with pytest.raises(trial.TooLongForOneCall, match="context window"):
        attempt()


def test_one_at_a_time_and_a_killed_one_is_told_as_lost(
    attempt: Try, writes: Writes, writer: ModelSpec, alice: User
) -> None:
    writes(script_summary())
    passthrough_requests.start_summary_trial(owner=alice, model=writer, now=timezone.now())
    with pytest.raises(passthrough_requests.TrialUnderWay):
        attempt()
    later = timezone.now() + timedelta(hours=2)
    assert passthrough_requests.sweep_passthrough(now=later) == 1
    assert AuditEvent.objects.get(type="summary.tried").data["outcome"] == "lost"
    assert attempt().text == GOOD_SUMMARY


def test_charlies_trial_of_alices_chat_finds_nothing(
    attempt: Try, writes: Writes, charlie: User
) -> None:
    provider = writes(script_summary())
    with pytest.raises(Exception, match="not exist"):
        attempt(user=charlie)
    assert provider.requests == []


def test_the_button_shows_the_summary_and_saves_nothing(
    editor: Client, long_chat: Chat, writes: Writes, now: datetime
) -> None:
    provider = writes(script_summary())
    policy = ContextPolicy.objects.get(slug="small")
    version = policy.current
    address = reverse("admin:contextpolicy_contextpolicy_change", args=[policy.pk])
    fields = {
        **opened(editor, address).fields,
        "try-chat": str(long_chat.pk),
        "summarization_model": "writer",
        "summary_source_max_tokens": "",
    }
    html = editor.post(address, {**fields, "_preview": "1"}).content.decode()
    assert 'name="_trial"' in html
    assert provider.requests == []
    assert str(SUMMARY_LENGTH) in html
    html = editor.post(address, {**fields, "_trial": "1"}).content.decode()
    assert len(provider.requests) == 1, re.sub("<[^>]+>", " ", html)
    assert 'data-note="checks-passed"' in html
    assert "goes to Anna Berg in Oslo [#1, #2]" in html
    assert "0.0030" in html
    policy.refresh_from_db()
    assert policy.current == version
    assert policy.versions.count() == 1


def test_on_somebody_elses_chat_there_is_no_button(
    long_chat: Chat, writes: Writes, small_policy: Any
) -> None:
    provider = writes(script_summary())
    governor = signed_in(person("paula", POLICY_ADMIN))
    policy = ContextPolicy.objects.get(slug="small")
    address = reverse("admin:contextpolicy_contextpolicy_change", args=[policy.pk])
    fields = {**opened(governor, address).fields, "try-other": str(long_chat.pk)}
    html = governor.post(address, {**fields, "_trial": "1"}).content.decode()
    assert 'data-note="only-numbers"' in html
    assert 'name="_trial"' not in html
    assert provider.requests == []
