"""Fixtures: a chat long enough for a compaction, an early compaction policy, scripted summaries."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.compaction import maintain
from chats.compaction.publish import publish_prepared
from chats.models import Chat, Compaction, Turn
from chats.providers import registry
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ContextPolicy, ModelSpec, PolicyAssignment, PolicyVersion
from tests.chats.rebuilding import summaries_not_rebuilt
from tests.support.chat_summaries import (
    SENTENCE,
    SMALL_POLICY,
    Fold,
    Say,
    SetPolicy,
    Work,
    Writes,
    find_active_summary,
    reload_branch,
)
from tests.support.scripted_worker import ScriptedProvider


@pytest.fixture(autouse=True)
def summaries_built_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Rebuild every summary call of the test from rows at teardown."""
    has_rows = "db" in request.fixturenames or "transactional_db" in request.fixturenames
    if has_rows:
        # The triggers of the ledger are restored after the flush only if set up before the rows.
        committed = "transactional_ledger" in request.fixturenames
        request.getfixturevalue("transactional_ledger" if committed else "db")
    yield
    if has_rows and "tampers" not in request.keywords:
        assert list(summaries_not_rebuilt()) == []


@pytest.fixture
def set_policy(db: None, now: datetime) -> SetPolicy:
    """Create and publish a new version of the policy."""
    policy = ContextPolicy.objects.create(slug="small", name="Small")
    PolicyAssignment.objects.create(policy=policy, level="instance")

    def setting(**values: Any) -> PolicyVersion:
        number = policy.versions.count() + 1
        version = PolicyVersion.objects.create(
            policy=policy, number=number, values={**SMALL_POLICY, **values}, created_at=now
        )
        policy.current = version
        policy.save()
        return version

    return setting


@pytest.fixture
def small_policy(set_policy: SetPolicy) -> PolicyVersion:
    """A policy that compacts after a few turns."""
    return set_policy()


@pytest.fixture
def long_chat(
    alice: User, chat: Chat, now: datetime, work: Work, small_policy: PolicyVersion
) -> Chat:
    """A chat of eight turns, enough to reach the threshold for preparing a summary."""
    for number in range(8):
        turn = start_turn(
            user=alice, chat=chat, text=f"Question {number}. {SENTENCE}", now=now
        ).turn
        work(turn, [TextDelta(f"Answer {number}. " + SENTENCE * 6), Finished("stop")])
    return chat


@pytest.fixture
def say(alice: User, now: datetime, work: Work) -> Say:
    """Run one turn: `say(chat, question, answer)`."""

    def saying(chat: Chat, text: str = "And now?", answer: str = "Like this.") -> Turn:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        work(turn, [TextDelta(answer), Finished("stop")])
        return turn

    return saying


@pytest.fixture
def fold(counter: ApproximateCounter, now: datetime) -> Fold:
    """Compact a chat, publish the summary and return its row."""

    def folding(chat: Chat, at: datetime = now) -> Compaction:
        maintain.maintain_chat_context(chat_id=chat.pk, counter=counter, now=at)
        publish_prepared(branch_id=reload_branch(chat).pk, now=at)
        found = find_active_summary(chat)
        assert found is not None
        return found

    return folding


@pytest.fixture
def writer(demo_model: ModelSpec) -> ModelSpec:
    """A model that writes summaries, with a price."""
    return ModelSpec.objects.create(
        slug="writer",
        provider="demo",
        name="writer",
        context_window=16_000,
        input_price=2,
        output_price=10,
    )


@pytest.fixture
def writes(writer: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> Writes:
    """Play the given scripts as answers of the summariser, one per call."""

    def writing(*scripts: Sequence[Any]) -> ScriptedProvider:
        provider = ScriptedProvider([list(script) for script in scripts])
        monkeypatch.setattr(registry, "get_provider", lambda *a, **k: provider)
        return provider

    return writing


@pytest.fixture
def talk(alice: User, chat: Chat, now: datetime, work: Work) -> Callable[[], None]:
    """Run enough turns for the next compaction."""

    def talking() -> None:
        for number in range(8):
            turn = start_turn(
                user=alice, chat=chat, text=f"Question {number}. {SENTENCE}", now=now
            ).turn
            work(turn, [TextDelta(f"Answer {number}. " + SENTENCE * 6), Finished("stop")])

    return talking


@pytest.fixture
def roomy(long_chat: Chat, set_policy: SetPolicy) -> Chat:
    """A long chat whose original messages fit the prompt as well as their summary does."""
    set_policy(token_budget=9000, reserve_tokens=1000, keep_last_messages=2, summary_max_tokens=400)
    Chat.objects.filter(pk=long_chat.pk).update(title="Order")
    branch = reload_branch(long_chat)
    branch.active_compaction = None
    branch.save()
    Compaction.objects.all().delete()
    return long_chat
