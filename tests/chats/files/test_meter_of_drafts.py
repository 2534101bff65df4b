"""The context meter counts the message that is being written, with its files."""

import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from chats.models import Chat, Receipt, Turn
from tests.chats.api.conftest import set_policy
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_docx, make_png
from tests.support.file_uploads import Read

__all__ = ["set_policy"]
QUESTION = "When does the train to Sintra leave?"


@pytest.fixture
def count(chat: Chat, alice: User, client: Client) -> Callable[..., str]:
    """Return the meter for a draft in Alice's chat."""
    client.force_login(alice)

    def counting(text: str = QUESTION, *files: str) -> str:
        answer = client.post(f"/chats/{chat.pk}/meter", {"text": text, "files": list(files)})
        assert answer.status_code == 200
        return answer.content.decode()

    return counting


def used(meter: str) -> int:
    """The tokens of the breakdown's heading."""
    (found,) = re.findall(r"<bdi>≈? ?([\d,]+) of [\d,]+ tokens</bdi></span>\s*</div>", meter)
    return int(found.replace(",", ""))


def test_the_meter_of_a_draft_with_files_is_the_size_of_its_prompt(
    count: Callable[..., str],
    read: Read,
    of_alice: Program,
    chat: Chat,
    work: Callable[..., Any],
) -> None:
    files = [
        read(b"The train leaves Rossio at 9:41. " * 60, "notes.md")["id"],
        read(make_docx("The hotel is in Alfama. " * 30), "hotel.docx")["id"],
        read(make_png(800, 600), "map.png")["id"],
    ]
    empty, text_only = used(count("")), used(count())
    shown = used(count(QUESTION, *files))
    assert empty < text_only < shown - 600

    body = {"text": QUESTION, "files": files}
    answer = of_alice.post(f"chats/{chat.pk}/messages", body)
    turn = Turn.objects.get(pk=answer.json()["turn"]["id"])
    work(turn)
    assert Receipt.objects.get(turn=turn).prompt_tokens == shown


def test_the_tool_for_a_long_document_is_counted_before_it_is_sent(
    count: Callable[..., str],
    read: Read,
    of_alice: Program,
    chat: Chat,
    work: Callable[..., Any],
    set_policy: Any,
) -> None:
    set_policy(token_budget=6_000, reserve_tokens=600)
    file = read(b"Nothing of interest. " * 900, "long.md")["id"]
    shown = used(count(QUESTION, file))
    answer = of_alice.post(f"chats/{chat.pk}/messages", {"text": QUESTION, "files": [file]})
    worker = work(Turn.objects.get(pk=answer.json()["turn"]["id"]))
    assert [tool.name for tool in worker.scripted.requests[0].tools] == ["file_read"]
    assert Receipt.objects.get().prompt_tokens == shown


def test_a_draft_that_does_not_fit_is_shown_before_it_is_sent(
    count: Callable[..., str], read: Read, set_policy: Any
) -> None:
    set_policy(token_budget=2_000, reserve_tokens=600)
    image = read(make_png(1600, 1200), "map.png")["id"]
    meter = count(QUESTION, image)
    assert 'data-reason="message_too_large"' in meter
    assert "Remove a file" in meter
    # A text longer than the policy allows is not counted.
    assert 'data-reason="message_too_long"' in count("word " * 30_000)
    # A text that does not fit has no file to remove.
    meter = count("word " * 2_900)
    assert 'data-reason="message_too_large"' in meter
    assert "Remove a file" not in meter


def test_files_that_the_policy_forbids_or_that_are_gone_are_named(
    count: Callable[..., str], read: Read, set_policy: Any
) -> None:
    meter = count(QUESTION, str(uuid.uuid4()))
    assert 'data-reason="file_not_found"' in meter
    own = [read(name.encode(), name)["id"] for name in ("one.md", "two.md")]
    set_policy(files_per_message=1)
    assert 'data-reason="too_many_files"' in count(QUESTION, *own)


def test_the_file_of_another_person_is_not_counted(
    of_charlie: Program, chat: Chat, charlie: User, client: Client, read: Read
) -> None:
    own = read(b"Alice's words", "notes.md")["id"]
    own_chat = of_charlie.post("chats", {}).json()["id"]
    client.force_login(charlie)
    body = {"text": QUESTION, "files": [own]}
    answer = client.post(f"/chats/{own_chat}/meter", body).content.decode()
    assert 'data-reason="file_not_found"' in answer
    assert client.post(f"/chats/{chat.pk}/meter", {"text": QUESTION}).status_code == 404


def test_over_the_limit_the_page_keeps_its_meter(
    chat: Chat, alice: User, client: Client, settings: Settings
) -> None:
    settings.METER_UPDATES_PER_MINUTE = 2
    client.force_login(alice)
    answers = [client.post(f"/chats/{chat.pk}/meter", {"text": "a"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 204]
