"""Fixtures: turns in which a scripted model calls tools."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, Turn
from chats.turns.start import start_turn
from tests.support.chat_summaries import Work


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Work) -> Callable[..., Any]:
    """Run a turn in which the model plays the given scripts."""

    def asking(*scripts: list[Any]) -> tuple[Turn, Any]:
        turn = start_turn(user=alice, chat=chat, text="Write a mail", now=now).turn
        return turn, work(turn, *scripts)

    return asking
