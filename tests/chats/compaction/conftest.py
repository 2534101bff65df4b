"""Fixtures: a chat long enough for a compaction, an early compaction policy, scripted summaries."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from django.contrib.auth.models import User

from chats.compaction import maintain
from chats.compaction.coverage import get_active_summary
from chats.compaction.publish import publish_prepared
from chats.models import Branch, Chat, Compaction, Turn
from chats.prompt import built_prompt, composition
from chats.providers import registry
from chats.providers.base import Finished, ProviderRequest, TextDelta, UsageReport
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import (
    ContextPolicy,
    ModelSpec,
    PolicyAssignment,
    PolicyVersion,
)
from tests.chats.conftest import ScriptedProvider
from tests.chats.rebuilding import summaries_not_rebuilt

Work = Callable[..., Any]
Say = Callable[..., Turn]
Fold = Callable[..., Compaction]
Writes = Callable[..., ScriptedProvider]
SetPolicy = Callable[..., PolicyVersion]
SENTENCE = "The order 4711 of 3 May 2026 goes to Anna Berg in Oslo, see https://a.example/4711. "
GOOD = """## Facts
- The order 4711 of 3 May 2026 goes to Anna Berg in Oslo [#1, #2]
## Preferences
## Decisions
## Open items
## Done items
"""
VALUES: dict[str, Any] = {
    "strategy": "dynamic_summary",
    "token_budget": 2400,
    "reserve_tokens": 400,
    "keep_last_messages": 2,
    "summary_max_tokens": 400,
    # High enough for a summary to be prepared at the first threshold.
    "compact_to": 0.6,
}


@pytest.fixture(autouse=True)
def summaries_built_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Rebuild every summary call of the test from rows at teardown."""
    has_rows = "db" in request.fixturenames or "transactional_db" in request.fixturenames
    if has_rows:
        request.getfixturevalue("db")
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
            policy=policy, number=number, values={**VALUES, **values}, created_at=now
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


def branch_of(chat: Chat) -> Branch:
    """Reload the active branch."""
    chat.refresh_from_db()
    return Branch.objects.select_related("active_compaction__base", "chat").get(
        pk=cast(uuid.UUID, chat.active_branch_id)
    )


def in_force(chat: Chat) -> Compaction | None:
    """Return the active summary of the active branch."""
    return get_active_summary(branch_of(chat).active_compaction)


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
        publish_prepared(branch_id=branch_of(chat).pk, now=at)
        found = in_force(chat)
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


def wrote(text: str = GOOD, finish: Any = "stop") -> list[Any]:
    """Return the script of a summariser that answers with a text."""
    return [TextDelta(text), UsageReport(1000, 100, 0, 0), Finished(finish)]


def asked_for(request: ProviderRequest) -> str:
    """Return the text of a request to the summariser."""
    return request.messages[-1].content


def prompt_of(chat: Chat) -> tuple[str, list[str]]:
    """Return hash and content of the prompt that the last turn's question would get now."""
    branch = branch_of(chat)
    turns = Turn.objects.select_related("branch__chat", "model", "trigger", "continues")
    turn = turns.filter(branch=branch).order_by("-accepted").first()
    assert turn is not None
    made = composition.compose_prompt(turn=turn, counter=ApproximateCounter())
    assert isinstance(made, built_prompt.Prompt), made
    return made.receipt_fields["prompt_sha256"], [m.content for m in made.request.messages]


def later(now: datetime, minutes: int = 1) -> datetime:
    """Return a time after noon."""
    return now + timedelta(minutes=minutes)


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


def system_of(chat: Chat) -> str:
    """Return the system text of the prompt that the last turn's question would get now."""
    return prompt_of(chat)[1][0]
