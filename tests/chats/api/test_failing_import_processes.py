"""A process of a large import that fails at its start is not started for ever."""

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from chats.exchange import apart
from chats.models import FileImport
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.bringing import send
from tests.chats.api.programs import Program
from tests.support.exchange_files import build_ui_message, join_json_lines


@pytest.fixture
def attempt(of_alice: Program, settings: Settings) -> Callable[[], FileImport]:
    """Start the process of an import once more, and return the row of the import."""
    settings.IMPORT_APART_BYTES = 0
    data = join_json_lines(build_ui_message("m1", "Hello"))
    own = uuid.UUID(send(of_alice, data).json()["id"])

    def run() -> FileImport:
        apart.import_file(
            import_id=own,
            counter=ApproximateCounter(),
            clock=timezone.now,
            is_closing=lambda: False,
        )
        return FileImport.objects.get(pk=own)

    return run


@pytest.mark.parametrize("exists", [True, False])
def test_a_process_that_never_begins_ends_the_import(
    attempt: Callable[[], FileImport],
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    tmp_path: Path,
    *,
    exists: bool,
) -> None:
    program = tmp_path / "python"
    if exists:
        program.write_text("#!/bin/sh\nexit 3\n")
        program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    for number in range(1, settings.MAX_ATTEMPTS + 1):
        row = attempt()
        assert (row.state, row.tries, row.lease_until) == ("running", number, None)
    row = attempt()
    assert (row.state, row.code) == ("failed", "worker_lost")


def test_a_process_that_is_asked_to_end_does_not_count(
    attempt: Callable[[], FileImport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "run_process", lambda *_args, **_named: False)
    assert (attempt().state, attempt().tries) == ("queued", 0)
