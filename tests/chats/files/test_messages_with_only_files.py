"""Messages that have files and no text: page, REST, gateway, titles, search, editing, erasure."""

import html
import time
import uuid
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.actions import erasure
from chats.compaction import question_embedding
from chats.compaction.question_embedding import QuestionVector
from chats.memory.search import archive
from chats.models import Branch, Chat, Message, Turn
from chats.prompt.meter import Draft, build_meter
from chats.turns import references
from contextpolicy.engine.policy.policy import PolicyValues
from tests.chats.api.conftest import set_policy
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_png
from tests.chats.rebuilding import not_rebuilt
from tests.chats.teams.conftest import team_of
from tests.support.chat_pages import set_sign_in_time
from tests.support.file_uploads import Read
from tests.support.live_events import ScriptedBus
from tests.support.streamed_responses import read_stream

__all__ = ["set_policy", "team_of"]
Work = Callable[..., Any]


def turn_of(answer: Any) -> Turn:
    """Return the turn of an accepted message."""
    assert answer.status_code == 202, answer.json()
    return Turn.objects.get(pk=answer.json()["turn"]["id"])


def kinds_of(turn: Turn) -> list[str]:
    """Return the types of the parts of a turn's message."""
    return [part["type"] for part in Message.objects.get(pk=str(turn.trigger_id)).parts]


@pytest.fixture
def picture(read: Read) -> str:
    return str(read(make_png(30, 20), "chart of sales.png")["id"])


def test_a_file_can_be_sent_without_text_over_rest(
    picture: str, work: Work, of_alice: Program, chat: Chat, now: Any
) -> None:
    chat.title = ""
    chat.save()
    path = f"chats/{chat.pk}"
    context = of_alice.post(f"{path}/context", {"files": [picture]}).json()
    meter = build_meter(chat=chat, now=now, draft=Draft(chat.owner, " ", [uuid.UUID(picture)]))
    turn = turn_of(of_alice.post(f"{path}/messages", {"files": [picture], "text": " \n"}))
    worker = work(turn, "A chart.")
    (asked,) = worker.scripted.requests[-1].messages
    assert (asked.content, len(asked.images)) == ("", 1)
    row = Message.objects.get(pk=str(turn.trigger_id))
    assert [part["type"] for part in row.parts] == ["file"]
    receipts = of_alice.get(f"{path}/turns/{turn.pk}/receipts").json()["data"]
    question = [s for s in receipts[0]["segments"] if s["origin"] == "question"]
    assert [part.tokens for part in meter.parts if part.key == "question"] == [row.token_count]
    assert question[0]["tokens"] == row.token_count
    assert context["prompt_tokens"] == sum(s["tokens"] for s in receipts[0]["segments"])
    assert of_alice.get(path).json()["title"] == "chart of sales.png"
    assert not_rebuilt(some=True) == []


def test_a_chat_can_start_with_a_file_alone(picture: str, of_alice: Program) -> None:
    made = of_alice.post("chats", {"files": [picture]})
    assert (made.status_code, made.json()["title"]) == (202, "chart of sales.png")
    assert [part["type"] for part in made.json()["message"]["parts"]] == ["file"]
    assert of_alice.post("chats", {}).status_code == 201
    answer = of_alice.post("chats", {"text": " "})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "message_empty")


def test_pages_send_and_edit_a_message_with_only_files(
    read: Read, work: Work, client: Client, alice: User, demo_model: object
) -> None:
    own = read(b"Budget: 7 million", "plan.txt")["id"]
    client.force_login(alice)
    client.post("/chats/new", {"text": "", "files": [own]})
    chat = Chat.objects.get()
    assert chat.title == "plan.txt"
    work(Turn.objects.get())
    client.post(f"/chats/{chat.pk}/messages", {"text": "", "files": [own]})
    work(Turn.objects.latest("accepted"))
    page = client.get(f"/chats/{chat.pk}/").content.decode()
    assert page.count("download>") == 2
    first = Message.objects.get(seq=1)
    form = client.get(f"/chats/{chat.pk}/messages/{first.pk}/edit").content.decode()
    assert "data-has-files" in form
    client.post(f"/chats/{chat.pk}/messages/{first.pk}/edit", {"text": " "})
    turn = Turn.objects.latest("accepted")
    assert kinds_of(turn) == ["file"]
    worker = work(turn)
    assert "7 million" in worker.scripted.requests[-1].messages[-1].content


def test_erasing_the_message_clears_the_title(
    read: Read, work: Work, of_alice: Program, alice: User, now: Any
) -> None:
    own = read(b"words", "secret name.txt")["id"]
    turn = turn_of(of_alice.post("chats", {"files": [own]}))
    work(turn)
    message = Message.objects.get(pk=str(turn.trigger_id))
    erasure.erase_message(user=alice, message=message, now=now)
    assert Chat.objects.get().title == ""


def test_the_erasure_page_names_the_files(
    picture: str, work: Work, of_alice: Program, client: Client, alice: User
) -> None:
    turn = turn_of(of_alice.post("chats", {"files": [picture]}))
    work(turn)
    client.force_login(alice)
    set_sign_in_time(client, timezone.now())
    question, reply = Message.objects.order_by("seq")
    address = "/chats/{chat}/messages/{message}/erase"
    page = client.get(address.format(chat=turn.branch.chat_id, message=question.pk))
    assert "<bdi>chart of sales.png</bdi>" in page.content.decode()
    assert 'data-erased="files"' in page.content.decode()
    page = client.get(address.format(chat=turn.branch.chat_id, message=reply.pk))
    assert 'data-erased="files"' not in page.content.decode()


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_documents_name_the_picture(picture: str, work: Work, of_alice: Program, form: str) -> None:
    turn = turn_of(of_alice.post("chats", {"title": "T", "files": [picture]}))
    work(turn)
    answer = of_alice.get(f"chats/{turn.branch.chat_id}/export", form=form)
    line = 'Image: "chart of sales.png", image/png, 30 × 20 pixels, '
    assert line in html.unescape(read_stream(answer).decode())


def test_a_search_finds_a_picture_by_its_name(picture: str, work: Work, of_alice: Program) -> None:
    turn = turn_of(of_alice.post("chats", {"files": [picture]}))
    work(turn, "A chart.")
    branch = Branch.objects.select_related("chat").get()
    archive.index_branch(branch)
    found = of_alice.get("search", q="sales").json()
    hit = found["data"][0]
    assert (hit["seq"], hit["excerpt"]) == (1, "chart of sales.png")
    assert [hit["title"] for hit in found["titles"]] == ["chart of sales.png"]


def test_use_chat_sends_a_file_alone(
    read: Read, work: Work, of_alice: Program, bus: ScriptedBus
) -> None:
    own = read(b"Budget: 7 million", "plan.txt")["id"]
    file = {
        "type": "file",
        "mediaType": "text/plain",
        "filename": "plan.txt",
        "url": f"/api/v1/files/{own}/content",
    }
    said = {"id": "m1", "role": "user", "parts": [file]}
    assert of_alice.post("ui-chats", {"id": "front-end", "messages": [said]}).status_code == 200
    work(Turn.objects.get(), "Seven.")
    (question, _) = of_alice.get("ui-chats/front-end").json()["messages"]
    assert question["parts"] == [file]
    again = {**said, "parts": [file, {"type": "text", "text": ""}]}
    body = {"id": "front-end", "messages": [again], "messageId": "m1"}
    assert of_alice.post("ui-chats", body).status_code == 200
    assert kinds_of(Turn.objects.latest("accepted")) == ["file"]


def test_a_team_replies_to_a_file_alone(
    read: Read, work: Work, of_alice: Program, team_of: Any, demo_model: object
) -> None:
    own = read(b"Budget: 7 million", "plan.txt")["id"]
    team = team_of("Ada", "Bo")
    turn = turn_of(of_alice.post("chats", {"files": [own], "team": str(team.pk)}))
    worker = work(turn, "Seven.")
    assert "7 million" in worker.scripted.requests[-1].messages[-1].content
    assert Chat.objects.get().title == "plan.txt"
    assert not_rebuilt(some=True) == []


def test_an_embedding_server_never_gets_an_empty_text(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def embed(text: str, **_given: Any) -> QuestionVector:
        asked.append(text)
        return QuestionVector()

    async def aside(function: Callable[..., Any], **given: Any) -> Any:
        return function(**given)

    monkeypatch.setattr(
        question_embedding, "get_question_embedder", lambda: SimpleNamespace(provider="p")
    )
    monkeypatch.setattr(question_embedding, "embed_question_text", embed)
    for text in ("", " \n", "words"):
        async_to_sync(references.embed_text)(
            partial(str, text),
            values=PolicyValues(),
            aside=aside,
            began=time.monotonic(),
        )
    assert asked == ["words"]
