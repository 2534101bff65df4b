"""Turns with Anthropic's API: requests, stored data, and rebuilt requests."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat, Message, ProviderAccount, Receipt, Turn
from chats.people import keys
from chats.prompt.sent_request import build_request_file, load_sent_request
from chats.prompt.tools.history_search import NOTHING
from chats.turns.start import start_turn
from chats.web.receipts.page import describe_cache_tokens
from contextpolicy.models import ModelSpec
from tests.chats.api.programs import Program
from tests.chats.compaction.conftest import fold, long_chat, set_policy
from tests.chats.compaction.conftest import small_policy as small_policy
from tests.fakes.fake_server import FakeServer
from tests.support.chat_summaries import Fold, SetPolicy
from tests.support.scripted_worker import ScriptedProvider
from tests.support.wire_worker import WireWorker, check_rebuilt_requests

__all__ = ["fold", "long_chat", "set_policy"]
pytestmark = pytest.mark.processes
MARK = {"type": "ephemeral"}
Ask = Callable[..., Turn]


@pytest.fixture(scope="module")
def running() -> Iterator[FakeServer]:
    with FakeServer(kind="anthropic") as fake:
        yield fake


@pytest.fixture
def server(running: FakeServer, demo_model: ModelSpec, settings: Any) -> FakeServer:
    """A server with Anthropic's API that serves all models."""
    settings.ALLOWED_PRIVATE_PROVIDERS = [running.host]
    settings.PROVIDER_BACKOFF_MAX = 0.01
    ProviderAccount.objects.update(kind="anthropic", base_url=running.base_url)
    ModelSpec.objects.update(name="fake-chat", supports_tools=True)
    running.configure(tokens=3, replies=[], faults=[], fault="", context_limit=0, reject="")
    running.forget_requests()
    return running


@pytest.fixture
def ask(alice: User, now: datetime) -> Ask:
    """Send a message, process its reply and return the turn."""

    def asking(chat: Chat, text: str) -> Turn:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        async_to_sync(WireWorker(ScriptedProvider([])).whole_turn)(turn)
        turn.refresh_from_db()
        return turn

    return asking


def bodies(server: FakeServer) -> list[dict[str, Any]]:
    """Return the sent bodies, oldest first."""
    return [record["body"] for record in server.requests()]


def marked(body: dict[str, Any]) -> list[str]:
    """Return the start of each block with a cache breakpoint."""
    blocks = [*body.get("system", []), *(b for m in body["messages"] for b in m["content"])]
    found = [block for block in blocks if block.get("cache_control") == MARK]
    return [str(b.get("text") or b.get("content") or b.get("name"))[:12] for b in found]


def test_a_program_asks_over_rest_and_the_next_prompt_is_read_from_the_cache(
    server: FakeServer, set_policy: SetPolicy, alice: User, now: datetime
) -> None:
    set_policy(system_text="Be brief. " * 300, token_budget=16_000)
    _, secret = keys.create_key(owner=alice, name="app", scopes=keys.SCOPES, now=now)
    program = Program(secret)

    def asked(path: str, text: str) -> Any:
        made = program.post(path, {"text": text}).json()
        turn = made["turn"]["id"] if "turn" in made else made["id"]
        async_to_sync(WireWorker(ScriptedProvider([])).whole_turn)(Turn(pk=UUID(turn)))
        return made, turn

    made, first = asked("chats", "The first question")
    chat = f"chats/{made['id']}"
    _, second = asked(f"{chat}/messages", "The second question")
    seen = [program.get(f"{chat}/turns/{turn}").json() for turn in (first, second)]
    assert [turn["status"] for turn in seen] == ["completed", "completed"]
    assert seen[0]["reply"]["text"].startswith(" 0@")

    before, after = [turn["receipts"][0]["usage"] for turn in seen]
    assert (before["cached"], before["written"]) == (0, before["input"])
    # The second request reads the first one's cache entry and writes only the rest.
    assert after["cached"] > 0.9 * after["input"]
    assert after["cached"] + after["written"] == after["input"]
    page = Client()
    page.force_login(alice)
    figure = describe_cache_tokens(after["cached"], after["written"])
    assert figure in page.get(f"/{chat}/turns/{second}/receipt").content.decode()
    one, two = bodies(server)
    assert marked(one) == ["Be brief. Be", "The first qu"]
    assert marked(two) == [
        "Be brief. Be",
        "The first qu",
        " 0@" + marked(two)[2][3:],
        "The second q",
    ]
    check_rebuilt_requests(server)


def test_a_policy_without_marks_sends_none(
    server: FakeServer, set_policy: SetPolicy, chat: Chat, ask: Ask
) -> None:
    set_policy(cache_marks=False, system_text="Be brief.")
    assert ask(chat, "Hello").status == "completed"
    (body,) = bodies(server)
    assert "cache_control" not in json.dumps(body)
    check_rebuilt_requests(server)
    assert Receipt.objects.get().usage["written"] == 0


def test_a_tail_stands_behind_the_last_mark(
    server: FakeServer, set_policy: SetPolicy, chat: Chat, ask: Ask
) -> None:
    set_policy(show_date=True)
    ask(chat, "The first question")
    ask(chat, "The second question")
    first, second = bodies(server)
    assert marked(first) == []
    assert marked(second) == ["The first qu", marked(second)[1]]
    assert second["messages"][-1]["role"] == "user"
    assert [len(message["content"]) for message in second["messages"]] == [1, 1, 2]
    check_rebuilt_requests(server)


def test_a_chat_with_a_summary_searches_its_archive(
    long_chat: Chat, fold: Fold, server: FakeServer, ask: Ask
) -> None:
    summary = fold(long_chat)
    ModelSpec.objects.update(thinking="1024")
    call = {
        "name": "chat_history_search",
        "arguments": {"query": "4711"},
        "id": "toolu_1",
    }
    found = {"reasoning": "I should look.", "text": "I look.", "tool_calls": [call]}
    server.configure(replies=[found, {"text": "It is 4711."}])
    turn = ask(long_chat, "What was the number?")
    assert turn.status == "completed"
    first, second = bodies(server)
    assert summary.text in first["messages"][0]["content"][0]["text"]
    assert [tool["name"] for tool in first["tools"]] == ["chat_history_search"]
    use, result = second["messages"][-2:]
    assert [block["type"] for block in use["content"]] == ["thinking", "text", "tool_use"]
    assert use["content"][2]["input"] == {"query": "4711"}
    assert [block["type"] for block in result["content"]] == ["tool_result"]
    assert result["content"][0]["tool_use_id"] == "toolu_1"
    assert NOTHING in result["content"][0]["content"]
    # The previous prompt is read completely, because its last breakpoint is in the next request.
    receipts = Receipt.objects.filter(model_name="fake-chat", turn=turn).order_by("step")
    before, after = (row.usage for row in receipts)
    assert after["cached"] > 0.9 * before["input"]
    # Signed thinking is sent back during the tool loop and never afterwards.
    parts = [part for row in Message.objects.filter(turn=turn) for part in row.parts]
    assert {"type": "reasoning", "text": "I should look."} in parts
    assert use["content"][0]["thinking"] == "I should look."
    assert use["content"][0]["signature"]
    check_rebuilt_requests(server)
    ask(long_chat, "And before that?")
    assert "I should look" not in json.dumps(bodies(server)[-1])


def test_thoughts_are_asked_for_as_the_model_is_set_up(
    server: FakeServer, set_policy: SetPolicy, chat: Chat, ask: Ask
) -> None:
    set_policy(reserve_tokens=4_000, token_budget=16_000)
    ModelSpec.objects.update(thinking="1024")
    ask(chat, "Hello [[fake reasoning=2]]")
    (body,) = bodies(server)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    reply = Message.objects.get(role="assistant")
    assert reply.parts[0] == {"type": "reasoning", "text": " thought 0 thought 1"}
    check_rebuilt_requests(server)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_request_with_the_limit_of_its_model_can_be_rebuilt(
    server: FakeServer, set_policy: SetPolicy, chat: Chat, ask: Ask, settings: Any, kind: str
) -> None:
    set_policy(reserve_tokens=10_000, token_budget=32_000)
    ModelSpec.objects.update(context_window=64_000, thinking="6000")
    with FakeServer(kind=kind) as own:
        settings.ALLOWED_PRIVATE_PROVIDERS = [own.host]
        ProviderAccount.objects.update(kind=kind, base_url=own.base_url)
        own.configure(tokens=3, reject="long_replies")
        assert ask(chat, "Hello").status == "completed"
        asked_for, sent = own.requests()
    limits = (asked_for["body"]["max_tokens"], sent["body"]["max_tokens"])
    assert limits == (10_000, 8192)
    found = load_sent_request(Receipt.objects.get(), sees_hidden=True)
    assert (found.fault, found.body) == ("", "same")
    assert json.loads(build_request_file(found, form="json").text) == sent["body"]


def test_an_overflow_teaches_the_window_and_is_tried_once_more(
    server: FakeServer, set_policy: SetPolicy, chat: Chat, ask: Ask
) -> None:
    set_policy(token_budget=16_000, input_length_limit=32_000)
    for number in range(3):
        ask(chat, f"Question {number} " + "a heron, a page, a pen; " * 300)
    server.forget_requests()
    server.configure(context_limit=5_000)
    assert ask(chat, "And now?").status == "completed"
    sizes = [record["prompt_tokens"] for record in server.requests()]
    assert len(sizes) == 2
    assert sizes[1] < 5_000 < sizes[0]
    assert (ModelSpec.objects.get().learned_window or 0) > 4_000


@pytest.mark.parametrize(
    ("fault", "calls"), [({"fault": "429", "retry_after": "0"}, 2), ({"fault": "503"}, 2)]
)
def test_a_passing_fault_is_tried_again(
    server: FakeServer, chat: Chat, ask: Ask, fault: dict[str, str], calls: int
) -> None:
    server.configure(faults=[fault])
    assert ask(chat, "Hello").status == "completed"
    assert len(server.requests()) == calls


def test_a_refused_key_opens_the_breaker(server: FakeServer, chat: Chat, ask: Ask) -> None:
    server.configure(fault="401")
    turn = ask(chat, "Hello")
    assert (turn.status, turn.error_code) == ("failed", "provider_auth")
    assert ProviderAccount.objects.get().paused_until is not None
    assert len(server.requests()) == 1


def test_a_denied_request_does_not_open_the_breaker(
    server: FakeServer, chat: Chat, ask: Ask
) -> None:
    server.configure(fault="403")
    turn = ask(chat, "Hello")
    assert (turn.status, turn.error_code) == ("failed", "provider_rejected")
    assert ProviderAccount.objects.get().paused_until is None
    server.configure(fault="")
    assert ask(chat, "Hello again").status == "completed"


def test_without_its_package_a_turn_says_how_it_is_installed(
    server: FakeServer, chat: Chat, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chats.providers.kinds.find_spec", lambda name: None)
    turn = ask(chat, "Hello")
    assert turn.status == "failed"
    assert "make anthropic" in turn.error_sentence
    assert server.requests() == []


def test_the_command_of_a_past_request_has_its_address_and_version(
    server: FakeServer, chat: Chat, ask: Ask
) -> None:
    ask(chat, "Hello")
    row = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner").get()
    command = build_request_file(load_sent_request(row, sees_hidden=True), form="curl").text
    assert '"$BASE_URL/v1/messages"' in command
    assert "anthropic-version: " in command
    assert [server.host] == configured.ALLOWED_PRIVATE_PROVIDERS
