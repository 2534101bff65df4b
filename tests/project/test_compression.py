"""Pages and files are compressed, event streams are not, and no token is sent twice."""

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory

from chats.models import Chat
from chats.streams import connection
from project.middleware import CompressionMiddleware

GZIP = {"Accept-Encoding": "gzip, br"}
TOKEN = re.compile(r'(?:name="csrfmiddlewaretoken" value="|X-CSRFToken": ")(\w{64})"')


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    client = Client()
    client.force_login(alice)
    return client


def test_a_page_is_compressed_for_who_takes_it(page: Client, chat: Chat) -> None:
    plain = page.get(f"/chats/{chat.pk}/")
    small = page.get(f"/chats/{chat.pk}/", headers=GZIP)

    assert "Content-Encoding" not in plain.headers
    assert small.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in small.headers["Vary"]
    assert len(small.content) < len(plain.content) / 3
    assert "</html>" in gzip.decompress(small.content).decode()


def test_a_file_is_compressed(page: Client) -> None:
    plain = page.get("/static/css/chat.css")
    small = page.get("/static/css/chat.css", headers=GZIP)

    assert small.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(small.content) == plain.content
    assert len(small.content) < len(plain.content) / 2


@pytest.mark.parametrize("path", ["", "compactions/", "folder"])
def test_two_answers_have_other_tokens_and_are_kept_nowhere(
    page: Client, chat: Chat, path: str
) -> None:
    answers = [page.get(f"/chats/{chat.pk}/{path}") for _ in range(2)]

    tokens = [set(TOKEN.findall(answer.content.decode())) for answer in answers]
    assert all(tokens)
    assert not tokens[0] & tokens[1]
    assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}


async def words() -> AsyncIterator[bytes]:
    """A stream's words."""
    for word in (b"data: one\n\n", b"data: two\n\n"):
        yield word


def test_an_event_stream_goes_through_word_by_word() -> None:
    request = RequestFactory().get("/stream", headers=GZIP)
    stream = connection.build_stream_response(words())
    middleware = CompressionMiddleware(lambda _request: HttpResponse())

    answer: StreamingHttpResponse = middleware.process_response(request, stream)

    assert "Content-Encoding" not in answer.headers

    async def read() -> list[bytes]:
        parts: Any = answer.streaming_content
        return [part async for part in parts]

    assert asyncio.run(read()) == [b"data: one\n\n", b"data: two\n\n"]


def test_a_part_of_a_file_is_sent_as_it_is(page: Client) -> None:
    answer = page.get("/static/css/chat.css", headers={**GZIP, "Range": "bytes=0-9"})

    answer.close()
    assert answer.status_code == 206
    assert "Content-Encoding" not in answer.headers


def test_an_answer_in_pieces_is_sent_as_it_is() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one " * 100
        yield b"two " * 100

    request = RequestFactory().get("/", headers=GZIP)
    middleware = CompressionMiddleware(lambda _request: HttpResponse())
    answer = middleware.process_response(request, StreamingHttpResponse(pieces()))

    assert "Content-Encoding" not in answer.headers
