"""Long documents: the question brings the right part, and the model can read more."""

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.actions import erasure
from chats.files import uploads
from chats.models import Chat, FileChunk, FileExcerpt, Message, PromptText, StoredFile
from chats.prompt.tools import file_read
from chats.providers.base import Finished, ToolCallDelta
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.conftest import set_policy
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import list_report_pages, make_pdf
from tests.chats.rebuilding import not_rebuilt
from tests.support.file_uploads import Read, read_like_a_worker
from tests.support.files_in_chats import (
    Work,
    dump_database,
    get_accepted_turn,
    get_last_sent_message,
)

__all__ = ["set_policy"]


@pytest.fixture
def report(alice: User, now: Any, demo_model: object) -> StoredFile:
    """A PDF of 300 pages that was read."""
    data = io.BytesIO(make_pdf(*list_report_pages()))
    row, _ = uploads.accept_upload(data, name="report.pdf", owner=alice, now=now)
    read_like_a_worker(str(row.pk))
    row.refresh_from_db()
    assert (row.state, row.pages) == ("ready", 300)
    return row


def prompt_text(worker: Any) -> str:
    """Return all texts of the last request."""
    return "\n".join(message.content for message in worker.scripted.requests[-1].messages)


def test_a_question_about_page_212_of_300_gets_its_excerpt(
    report: StoredFile, send: Any, work: Work, of_alice: Any, chat: Chat
) -> None:
    turn = get_accepted_turn(send(str(report.pk), text="How much is the lighthouse repair budget?"))
    worker = work(turn)
    text = prompt_text(worker)
    assert "48,213 euros" in text
    assert "(report.pdf, page 212)" in text
    # The document itself was cut, so the excerpt is the only place.
    assert "48,213" not in get_last_sent_message(worker).content.partition("</file>")[0]
    system = [m for m in worker.scripted.requests[-1].messages if m.role == "system"]
    assert not any("lighthouse" in message.content for message in system)
    receipts = of_alice.get(f"chats/{chat.pk}/turns/{turn.pk}/receipts").json()["data"]
    tail = [s for s in receipts[0]["segments"] if s["origin"] == "tail"]
    assert tail[0]["tokens"] > 50
    path = f"chats/{chat.pk}/turns/{turn.pk}/receipts/{receipts[0]['id']}/request"
    assert "48,213 euros" in json.dumps(of_alice.get(path).json())
    assert not_rebuilt(some=True) == []


@pytest.mark.parametrize("is_plain", [True, False])
def test_plain_sections_send_parts_of_documents_without_their_day(
    report: StoredFile, send: Any, work: Work, is_plain: bool, now: Any
) -> None:
    values = {"strategy": "simple", "plain_sections": is_plain}
    policy = create_policy(slug="plain", name="Plain", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    turn = get_accepted_turn(send(str(report.pk), text="How much is the lighthouse repair budget?"))
    _, _, block = prompt_text(work(turn)).partition("Relevant reference (semantic):\n")
    assert "(report.pdf, page 212)" in block
    assert block.startswith("User: (report.pdf" if is_plain else "[")
    assert not_rebuilt(some=True) == []


def test_receipt_page_and_turn_list_the_excerpts(
    report: StoredFile, send: Any, work: Work, of_alice: Program, chat: Chat, client: Client
) -> None:
    turn = get_accepted_turn(send(str(report.pk), text="How much is the lighthouse repair budget?"))
    work(turn)
    found = of_alice.get(f"chats/{chat.pk}/turns/{turn.pk}").json()["file_excerpts"]
    budget = next(row for row in found if row["page"] == 212)
    chunk = FileChunk.objects.get(file=report, number=budget["part"])
    assert (budget["file"], budget["name"]) == (str(report.pk), "report.pdf")
    assert (budget["start"], budget["end"]) == (chunk.start, chunk.start + len(chunk.text))
    assert budget["score"] == max(row["score"] for row in found) > 0
    assert "lighthouse" in budget["words"]
    client.force_login(chat.owner)
    page = client.get(f"/chats/{chat.pk}/turns/{turn.pk}/receipt").content.decode()
    section = page.partition('id="file-excerpts"')[2].partition("</section>")[0]
    assert "report.pdf" in section
    assert "page 212" in section
    assert f"{budget['score']:.2f}" in section
    assert "lighthouse, repair, budget" in section


def test_a_later_question_gets_its_own_excerpt(report: StoredFile, send: Any, work: Work) -> None:
    work(get_accepted_turn(send(str(report.pk), text="Summarise the report.")))
    worker = work(get_accepted_turn(send(text="Look at page 212 about the lighthouse.")))
    assert "48,213 euros" in prompt_text(worker)
    worker = work(get_accepted_turn(send(text="Thanks!")))
    assert "48,213" not in prompt_text(worker)


def test_a_short_document_needs_no_excerpt_and_no_tool(
    read: Read, send: Any, work: Work, chat: Chat
) -> None:
    worker = work(get_accepted_turn(send(read(b"The budget is 7.")["id"], text="Name the budget.")))
    chat.refresh_from_db()
    assert not chat.has_cut_files
    assert not FileExcerpt.objects.exists()
    assert worker.scripted.requests[-1].tools == ()


def call(name: str, **arguments: Any) -> list[Any]:
    """A script in which the model calls a tool."""
    text = json.dumps(arguments)
    return [ToolCallDelta(index=0, call_id="c1", name=name, arguments=text), Finished("tool_calls")]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"query": "lighthouse repair"}, "48,213 euros"),
        ({"start": 0}, "[Characters 0 to 6,000 of"),
        ({"start": 999_999}, "[Characters 999,999 to 999,999 of"),
        ({"query": "zebra"}, file_read.NOTHING),
    ],
    ids=["query", "start", "end", "nothing"],
)
def test_the_model_reads_more_with_a_tool(
    report: StoredFile, send: Any, work: Work, arguments: dict[str, Any], found: str
) -> None:
    turn = get_accepted_turn(send(str(report.pk), text="Hello"))
    worker = work(turn, call("file_read", id=str(report.pk), **arguments))
    assert [tool.name for tool in worker.scripted.requests[0].tools] == ["file_read"]
    result = worker.scripted.requests[-1].messages[-1]
    assert result.role == "tool"
    assert found in result.content


def test_the_tool_reads_no_file_of_another_chat_or_person(
    report: StoredFile, read: Read, send: Any, work: Work, charlie: User, now: Any
) -> None:
    secret = io.BytesIO(b"A secret. " * 9_000)
    other, _ = uploads.accept_upload(secret, name="s.txt", owner=charlie, now=now)
    read_like_a_worker(str(other.pk))
    unused = read(b"Not in this chat. " * 9_000, "unused.txt")
    for file_id in (str(other.pk), unused["id"], "x"):
        turn = get_accepted_turn(send(str(report.pk), text="Hello"))
        worker = work(turn, call("file_read", id=file_id, start=0))
        assert "no such file" in worker.scripted.requests[-1].messages[-1].content


def test_an_erased_message_takes_the_excerpts_of_its_file_along(
    report: StoredFile, send: Any, work: Work, alice: User, chat: Chat, now: Any
) -> None:
    first = get_accepted_turn(send(str(report.pk), text="Hello"))
    work(first)
    work(get_accepted_turn(send(text="How much is the lighthouse repair budget?")))
    assert FileExcerpt.objects.exists()
    assert PromptText.objects.filter(text__contains="48,213").exists()
    message = Message.objects.get(pk=str(first.trigger_id))
    erasure.erase_message(user=alice, message=message, now=now)
    assert not FileExcerpt.objects.exists()
    assert not FileChunk.objects.exists()
    assert "48,213" not in dump_database()
    # Later questions work without the file.
    worker = work(get_accepted_turn(send(text="And the lighthouse?")))
    assert "48,213" not in prompt_text(worker)
