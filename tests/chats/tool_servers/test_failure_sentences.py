"""Errors of tool servers say what happened and what to do, to people and to models."""

import json
from collections.abc import Callable
from datetime import datetime

import pytest
from django.utils import timezone, translation
from pytest_django.fixtures import Settings

from chats.ground.sentences import localize_sentence
from chats.prompt.tokenizer import O200kCounter
from chats.tool_servers import client, results
from chats.tool_servers.client import SENTENCES, ToolServerFailed
from chats.tool_servers.servers import read_definitions, request_reading
from contextpolicy.models import ToolServer
from tests.fakes.tool_server import FakeToolServer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("code", SENTENCES)
def test_each_sentence_says_what_to_do(code: str) -> None:
    text = ToolServerFailed(code).sentence
    assert "{" not in text
    steps = ("Check ", "Run ", "List ", "list it", "Read ", "Add it", "must read", "Configure ")
    assert any(step in text for step in steps), text


@pytest.mark.parametrize("code", SENTENCES)
def test_each_sentence_is_translated(code: str) -> None:
    error = ToolServerFailed(code)
    with translation.override("zh-hans"):
        assert error.localized != error.sentence


def test_a_failed_reading_is_stored_with_its_values_and_shown_in_each_language(
    connect: Callable[..., ToolServer], server: FakeToolServer, settings: Settings
) -> None:
    row = connect()
    monkey = ToolServerFailed("tool_server_timeout")
    assert "within 60 seconds" in monkey.sentence
    settings.TOOL_COMMANDS = {}
    ToolServer.objects.update(transport="stdio", command="gone", url="")
    request_reading(row, now=timezone.now())
    read_definitions(server_id=row.pk, counter=O200kCounter(), now=timezone.now())
    row.refresh_from_db()
    assert row.failure == client.SENTENCES["tool_command_missing"]
    assert row.failure_details["template"] == client.SENTENCES["tool_command_missing"]
    with translation.override("zh-hans"):
        assert localize_sentence(row.failure, row.failure_details) != row.failure
    json.dumps(row.failure_details)


@pytest.mark.parametrize("code", [*results.REASONS, "a code of another version"])
def test_the_model_is_told_what_to_do(code: str, now: datetime) -> None:
    del now
    if code in {"worker_lost", "stopped", "denied"}:
        # The outcome is unknown, the reply has ended, or the reason itself says it.
        return
    text = results.format_failure(code, is_unknown=False)
    assert any(word in text for word in ("Tell ", "tell ", "Send ", "Reply ", "Call ")), text


@pytest.mark.parametrize("code", results.DENIALS)
def test_a_denial_of_an_older_version_is_recognised(code: str) -> None:
    old = f"The tool was not called: {results.REASONS[code]}."
    assert results.find_denial(old) == code
    assert results.find_denial(results.format_failure(code, is_unknown=False)) == code
