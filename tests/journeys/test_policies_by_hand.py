"""An administrator writes a policy with forms only; the next prompt and the ledger show it."""

import json
from collections.abc import Callable
from datetime import datetime

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from chats.compaction import maintain
from chats.models import Chat, Turn
from chats.providers.base import Finished, ProviderRequest, TextDelta
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ContextPolicy
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.pages import opened, submitted
from tests.contextpolicy.people import person, signed_in
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

POLICIES = "/admin/contextpolicy/contextpolicy/"
ASSIGN = "/admin/contextpolicy/policyassignment/add/"
# A strategy in another system's format.
IMPORTED = {
    "id": "rounds",
    "contextStrategy": {
        "type": "plugin",
        "pluginId": "std-summarization-strategy",
        "config": {"threshold": 6},
    },
}

Ask = Callable[[str, str], ProviderRequest]


@pytest.fixture
def admin(db: None) -> Client:
    """The browser of Ines, who administers policies."""
    return signed_in(person("ines", POLICY_ADMIN))


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime) -> Ask:
    """Ask in Alice's chat and let the model answer; return the request to the model."""

    def asking(text: str, answer: str) -> ProviderRequest:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        provider = ScriptedProvider([[TextDelta(answer), Finished("stop")]])
        async_to_sync(InlineWorker(provider).turn)(turn.pk)
        assert Turn.objects.get(pk=turn.pk).status == Turn.Status.COMPLETED
        return provider.requests[0]

    return asking


def texts(request: ProviderRequest) -> list[str]:
    """Return the contents of a request's messages."""
    return [message.content for message in request.messages]


def page_of(slug: str) -> str:
    """Return the address of a policy's page."""
    policy = ContextPolicy.objects.get(slug=slug)
    return reverse("admin:contextpolicy_contextpolicy_change", args=[policy.pk])


def written(admin: Client, slug: str, **fields: str) -> None:
    """Create a policy without dates and excerpts and apply it to everyone, with forms only."""
    fields = {"dates": "no", "references": "no", **fields}
    answer = submitted(admin, f"{POLICIES}add/", name=slug, slug=slug, **fields)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    applied(admin, slug)


def applied(admin: Client, slug: str) -> None:
    """Apply a policy to everyone."""
    policy = ContextPolicy.objects.get(slug=slug)
    answer = submitted(admin, ASSIGN, policy=str(policy.pk), place="instance")
    assert answer.status_code == 302


@pytest.mark.requirement("S0.3", by="admin")
@pytest.mark.requirement("S0.4", by="admin")
def test_the_servers_window_holds_until_a_policy_sets_its_own(
    admin: Client, ask: Ask, settings: Settings
) -> None:
    settings.HISTORY_WINDOW = 4
    settings.MAX_CHARS_PER_MESSAGE = 60
    written(admin, "plain", strategy="simple")
    for number in (1, 2, 3):
        ask(f"Question {number}", f"Answer {number} " + "and so on " * 10)

    *history, question = texts(ask("Question 4", "Answer 4"))
    assert [text[:10] for text in history] == [
        "Question 2",
        "Answer 2 a",
        "Question 3",
        "Answer 3 a",
    ]
    assert max(len(text) for text in history) <= 60
    assert question == "Question 4"

    submitted(admin, page_of("plain"), window_size="2", max_chars_per_message="500")
    *history, question = texts(ask("Question 5", "Answer 5"))
    assert history == ["Question 4", "Answer 4"]
    submitted(admin, page_of("plain"), window_size="8")
    assert "Answer 3 " + "and so on " * 10 in texts(ask("Question 6", "Answer 6"))


@pytest.mark.requirement("S2.3", by="admin")
def test_a_window_is_filled_from_the_newest_backwards(admin: Client, ask: Ask) -> None:
    written(
        admin,
        "window",
        strategy="sliding_window",
        token_budget="1600",
        reserve_tokens="400",
        compact_to="90",
    )
    said = []
    for number in range(12):
        # The third is long: no earlier message replaces it.
        question = f"Question {number} " + "word " * (500 if number == 2 else 60)
        request = ask(question, f"Answer {number}")
        said += [question, f"Answer {number}"]
    sent = texts(request)
    assert 4 < len(sent) < 24
    assert sent == said[-len(sent) - 1 : -1]
    assert sum(ApproximateCounter().count(text) for text in sent) <= 1_200


@pytest.mark.requirement("S2.4", by="admin")
def test_an_imported_strategy_folds_by_rounds(
    admin: Client, ask: Ask, chat: Chat, now: datetime
) -> None:
    answer = admin.post(f"{POLICIES}import/", {"pasted": json.dumps(IMPORTED)})
    assert answer.status_code == 302, answer.context["form"].errors
    submitted(admin, page_of("rounds"), system_text="Be brief.")
    applied(admin, "rounds")
    for number in range(1, 8):
        ask(f"The order {number}00 of 3 May 2026 goes to Oslo. " * 9, f"Noted {number}")
        maintain.maintain_chat_context(chat_id=chat.pk, counter=ApproximateCounter(), now=now)

    system, summary, *history = ask("And now?", "Now.").messages
    assert (system.role, system.content) == ("system", "Be brief.")
    assert summary.role == "user"
    assert "100" in summary.content
    assert [message.content for message in history][1::2] == ["Noted 6", "Noted 7"]
    branch = Chat.objects.get(pk=chat.pk).active_branch
    assert branch is not None
    assert branch.messages.count() == 16


@pytest.mark.requirement("S0.5", by="auditor")
def test_an_auditor_reads_what_was_left_out(admin: Client, ask: Ask) -> None:
    written(admin, "short", strategy="simple", window_size="2", max_chars_per_message="40")
    for number in (1, 2):
        ask(f"Question {number}", f"Answer {number} " + "and so on " * 10)

    ask("Question 3", "Answer 3")

    auditor = signed_in(person("ada", AUDITOR))
    event = AuditEvent.objects.filter(type="context.compressed").latest("id")
    words = opened(auditor, reverse("admin:contextpolicy_auditevent_change", args=[event.pk])).words
    for said in (
        '"original_count": 4',
        '"compressed_count": 2',
        '"truncated_count": 1',
        '"max_messages": 2',
        '"max_chars_per_message": 40',
        str(event.turn_id),
    ):
        assert said in words
    assert "Question" not in words
