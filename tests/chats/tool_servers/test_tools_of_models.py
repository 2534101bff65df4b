"""The allow-list of tools of a model: it intersects with the policies of all levels."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat, ToolCall, Turn
from chats.providers.base import Finished, TextDelta
from contextpolicy.engine.messages.skills import SKILL_LOAD_SPEC
from contextpolicy.engine.messages.tokens import ApproximateCounter, count_tool_tokens
from contextpolicy.engine.messages.tool_outputs import OUTPUT_READ_SPEC
from contextpolicy.linter.lint import lint_policy, read_whole
from contextpolicy.linter.tools import list_tool_rooms
from contextpolicy.models import EffectivePolicy, ModelSpec, Skill, ToolDefinition
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.skills import save_skill
from tests.fakes.tool_server import FakeToolServer, describe
from tests.support.tool_calls import build_call, call_tools, list_offered_tools

Connect = Callable[..., Any]
Allow = Callable[..., None]
Ask = Callable[..., tuple[Turn, Any]]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
DONE = [TextDelta("Done."), Finished("stop")]
SMALL = {"token_budget": 5_000, "reserve_tokens": 1_000, "strategy": "sliding_window"}


@pytest.fixture
def two_tools(connect: Connect, server: FakeToolServer) -> None:
    """A server with the approved tools `echo` and `wipe`."""
    server.tools = [describe("echo"), describe("wipe")]
    connect()


@pytest.mark.requirement("S0.6")
@pytest.mark.parametrize(
    ("of_model", "offered"),
    [
        (None, ["files__echo", "files__wipe"]),
        (["files/*"], ["files__echo", "files__wipe"]),
        (["files/echo"], ["files__echo"]),
        (["other/*"], []),
        ([], []),
    ],
)
@pytest.mark.usefixtures("two_tools")
def test_a_model_gets_the_tools_that_its_list_and_the_policy_allow(
    allow: Allow, ask: Ask, of_model: list[str] | None, offered: list[str]
) -> None:
    allow(tools=["files/*"])
    ModelSpec.objects.update(tools=of_model)
    _, worker = ask(DONE)
    assert list_offered_tools(worker.scripted.requests[0]) == offered


@pytest.mark.usefixtures("two_tools")
def test_the_levels_and_the_model_intersect(
    allow: Allow, ask: Ask, chat: Chat, now: datetime
) -> None:
    allow(tools=["files/*"])
    near = create_policy(
        slug="near", name="Near", values={"tools": ["files/wipe"]}, actor="system", now=now
    )
    assign_policy(policy=near, level="chat", chat_id=chat.pk, actor="system", now=now)
    ModelSpec.objects.update(tools=["files/echo"])
    _, worker = ask(DONE)
    assert list_offered_tools(worker.scripted.requests[0]) == []


@pytest.mark.usefixtures("two_tools")
def test_a_call_of_a_tool_that_the_model_may_not_use_is_not_made(
    allow: Allow, ask: Ask, server: FakeToolServer
) -> None:
    allow(tools=["files/*"])
    ModelSpec.objects.update(tools=["files/echo"])
    ask(call_tools(build_call("files__wipe", text="all")), DONE)
    assert server.calls == []
    assert not ToolCall.objects.filter(outcome="ok").exists()


@pytest.mark.usefixtures("two_tools")
def test_the_effective_policy_states_the_change(
    allow: Allow, ask: Ask, chat: Chat, alice: User
) -> None:
    allow(tools=["files/*"])
    ModelSpec.objects.update(tools=["files/echo"])
    ask(DONE)
    row = EffectivePolicy.objects.get()
    assert ["tools", ["files/*"], ["files/echo"]] in row.adjusted
    page = Client()
    page.force_login(alice)
    shown = page.get(f"/api/v1/chats/{chat.pk}/policy").json()
    assert shown["values"]["tools"] == ["files/echo"]


def warn(values: dict[str, Any]) -> set[str]:
    """Return the codes of the warnings about tools."""
    return {each.code for each in lint_policy(values) if each.code.startswith("tools_")}


@pytest.mark.requirement("S2.2")
def test_the_linter_counts_the_tools_of_each_model(
    connect: Connect, server: FakeToolServer, demo_model: ModelSpec
) -> None:
    server.tools = [
        describe(f"tool{number}", description="Does something useful with a file. " * 10)
        for number in range(60)
    ]
    connect()
    ModelSpec.objects.update(supports_tools=True)
    values = {"tools": ["files/*"], **SMALL}
    assert warn(values) == {"tools_do_not_fit"}
    ModelSpec.objects.update(tools=["files/tool1"])
    assert warn(values) == set()


@pytest.mark.requirement("S2.2")
def test_the_linter_counts_the_definitions_of_built_in_tools(
    connect: Connect, demo_model: ModelSpec, now: datetime
) -> None:
    connect()
    ModelSpec.objects.update(supports_tools=True)
    (echo,) = ToolDefinition.objects.all()
    counter = ApproximateCounter()
    reads = count_tool_tokens((OUTPUT_READ_SPEC,), counter)
    loads = count_tool_tokens((SKILL_LOAD_SPEC,), counter)
    # Without it, everything would fit.
    ToolDefinition.objects.update(tokens=4_000 - reads)
    values = {"tools": ["files/*"], **SMALL}
    assert warn(values) == {"tools_do_not_fit"}
    Skill.objects.create(
        slug="refunds", name="Refunds", description="Check refunds.", text="…", updated_at=now
    )
    ToolDefinition.objects.update(tokens=echo.tokens)
    values = {**values, "skills": ["refunds"]}
    assert list_tool_rooms_of(values) == {echo.tokens + reads + loads}
    # In mode always, the model loads only files.
    Skill.objects.update(mode="always")
    assert list_tool_rooms_of(values) == {echo.tokens + reads}
    save_skill(skill=Skill.objects.get(), actor="system", now=now, files={"a.md": "One"})
    assert list_tool_rooms_of(values) == {echo.tokens + reads + loads}


def list_tool_rooms_of(values: dict[str, Any]) -> set[int]:
    whole = read_whole(values)
    assert whole is not None
    return {room.tokens for room in list_tool_rooms(whole)}
