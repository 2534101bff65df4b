"""Files of skills in turns: listed with the text, loaded in parts, recorded without texts."""

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from chats.models import Receipt
from chats.prompt.tokenizer import O200kCounter
from chats.prompt.tools import skill_load
from chats.prompt.tools.arguments import parse_tool_arguments
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.web.receipts.wording import note_words
from contextpolicy.engine.messages.skills import SKILL_LOAD_SPEC
from contextpolicy.models import AuditEvent, ModelSpec, Skill
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.skills import save_skill
from tests.support.tool_calls import list_tool_results

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
TEXT = "Sign each mail with Kind regards."
LONG = "".join(f"Line {number} of the reference.\n" for number in range(600))
FORM = "order,amount\n4711,20\n"


def load(call_id: str = "call-1", index: int = 0, **arguments: Any) -> ToolCallDelta:
    """Return a call that loads a skill or a file."""
    return ToolCallDelta(index, call_id, "skill_load", json.dumps({"name": "mail", **arguments}))


@pytest.fixture
def mail(now: datetime, demo_model: ModelSpec) -> Skill:
    """A skill on demand with two files that the policy of the installation selects."""
    ModelSpec.objects.update(supports_tools=True)
    skill = Skill(slug="mail", name="Mail", description="Write mails.", text=TEXT)
    save_skill(
        skill=skill,
        actor="system",
        now=now,
        files={"reference.md": LONG, "forms/refund.csv": FORM},
    )
    values = {"skills": ["mail"], "tool_output_limit": 3_000}
    policy = create_policy(slug="p", name="P", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    return skill


@pytest.mark.requirement("S4.9")
@pytest.mark.usefixtures("mail")
def test_the_text_names_the_files_and_the_model_loads_one(ask: Callable[..., Any]) -> None:
    turn, worker = ask(
        [load(), Finished("tool_calls")],
        [load(file="forms/refund.csv"), Finished("tool_calls")],
        [TextDelta("Done."), Finished("stop")],
    )
    first, second, third = worker.scripted.requests
    assert "refund.csv" not in "".join(wire.content for wire in first.messages)
    text = second.messages[-1].content
    assert f"- forms/refund.csv ({len(FORM)} characters)" in text
    assert f"- reference.md ({len(LONG):,} characters)" in text
    assert FORM not in text
    content = f"Skill file: mail/forms/refund.csv\n[Characters 0 to 21 of 21]\n{FORM}"
    assert third.messages[-1] == third.messages[-1]._replace(role="tool", content=content)
    assert third.messages[: len(second.messages)] == second.messages
    assert turn.status == "completed"


@pytest.mark.requirement("S4.9")
@pytest.mark.usefixtures("mail")
def test_a_loaded_file_is_in_the_receipt_and_in_the_ledger(ask: Callable[..., Any]) -> None:
    turn, _ = ask(
        [load(file="forms/refund.csv"), Finished("tool_calls")],
        [TextDelta("Done."), Finished("stop")],
    )
    (content,) = list_tool_results(turn)
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    tokens = O200kCounter().count(content)
    note = f"skill_file:mail/forms/refund.csv#0-21:{sha256}:{tokens}"
    notes = [row.notes for row in Receipt.objects.filter(turn=turn).order_by("step")]
    assert [note in found for found in notes] == [False, True]
    (words,) = note_words([note])
    for each in ("mail", "forms/refund.csv", sha256, str(tokens)):
        assert each in words
    assert note_words(["skill_file:broken"]) == ["skill_file:broken"]
    event = AuditEvent.objects.get(type="tool.called")
    assert event.data == {
        "tool": "skill_load",
        "skill": "mail",
        "skill_file": "forms/refund.csv",
        "start": 0,
        "characters": len(content),
        "attempt": 1,
        "step": 1,
    }


@pytest.mark.usefixtures("mail")
def test_a_long_file_is_loaded_in_parts_within_the_limit_of_tool_results(
    ask: Callable[..., Any],
) -> None:
    script = [load(file="reference.md"), Finished("tool_calls")]
    turn, worker = ask(script, [TextDelta("Done."), Finished("stop")])
    (content,) = list_tool_results(turn)
    assert len(content) <= 3_000
    # No part is cut in the prompt.
    assert worker.scripted.requests[-1].messages[-1].content == content
    end = len(content.split("]\n", 1)[1])
    later, worker = ask(
        [load(file="reference.md", start=end), Finished("tool_calls")],
        [load(file="reference.md"), Finished("tool_calls")],
    )
    second, again = list_tool_results(later)
    assert LONG.startswith(content.split("]\n", 1)[1] + second.split("]\n", 1)[1])
    assert again == skill_load.FILE_LOADED
    last, _ = ask([load(file="reference.md", start=len(LONG)), Finished("tool_calls")])
    assert list_tool_results(last) == [skill_load.PAST_END.format(characters=len(LONG))]


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"file": "other.md"}, skill_load.NO_FILE),
        ({"file": "../reference.md"}, skill_load.NO_FILE),
        ({"file": "SKILL.md"}, skill_load.NO_FILE),
        ({"name": "letters", "file": "reference.md"}, skill_load.UNKNOWN),
    ],
)
@pytest.mark.usefixtures("mail")
def test_only_files_of_skills_of_the_chat_are_loaded(
    ask: Callable[..., Any], now: datetime, arguments: dict[str, Any], result: str
) -> None:
    other = Skill(slug="letters", name="Letters", description="Letters.", text=TEXT)
    save_skill(skill=other, actor="system", now=now, files={"reference.md": "Secret."})
    turn, _ = ask([load(**arguments), Finished("tool_calls")])
    assert list_tool_results(turn) == [result]
    assert not AuditEvent.objects.filter(type="tool.called").exists()


@pytest.mark.parametrize("arguments", [{"file": ""}, {"file": 1}, {"file": "a.md", "start": -1}])
def test_malformed_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"file|start"):
        parse_tool_arguments(json.dumps({"name": "mail", **arguments}), spec=SKILL_LOAD_SPEC)


@pytest.mark.requirement("S4.9")
def test_a_skill_in_mode_always_has_files_on_demand(
    ask: Callable[..., Any], mail: Skill, now: datetime
) -> None:
    mail.mode = Skill.Mode.ALWAYS
    save_skill(skill=mail, actor="system", now=now)
    turn, worker = ask([load(file="forms/refund.csv"), Finished("tool_calls")])
    first = worker.scripted.requests[0]
    assert [tool.name for tool in first.tools] == ["skill_load"]
    assert TEXT in first.messages[0].content
    assert "- forms/refund.csv" in first.messages[0].content
    assert FORM in list_tool_results(turn)[0]
    # Its text is in the prompt already.
    later, _ = ask([load(), Finished("tool_calls")])
    assert list_tool_results(later) == [skill_load.UNKNOWN]


@pytest.mark.usefixtures("mail")
def test_a_model_without_tools_sees_no_names_of_files(ask: Callable[..., Any]) -> None:
    ModelSpec.objects.update(supports_tools=False)
    turn, worker = ask()
    system = worker.scripted.requests[0].messages[0].content
    assert TEXT in system
    assert "refund.csv" not in system
    notes = turn.receipts.get().notes
    assert {"skills:complete", "skill_files:left_out"} <= set(notes)


def test_a_removed_file_cannot_be_loaded(
    ask: Callable[..., Any], mail: Skill, now: datetime
) -> None:
    save_skill(skill=mail, actor="system", now=now, files={"reference.md": None})
    turn, _ = ask([load(file="reference.md"), Finished("tool_calls")])
    assert list_tool_results(turn) == [skill_load.NO_FILE]
    event = AuditEvent.objects.filter(type="skill.changed").get()
    assert event.data["fields"] == ["files"]
    assert event.data["files"] == {"removed": ["reference.md"]}
