"""Titles that imports and the gateway derived from a message are erased with it."""

import json

import pytest

from chats.models import Chat, Message
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program

pytestmark = pytest.mark.usefixtures("streams")


@pytest.mark.parametrize(
    "text",
    [
        "<user_query>Fix the ACME merger secret</user_query>",
        "<environment_context>a: b</environment_context>\n**Fix** the ACME merger secret",
        "Fix the ACME merger secret",
    ],
)
def test_an_erased_message_leaves_no_words_in_the_title(text: str, of_alice: Program) -> None:
    messages = [{"isCreatedByUser": True, "text": text}, {"sender": "x", "text": "Done."}]
    found = bring(of_alice, json.dumps({"conversationId": "l-1", "messages": messages}).encode())
    chat = Chat.objects.get(pk=found.chats[0]["chat"])
    assert "merger secret" in chat.title
    message = Message.objects.get(branch__chat=chat, role="user")
    response = of_alice.post(f"chats/{chat.pk}/messages/{message.pk}/erase")
    assert response.status_code in {200, 204}, response.content
    chat.refresh_from_db()
    assert "secret" not in chat.title
