"""Prompts do not depend on the language of a page, a person or a process."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import translation
from django.utils.translation import trans_real

from chats.actions import lifecycle
from chats.compaction import maintain
from chats.compaction.publish import publish_prepared
from chats.models import Chat, Compaction, Turn
from chats.providers.base import Finished, ProviderRequest, TextDelta
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from tests import pseudo
from tests.support.chat_summaries import (
    SENTENCE,
    SetPolicy,
    Work,
    Writes,
    reload_branch,
    script_summary,
)

LANGUAGES = ("en", "zh-hans", pseudo.CODE)
MARKS = {"prepare_at_tokens": 1_400, "compact_at_tokens": 1_800, "compact_to_tokens": 1_200}


@pytest.fixture
def pseudo_locale() -> Iterator[None]:
    """Add the pseudo-locale."""
    original = trans_real.translation
    pseudo.install()
    yield
    trans_real.translation = original


def sent(request: ProviderRequest) -> dict[str, Any]:
    """Return the messages and tools of a request."""
    return {
        "messages": [(one.role, one.content) for one in request.messages],
        "tools": [(tool.name, tool.description, tool.parameters) for tool in request.tools],
    }


def requests_in(
    language: str, *, alice: User, work: Work, now: datetime, provider: Any
) -> list[dict[str, Any]]:
    """Hold the same conversation with everything in one language; return all model requests.

    Later prompts have a summary, dates and the search tool. The last request is a turn's.
    """
    found = []
    with translation.override(language):
        assert translation.get_language() == language
        chat: Chat = lifecycle.create_chat(owner=alice, now=now)
        for number in range(9):
            at = now + timedelta(days=number)
            turn = start_turn(
                user=alice, chat=chat, text=f"Question {number}. {SENTENCE}", now=at
            ).turn
            worker = work(turn, [TextDelta(f"Answer {number}. " + SENTENCE * 6), Finished("stop")])
            assert turn.status == Turn.Status.COMPLETED
            found.append(sent(worker.scripted.requests[0]))
            if number == 6:
                maintain.maintain_chat_context(
                    chat_id=chat.pk, counter=ApproximateCounter(), now=at
                )
                publish_prepared(branch_id=reload_branch(chat).pk, now=at)
                assert Compaction.objects.filter(branch__chat=chat, status="published").exists()
    return found + [sent(request) for request in provider.requests]


def test_prompts_and_summary_requests_are_the_same_in_every_language(
    alice: User,
    work: Work,
    now: datetime,
    writer: ModelSpec,
    writes: Writes,
    set_policy: SetPolicy,
    pseudo_locale: None,
) -> None:
    set_policy(
        summarization_model=writer.slug,
        token_budget=4_000,
        dates=True,
        references=True,
        system_text="Answer briefly.",
        **MARKS,
    )
    found = {
        language: requests_in(
            language, alice=alice, work=work, now=now, provider=writes(*[script_summary()] * 9)
        )
        for language in LANGUAGES
    }
    assert len(found["en"]) > 9
    last = found["en"][8]
    assert last["tools"]
    assert any("Order 4711" in content or "2026" in content for _, content in last["messages"])
    for language in LANGUAGES[1:]:
        assert found[language] == found["en"], language
