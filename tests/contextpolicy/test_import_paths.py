"""Paths that packages of others and landed migrations import from."""

from importlib import import_module

import pytest

PATHS = [
    ("contextpolicy.engine.messages", "Message"),
    ("contextpolicy.engine.messages", "ToolSpec"),
    ("contextpolicy.engine.strategies.contract", "Payload"),
    ("contextpolicy.engine.window", "HistoryView"),
    ("contextpolicy.engine.window", "WindowChoice"),
    ("contextpolicy.engine.team", "TeamMessage"),
    ("contextpolicy.history_providers", "HistoryQuery"),
    ("chats.teams.signals", "message_added"),
    ("chats.ground.seals", "new_salt"),
]


@pytest.mark.parametrize(("module", "name"), PATHS)
def test_the_path_stays(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)
