"""The policy field *Models for files*: other models get neither files nor chats with files."""

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chats.actions import erasure
from chats.compaction import maintain
from chats.compaction.publish import publish_prepared
from chats.files import file_models
from chats.models import Chat, Compaction, Message, Turn, parts
from chats.record import messages
from chats.turns.references import is_closed_to_turn
from contextpolicy.engine.messages.messages import TextPart
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.linter.lint import lint_policy
from contextpolicy.models import ModelSpec
from tests.chats.api.conftest import set_policy
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.support.chat_summaries import SMALL_POLICY, reload_branch
from tests.support.error_codes import read_status_and_code
from tests.support.file_uploads import Read
from tests.support.files_in_chats import Work, get_accepted_turn

__all__ = ["set_policy"]
UPGRADE = import_module("chats.migrations.0090_messages_with_files")
# Longer parts are stored compressed.
LONG = b"The train leaves Rossio at 9:41. " * 400


@pytest.fixture
def writer(demo_model: ModelSpec) -> ModelSpec:
    """Another model of the same provider."""
    return ModelSpec.objects.create(
        slug="writer", provider=demo_model.provider, name="writer", context_window=16_000
    )


def test_files_for_another_model_are_refused_and_the_text_is_kept(
    read: Read, send: Any, set_policy: Any, chat: Chat, writer: ModelSpec, work: Work
) -> None:
    own = read(b"a")["id"]
    set_policy(file_models=[writer.slug])
    assert read_status_and_code(send(own)) == (422, "file_model_not_allowed")
    page = Client()
    page.force_login(chat.owner)
    shown = page.post(f"/chats/{chat.pk}/messages", {"text": "Typed words", "files": [own]})
    assert "Typed words" in shown.content.decode()
    assert not Message.objects.exists()
    work(get_accepted_turn(send(text="Only a text")))
    Chat.objects.filter(pk=chat.pk).update(model=writer)
    work(get_accepted_turn(send(own)))


@pytest.mark.parametrize("data", [b"short", LONG, make_png(30, 20)], ids=["short", "long", "image"])
def test_a_chat_with_files_waits_for_an_allowed_model(
    read: Read,
    send: Any,
    set_policy: Any,
    of_alice: Program,
    chat: Chat,
    writer: ModelSpec,
    work: Work,
    data: bytes,
) -> None:
    work(get_accepted_turn(send(read(data)["id"])))
    set_policy(file_models=[writer.slug])
    refused = get_accepted_turn(send(text="And now?"))
    worker = work(refused)
    refused.refresh_from_db()
    assert (refused.status, refused.error_code) == ("failed", "files_not_allowed_for_model")
    assert not worker.scripted.requests
    preview = of_alice.post(f"chats/{chat.pk}/context", {"question": "And now?"})
    assert read_status_and_code(preview) == (409, "files_not_allowed_for_model")
    page = Client()
    page.force_login(chat.owner)
    assert page.get(f"/chats/{chat.pk}/").status_code == 200
    # Without the file in prompts, the model can reply again.
    Message.objects.filter(seq=1).update(excluded=True)
    worker = work(get_accepted_turn(send(text="Once more")))
    assert "Rossio" not in str(worker.scripted.requests[-1].messages)


def test_excerpts_of_other_chats_with_files_are_not_retrieved(
    read: Read, send: Any, chat: Chat, demo_model: ModelSpec, work: Work
) -> None:
    own = read(b"The train leaves Rossio at 9:41.")["id"]
    turn = get_accepted_turn(send(own))
    work(turn)
    turn.refresh_from_db()
    for allowed in ([demo_model.slug], []):
        values = PolicyValues(file_models=tuple(allowed))
        assert is_closed_to_turn(chat.pk, turn=turn, values=values) == (not allowed)
    Message.objects.filter(seq=1).update(excluded=True)
    assert not is_closed_to_turn(chat.pk, turn=turn, values=PolicyValues(file_models=()))


@pytest.mark.parametrize("number", [1, 12])
def test_a_long_chat_without_files_is_not_searched_for_them(
    number: int,
    chat: Chat,
    counter: Any,
    now: Any,
    writer: ModelSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    branch = reload_branch(chat)
    # Long messages are stored compressed, so their words would have to be read.
    said: list[Any] = [
        ("user", [TextPart(LONG.decode())]),
        ("assistant", [TextPart(LONG.decode())]),
    ]
    messages.append_sent(chat=chat, branch=branch, said=said * number, counter=counter, now=now)
    read: list[Any] = []
    monkeypatch.setattr(parts, "unpacked", read.append)
    values = PolicyValues(file_models=("demo",))
    with CaptureQueriesContext(connection) as used:
        assert file_models.may_get_branch(writer.slug, branch=branch, values=values)
        assert file_models.may_get_chat(writer.slug, chat_id=chat.pk, values=values)
    assert (len(used), read) == (2, [])


@pytest.mark.parametrize("data", [b"short", LONG, make_png(30, 20)], ids=["short", "long", "image"])
def test_the_upgrade_marks_the_messages_with_files(
    read: Read, send: Any, chat: Chat, work: Work, data: bytes
) -> None:
    work(get_accepted_turn(send(text='A part is {"type": "file"}, sometimes {"deflated": 1}.')))
    turn = get_accepted_turn(send(read(data)["id"]))
    work(turn)
    work(get_accepted_turn(send(text=LONG.decode())))
    marked = Message.objects.filter(branch__chat=chat, contains_files=True)
    assert marked.get() == Message.objects.get(triggered=turn)
    marked.update(contains_files=False)
    UPGRADE.mark_messages_with_files(apps, None)
    assert marked.get() == Message.objects.get(triggered=turn)
    erasure.erase_message(user=chat.owner, message=marked.get(), now=timezone.now())
    assert not marked.exists()


def test_recent_messages_of_chats_with_files_are_left_out(
    read: Read,
    send: Any,
    set_policy: Any,
    of_alice: Program,
    writer: ModelSpec,
    demo_model: ModelSpec,
    work: Work,
) -> None:
    work(get_accepted_turn(send(read(b"The code is Zanzibar.")["id"], text="Look at Zanzibar")))
    made = of_alice.post("chats", {"text": "My cat is Momo."}).json()
    work(Turn.objects.get(branch__chat=made["id"]))
    for allowed in (demo_model.slug, writer.slug):
        set_policy(recent_by_user=20, file_models=[demo_model.slug])
        made = of_alice.post("chats", {"text": "Hello.", "model": allowed}).json()
        worker = work(Turn.objects.get(branch__chat=made["id"]))
        sent = str(worker.scripted.requests[-1].messages)
        assert "Momo" in sent
        assert ("Zanzibar" in sent) == (allowed == demo_model.slug)


def test_words_about_files_are_no_files(
    send: Any, set_policy: Any, writer: ModelSpec, work: Work
) -> None:
    set_policy(file_models=[writer.slug])
    work(get_accepted_turn(send(text='A part is {"type": "file"}, sometimes {"deflated": 1}.')))
    worker = work(get_accepted_turn(send(text="And now?")))
    assert worker.scripted.requests


@pytest.mark.parametrize("has_file", [True, False])
def test_a_summary_model_without_the_right_to_files_does_not_get_them(
    read: Read,
    send: Any,
    set_policy: Any,
    of_alice: Program,
    chat: Chat,
    demo_model: ModelSpec,
    writer: ModelSpec,
    work: Work,
    now: Any,
    counter: Any,
    has_file: bool,
) -> None:
    values = {**SMALL_POLICY, "summarization_model": writer.slug, "file_models": [demo_model.slug]}
    set_policy(**values)
    files = [read(b"The train leaves Rossio at 9:41.")["id"]] if has_file else []
    work(get_accepted_turn(send(*files)))
    for number in range(9):
        work(get_accepted_turn(send(text=f"Question {number}. " + "Lisbon has seven hills. " * 20)))
    answer = of_alice.post(f"chats/{chat.pk}/compactions", {"model": writer.slug})
    if has_file:
        assert read_status_and_code(answer) == (422, "unknown_summariser")
        of_alice.post(f"chats/{chat.pk}/compactions", {})
    maintain.maintain_chat_context(chat_id=chat.pk, counter=counter, now=now)
    publish_prepared(branch_id=reload_branch(chat).pk, now=now)
    assert Compaction.objects.get(status="published").kind == "summary"
    # The demo model's summaries are rejected, so the published one has none.
    assert Compaction.objects.filter(model_name=writer.name).exists() != has_file


def test_an_unknown_model_for_files_is_an_error(demo_model: ModelSpec) -> None:
    found = lint_policy({"file_models": ["nobody"]})
    assert ("unknown_model", "file_models") in [(each.code, each.field) for each in found]


@pytest.mark.parametrize(("models", "warns"), [(["demo"], True), (["demo", "writer"], False)])
def test_the_linter_names_a_summary_model_without_files(
    writer: ModelSpec, demo_model: ModelSpec, models: list[str], warns: bool
) -> None:
    slugs = [demo_model.slug if name == "demo" else name for name in models]
    found = lint_policy({"file_models": slugs, "summarization_model": writer.slug})
    warning = next((each for each in found if each.code == "summariser_without_files"), None)
    assert (warning is not None) == warns
    if warning is not None:
        assert warning.fix == {"file_models": [demo_model.slug, writer.slug]}
