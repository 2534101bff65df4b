"""Sending and reading messages: unchanged bytes, and refusals with a reason."""

import json
from io import BytesIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.db.models import F
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.actions.erasure import erase_message
from chats.api.chats import messages as api_messages
from chats.api.chats.files import FileViewSet
from chats.api.chats.messages import MessageViewSet
from chats.models import Branch, Chat, IdempotencyRecord, Message, Turn
from chats.record import messages as store
from chats.record.idempotency import KEY_LIFETIME
from chats.turns.stop import stop_turn
from project.request_limits import RequestSizeLimits
from tests.chats.api.programs import Program

TEXTS = [
    "  two blanks before and after  ",
    "line\r\nline\rline\n",
    "e\u0301 is not é",
    "Ω≈ç 汉字 🙂 \u200f\u202e \u2028 \ufeff",
    "\x01\x1f\x7f",
    "<script>alert(1)</script> & {{ 7*7 }} %s '; DROP TABLE chats_chat;--",
    "x" * 32_000,
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_byte_for_byte(text: str, of_alice: Program, chat: Chat) -> None:
    sent = of_alice.post(f"chats/{chat.pk}/messages", {"text": text})
    assert sent.status_code == 202
    assert sent.json()["message"]["text"] == text
    listed = of_alice.get(f"chats/{chat.pk}/messages").json()["data"]
    assert [message["text"] for message in listed] == [text]
    assert Message.objects.get().text == text


def test_sent_message_waits_and_its_turn_is_queued(
    of_alice: Program, chat: Chat, sent: list[Any]
) -> None:
    accepted = of_alice.post(f"chats/{chat.pk}/messages", {"text": "Hello"}).json()
    assert accepted["message"]["waiting"] is True
    assert accepted["message"]["seq"] is None
    assert accepted["turn"]["status"] == "queued"
    assert accepted["turn"]["chat"] == str(chat.pk)
    assert Turn.objects.get().pk == Turn.objects.get(pk=accepted["turn"]["id"]).pk


@pytest.mark.parametrize("bad", ["a\\u0000b", "a\\ud800b", "a\\udfffb"])
def test_characters_that_cannot_be_stored_become_replacements(
    bad: str, of_alice: Program, chat: Chat, sent: list[Any]
) -> None:
    body = b'{"text": "' + bad.encode() + b'"}'
    answer = of_alice.post(f"chats/{chat.pk}/messages", body)
    assert (answer.status_code, answer.json()["message"]["text"]) == (202, "a\ufffdb")
    made = of_alice.post("chats", body)
    assert made.status_code == 202
    assert set(Message.objects.values_list("parts__0__text", flat=True)) == {"a\ufffdb"}


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "empty": (b'{"text": ""}', 422, "message_empty"),
    "white space": (b'{"text": " \\n\\u3000"}', 422, "message_empty"),
    "too long": (json.dumps({"text": "x" * 32_001}).encode(), 422, "message_too_long"),
    "5 MB": (json.dumps({"text": "x" * 5_000_000}).encode(), 413, "request_too_large"),
    "no JSON": (b"text=hello", 400, "invalid_json"),
    "no text": (b"{}", 400, "missing_field"),
    "no body": (b"", 400, "missing_field"),
    "null": (b'{"text": null}', 400, "invalid_value"),
    "a number": (b'{"text": 7}', 400, "invalid_value"),
    "a list": (b'{"text": ["hello"]}', 400, "invalid_value"),
    "a flag in words": (b'{"text": "hello", "stream": "yes"}', 400, "invalid_value"),
    "another field": (b'{"text": "hello", "role": "assistant"}', 400, "unknown_field"),
}


@pytest.mark.parametrize(("body", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_bad_message_is_refused_and_nothing_is_stored(
    body: bytes, status: int, code: str, of_alice: Program, chat: Chat
) -> None:
    answer = of_alice.post(f"chats/{chat.pk}/messages", body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code", "request_id"}
    assert error["request_id"] == answer["X-Request-ID"]
    assert not Message.objects.exists()


@pytest.mark.parametrize("path", ["chats", "chats/{chat}/messages", "ui-chats"])
def test_a_request_with_too_large_files_is_told_of_uploads(
    of_alice: Program, chat: Chat, settings: Settings, path: str
) -> None:
    settings.SNAPSHOT_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    url = "data:text/plain;base64," + "A" * 3_000_000
    body = {"text": "Read.", "inline_files": [{"name": "a.txt", "url": url}]}
    answer = of_alice.post(path.format(chat=chat.pk), body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, "request_too_large")
    assert "/api/v1/files" in error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_body_that_is_no_json_is_415(kind: str, of_alice: Program, chat: Chat) -> None:
    path = f"/api/v1/chats/{chat.pk}/messages"
    answer = of_alice.client.generic("POST", path, b'{"text": "x"}', content_type=kind)
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


def receive_in_pieces(headers: dict[str, str], *pieces: bytes) -> ASGIRequest:
    """Return the request that Django makes of a chunked body, after the product's size limits."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    waiting = list(pieces)
    made: list[ASGIRequest] = []

    async def receive() -> dict[str, Any]:
        body = waiting.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    async def read_all(scope: Any, receive: Any, _send: Any) -> None:
        body, is_open = BytesIO(), True
        while is_open:
            message = await receive()
            body.write(message["body"])
            is_open = message["more_body"]
        body.seek(0)
        made.append(ASGIRequest(scope, body))

    async def send(_message: Any) -> None:
        """Nothing is answered."""

    async_to_sync(RequestSizeLimits(read_all))(scope, receive, send)
    return made[0]


def test_a_chunked_body_is_read(of_alice: Program, chat: Chat) -> None:
    headers = {
        "authorization": of_alice.client.defaults["HTTP_AUTHORIZATION"],
        "content-type": "application/json",
        "transfer-encoding": "chunked",
    }
    request = receive_in_pieces(headers, b'{"text": "in', b' pieces"}', b"")
    answer = MessageViewSet.as_view({"post": "create"})(request, chat_id=chat.pk)
    assert answer.status_code == 202
    assert Message.objects.get().text == "in pieces"


def test_a_chunked_upload_is_read(of_alice: Program) -> None:
    headers = {
        "authorization": of_alice.client.defaults["HTTP_AUTHORIZATION"],
        "content-type": "multipart/form-data; boundary=edge",
        "transfer-encoding": "chunked",
    }
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    request = receive_in_pieces(headers, head, b"some ", b"words", b"\r\n--edge--\r\n")
    answer = FileViewSet.as_view({"post": "create"})(request)
    assert (answer.status_code, answer.data["size"]) == (201, len("some words"))


def test_same_key_sends_once(of_alice: Program, chat: Chat) -> None:
    path = f"chats/{chat.pk}/messages"
    key = {"HTTP_IDEMPOTENCY_KEY": "k1"}
    answers = [of_alice.post(path, {"text": "Once"}, **key).json() for _ in range(3)]
    assert len({answer["message"]["id"] for answer in answers}) == 1
    assert Message.objects.count() == 1
    reused = of_alice.post(path, {"text": "Other"}, **key)
    assert (reused.status_code, reused.json()["error"]["code"]) == (422, "idempotency_key_reused")
    bad = of_alice.post(path, {"text": "x"}, HTTP_IDEMPOTENCY_KEY="k" * 256)
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_idempotency_key")


def test_S27_a_key_whose_words_were_erased_is_refused_whatever_comes_with_it(
    of_alice: Program, alice: User, chat: Chat
) -> None:
    path, key = f"chats/{chat.pk}/messages", {"HTTP_IDEMPOTENCY_KEY": "k"}
    sent = of_alice.post(path, {"text": "yes"}, **key).json()
    other = {"HTTP_IDEMPOTENCY_KEY": "k2"}
    kept = of_alice.post(path, {"text": "Something else"}, **other).json()
    record = IdempotencyRecord.objects.get(key="k")
    assert len(record.salt) == len(record.body_commitment) == 64
    for turn in Turn.objects.all():
        stop_turn(user=alice, turn=turn, now=timezone.now())
    message = Message.objects.select_related("branch").get(pk=sent["message"]["id"])
    erase_message(user=alice, message=message, now=timezone.now())
    record.refresh_from_db()
    assert (record.salt, record.body_commitment) == ("", "")
    for text in ("yes", "no"):
        again = of_alice.post(path, {"text": text}, **key)
        assert (again.status_code, again.json()["error"]["code"]) == (422, "idempotency_key_reused")
    # The keys of other messages still work.
    same = of_alice.post(path, {"text": "Something else"}, **other).json()
    assert same["message"]["id"] == kept["message"]["id"]
    assert Message.objects.count() == 2


def test_f08_key_is_free_again_after_a_day(of_alice: Program, chat: Chat) -> None:
    path, key = f"chats/{chat.pk}/messages", {"HTTP_IDEMPOTENCY_KEY": "k"}
    of_alice.post(path, {"text": "one"}, **key)
    assert of_alice.post(path, {"text": "two"}, **key).status_code == 422
    IdempotencyRecord.objects.update(created_at=F("created_at") - KEY_LIFETIME)
    assert of_alice.post(path, {"text": "two"}, **key).status_code == 202
    assert of_alice.post(path, {"text": "one"}, **key).status_code == 422
    assert Message.objects.count() == 2


def test_messages_come_in_pages_with_the_waiting_ones_last(
    of_alice: Program, chat: Chat, settings: Settings
) -> None:
    for n in range(5):
        of_alice.post(f"chats/{chat.pk}/messages", {"text": f"m{n}"})
    for seq, message in enumerate(Message.objects.order_by("accepted")[:3], start=1):
        Message.objects.filter(pk=message.pk).update(seq=seq)
    Branch.objects.update(last_seq=3)
    first = of_alice.get(f"chats/{chat.pk}/messages", limit=2).json()
    assert [message["text"] for message in first["data"]] == ["m0", "m1"]
    last = of_alice.get(f"chats/{chat.pk}/messages", limit=2, cursor=first["next_cursor"]).json()
    assert [message["text"] for message in last["data"]] == ["m2", "m3", "m4"]
    assert [message["waiting"] for message in last["data"]] == [False, True, True]
    assert last["next_cursor"] is None
    some = of_alice.get(f"chats/{chat.pk}/messages", from_seq=2, to_seq=3).json()["data"]
    assert [message["seq"] for message in some] == [2, 3]


@pytest.mark.parametrize("moment", ["list_waiting_messages", "paginate_rows"])
def test_f09_message_taken_up_while_it_is_listed_is_there_once(
    moment: str, of_alice: Program, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    room: Any = store if moment == "list_waiting_messages" else api_messages
    real = getattr(room, moment)
    sent = of_alice.post(f"chats/{chat.pk}/messages", {"text": "Here"}).json()["message"]["id"]

    def before(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named) if moment == "list_waiting_messages" else None
        Message.objects.filter(pk=sent).update(seq=1)
        Branch.objects.filter(chat=chat).update(last_seq=1)
        return real(*arguments, **named) if found is None else found

    monkeypatch.setattr(room, moment, before)
    listed = of_alice.get(f"chats/{chat.pk}/messages").json()["data"]
    assert [message["id"] for message in listed] == [sent]


@pytest.mark.parametrize("limit", ["0", "101", "-1", "x", ""])
def test_page_size_has_limits(limit: str, of_alice: Program, chat: Chat) -> None:
    answer = of_alice.get(f"chats/{chat.pk}/messages", limit=limit)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "limit"


def test_too_many_messages_in_a_minute_are_429(
    of_alice: Program, chat: Chat, settings: Settings
) -> None:
    settings.MESSAGES_PER_MINUTE = 2
    path = f"chats/{chat.pk}/messages"
    statuses = [of_alice.post(path, {"text": "x"}).status_code for _ in range(3)]
    assert statuses == [202, 202, 429]
    assert Message.objects.count() == 2


def test_full_queue_is_409_with_a_time_to_come_back(
    of_alice: Program, chat: Chat, settings: Settings
) -> None:
    settings.WAITING_PER_CHAT = 1
    of_alice.post(f"chats/{chat.pk}/messages", {"text": "one"})
    answer = of_alice.post(f"chats/{chat.pk}/messages", {"text": "two"})
    assert (answer.status_code, answer["Retry-After"]) == (409, "5")
    assert answer.json()["error"]["code"] == "chat_busy"


def test_erased_messages_do_not_wait(of_alice: Program, chat: Chat, settings: Settings) -> None:
    settings.WAITING_PER_CHAT = 1
    for text in ("one", "two"):
        sent = of_alice.post(f"chats/{chat.pk}/messages", {"text": text})
        assert sent.status_code == 202
        turn = sent.json()["turn"]
        of_alice.post(f"chats/{chat.pk}/turns/{turn['id']}/stop", {})
        message = Message.objects.get(erased_at=None)
        assert of_alice.post(f"chats/{chat.pk}/messages/{message.pk}/erase", {}).status_code == 200
