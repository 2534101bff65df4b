"""Documents that fitted into a prompt, after a summary or a window left them out."""

import json
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client

from chats.actions.lifecycle import create_chat
from chats.files import excerpts
from chats.models import Branch, Chat, Compaction, FileExcerpt, Message
from chats.prompt.tools import file_read
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from contextpolicy.models import EffectivePolicy, ModelSpec
from tests.chats.api.conftest import set_policy
from tests.chats.api.programs import Program
from tests.chats.rebuilding import not_rebuilt
from tests.support.file_uploads import Read
from tests.support.files_in_chats import Work, get_accepted_turn

__all__ = ["set_policy"]
UPGRADE = import_module("chats.migrations.0089_documents_and_image_owners")
BUDGET = "The lighthouse repair budget is 48,213 euros."
QUESTION = "How much is the lighthouse repair budget?"
DOCUMENT = f"{'Nothing of interest happens here. ' * 900}{BUDGET}"
ROOMY = {"token_budget": 60_000}
SEEN = [TextDelta("I see."), Finished("stop")]


@pytest.fixture
def hide(chat: Chat, now: datetime, set_policy: Any) -> Callable[[str], None]:
    """Leave the messages of the chat out of later prompts, in one of several ways."""

    def hiding(way: str) -> None:
        if way == "window":
            set_policy(**ROOMY, strategy="simple", window_size=2)
        elif way == "cut":
            set_policy(**ROOMY, strategy="simple", max_chars_per_message=2_000)
        else:
            branch = Branch.objects.get(chat=chat)
            branch.active_compaction = Compaction.objects.create(
                branch=branch,
                kind="summary",
                status="published",
                text="They read a file.",
                from_seq=1,
                to_seq=branch.last_seq,
                trigger="tokens",
                effective_policy=EffectivePolicy.objects.create(
                    digest="e" * 64, values={}, sources={}
                ),
                created_at=now,
            )
            branch.save()

    return hiding


@pytest.fixture
def read_document(read: Read, send: Any, work: Work, demo_model: ModelSpec, set_policy: Any) -> Any:
    """Send a document that fits into the prompt, and return its JSON."""
    ModelSpec.objects.update(supports_tools=True)
    set_policy(**ROOMY)
    file = read(DOCUMENT.encode(), "harbour.txt")
    worker = work(get_accepted_turn(send(file["id"], text="Hello")), SEEN)
    assert BUDGET in worker.scripted.requests[-1].messages[-1].content
    assert worker.scripted.requests[-1].tools == ()
    return file


def join_prompt(worker: Any) -> str:
    """Return all texts of the last request."""
    return "\n".join(message.content for message in worker.scripted.requests[-1].messages)


def call(**arguments: Any) -> list[Any]:
    """A script in which the model calls the tool that reads documents."""
    return [ToolCallDelta(0, "c1", "file_read", json.dumps(arguments)), Finished("tool_calls")]


@pytest.mark.parametrize("way", ["summary", "window", "cut"])
@pytest.mark.usefixtures("read_document", "built_again")
def test_a_question_about_a_hidden_document_gets_its_excerpt(
    hide: Any, send: Any, work: Work, way: str, of_alice: Program, chat: Chat, client: Client
) -> None:
    if way == "window":
        work(get_accepted_turn(send(text="Good morning")), SEEN)
    hide(way)
    turn = get_accepted_turn(send(text=QUESTION))
    worker = work(turn, SEEN)
    assert BUDGET in join_prompt(worker)
    assert "(harbour.txt)" in join_prompt(worker)
    assert "file_read" in {tool.name for tool in worker.scripted.requests[-1].tools}
    (found,) = of_alice.get(f"chats/{chat.pk}/turns/{turn.pk}").json()["file_excerpts"]
    assert found["name"] == "harbour.txt"
    client.force_login(chat.owner)
    page = client.get(f"/chats/{chat.pk}/turns/{turn.pk}/receipt").content.decode()
    assert "harbour.txt" in page.partition('id="file-excerpts"')[2]
    chat.refresh_from_db()
    assert chat.has_cut_files


@pytest.mark.usefixtures("read_document", "built_again")
def test_a_document_in_the_prompt_needs_no_excerpt(send: Any, work: Work, chat: Chat) -> None:
    worker = work(get_accepted_turn(send(text=QUESTION)), SEEN)
    assert worker.scripted.requests[-1].tools == ()
    assert not FileExcerpt.objects.exists()
    chat.refresh_from_db()
    assert not chat.has_cut_files


@pytest.mark.usefixtures("read_document")
def test_the_upgrade_marks_chats_with_documents(chat: Chat, alice: User, now: datetime) -> None:
    Chat.objects.update(has_documents=False)
    other = create_chat(owner=alice, now=now)
    UPGRADE.mark_chats_with_documents(apps, None)
    assert list(Chat.objects.filter(has_documents=True)) == [chat]
    assert other.pk != chat.pk


@pytest.mark.parametrize("given", ["id", "name", "unknown"])
@pytest.mark.usefixtures("built_again")
def test_the_model_reads_a_hidden_document_by_id_or_name(
    hide: Any, read_document: Any, send: Any, work: Work, given: str
) -> None:
    hide("summary")
    key = {"id": read_document["id"], "name": "harbour.txt", "unknown": "port.txt"}[given]
    worker = work(get_accepted_turn(send(text="Hello again")), call(id=key, query="lighthouse"))
    result = worker.scripted.requests[-1].messages[-1]
    assert result.role == "tool"
    if given == "unknown":
        assert f'{read_document["id"]} "harbour.txt"' in result.content
    else:
        assert BUDGET in result.content


@pytest.mark.usefixtures("built_again")
def test_a_name_of_two_documents_is_answered_with_their_ids(
    hide: Any, read_document: Any, read: Read, send: Any, work: Work
) -> None:
    other = read(b"Another text of the harbour. " * 50, "harbour.txt")
    work(get_accepted_turn(send(other["id"], text="And this one")), SEEN)
    hide("summary")
    worker = work(get_accepted_turn(send(text="Hello again")), call(id="harbour.txt", start=0))
    result = worker.scripted.requests[-1].messages[-1].content
    assert other["id"] in result
    assert read_document["id"] in result


@pytest.mark.usefixtures("built_again")
def test_an_excluded_message_gives_no_excerpt(
    hide: Any, read_document: Any, send: Any, work: Work, chat: Chat
) -> None:
    hide("summary")
    Message.objects.filter(branch__chat=chat, seq=1).update(excluded=True)
    worker = work(get_accepted_turn(send(text=QUESTION)), call(id=read_document["id"], start=0))
    assert BUDGET not in join_prompt(worker)
    assert not FileExcerpt.objects.exists()
    assert file_read.NONE not in join_prompt(worker)
    assert not_rebuilt(some=True) == []


@pytest.mark.usefixtures("read_document", "built_again")
def test_only_the_newest_documents_are_searched_up_to_a_limit(
    hide: Any, read: Read, send: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = read(f"{BUDGET.replace('48', '49')} {'Quiet. ' * 50}".encode(), "newer.txt")
    work(get_accepted_turn(send(newer["id"], text="And this one")), SEEN)
    hide("summary")
    monkeypatch.setattr(excerpts, "MOST_CHARACTERS", len(DOCUMENT))
    text = join_prompt(work(get_accepted_turn(send(text=QUESTION)), SEEN))
    assert "49,213 euros" in text
    assert BUDGET not in text
