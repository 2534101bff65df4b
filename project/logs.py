"""Log lines that cannot be forged and tell nothing: one event, one line, no content, no secrets."""

import contextvars
import logging
import re
import traceback
from collections.abc import Iterator
from types import TracebackType

# The id of the request that is being answered here; errors name it, so every line does.
REQUEST = contextvars.ContextVar("request", default="-")
# Our own API keys, the token of a login link, and what PostgreSQL quotes of a row.
SECRETS = re.compile(r"(plm_|/login/link/)[A-Za-z0-9_-]+|(DETAIL:).*")


class OneLineFormatter(logging.Formatter):
    """Escapes control characters, so that logged names cannot begin a line of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one printable line; a traceback follows, indented by a tab."""
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
        """Each error of the chain with its stack, and of its words the first line.

        What a library says in the lines after the first may quote a whole row.
        """
        return "\n".join(reversed([told(error) for error in chain(ei[1])]))


class WithoutStack(logging.Filter):
    """Keeps the line and drops the stack of what was refused as foreseen."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        record.exc_info = None
        return True


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what caused it, and so on; each once."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def told(error: BaseException) -> str:
    """One error: the stack, its kind, and the first line of its words."""
    stack = "".join(traceback.format_tb(error.__traceback__))
    words = str(error).partition("\n")[0]
    return f"Traceback (most recent call last):\n{stack}{type(error).__qualname__}: {words}"


def printable(text: str) -> str:
    """The text with everything escaped that a terminal or a log reader would act on."""
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    )
