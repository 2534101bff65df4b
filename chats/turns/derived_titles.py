"""Derives a chat's title from the first text that a user wrote."""

import re
from collections.abc import Iterable

from chats.ground.texts import replace_tagged_blocks, strip_line_signs
from chats.models import Message
from contextpolicy.engine.text import names

# A text that is a single tagged block, and the tags of a client's block within a text.
IN_TAGS = re.compile(r"\s*<([\w-]{1,64})[^<>]*>.*</\1>\s*", re.DOTALL)
TAGS = re.compile(
    r"<(?P<slash>/?)(?P<name>[A-Za-z]{1,64}+(?:[_-][A-Za-z]{1,64}+){1,16}+)(?:\s[^<>]*)?>"
)
# Tags that clients write around the words of the user.
AROUND = re.compile(
    r"</?(?:task|feedback|query|question|request|user[_-](?:query|message|request|input|prompt))>"
)


def get_title_text(message: Message) -> str:
    """Return the text from which a title is derived: the message's text, or its first file name.

    Empty if the message has neither.
    """
    if message.text.strip():
        return message.text
    named = (part["name"] for part in message.parts if part["type"] == "file")
    return next((name for name in named if name), "")


def derive_title(text: str, *, is_plain: bool = True) -> str:
    """Derive a title from the first visible line of the first message, cut at a word boundary.

    `is_plain` removes Markdown syntax. Without it, the result is the title that older versions
    derived.
    """
    lines = (
        names.normalise_name(names.replace_forbidden_characters(line)) for line in text.splitlines()
    )
    line = next((line for line in lines if names.is_allowed_name(line)), "")
    if is_plain:
        line = strip_line_signs(line)
    if len(line) <= 80:
        return line
    head = line[:80]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"


def is_derived_title(title: str, *, text: str) -> bool:
    """Return True if `derive_title` made the title from the text, in this or an older version.

    Imports and the gateway derive it from the text without the blocks of coding agents.
    """
    return any(
        title == derive_title(each, is_plain=is_plain)
        for each in (text, find_first_text([text]))
        for is_plain in (True, False)
    )


def find_first_text(texts: Iterable[str]) -> str:
    """Return the first text that a user wrote, otherwise the first non-empty text.

    Empty if there is none. Coding agents describe their environment in blocks such as
    `<environment_context>`, as separate messages or within a message. These blocks are removed.
    """
    spoken = [words for text in texts if (words := AROUND.sub("", text)).strip()]
    written = (remove_tagged_blocks(text) for text in spoken if not IN_TAGS.fullmatch(text))
    return next((text for text in written if text), "".join(spoken[:1]))


def remove_tagged_blocks(text: str) -> str:
    """Return the text without the tagged blocks that clients add, such as `<system-reminder>`."""
    return replace_tagged_blocks(AROUND.sub("", text), tags=TAGS).strip()
