"""A response that is a file is replayed like any other. A stream cannot be stored for a key."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from chats.api.core.idempotency import REPLAYED, run_idempotent_request
from chats.models import IdempotencyRecord

pytestmark = pytest.mark.django_db


def build_request(user: User) -> Request:
    """Return a POST with a key."""
    sent = APIRequestFactory().post("/x", {}, format="json", headers={"Idempotency-Key": "k"})
    request = Request(sent, parsers=[JSONParser()])
    request.user = user
    return request


def test_a_file_is_replayed(alice: User) -> None:
    calls = []

    def post(_request: Request) -> Any:
        calls.append(1)
        answer = HttpResponse(b"\x00\xffPK", content_type="application/zip", status=201)
        answer["Content-Disposition"] = "attachment"
        return answer

    first = run_idempotent_request(post, build_request(alice))
    again: Any = run_idempotent_request(post, build_request(alice))
    assert len(calls) == 1
    assert (again.status_code, again.content) == (201, b"\x00\xffPK")
    for name in ("Content-Type", "Content-Disposition"):
        assert again[name] == first[name]
    assert again[REPLAYED] == "true"
    assert "PK" not in str(IdempotencyRecord.objects.get().result)


def test_an_empty_file_is_replayed(alice: User) -> None:
    for _ in range(2):
        answer: Any = run_idempotent_request(
            lambda _request: HttpResponse(status=202), build_request(alice)
        )
        assert (answer.status_code, answer.content) == (202, b"")


def test_a_stream_stores_nothing_and_undoes_its_changes(alice: User) -> None:
    def post(_request: Request) -> Any:
        User.objects.create(username="made")
        return StreamingHttpResponse([b"a"])

    with pytest.raises(TypeError):
        run_idempotent_request(post, build_request(alice))
    assert not IdempotencyRecord.objects.exists()
    assert not User.objects.filter(username="made").exists()
