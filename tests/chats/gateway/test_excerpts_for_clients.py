"""Excerpts in requests of OpenAI clients: of the chat itself, and only for a question."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.memory.search import archive
from chats.models import Branch, Chat, Message
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.gateway_clients import (
    TOOLS,
    GatewayClient,
    assistant,
    call,
    calling,
    result,
    user,
)
from tests.support.retrieved_context import REFERENCE_TITLE

HERON = "The grey heron at Lake Vogt wears the ring B-417."
ASKED = "Which ring does the heron at Lake Vogt wear?"
TALK = [HERON, *(f"Tell me about bread number {number}" for number in range(5))]


@pytest.fixture(autouse=True)
def policy(now: datetime) -> None:
    values = {"strategy": "simple", "window_size": 4, "references": True, "reference_share": 0.4}
    values |= {"reference_floor": 1, "reference_count": 20, "reference_scope": "chat"}
    values |= {"token_budget": 4_000, "reserve_tokens": 500}
    policy = create_policy(slug="x", name="X", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def index() -> None:
    for branch in Branch.objects.all():
        archive.index_branch(branch)


def last_prompt(program: GatewayClient) -> str:
    return "\n".join(text for _, text in program.prompt)


def test_a_question_gets_excerpts_of_its_chat(program: GatewayClient, alice: User) -> None:
    said = program.talk(TALK)
    index()
    program.ask([*said, user(ASKED)])
    # Chats of clients have no memory, which is about other chats.
    assert Chat.objects.get().without_memory
    assert HERON in last_prompt(program).partition(REFERENCE_TITLE)[2]


def test_a_request_that_ends_with_a_tool_result_gets_none(
    program: GatewayClient, alice: User
) -> None:
    said = program.talk(TALK, tools=TOOLS)
    index()
    program.ask([*said, user(ASKED)], *calling("c1"), tools=TOOLS)
    assert REFERENCE_TITLE in last_prompt(program)
    called = [assistant(None, call("c1")), result("c1", "sunny")]
    program.ask([*said, user(ASKED), *called], tools=TOOLS)
    assert REFERENCE_TITLE not in last_prompt(program)


OTHER = "The black stork of Lake Vogt wears the ring C-9."
PRIVATE = "Which ring does the stork of Lake Vogt wear?"
REMEMBERING = [
    # The default of the sources is other chats, but memory is off in a client's chat.
    ({"reference_share": 0}, False, False),
    ({"reference_share": 0, "reference_scope": "person"}, False, False),
    ({"reference_share": 0, "reference_scope": "chat"}, True, False),
    ({"reference_share": 0.4, "reference_scope": "person"}, True, False),
    # Only here both chose it: the owner for the chat, and an administrator in the policy.
    ({"reference_share": 0, "reference_scope": "person"}, True, True),
]


@pytest.mark.parametrize(("values", "has_memory", "is_sent"), REMEMBERING)
def test_other_chats_are_used_only_with_memory_and_a_policy_that_names_them(
    program: GatewayClient,
    alice: User,
    chat: Chat,
    now: datetime,
    values: dict[str, object],
    has_memory: bool,
    is_sent: bool,
) -> None:
    wanted = {"strategy": "simple", "references": True, "reference_floor": 1, **values}
    set_values(wanted, now=now)
    store_elsewhere(chat, now=now)
    said = program.talk(["Hello, I would like to ask something."], tools=TOOLS)
    Chat.objects.exclude(pk=chat.pk).update(without_memory=not has_memory)
    program.ask([*said, user(PRIVATE)], *calling("c1"), tools=TOOLS)
    assert (OTHER in last_prompt(program)) == is_sent
    called = [assistant(None, call("c1")), result("c1", "sunny")]
    program.ask([*said, user(PRIVATE), *called], tools=TOOLS)
    assert OTHER not in last_prompt(program)


def set_values(values: dict[str, object], *, now: datetime) -> None:
    """Assign a policy with these values to everyone instead of the other one."""
    policy = create_policy(slug="other", name="Other", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def store_elsewhere(chat: Chat, *, now: datetime) -> None:
    """Store and index a message in another chat of the owner."""
    branch = Branch.objects.get(chat=chat)
    Message.objects.create(
        branch=branch,
        seq=1,
        accepted=1,
        role="user",
        parts=[{"type": "text", "text": OTHER}],
        created_at=now,
    )
    Branch.objects.filter(pk=branch.pk).update(last_seq=1)
    index()
