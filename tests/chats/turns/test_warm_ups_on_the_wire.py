"""The body of a warm-up is a byte prefix of the next reply's request."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from chats.background import cache_warming
from chats.models import Chat, ProviderAccount, Receipt
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from tests.chats.compaction.conftest import fold, long_chat, set_policy, small_policy
from tests.fakes.fake_server import FakeServer
from tests.support.chat_summaries import SENTENCE, Fold, SetPolicy, reload_branch
from tests.support.scripted_worker import ScriptedProvider
from tests.support.wire_worker import WireWorker, check_rebuilt_requests

__all__ = ["fold", "long_chat", "set_policy", "small_policy"]
pytestmark = pytest.mark.processes


@pytest.fixture
def server(long_chat: Chat, settings: Any) -> Iterator[FakeServer]:
    """A local server that serves the chat's model."""
    with FakeServer() as fake:
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host]
        ProviderAccount.objects.update(kind="openai", base_url=fake.base_url)
        ModelSpec.objects.update(name="fake-chat", supports_tools=True)
        fake.configure(tokens=3)
        yield fake


def warm_up(chat: Chat) -> None:
    """Run the warm-up as the task does."""
    cache_warming.warm_up_branch(
        branch_id=reload_branch(chat).pk,
        cause="typing",
        tries=1,
        counter=ApproximateCounter(),
        clock=lambda: chat.updated_at,
        is_closing=lambda: False,
    )


@pytest.mark.parametrize(("layout", "show_date"), [("multi_turn", True), ("B", False)])
def test_the_request_is_byte_for_byte_the_beginning_of_the_next_one(
    layout: str,
    show_date: bool,
    alice: User,
    long_chat: Chat,
    fold: Fold,
    set_policy: SetPolicy,
    server: FakeServer,
    now: datetime,
) -> None:
    set_policy(layout=layout, system_text="Be brief.", show_date=show_date)
    fold(long_chat)
    warm_up(long_chat)
    turn = start_turn(user=alice, chat=long_chat, text=f"And now? {SENTENCE}", now=now).turn
    async_to_sync(WireWorker(ScriptedProvider([])).whole_turn)(turn)
    turn.refresh_from_db()
    assert turn.status == "completed"
    warm, reply = (record["body"] for record in server.requests())
    check_rebuilt_requests(server)
    read, sent = json.dumps(warm.pop("messages")), json.dumps(reply.pop("messages"))
    assert sent.startswith(read[:-1])
    assert len(json.loads(sent)) > len(json.loads(read)) > 1
    assert (warm.pop("max_tokens"), reply.pop("max_tokens")) == (1, 400)
    assert warm == reply
    (receipt,) = Receipt.objects.filter(step=Receipt.AFTERWARDS)
    assert (receipt.outcome, receipt.usage["output"]) == ("ok", 1)


def test_a_server_reads_what_was_read_ahead_no_second_time(
    alice: User, long_chat: Chat, fold: Fold, server: FakeServer, now: datetime
) -> None:
    server.configure(read_ms=0.01)
    fold(long_chat)
    warm_up(long_chat)
    turn = start_turn(user=alice, chat=long_chat, text="And now?", now=now).turn
    async_to_sync(WireWorker(ScriptedProvider([])).whole_turn)(turn)
    warm, reply = server.requests()
    assert warm["unread"] > 20 * reply["unread"] > 0
