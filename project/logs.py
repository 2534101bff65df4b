"""Log lines that cannot be forged: one event, one line."""

import logging


class OneLineFormatter(logging.Formatter):
    """Escapes control characters, so that logged names cannot begin a line of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one printable line; a traceback follows, indented by a tab."""
        line = super().format(record)
        first, *rest = line.split("\n")
        lines = [first, *("\t" + part for part in rest)] if record.exc_info else [line]
        return "\n".join(
            "".join(
                c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode()
                for c in part
            )
            for part in lines
        )
