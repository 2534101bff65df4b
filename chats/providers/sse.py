"""Parses server-sent events from raw bytes, split at any position.

Follows the HTML standard, section "Server-sent events": LF, CR and CRLF end a line, a byte order
mark and comments are skipped, several data lines form one event. Only data is returned; ids and
retry times have no meaning in a model's reply, nor do names other than `error`. Data of events that
only keep the connection open is skipped, unless it is an object.

Beyond the standard, for servers and proxies that do not follow it: a line that starts as a JSON
object is an event, a data line after a complete one starts the next event, and `error:` is a field.
"""

import json
import re

from chats.ground.texts import read_server_json, sanitise_text

# Maximum bytes of a whole reply (not streamed). A stream is limited per line and by its reader.
MAX_WHOLE_REPLY = 16 << 20
MAX_LINE = 1 << 20
_LINE_END = re.compile(rb"\r\n|\n|\r")
# Names of events that keep a connection open.
_KEEP_ALIVE = frozenset({b"ping", b"keepalive", b"keep-alive", b"keep_alive", b"heartbeat"})
_BOM = b"\xef\xbb\xbf"
# Blank lines and complete comment lines at the start.
_COMMENTS = re.compile(rb"\A(?:\s*:[^\r\n]*[\r\n]+)+")


class LineTooLong(Exception):
    """A line, or the data of one event, exceeds the limit in bytes."""


class EventParser:
    """Accepts bytes as they arrive and returns the data of each complete event."""

    def __init__(self, *, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        # A list of pieces, so that a long line in small pieces takes linear time.
        self._pieces: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._is_error = self._is_keep_alive = False
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that ended within `chunk`. Raises LineTooLong."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        first, *rest = _LINE_END.split(chunk)
        self._grow(first)
        events: list[bytes] = []
        for piece in rest:
            events += self._take_line()
            self._grow(piece)
        return events

    def close(self) -> list[bytes]:
        """Return the data of the last event, if the blank line after it is missing.

        Some servers leave out this line. Raises LineTooLong.
        """
        return self._take_line() + self._dispatch()

    def _grow(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._max_line:
            raise LineTooLong

    def _take_line(self) -> list[bytes]:
        line = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        if line.lstrip().startswith(b"{"):
            return [*self._dispatch(), line]
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._is_error = value.strip() == b"error"
            self._is_keep_alive = value.strip().lower() in _KEEP_ALIVE
        self._is_error = self._is_error or name == b"error"
        if self._is_keep_alive and not value.lstrip().startswith(b"{"):
            return []
        return self._add_data(value) if name in (b"data", b"error") else []

    def _add_data(self, value: bytes) -> list[bytes]:
        """Add a line of data. Return the event before it if it is complete. Raises LineTooLong."""
        ended = self._dispatch() if self._is_next(value) else []
        self._data.append(value)
        self._data_size += len(value) + 1
        if self._data_size > self._max_line:
            raise LineTooLong
        return ended

    def _is_next(self, value: bytes) -> bool:
        """Return True if a line of data starts the next event, without a blank line before it."""
        start = value.lstrip()[:1]
        is_start = bool(self._data) and bool(start) and start in b"{["
        return is_start and _is_json(b"\n".join(self._data))

    def _dispatch(self) -> list[bytes]:
        data, is_error = self._data, self._is_error
        self._data, self._data_size = [], 0
        self._is_error = self._is_keep_alive = False
        if not data:
            return []
        event = b"\n".join(data)
        return [_error_in(event) if is_error else event]


class BodyParser:
    """Accepts the body of a response to a model call, and returns its payloads.

    The first bytes decide the format, because servers label it with either content type: one JSON
    document, JSON lines, or server-sent events. Comments may come before each of them.
    """

    def __init__(self) -> None:
        self._start = b""
        self._parser: EventParser | _Documents | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the payloads that ended within `chunk`. Raises LineTooLong."""
        if self._parser is None:
            self._start += chunk
            if len(self._start) < len(_BOM) and _BOM.startswith(self._start):
                return []
            begin = _COMMENTS.sub(b"", self._start.removeprefix(_BOM)).lstrip()
            if not begin or begin.startswith(b":"):
                # Blank lines and comments keep a connection open until the reply starts.
                self._start = begin
                if len(begin) > MAX_LINE:
                    raise LineTooLong
                return []
            self._parser = _Documents() if begin[:1] in b"{[" else EventParser()
            chunk, self._start = begin, b""
        return self._parser.feed(chunk)

    def close(self) -> list[bytes]:
        """Return the remaining payloads at the end of the body. Raises LineTooLong."""
        return self._parser.close() if self._parser is not None else []


class _Documents:
    """Accepts a body that starts as JSON: one document, or one per line. Events may follow."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        # Set once the first line is found to be a complete document.
        self._lines: EventParser | None = None
        self._has_line = False

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._lines is not None:
            return self._lines.feed(chunk)
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_WHOLE_REPLY:
            raise LineTooLong
        if self._has_line or b"\n" not in chunk:
            return []
        self._has_line = True
        body = b"".join(self._pieces)
        first, _, rest = body.partition(b"\n")
        if not _is_json(first):
            return []
        self._lines = EventParser()
        return [first, *self._lines.feed(rest)]

    def close(self) -> list[bytes]:
        if self._lines is not None:
            return self._lines.close()
        body = b"".join(self._pieces)
        try:
            text = body.decode(errors="replace")
            _, end = json.JSONDecoder(strict=False, parse_int=str).raw_decode(text)
        except (ValueError, RecursionError):
            # The caller's parser reports the error.
            return [body]
        rest = EventParser()
        return [text[:end].encode(), *rest.feed(text[end:].encode()), *rest.close()]


def _is_json(line: bytes) -> bool:
    try:
        read_server_json(line)
    except (ValueError, RecursionError):
        return False
    return True


def _error_in(event: bytes) -> bytes:
    """Return the data of an error event with its content under `error`."""
    try:
        said = read_server_json(event)
    except (ValueError, RecursionError):
        said = event.decode(errors="replace")
    if isinstance(said, dict) and said.get("error"):
        return event
    return json.dumps({"error": said or "error"}).encode()


class TextJoiner:
    """Joins delta texts at whole characters and makes them storable.

    Some servers split an emoji into two JSON escapes in two events. The first half is held back
    until the second arrives. A single half, and NUL (which PostgreSQL cannot store), become U+FFFD.
    """

    def __init__(self) -> None:
        self._half = ""

    def push(self, text: str) -> str:
        """Return any held-back half and `text`, without a trailing half of a surrogate pair."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return sanitise_text(text)

    def flush(self) -> str:
        """Return the remaining text at the end of the stream."""
        half, self._half = self._half, ""
        return sanitise_text(half)
