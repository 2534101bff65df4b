"""Excerpts in requests of OpenAI clients: of the chat itself, and only for a question."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.memory.search import archive
from chats.models import Branch, Chat
from contextpolicy.publish import assign_policy, create_policy
from tests.chats.gateway.conftest import TOOLS, Program, assistant, call, calling, result, user

TITLE = "Relevant reference (semantic):"
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


def last_prompt(program: Program) -> str:
    return "\n".join(text for _, text in program.prompt)


def test_a_question_gets_excerpts_of_its_chat(program: Program, alice: User) -> None:
    said = program.talk(TALK)
    index()
    program.ask([*said, user(ASKED)])
    # Chats of clients have no memory, which is about other chats.
    assert Chat.objects.get().without_memory
    assert HERON in last_prompt(program).partition(TITLE)[2]


def test_a_request_that_ends_with_a_tool_result_gets_none(program: Program, alice: User) -> None:
    said = program.talk(TALK, tools=TOOLS)
    index()
    program.ask([*said, user(ASKED)], *calling("c1"), tools=TOOLS)
    assert TITLE in last_prompt(program)
    called = [assistant(None, call("c1")), result("c1", "sunny")]
    program.ask([*said, user(ASKED), *called], tools=TOOLS)
    assert TITLE not in last_prompt(program)
