"""Reads aider's chat history, `.aider.chat.history.md`.

The format is public: aider.chat, option `--chat-history-file`, and github.com/Aider-AI/aider,
`aider/io.py`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from django.utils.translation import gettext_noop

from chats.exchange import bounds
from chats.exchange.draft_builder import Builder, Unreadable
from chats.exchange.drafts import ChatDraft, ImportRefused
from chats.ground.sentences import Sentence
from contextpolicy.engine.messages.messages import TextPart

START = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?)\s*")


def is_aider_history(file: IO[bytes]) -> bool:
    """Return True if a file begins like a history from aider."""
    head = file.read(200).lstrip(b"\xef\xbb\xbf \t\r\n")
    file.seek(0)
    return START.match(head.decode("utf-8", "replace")) is not None


def read_aider_chats(file: IO[bytes]) -> Iterator[ChatDraft | Unreadable]:
    """Read a history: each run of aider with messages is a chat. Raises `ImportRefused`."""
    chat = _Chat("")
    for line in read_text_lines(file):
        if found := START.fullmatch(line):
            if (draft := chat.end()) is not None:
                yield draft
            chat = _Chat(found[1])
        else:
            chat.read(line)
    if (draft := chat.end()) is not None:
        yield draft


@dataclass(slots=True)
class _Chat:
    """A chat while it is being read. `####` marks a user's lines, `>` aider's output.

    The output is not imported.
    """

    started: str
    builder: Builder = field(default_factory=Builder)
    said: list[str] = field(default_factory=list)
    before: str | None = None
    is_user: bool = False
    printed: int = 0

    def read(self, line: str) -> None:
        is_asked = line.startswith("####")
        if line.startswith(">"):
            self.printed += 1
            if self.is_user:
                self.close()
            return
        if is_asked != self.is_user and (line.strip() or is_asked):
            self.close()
            self.is_user = is_asked
        self.said.append(line[4:].removeprefix(" ").rstrip() if is_asked else line.rstrip("\r\n"))

    def close(self) -> None:
        """End the current message."""
        text = "\n".join(self.said).strip("\n")
        self.said.clear()
        if text.strip():
            self.before = self.builder.add(
                f"{self.started}-{len(self.builder.entries) + 1}",
                parent=self.before,
                role="user" if self.is_user else "assistant",
                parts=[TextPart(text)],
                ts=self.started,
            )

    def end(self) -> ChatDraft | Unreadable | None:
        """Return the chat; None if it has no messages."""
        self.close()
        if not self.builder.entries:
            return None
        if self.printed:
            self.builder.losses.append(f"entry_dropped:{self.printed} lines that aider printed")
        return self.builder.draft(source=f"aider:{self.started}", title="")


def read_text_lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a UTF-8 file. Raises `ImportRefused` for other encodings."""
    number = 0
    while line := file.readline(bounds.LINE_BYTES + 1):
        number += 1
        if len(line) > bounds.LINE_BYTES:
            raise bounds.build_line_size_error(number)
        try:
            yield line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = Sentence(
                gettext_noop(
                    "The text in {place} is not valid UTF-8. Save the file as UTF-8, then upload "
                    "it again."
                ),
                place=bounds.describe_line(number),
            )
            raise ImportRefused("import_malformed", problem) from error
