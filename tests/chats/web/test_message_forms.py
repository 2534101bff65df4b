"""The form of the message box passes every value unchanged."""

import uuid

from django.http import QueryDict

from chats.web.thread.message_forms import MessageForm, NewChatForm


def test_values_are_passed_as_sent() -> None:
    file = uuid.uuid4()
    sent = QueryDict(mutable=True)
    sent.update({"text": "  a\r\nb\x00 ", "key": "k", "as": "planner", "unread": "1"})
    sent.setlist("files", [str(file), "no-id"])
    assert MessageForm(sent).read_values() == {
        "text": "  a\nb\ufffd ",
        "key": "k",
        "as": "planner",
        "files": [file, uuid.UUID(int=0)],
        "unread": True,
        "replying": False,
    }


def test_a_form_without_values_is_empty() -> None:
    empty = NewChatForm(QueryDict()).read_values()
    texts = dict.fromkeys(("text", "key", "as", "model", "team"), "")
    flags = dict.fromkeys(("unread", "replying", "temporary"), False)
    assert empty == {**texts, **flags, "files": []}
