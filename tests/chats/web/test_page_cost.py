"""What opening a chat costs: as many statements for a long chat as for a short one, and few.

Of the messages that the next prompt would send, the first two hundred take one statement, and
four times as many take one more.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chats.models import Chat, Compaction, Turn
from tests.support.chat_pages import get_chat_url
from tests.support.chat_sizes import CHAT_SIZES, MOST_QUERIES


@pytest.mark.parametrize("state", CHAT_SIZES.values(), ids=CHAT_SIZES)
def test_a_chat_opens_with_few_statements(
    state: Callable[..., Any],
    page: Client,
    chat: Chat,
    talk: Callable[..., Turn],
    summary: Callable[..., Compaction],
    now: datetime,
) -> None:
    talk("hello")
    talk("hello again")
    state(chat, summary, now)
    # A text that no prompt of the chat had yet is looked up once more.
    chat.refresh_from_db()
    talk("and again")
    assert page.get(get_chat_url(chat)).status_code == 200
    with CaptureQueriesContext(connection) as heard:
        page.get(get_chat_url(chat))
    assert len(heard) <= MOST_QUERIES, "\n".join(query["sql"][:150] for query in heard)
