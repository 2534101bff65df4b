"""Log probabilities of a reply's tokens, matched to the text of the reply.

Providers send them separately. Some also send those of reasoning, or of tokens that the text does
not show. An entry counts only if its bytes are the next ones in the provider's text, and only if
the reply still has that text.
"""

import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple


class MatchedEntry(NamedTuple):
    """An entry as JSON, and its range of code points (end excluded) in the provider's text."""

    start: int
    end: int
    entry: str


class TokenLog:
    """The log probabilities of one reply as received so far. `limit`: maximum bytes of JSON.

    `is_cut`: later entries are left out, because they exceed the limit or differ from the text.
    """

    def __init__(self, *, limit: int) -> None:
        self.is_cut = False
        self._limit = limit
        self._size = 0
        # Entries and text of the provider that were not matched yet.
        self._waiting: deque[tuple[bytes, str]] = deque()
        self._text = bytearray()
        # The waiting entries include those of other output, such as thinking.
        self._is_mixed = False
        # Code points of the provider's text: those in which matched entries begin, and all that
        # arrived.
        self._begun = self._received = 0
        # Position of the reply's text in the provider's text. None before the first text.
        self._offset: int | None = None
        self._matched: deque[MatchedEntry] = deque()
        # The entries of the reply's text with their positions in it.
        self._kept: list[tuple[int, str]] = []

    @property
    def is_partial(self) -> bool:
        """True if the provider sent entries, but part of the text has none."""
        return self.is_cut or (bool(self._kept) and bool(self._text))

    def add_entries(self, entries: Sequence[Any], *, is_mixed: bool = False) -> None:
        """Add entries as sent by the provider, before their text.

        `is_mixed`: their chunk also has output other than text.
        """
        for entry in () if self.is_cut else entries:
            encoded = encode_entry(entry)
            if encoded is None or self._size + len(encoded[1]) > self._limit:
                self.is_cut = True
                break
            self._size += len(encoded[1])
            self._waiting.append(encoded)
        self._is_mixed = self._is_mixed or is_mixed
        if not self._is_mixed:
            self._match()

    def add_text(self, text: str) -> None:
        """Add text as sent by the provider."""
        self._received += len(text)
        if self.is_cut and not self._waiting:
            return
        self._text += text.encode()
        self._match()

    def place_text(self, *, at: int, size: int) -> None:
        """Record where the text of the reply starts in the text received so far.

        The received text ends with the reply's text, which has `at` + `size` code points. All
        later text belongs to the reply, so only the first call has an effect.
        """
        if self._offset is None:
            self._offset = self._received - at - size

    def take_entries(self, *, upto: int) -> str:
        """Return the new entries for the first `upto` code points of the reply.

        They are JSON lists `[number, start, entry]`, separated by commas. Tokens that are only
        partly in the reply have none.
        """
        if self._offset is None:
            return ""
        lines = []
        while self._matched and self._matched[0].end - self._offset <= upto:
            found = self._matched.popleft()
            start = found.start - self._offset
            if start >= 0:
                lines.append(f"[{len(self._kept)},{start},{found.entry}]")
                self._kept.append((start, found.entry))
        return ",".join(lines)

    def remove_start(self, size: int) -> None:
        """Remove the entries of the first `size` code points, which are no longer in the reply."""
        self._kept = [(start - size, entry) for start, entry in self._kept if start >= size]

    def dump_entries(self) -> str:
        """Return the entries of the reply as JSON: `[[start, entry], …]`.

        Empty if there are no entries.
        """
        lines = ",".join(f"[{start},{entry}]" for start, entry in self._kept)
        return f"[{lines}]" if lines else ""

    def _match(self) -> None:
        """Match the waiting entries to the text that was not matched yet."""
        if self._is_mixed and self._text:
            self._is_mixed = False
            self._require_run()
        while self._waiting:
            data, entry = self._waiting[0]
            if self._text.startswith(data):
                self._consume(data, entry)
            elif not self._begun and len(data) > 1 and self._starts_without_space(data):
                # Some servers remove the space of the first token from the text.
                self._consume(data[1:], entry)
            elif data.startswith(self._text):
                # The rest of the token's text follows.
                return
            else:
                self._require_run()

    def _starts_without_space(self, data: bytes) -> bool:
        """Return True if the text starts with a token except for the space before it."""
        return data[:1] == b" " and self._text.startswith(data[1:])

    def _consume(self, data: bytes, entry: str) -> None:
        """Match the first waiting entry to the next bytes of the text."""
        self._waiting.popleft()
        # A token may begin within a character.
        is_inside = bool(data) and data[0] & 0xC0 == 0x80
        start = self._begun - is_inside
        self._begun += sum(byte & 0xC0 != 0x80 for byte in data)
        self._matched.append(MatchedEntry(start, self._begun, entry))
        del self._text[: len(data)]

    def _require_run(self) -> None:
        """Keep only the waiting entries that match the whole waiting text.

        Earlier entries are dropped. If no entries match, all are dropped, because later ones
        cannot be matched with certainty.
        """
        sizes = list(accumulate((len(data) for data, _ in self._waiting), initial=0))
        start = b"".join(data for data, _ in self._waiting).rfind(self._text)
        if start in sizes and start + len(self._text) in sizes:
            for _ in range(sizes.index(start)):
                self._waiting.popleft()
            return
        self.is_cut = True
        self._waiting.clear()


def encode_entry(entry: Any) -> tuple[bytes, str] | None:
    """Return the bytes of an entry's token, and the entry as JSON. None if it has no token."""
    token = entry.get("token") if isinstance(entry, dict) else None
    if not isinstance(token, str):
        return None
    listed, data = entry.get("bytes"), b""
    if isinstance(listed, list):
        with suppress(TypeError, ValueError):
            data = bytes(listed)
    data = data or token.encode("utf-8", "replace")
    return data, json.dumps(entry, separators=(",", ":"))
