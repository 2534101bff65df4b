"""Skills on demand across compactions: a loaded text moves to the system text, then it is dropped.

The model can load it again.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.compaction.people import revise, undo
from chats.models import Chat, Compaction, Message
from chats.prompt.meter import build_meter
from chats.prompt.tools import skill_load
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent, ModelSpec, Skill
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
TEXT = "Sign each mail with Kind regards."


@pytest.fixture
def mail(demo_model: ModelSpec, set_policy: SetPolicy, now: datetime) -> Skill:
    """A skill on demand under a policy that compacts after a few turns."""
    ModelSpec.objects.update(supports_tools=True)
    set_policy(skills=["mail"])
    return Skill.objects.create(
        slug="mail", name="Mail", description="Write mails.", text=TEXT, updated_at=now
    )


@pytest.fixture
def load(alice: User, chat: Chat, now: datetime, work: Work, mail: Skill) -> Callable[[], str]:
    """Run a turn in which the model loads the skill, and return the tool result."""
    del mail

    def loading() -> str:
        turn = start_turn(user=alice, chat=chat, text=f"Write a mail. {SENTENCE}", now=now).turn
        call = ToolCallDelta(0, "call-1", "skill_load", json.dumps({"name": "mail"}))
        work(turn, [call, Finished("tool_calls")], [TextDelta(SENTENCE * 6), Finished("stop")])
        step = Message.objects.filter(turn=turn, role="assistant").order_by("seq")[0]
        return str(next(p["content"] for p in step.parts if p["type"] == "tool_result"))

    return loading


@pytest.mark.requirement("S4.9")
def test_a_loaded_text_moves_then_is_dropped_and_loads_again(
    chat: Chat, load: Callable[[], str], talk: Callable[[], None], fold: Fold, now: datetime
) -> None:
    assert TEXT in load()
    assert TEXT not in compose_system_text(chat)
    talk()
    first = fold(chat)
    assert first.skills == ["mail"]
    assert TEXT in compose_system_text(chat)
    assert "".join(compose_next_prompt(chat)[1]).count(TEXT) == 1
    assert build_meter(chat=chat, now=now).outlook.loaded_skills == ("mail",)
    assert load() == skill_load.LOADED
    talk()
    second = fold(chat)
    assert second.pk != first.pk
    assert second.skills == []
    assert TEXT not in "".join(compose_next_prompt(chat)[1])
    assert "- mail: " in compose_system_text(chat)
    assert TEXT in load()
    event = AuditEvent.objects.filter(type="compaction.published").order_by("seq")[0]
    assert event.data["skills"] == ["mail"]


def test_an_undo_restores_the_prompt_with_its_moved_text(
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
    assert TEXT not in compose_system_text(chat)
    undo.undo_summary(user=alice, compaction=second, now=now)
    assert compose_next_prompt(chat) == before


def test_a_corrected_summary_keeps_the_moved_text(
    alice: User,
    chat: Chat,
    load: Callable[[], str],
    talk: Callable[[], None],
    fold: Fold,
    now: datetime,
) -> None:
    load()
    talk()
    row = fold(chat)
    revise.revise_summary(user=alice, compaction=row, text="## Facts\n- Short", now=now)
    assert TEXT in compose_system_text(chat)


def test_a_window_moves_the_text_too(
    chat: Chat, load: Callable[[], str], talk: Callable[[], None], set_policy: SetPolicy
) -> None:
    set_policy(skills=["mail"], strategy="sliding_window", compact_to=0.4)
    load()
    talk()
    active = reload_branch(chat).active_compaction
    assert active is not None
    assert (active.kind, active.skills) == (Compaction.Kind.WINDOW, ["mail"])
    assert TEXT in compose_system_text(chat)


@pytest.mark.parametrize(
    "change", [{"enabled": False}, {"mode": "always"}, {"text": "word " * 1_900}]
)
def test_a_text_that_is_gone_or_too_long_is_dropped(
    chat: Chat,
    mail: Skill,
    load: Callable[[], str],
    talk: Callable[[], None],
    fold: Fold,
    change: dict[str, Any],
) -> None:
    load()
    talk()
    Skill.objects.filter(pk=mail.pk).update(**change)
    assert fold(chat).skills == []
