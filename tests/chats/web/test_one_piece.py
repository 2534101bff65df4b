"""A model that cannot stream: the same list goes to it, and its reply comes in one piece."""

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.ground.live import Frame
from chats.models import Message, ProviderAccount, Turn
from chats.people import keys
from chats.providers import registry
from chats.providers.base import Timeouts
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.presets import seed_policies
from tests.chats.api.programs import Program
from tests.fakes.fake_server import FakeServer
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

pytestmark = pytest.mark.processes
REPLY = "猫是肉食动物。"


class OnTheWire(InlineWorker):
    """A worker whose calls go to the server."""

    def provider(self, account: Any) -> Any:
        """The adapter."""
        return registry.get_provider(account, timeouts=Timeouts())

    async def whole_turn(self, turn: Turn) -> None:
        """Work on a turn, and close the connections."""
        await self.turn(turn.pk)
        await registry.aclose_all()


def answered() -> OnTheWire:
    """Let a worker take the next queued turn."""
    worker = OnTheWire(ScriptedProvider([]))
    turn = Turn.objects.get(status=Turn.Status.QUEUED)
    async_to_sync(worker.whole_turn)(turn)
    turn.refresh_from_db()
    assert turn.status == "completed", turn.error_code
    return worker


@pytest.fixture
def messenger(demo_model: ModelSpec) -> ContextPolicy:
    """The messenger preset, active for everyone."""
    now = timezone.now()
    seed_policies(now=now)
    found = ContextPolicy.objects.get(slug="messenger")
    assign_policy(policy=found, level="instance", actor="system", now=now)
    return found


@pytest.fixture
def server(demo_model: ModelSpec, settings: Any) -> Iterator[FakeServer]:
    """A model server, to which the model belongs."""
    with FakeServer() as fake:
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host]
        ProviderAccount.objects.update(kind="openai", base_url=fake.base_url)
        fake.configure(reply=REPLY, tokens=6)
        yield fake


def talk(person: Client, server: FakeServer) -> tuple[list[dict[str, Any]], str, list[Frame]]:
    """Two messages in a new chat: the prompts, the page, and the frames of the last reply."""
    server.forget_requests()
    address = person.post("/chats/new", {"text": "猫吃什么"}).headers["Location"]
    answered()
    person.post(f"{address}messages", {"text": "那狗呢？"})
    worker = answered()
    sent = [record["body"] for record in server.requests()]
    return sent, person.get(address).content.decode(), worker.frames


@pytest.mark.requirement("S1.7", by="user")
def test_S1_7_streamed_and_not_streamed_send_the_same_list(
    alice: User, messenger: ContextPolicy, server: FakeServer
) -> None:
    person = Client()
    person.force_login(alice)
    ModelSpec.objects.update(name="fake-chat", cannot_stream=False)
    streamed, first_page, _ = talk(person, server)
    ModelSpec.objects.update(cannot_stream=True)
    whole, second_page, frames = talk(person, server)

    assert [body["messages"] for body in streamed] == [body["messages"] for body in whole]
    assert [body["stream"] for body in streamed] == [True, True]
    assert [body["stream"] for body in whole] == [False, False]
    policy = messenger.current
    assert policy is not None
    assert whole[0]["messages"][0] == {"role": "system", "content": policy.values["system_text"]}
    assert [frame.text for frame in frames if frame.kind == "text"] == [REPLY]
    for page in (first_page, second_page):
        assert page.count(REPLY) >= 2
    replies = Message.objects.filter(role="assistant")
    assert {(reply.text, reply.finish) for reply in replies} == {(REPLY, "stop")}
    _, secret = keys.create_key(owner=alice, name="a", scopes=["chats:read"], now=timezone.now())
    (model,) = Program(secret).get("models").json()["data"]
    assert model["cannot_stream"]
