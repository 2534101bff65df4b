"""The worked example of the context layouts is identical byte for byte from each sender.

One chat of the owner holds the retrieved messages, the other one the recent ones. The question is
sent from the page, over REST and through the gateway.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.compaction import embedding
from chats.memory.preferences import memory_settings, preferences
from chats.memory.search import archive
from chats.models import Branch, Chat, Message, Preference, Receipt, Turn
from chats.prompt.reconstruction import rebuild_request
from chats.providers import embedders
from chats.providers.base import Finished, TextDelta
from chats.providers.embedders import Vector
from contextpolicy.models import ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.conftest import program
from tests.chats.api.programs import Program as RestClient
from tests.chats.gateway.conftest import make, quick
from tests.fakes.embedding import FakeEmbedder
from tests.support.embedding_models import embed_everything
from tests.support.gateway_clients import MakeClient, assistant, user
from tests.support.retrieved_context import Say

__all__ = ["make", "program", "quick"]
pytestmark = pytest.mark.usefixtures("built_again", "fresh_vectors", "no_breaker")
GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "engine" / "golden" / "golden_s1_6.json").read_text("utf-8")
)
EXAMPLE = GOLDEN["input"]
LAYOUTS = ("A", "B", "C", "multi_turn")
BY_INTEGRATOR = pytest.mark.requirement("S1.3", by="integrator")


class PetEmbedder(FakeEmbedder):
    """An embedder that gives similar vectors to texts about cats and fish."""

    def of(self, text: str) -> Vector:
        """Return a vector whose first value is large for a text about pets."""
        near = 3.0 * any(character in "猫鱼" for character in text)
        vector = super().of(text)
        return [near, *vector[1:]]


@dataclass
class Senders:
    """The chat of the example, and the three ways to ask its question."""

    chat: Chat
    owner: User
    rest: RestClient
    make: MakeClient
    work: Callable[..., Any]

    def page(self) -> Any:
        """Send the question with the form of the page."""
        browser = Client()
        browser.force_login(self.owner)
        browser.post(f"/chats/{self.chat.pk}/messages", {"text": EXAMPLE["question"], "key": "k"})
        return self.reply()

    def api(self) -> Any:
        """Send the question over REST."""
        sent = self.rest.post(f"chats/{self.chat.pk}/messages", {"text": EXAMPLE["question"]})
        assert sent.status_code in (201, 202), sent.content
        return self.reply()

    def gateway(self) -> Any:
        """Have the conversation through the gateway. The owner enables memory before its end."""
        client = self.make(self.owner)
        conversation = []
        recent = EXAMPLE["recent"]
        for question, answer in zip(recent[::2], recent[1::2], strict=True):
            conversation.append(user(question["content"]))
            answered = client.ask(conversation, TextDelta(answer["content"]), Finished("stop"))
            conversation.append(assistant(answer["content"]))
        changed = self.rest.call("PATCH", f"chats/{answered.chat.pk}", {"memory": True})
        assert changed.status_code == 200, changed.content
        client.ask([*conversation, user(EXAMPLE["question"])])
        return client.requests[-1]

    def reply(self) -> Any:
        """Let a worker reply to the newest turn; return the request that the model got."""
        turn = Turn.objects.latest("accepted")
        worker = self.work(turn, [TextDelta("ok"), Finished("stop")])
        return worker.scripted.requests[0]


@pytest.fixture
def senders(
    alice: User,
    chat: Chat,
    say: Say,
    new_chat: Callable[..., Chat],
    models: dict[str, FakeEmbedder],
    make: MakeClient,
    program: Callable[..., RestClient],
    work: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    now: datetime,
) -> Senders:
    """Store the example's messages, preference and index."""
    monkeypatch.setattr(embedders, "build_embedder", lambda _account, model: PetEmbedder())
    embedding.choose_embedding_model("near-one", anew=False, actor="user:1", now=now)
    ModelSpec.objects.filter(slug="near-two").delete()
    asked, answered = EXAMPLE["semantic"]
    other = new_chat(alice)
    say(other, asked["content"], answered["content"])
    branch = Branch.objects.get(chat=other)
    # Unrelated texts set the threshold of similarity.
    Message.objects.bulk_create(
        Message(
            branch=branch,
            seq=seq,
            accepted=1_000 + seq,
            role="user",
            parts=[{"type": "text", "text": f"Topic{seq} word{seq} thing{seq}."}],
            created_at=now,
        )
        for seq in range(3, 31)
    )
    Branch.objects.filter(pk=branch.pk).update(last_seq=30)
    archive.index_branch(Branch.objects.get(chat=other))
    recent = EXAMPLE["recent"]
    for question, answer in zip(recent[::2], recent[1::2], strict=True):
        say(chat, question["content"], answer["content"])
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    preferences.write_preference(
        owner_id=alice.pk,
        slot=Preference.Slot.NOTE,
        text=EXAMPLE["user_preferences"],
        folder=None,
        now=now,
    )
    embed_everything(now)
    return Senders(chat, alice, program(alice), make, work)


def govern(now: datetime, *, layout: str, **values: Any) -> None:
    """Assign the example's policy to everyone."""
    policy = create_policy(
        slug="example",
        name="Example",
        values={
            "strategy": "simple",
            "layout": layout,
            "system_text": EXAMPLE["system"],
            "question_prefix": EXAMPLE["question_prefix"],
            "references": True,
            "reference_scope": "person",
            **values,
        },
        actor="system",
        now=now,
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def sent(request: Any) -> list[dict[str, str]]:
    return [{"role": wire.role, "content": wire.content} for wire in request.messages]


@pytest.mark.requirement("S1.6")
@pytest.mark.parametrize(
    ("layout", "sender"),
    [
        ("A", "page"),
        ("A", "gateway"),
        *(pytest.param(layout, "api", marks=BY_INTEGRATOR) for layout in LAYOUTS),
    ],
)
def test_S1_6_the_example_with_both_sections_is_sent_byte_for_byte(
    senders: Senders, now: datetime, layout: str, sender: str
) -> None:
    govern(now, layout=layout, plain_sections=True)
    request = getattr(senders, sender)()
    expected = json.dumps(GOLDEN["expected"][layout], ensure_ascii=False)
    assert json.dumps(sent(request), ensure_ascii=False) == expected
    assert rebuild_request(Receipt.objects.latest("created_at")).fault == ""


def test_without_the_option_sections_keep_their_introduction_and_dates(
    senders: Senders, now: datetime
) -> None:
    govern(now, layout="A")
    text = sent(senders.page())[-1]["content"]
    assert "User Preferences: what this person has said of themselves" in text
    assert f"- note: {EXAMPLE['user_preferences']}" in text
    assert f"\nUser: ({now:%Y-%m-%d}) {EXAMPLE['semantic'][0]['content']}" in text
