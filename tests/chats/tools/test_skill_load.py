"""Skills on demand: a line in the prompt, and the text once the model asks for it."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from chats.api.policies.policy_preview import serialize_side
from chats.models import Chat, Receipt, Turn
from chats.prompt.tools import skill_load
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta
from chats.simulation.preview import compose_side, load_previewed_branch
from chats.turns import writes
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent, ModelSpec, Skill
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.chat_summaries import Work
from tests.support.tool_calls import list_tool_results

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
TEXT = "Sign each mail with Kind regards."


def load(name: str, *, call_id: str = "call-1", index: int = 0) -> ToolCallDelta:
    """Return a call that loads a skill."""
    return ToolCallDelta(index, call_id, "skill_load", json.dumps({"name": name}))


def loads(name: str) -> list[Any]:
    """Return a step in which the model loads a skill."""
    return [load(name), Finished("tool_calls")]


@pytest.fixture
def mail(now: datetime, demo_model: ModelSpec) -> Skill:
    """A skill on demand that the policy of the installation selects."""
    ModelSpec.objects.update(supports_tools=True)
    skill = Skill.objects.create(
        slug="mail", name="Mail", description="Write mails.", text=TEXT, updated_at=now
    )
    policy = create_policy(slug="p", name="P", values={"skills": ["mail"]}, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    return skill


def sent_text(request: Any) -> str:
    """Return everything that a request sends."""
    return "\n".join(wire.content for wire in request.messages)


@pytest.mark.requirement("S4.9")
@pytest.mark.usefixtures("mail")
def test_the_prompt_has_the_line_and_the_text_arrives_as_a_tool_result(
    ask: Callable[..., Any],
) -> None:
    turn, worker = ask(loads("mail"), [TextDelta("Done."), Finished("stop")])
    first, second = worker.scripted.requests
    assert first.messages[0].role == "system"
    assert "- mail: Write mails." in first.messages[0].content
    assert TEXT not in sent_text(first)
    assert [tool.name for tool in first.tools] == ["skill_load"]
    assert [wire.role for wire in second.messages if TEXT in wire.content] == ["tool"]
    # The prefix does not change.
    assert second.messages[: len(first.messages)] == first.messages
    assert turn.status == "completed"
    notes = [row.notes for row in Receipt.objects.filter(turn=turn).order_by("step")]
    assert [("skill:mail" in found) for found in notes] == [False, True]


@pytest.mark.usefixtures("mail")
def test_each_load_is_in_the_ledger_without_its_text(ask: Callable[..., Any]) -> None:
    turn, _ = ask(loads("mail"))
    event = AuditEvent.objects.get(type="tool.called")
    assert event.turn_id == turn.pk
    assert event.data == {
        "tool": "skill_load",
        "skill": "mail",
        "characters": len(f"Skill: Mail\n{TEXT}"),
        "attempt": 1,
        "step": 1,
    }


@pytest.mark.usefixtures("mail")
def test_a_text_that_the_prompt_has_is_not_loaded_again(ask: Callable[..., Any]) -> None:
    turn, _ = ask([load("mail"), load("mail", call_id="call-2", index=1), Finished("tool_calls")])
    assert [TEXT in result for result in list_tool_results(turn)] == [True, False]
    later, worker = ask(loads("mail"))
    assert list_tool_results(later) == [skill_load.LOADED]
    assert sent_text(worker.scripted.requests[-1]).count(TEXT) == 1


@pytest.mark.parametrize(
    "arguments",
    ["[]", "{", '{"name": 1}', '{"name": "\\ud800"}', '{"name": "mail", "x": 1}', '{"name": ""}'],
)
@pytest.mark.usefixtures("mail")
def test_malformed_calls_load_nothing(ask: Callable[..., Any], arguments: str) -> None:
    call = ToolCallDelta(0, "call-1", "skill_load", arguments)
    turn, worker = ask([call, Finished("tool_calls")])
    assert turn.status == "completed"
    assert TEXT not in sent_text(worker.scripted.requests[-1])


@pytest.mark.parametrize("change", [{"enabled": False}, {"mode": "always"}, {"slug": "letters"}])
def test_only_a_skill_on_demand_of_the_chat_is_loaded(
    ask: Callable[..., Any], mail: Skill, change: dict[str, Any]
) -> None:
    async def changes(worker: Any) -> None:
        await worker.db(Skill.objects.filter(pk=mail.pk).update, **change)

    turn, _ = ask([changes, *loads("mail")])
    assert list_tool_results(turn) == [skill_load.UNKNOWN]
    assert not AuditEvent.objects.filter(type="tool.called").exists()


@pytest.mark.requirement("S4.9")
@pytest.mark.usefixtures("demo_model")
def test_a_group_has_its_skills_and_another_group_has_not(
    alice: User, ask: Callable[..., Any], now: datetime
) -> None:
    ModelSpec.objects.update(supports_tools=True)
    sales, support = (Group.objects.create(name=name) for name in ("Sales", "Support"))
    alice.groups.add(sales)
    for group in (sales, support):
        Skill.objects.create(
            slug=group.name.lower(),
            name="Mail",
            description="Write mails.",
            text=f"{TEXT} {group.name}",
            group=group,
            updated_at=now,
        )
    turn, worker = ask(
        [load("sales"), load("support", call_id="call-2", index=1), Finished("tool_calls")]
    )
    first = worker.scripted.requests[0].messages[0].content
    assert ("- sales: " in first, "- support: " in first) == (True, False)
    assert list_tool_results(turn) == [f"Skill: Mail\n{TEXT} Sales", skill_load.UNKNOWN]


@pytest.mark.usefixtures("mail")
def test_a_model_without_tools_gets_the_complete_text(ask: Callable[..., Any]) -> None:
    ModelSpec.objects.update(supports_tools=False)
    turn, worker = ask()
    (request,) = worker.scripted.requests
    assert request.tools == ()
    assert f"Skill: Mail\n{TEXT}" in request.messages[0].content
    assert "skills:complete" in turn.receipts.get().notes


@pytest.mark.usefixtures("mail")
def test_a_server_that_rejects_tools_gets_the_complete_text(ask: Callable[..., Any]) -> None:
    _, worker = ask([ProviderError("tools_unsupported")], [TextDelta("Done."), Finished("stop")])
    first, second = worker.scripted.requests
    assert TEXT not in sent_text(first)
    assert TEXT in sent_text(second)


@pytest.mark.requirement("S2.2")
@pytest.mark.usefixtures("demo_model")
def test_lines_without_room_refuse_the_turn_with_numbers(
    ask: Callable[..., Any], now: datetime
) -> None:
    ModelSpec.objects.update(supports_tools=True)
    slugs = [f"skill-{number}" for number in range(6)]
    for slug in slugs:
        line = "Write one more mail. " * 45
        Skill.objects.create(slug=slug, name=slug, description=line, text=TEXT, updated_at=now)
    values = {
        "skills": slugs,
        "strategy": "sliding_window",
        "token_budget": 1_500,
        "reserve_tokens": 400,
    }
    tight = create_policy(slug="tight", name="Tight", values=values, actor="system", now=now)
    assign_policy(policy=tight, level="instance", actor="system", now=now)
    turn, worker = ask()
    assert worker.scripted.requests == []
    assert (turn.status, turn.error_code) == ("failed", "policy_impossible")
    assert "1,100" in turn.error_sentence


def test_a_long_text_is_not_cut_like_other_results(ask: Callable[..., Any], mail: Skill) -> None:
    Skill.objects.filter(pk=mail.pk).update(text="Write. " * 1_300 + TEXT)
    _, worker = ask(loads("mail"))
    assert TEXT in sent_text(worker.scripted.requests[-1])


@pytest.mark.requirement("S4.9")
@pytest.mark.usefixtures("mail")
def test_a_worker_that_is_lost_between_call_and_result_loads_once(
    alice: User, chat: Chat, now: datetime, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = start_turn(user=alice, chat=chat, text="Write a mail", now=now).turn

    class Killed(BaseException):
        """The process ends here: nothing after it runs."""

    with monkeypatch.context() as dying:

        def die(name: str) -> None:
            if name == "before_commit_reply":
                raise Killed

        dying.setattr(writes, "failpoint", die)
        with pytest.raises(Killed):
            work(turn, loads("mail"))
    assert list_tool_results(turn) == []
    Turn.objects.filter(pk=turn.pk).update(status="queued", lease_token="", lease_until=None)
    worker = work(turn, loads("mail"), [TextDelta("Done."), Finished("stop")])
    assert turn.status == "completed"
    assert [TEXT in result for result in list_tool_results(turn)] == [True]
    assert sent_text(worker.scripted.requests[-1]).count(TEXT) == 1


@pytest.mark.requirement("S4.9")
@pytest.mark.usefixtures("mail")
def test_previews_show_the_cost_of_skills(
    ask: Callable[..., Any], chat: Chat, now: datetime
) -> None:
    side = compose_side(load_previewed_branch(chat), proposal=None, now=now)
    turn, _ = ask([TextDelta("Done."), Finished("stop")])
    segments = Receipt.objects.get(turn=turn).segments
    (tokens,) = (each[3] for each in segments if each[:2] == ["system", "skills"])
    assert 0 < side.skills == tokens <= side.parts["system"]
    assert serialize_side(side)["skills"] == tokens
    Skill.objects.update(text=TEXT * 50)
    # The text is sent only after the model loads it.
    assert compose_side(load_previewed_branch(chat), proposal=None, now=now).skills == tokens
    Skill.objects.update(mode=Skill.Mode.ALWAYS)
    assert compose_side(load_previewed_branch(chat), proposal=None, now=now).skills > 5 * tokens
