"""Loaded parts of files across compactions: they move with the text, are dropped, load again."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.compaction.people import undo
from chats.models import Chat, Compaction, Message, Receipt
from chats.prompt.tools import skill_load
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent, ModelSpec, Skill
from contextpolicy.skills import save_skill
from tests.support.chat_summaries import (
    SENTENCE,
    Fold,
    SetPolicy,
    compose_next_prompt,
    compose_system_text,
    reload_branch,
)

Work = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("built_again")
FORM = "order,amount\n4711,20\n"
KEY = "mail/forms/refund.csv#0-21"


@pytest.fixture
def mail(demo_model: ModelSpec, set_policy: SetPolicy, now: datetime) -> Skill:
    """A skill with a file under a policy that compacts after a few turns."""
    ModelSpec.objects.update(supports_tools=True)
    set_policy(skills=["mail"])
    skill = Skill(slug="mail", name="Mail", description="Write mails.", text="Be short.")
    save_skill(skill=skill, actor="system", now=now, files={"forms/refund.csv": FORM})
    return skill


@pytest.fixture
def load(alice: User, chat: Chat, now: datetime, work: Work, mail: Skill) -> Callable[[], str]:
    """Run a turn in which the model loads the file, and return the tool result."""
    del mail

    def loading() -> str:
        turn = start_turn(user=alice, chat=chat, text=f"Write a mail. {SENTENCE}", now=now).turn
        asked = json.dumps({"name": "mail", "file": "forms/refund.csv"})
        call = ToolCallDelta(0, "call-1", "skill_load", asked)
        work(turn, [call, Finished("tool_calls")], [TextDelta(SENTENCE * 6), Finished("stop")])
        step = Message.objects.filter(turn=turn, role="assistant").order_by("seq")[0]
        return str(next(p["content"] for p in step.parts if p["type"] == "tool_result"))

    return loading


@pytest.mark.requirement("S4.9")
def test_a_loaded_file_moves_then_is_dropped_and_loads_again(
    chat: Chat, load: Callable[[], str], talk: Callable[[], None], fold: Fold
) -> None:
    assert FORM in load()
    assert FORM not in compose_system_text(chat)
    talk()
    first = fold(chat)
    assert first.skills == [KEY]
    assert FORM in compose_system_text(chat)
    assert "".join(compose_next_prompt(chat)[1]).count(FORM) == 1
    assert load() == skill_load.FILE_LOADED
    notes = Receipt.objects.order_by("-created_at", "-step")[0].notes
    assert any(note.startswith(f"skill_file:{KEY}:") for note in notes)
    talk()
    assert fold(chat).skills == []
    assert FORM not in "".join(compose_next_prompt(chat)[1])
    assert FORM in load()
    event = AuditEvent.objects.filter(type="compaction.published").order_by("seq")[0]
    assert event.data["skills"] == [KEY]


def test_an_undo_restores_the_prompt_with_its_moved_file(
    alice: User,
    chat: Chat,
    load: Callable[[], str],
    talk: Callable[[], None],
    fold: Fold,
    now: datetime,
) -> None:
    load()
    talk()
    fold(chat)
    talk()
    before = compose_next_prompt(chat)
    second = fold(chat)
    assert FORM not in compose_system_text(chat)
    undo.undo_summary(user=alice, compaction=second, now=now)
    assert compose_next_prompt(chat) == before


def test_a_window_moves_the_file_and_a_changed_file_is_a_changed_skill(
    chat: Chat,
    mail: Skill,
    load: Callable[[], str],
    talk: Callable[[], None],
    set_policy: SetPolicy,
    now: datetime,
) -> None:
    set_policy(skills=["mail"], strategy="sliding_window", compact_to=0.4)
    load()
    talk()
    active = reload_branch(chat).active_compaction
    assert active is not None
    assert (active.kind, active.skills) == (Compaction.Kind.WINDOW, [KEY])
    assert FORM in compose_system_text(chat)
    save_skill(skill=mail, actor="system", now=now, files={"forms/refund.csv": "order\n42\n"})
    assert "[Characters 0 to 9 of 9]\norder\n42\n" in compose_system_text(chat)
    save_skill(skill=mail, actor="system", now=now, files={"forms/refund.csv": None})
    assert "refund.csv" not in compose_system_text(chat)


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_file_that_is_gone_or_too_long_is_dropped(
    chat: Chat,
    mail: Skill,
    load: Callable[[], str],
    talk: Callable[[], None],
    fold: Fold,
    now: datetime,
    is_removed: bool,
) -> None:
    if not is_removed:
        long = {"forms/refund.csv": "word " * 240}
        save_skill(skill=mail, actor="system", now=now, files=long)
    load()
    talk()
    if is_removed:
        save_skill(skill=mail, actor="system", now=now, files={"forms/refund.csv": None})
    assert fold(chat).skills == []
