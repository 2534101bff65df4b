"""Skills on demand across compactions: a loaded text moves to the system text, then it is dropped.

The model can load it again. The same holds for a loaded part of a file.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User

from chats.compaction.people import revise, undo
from chats.models import Chat, Compaction, Message, Receipt
from chats.prompt.meter import build_meter
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


class Loaded(NamedTuple):
    """A load by the model: its arguments, the content, its key, and the result of another load."""

    asked: dict[str, str]
    content: str
    key: str
    again: str


TEXT = Loaded({"name": "mail"}, "Sign each mail with Kind regards.", "mail", skill_load.LOADED)
FILE = Loaded(
    {"name": "mail", "file": "forms/refund.csv"},
    "order,amount\n4711,20\n",
    "mail/forms/refund.csv#0-21",
    skill_load.FILE_LOADED,
)
only_text = pytest.mark.parametrize("loaded", [TEXT], ids=["text"], indirect=True)
only_file = pytest.mark.parametrize("loaded", [FILE], ids=["file"], indirect=True)


@pytest.fixture(params=[TEXT, FILE], ids=["text", "file"])
def loaded(request: pytest.FixtureRequest) -> Loaded:
    found: Loaded = request.param
    return found


@pytest.fixture
def mail(demo_model: ModelSpec, set_policy: SetPolicy, now: datetime, loaded: Loaded) -> Skill:
    """A skill on demand under a policy that compacts after a few turns."""
    ModelSpec.objects.update(supports_tools=True)
    set_policy(skills=["mail"])
    text = loaded.content if loaded == TEXT else "Be short."
    skill = Skill(slug="mail", name="Mail", description="Write mails.", text=text)
    files = {"forms/refund.csv": loaded.content} if loaded == FILE else {}
    save_skill(skill=skill, actor="system", now=now, files=files)
    return skill


@pytest.fixture
def load(
    alice: User, chat: Chat, now: datetime, work: Work, mail: Skill, loaded: Loaded
) -> Callable[[], str]:
    """Run a turn in which the model loads the text or file, and return the tool result."""
    del mail

    def loading() -> str:
        turn = start_turn(user=alice, chat=chat, text=f"Write a mail. {SENTENCE}", now=now).turn
        call = ToolCallDelta(0, "call-1", "skill_load", json.dumps(loaded.asked))
        work(turn, [call, Finished("tool_calls")], [TextDelta(SENTENCE * 6), Finished("stop")])
        step = Message.objects.filter(turn=turn, role="assistant").order_by("seq")[0]
        return str(next(p["content"] for p in step.parts if p["type"] == "tool_result"))

    return loading


@pytest.mark.requirement("S4.9")
def test_a_loaded_text_moves_then_is_dropped_and_loads_again(
    chat: Chat,
    load: Callable[[], str],
    talk: Callable[[], None],
    fold: Fold,
    now: datetime,
    loaded: Loaded,
) -> None:
    assert loaded.content in load()
    assert loaded.content not in compose_system_text(chat)
    talk()
    first = fold(chat)
    assert first.skills == [loaded.key]
    assert loaded.content in compose_system_text(chat)
    assert "".join(compose_next_prompt(chat)[1]).count(loaded.content) == 1
    if loaded == TEXT:
        assert build_meter(chat=chat, now=now).outlook.loaded_skills == ("mail",)
    assert load() == loaded.again
    if loaded == FILE:
        notes = Receipt.objects.order_by("-created_at", "-step")[0].notes
        assert any(note.startswith(f"skill_file:{FILE.key}:") for note in notes)
    talk()
    second = fold(chat)
    assert second.pk != first.pk
    assert second.skills == []
    assert loaded.content not in "".join(compose_next_prompt(chat)[1])
    assert "- mail: " in compose_system_text(chat)
    assert loaded.content in load()
    event = AuditEvent.objects.filter(type="compaction.published").order_by("seq")[0]
    assert event.data["skills"] == [loaded.key]


@only_text
@pytest.mark.parametrize(
    ("finish", "kept", "is_moved"),
    [("stopped", False, True), ("incomplete", True, True), ("incomplete", False, False)],
)
def test_a_text_of_an_interrupted_step_moves_if_prompts_had_it(
    chat: Chat,
    load: Callable[[], str],
    talk: Callable[[], None],
    fold: Fold,
    finish: str,
    kept: bool,
    is_moved: bool,
) -> None:
    load()
    Message.objects.filter(finish="tool_calls").update(finish=finish, kept=kept)
    talk()
    assert fold(chat).skills == (["mail"] if is_moved else [])
    assert (TEXT.content in compose_system_text(chat)) is is_moved
    # The model can load a text only if its prompt does not have it.
    assert (load() == TEXT.again) is is_moved
    talk()
    # The next compaction drops a moved text, and moves one that was loaded since.
    assert fold(chat).skills == ([] if is_moved else ["mail"])
    assert (TEXT.content in load()) is is_moved


def test_an_undo_restores_the_prompt_with_its_moved_text(
    alice: User,
    chat: Chat,
    load: Callable[[], str],
    talk: Callable[[], None],
    fold: Fold,
    now: datetime,
    loaded: Loaded,
) -> None:
    load()
    talk()
    fold(chat)
    talk()
    before = compose_next_prompt(chat)
    second = fold(chat)
    assert loaded.content not in compose_system_text(chat)
    undo.undo_summary(user=alice, compaction=second, now=now)
    assert compose_next_prompt(chat) == before


@only_text
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
    assert TEXT.content in compose_system_text(chat)


def test_a_window_moves_the_text_and_a_changed_file_is_a_changed_skill(
    chat: Chat,
    mail: Skill,
    load: Callable[[], str],
    talk: Callable[[], None],
    set_policy: SetPolicy,
    now: datetime,
    loaded: Loaded,
) -> None:
    set_policy(skills=["mail"], strategy="sliding_window", compact_to=0.4)
    load()
    talk()
    active = reload_branch(chat).active_compaction
    assert active is not None
    assert (active.kind, active.skills) == (Compaction.Kind.WINDOW, [loaded.key])
    assert loaded.content in compose_system_text(chat)
    if loaded == FILE:
        save_skill(skill=mail, actor="system", now=now, files={"forms/refund.csv": "order\n42\n"})
        assert "[Characters 0 to 9 of 9]\norder\n42\n" in compose_system_text(chat)
        save_skill(skill=mail, actor="system", now=now, files={"forms/refund.csv": None})
        assert "refund.csv" not in compose_system_text(chat)


@only_text
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


@only_file
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
