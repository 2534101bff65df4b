"""Checks the text of a new message."""

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.ground.texts import UNSTORABLE

# The upper limit of a message in code points, for all policies.
MESSAGE_CEILING = 200_000


class MessageEmpty(Refusal):
    """The message has no files, and its text is empty or contains only whitespace."""

    code = "message_empty"
    status = 422
    sentence = gettext_noop("The message is empty. Write something or attach a file first.")
    param = "text"


class InvalidCharacter(Refusal):
    """The text contains NUL or a lone surrogate. The error message gives its position."""

    code = "invalid_character"
    status = 422
    sentence = gettext_noop(
        "The message contains a character that cannot be stored, at position {position}. Remove it."
    )
    param = "text"


class MessageTooLong(Refusal):
    """The message has more characters than the chat's policy allows (32,000 by default)."""

    code = "message_too_long"
    status = 422
    sentence = gettext_noop(
        "This message has {length:,} characters; this chat allows {limit:,}."
        " Shorten it by {over:,}."
    )
    param = "text"


def check_characters(text: str) -> None:
    """Raise `InvalidCharacter` for the first character that cannot be stored.

    The error gives its position, counted from 1.
    """
    if found := UNSTORABLE.search(text):
        raise InvalidCharacter(position=found.start() + 1)


def check_text(text: str, *, limit: int, has_files: bool = False) -> None:
    """Raise `MessageEmpty`, `InvalidCharacter` or `MessageTooLong`. `limit` is in code points.

    The text of a message with files can be empty.
    """
    check_characters(text)
    if not text.strip() and not has_files:
        raise MessageEmpty
    allowed = min(limit, MESSAGE_CEILING)
    if len(text) > allowed:
        raise MessageTooLong(length=len(text), limit=allowed, over=len(text) - allowed)
