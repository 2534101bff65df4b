"""Formats log lines that cannot be forged: one event, one line, no content, no secrets."""

import contextvars
import logging
import re
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

# The id of the request in progress; errors name it, so every line does.
REQUEST = contextvars.ContextVar("request", default="-")
# Our own API keys, the token of a login link, and a row that PostgreSQL quotes.
SECRETS = re.compile(r"(plm_|/login/link/)[A-Za-z0-9_-]+|(DETAIL:).*")


def configuration(level: str) -> dict[str, Any]:
    """Return what `logging.config.dictConfig` takes: our own loggers at a level, others quiet."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": "project.logs.OneLineFormatter",
                "format": "{asctime} {levelname} {name} {request_id} {message}",
                "style": "{",
            },
        },
        "filters": {"without_stack": {"()": "project.logs.WithoutStack"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {
            "project": {"level": level},
            "chats": {"level": level},
            "contextpolicy": {"level": level},
            "celery": {"level": "WARNING"},
            "django.request": {"level": "ERROR"},
            # A malformed host is no fault of ours: a line, no stack.
            "django.security.DisallowedHost": {"filters": ["without_stack"]},
            "uvicorn.error": {"level": "WARNING"},
        },
    }


class OneLineFormatter(logging.Formatter):
    """Escapes control characters, so that logged names cannot begin a line of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record as one printable line; a traceback follows, indented by a tab."""
        record.request_id = REQUEST.get()
        line = super().format(record)
        first, *rest = line.split("\n")
        lines = [first, *("\t" + part for part in rest)] if record.exc_info else [line]
        return "\n".join(SECRETS.sub(r"\1\2…", printable(part)) for part in lines)

    def formatException(  # noqa: N802  # the name is Python's
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """Write each error of the chain with its stack and the first line of its message.

        A library may quote a whole row in the lines after the first.
        """
        return "\n".join(reversed([told(error) for error in chain(ei[1])]))


class WithoutStack(logging.Filter):
    """A filter that keeps the line of an expected refusal and drops its stack."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, without its stack."""
        record.exc_info = None
        return True


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, the one that caused it, and so on; each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def told(error: BaseException) -> str:
    """Write one error: the stack, its kind, and the first line of its message."""
    stack = "".join(traceback.format_tb(error.__traceback__))
    words = str(error).partition("\n")[0]
    return f"Traceback (most recent call last):\n{stack}{type(error).__qualname__}: {words}"


def printable(text: str) -> str:
    """Escape everything in the text that a terminal or a log reader would act on."""
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    )
