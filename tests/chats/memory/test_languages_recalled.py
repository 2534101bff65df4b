"""Recall works as well in other languages as in English."""

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.memory.search import archive
from chats.memory.search.recall import recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.models import Branch, Chat
from tests.chats.memory.known_answers import KNOWN
from tests.support.messages_without_turns import Say


@pytest.fixture
def share(alice: User, chat: Chat, say: Say, now: datetime) -> Callable[..., dict[int, float]]:
    """Return the percentage of questions whose answer is among the first 1 and 3 results."""

    def measured(language: str) -> dict[int, float]:
        pairs = KNOWN[language]
        for text, _ in pairs:
            say(text)
        archive.index_branch(Branch.objects.get(chat=chat))
        found = {
            question: [
                excerpt.text
                for excerpt in recall_excerpts(
                    alice.pk, question, scope=Scope("chat", chat.pk), limit=3, at=now
                ).excerpts
            ]
            for _, question in pairs
        }
        missed = [question for text, question in pairs if text not in found[question]]
        print(language, missed)  # noqa: T201  # shown where the test fails
        return {
            most: 100 * sum(text in found[question][:most] for text, question in pairs) / len(pairs)
            for most in (1, 3)
        }

    return measured


@pytest.mark.memory_case(34)
@pytest.mark.parametrize("language", KNOWN)
def test_a_known_answer_is_among_the_first(
    language: str, share: Callable[..., dict[int, float]]
) -> None:
    # Every language reaches the result of English.
    assert share(language) == {1: 100.0, 3: 100.0}
