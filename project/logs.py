"""Formats log lines that cannot be forged: one line per event, no content, no secrets."""

import json
import logging
import re
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from chats.ground.request_ids import REQUEST

FORMS = ("line", "json")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# Our API keys, the token of a sign-in link, and a row quoted by PostgreSQL.
SECRETS = re.compile(r"(plm_|/login/link/)[A-Za-z0-9_-]+|(DETAIL:).*")


def build_logging_config(level: str, form: str = "line") -> dict[str, Any]:
    """Return the `dictConfig`: our own loggers at a level, other loggers at a higher one.

    `form` is one of `FORMS`.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": "project.logs.OneLineFormatter",
                "format": "{asctime} {levelname} {name} {request_id} {message}",
                "style": "{",
            },
            "json": {"()": "project.logs.JsonFormatter"},
        },
        "filters": {"without_stack": {"()": "project.logs.WithoutStack"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": form}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "project": {"level": level},
            "chats": {"level": level},
            "contextpolicy": {"level": level},
            "celery": {"level": "WARNING"},
            "django.request": {"level": "ERROR"},
            # A malformed host is a client error: log one line without a traceback.
            "django.security.DisallowedHost": {"filters": ["without_stack"]},
            "uvicorn.error": {"level": "WARNING"},
        },
    }


class OneLineFormatter(logging.Formatter):
    """Escapes control characters, so that a logged name cannot start a new line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record as one printable line; a traceback follows, indented by a tab."""
        record.request_id = REQUEST.get()
        line = super().format(record)
        first, *rest = line.split("\n")
        lines = [first, *("\t" + part for part in rest)] if record.exc_info else [line]
        return "\n".join(SECRETS.sub(r"\1\2…", escape_control_characters(part)) for part in lines)

    def formatException(  # noqa: N802  # the name is Python's
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """Write each error of the chain with its traceback and the first line of its message.

        Later lines are omitted, because a library may quote a whole row in them.
        """
        return "\n".join(reversed([format_error(error) for error in walk_error_chain(ei[1])]))


class JsonFormatter(OneLineFormatter):
    """Writes each record as one JSON object, with the same omissions as a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object: UTC time, level, logger, request, process, message and any error."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "request_id": REQUEST.get(),
            "process": record.process,
            "message": SECRETS.sub(r"\1\2…", record.getMessage()),
        }
        if record.exc_info:
            told["error"] = SECRETS.sub(r"\1\2…", self.formatException(record.exc_info))
        return json.dumps(told)


class WithoutStack(logging.Filter):
    """A filter that removes the traceback of an expected error but not its line."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True


def walk_error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its cause or context, and so on; each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def format_error(error: BaseException) -> str:
    """Format one error: traceback, type, and the first line of its message."""
    stack = "".join(traceback.format_tb(error.__traceback__))
    words = str(error).partition("\n")[0]
    return f"Traceback (most recent call last):\n{stack}{type(error).__qualname__}: {words}"


def escape_control_characters(text: str) -> str:
    """Escape all characters that a terminal or a log reader would interpret."""
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    )
