"""Loaded skills in bundles of chats: results and moved texts come back with an import."""

import io
import json
import uuid
import zipfile
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.ground import databases
from chats.models import Chat, Compaction
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.streams import connection
from chats.turns.start import start_turn
from contextpolicy.models import ModelSpec, Skill
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from contextpolicy.skills import save_skill
from tests.chats.api.bringing import brought
from tests.chats.api.programs import Program
from tests.support.chat_messages import activate_compaction, fill_with_every_kind
from tests.support.exchange_files import export_chat

Work = Callable[..., Any]
pytestmark = pytest.mark.django_db
MOVED = ["mail", "mail/a.md#0-5"]


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separate stream counters for this test."""
    monkeypatch.setattr(connection, "STREAMS", connection.Streams())
    monkeypatch.setattr(databases, "close_old_connections", list)


@pytest.fixture
def told(alice: User, chat: Chat, now: datetime, work: Work, of_alice: Program) -> Chat:
    """A chat whose summary moved a skill and a file, and which loaded another file since."""
    del of_alice
    ModelSpec.objects.update(supports_tools=True)
    skill = Skill(slug="mail", name="Mail", description="Write mails.", text="Be short.")
    save_skill(skill=skill, actor="system", now=now, files={"a.md": "Moved", "b.md": "Loaded"})
    values = {"strategy": "dynamic_summary", "turn_threshold": None, "skills": ["mail"]}
    made = create_policy(slug="p", name="P", values=values, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now)
    activate_compaction(fill_with_every_kind(chat, 20, now=now), 8, now=now)
    Compaction.objects.update(skills=MOVED)
    chat = Chat.objects.get(pk=chat.pk)
    turn = start_turn(user=alice, chat=chat, text="Write a mail", now=now).turn
    asked = json.dumps({"name": "mail", "file": "b.md"})
    call = ToolCallDelta(0, "call-1", "skill_load", asked)
    work(turn, [call, Finished("tool_calls")], [TextDelta("Done."), Finished("stop")])
    return chat


def ask(
    user: User, chat_id: uuid.UUID | str, *, work: Work, now: datetime
) -> tuple[str, list[str]]:
    """Ask in a chat. Return its system text, and the notes of the receipt about skills."""
    chat = Chat.objects.get(pk=chat_id)
    turn = start_turn(user=user, chat=chat, text="Again", now=now).turn
    worker = work(turn, [TextDelta("Yes."), Finished("stop")])
    (request,) = worker.scripted.requests
    assert [w.role for w in request.messages if w.content.endswith("\nLoaded")] == ["tool"]
    notes = turn.receipts.get().notes
    return request.messages[0].content, [note for note in notes if note.startswith("skill")]


@pytest.mark.requirement("S4.9", by="integrator")
def test_a_bundle_comes_back_with_its_loaded_skills(
    told: Chat, alice: User, of_alice: Program, work: Work, now: datetime
) -> None:
    first = export_chat(of_alice, told.pk, form="bundle")
    made = brought(of_alice, first)
    assert made["losses"] == []
    assert export_chat(of_alice, made["chat"], form="bundle") == first
    assert Compaction.objects.get(branch__chat=made["chat"]).skills == MOVED
    system, notes = ask(alice, made["chat"], work=work, now=now)
    assert "Skill file: mail/a.md\n[Characters 0 to 5 of 5]\nMoved" in system
    assert "Skill: Mail\nBe short." in system
    assert (system, notes) == ask(alice, told.pk, work=work, now=now)
    assert [note.partition("#")[0] for note in notes] == [
        "skill:mail",
        "skill_file:mail/a.md",
        "skill_file:mail/b.md",
    ]


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        (["mail", "secret", "mail/x.md#0-5", 7, "mail/a.md#9-1"], ["mail"]),
        ("mail", []),
        (["x"] * 300 + ["mail"], []),
    ],
)
def test_a_forged_bundle_moves_only_skills_of_the_chat(
    told: Chat, of_alice: Program, now: datetime, named: object, kept: list[str]
) -> None:
    secret = Skill(slug="secret", name="Secret", description="None.", text="Hidden.")
    save_skill(skill=secret, actor="system", now=now)
    forged = io.BytesIO()
    data = export_chat(of_alice, told.pk, form="bundle")
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            text = old.read(name).decode()
            # Another chat, with another list of skills.
            text = text.replace(json.dumps(MOVED, separators=(",", ":")), json.dumps(named))
            new.writestr(name, text.replace("Done.", "Done!"))
    made = brought(of_alice, forged.getvalue())
    assert Compaction.objects.get(branch__chat=made["chat"]).skills == kept
