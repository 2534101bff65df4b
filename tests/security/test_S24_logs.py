"""S24: a log line names its request, is one line, and contains neither secrets nor rows."""

import contextvars
import json
import logging
import sys
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from chats.ground.request_ids import REQUEST
from project.logs import JsonFormatter, OneLineFormatter, build_logging_config

LOGGING: Any = settings.LOGGING
FORMAT = LOGGING["formatters"]["line"]["format"]
CANARY = "canary-of-a-row"


def line_of(message: str, *arguments: object, failed: bool = False) -> str:
    """A record as the product's formatter prints it."""
    error = sys.exc_info() if failed else None
    record = logging.LogRecord("chats", logging.ERROR, "x.py", 1, message, arguments, error)
    return OneLineFormatter(FORMAT, style="{").format(record)


@pytest.mark.parametrize(
    "text",
    [
        "a\nERROR forged",
        "a\r\nb",
        "a\x1b[31mb",
        "a\x00b",
        "a\u2028b",
        "a\u202eb",
        "a\x85b",
        "a\ud800b",
    ],
    ids=range(8),
)
def test_S24_no_character_leaves_its_line(text: str) -> None:
    line = line_of("name %s", text)
    assert line.isprintable()
    assert line.isascii()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Forbidden: /login/link/Zk3_-abcDEF/", "Forbidden: /login/link/…/"),
        ("key plm_abcDEF-123 refused", "key plm_… refused"),
        ("failed: DETAIL:  Failing row contains (canary).", "failed: DETAIL:…"),
    ],
)
def test_S24_secrets_in_a_line_are_left_out(text: str, kept: str) -> None:
    assert line_of(text).endswith(kept)


def test_S24_a_traceback_quotes_no_row() -> None:
    def inner() -> None:
        raise ValueError(f"a check failed\nDETAIL:  Failing row contains ({CANARY})")

    try:
        try:
            inner()
        except ValueError as error:
            raise RuntimeError(f"outer\n{CANARY}") from error
    except RuntimeError:
        text = line_of("It failed", failed=True)
    assert CANARY not in text
    assert "ValueError: a check failed" in text
    assert "RuntimeError: outer" in text
    assert text.index("ValueError") < text.index("RuntimeError")
    first, *rest = text.split("\n")
    assert first.endswith("It failed")
    assert all(line.startswith("\t") for line in rest)


def test_S24_errors_that_cause_each_other_are_told_once() -> None:
    first, second = ValueError("one"), ValueError("two")
    first.__context__, second.__context__ = second, first
    try:
        raise first
    except ValueError:
        text = line_of("It failed", failed=True)
    assert (text.count("ValueError: one"), text.count("ValueError: two")) == (1, 1)


def test_S24_a_line_names_the_request_that_it_belongs_to() -> None:
    nowhere, within = contextvars.Context(), contextvars.Context()
    within.run(REQUEST.set, "0123abcd")
    assert " chats - It happened" in nowhere.run(line_of, "It happened")
    assert " chats 0123abcd It happened" in within.run(line_of, "It happened")


def test_S24_a_host_that_is_not_ours_is_one_line_without_a_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, logger="django.security.DisallowedHost"):
        assert Client().get("/login/", headers={"Host": "evil.example"}).status_code == 400
    (record,) = caplog.records
    assert "evil.example" in record.getMessage()
    assert record.exc_info is None


def test_S24_json_lines_leave_out_the_same() -> None:
    def build() -> str:
        REQUEST.set("r-1")
        try:
            raise ValueError(f"a check failed\nDETAIL:  Failing row contains ({CANARY})")
        except ValueError:
            error = sys.exc_info()
        text = "key %s\nrefused"
        record = logging.LogRecord("chats", logging.ERROR, "x.py", 1, text, ("plm_ab-1",), error)
        return JsonFormatter().format(record)

    line = contextvars.copy_context().run(build)
    assert (line.isprintable(), CANARY in line, "plm_ab" in line) == (True, False, False)
    told = json.loads(line)
    assert (told["request_id"], told["message"]) == ("r-1", "key plm_…\nrefused")
    assert told["error"].endswith("ValueError: a check failed")


def test_S24_the_form_of_lines_is_a_setting() -> None:
    assert build_logging_config("INFO", "json")["handlers"]["stderr"]["formatter"] == "json"
