"""Adds fields and messages that some servers require in a request, and others refuse or ignore.

The product does not store them, or another model wrote the message. A server gets them only after
it refused a request without them.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

# A reply between a tool result and a user message; thoughts in each assistant message; a signature
# of each tool call.
Fill = Literal["replies", "thoughts", "signatures"]
FILLS: tuple[Fill, ...] = get_args(Fill)
# Errors of servers that require it: Mistral and the chat templates of its models, DeepSeek and
# Moonshot, Gemini.
_ERRORS: Mapping[Fill, re.Pattern[str]] = {
    "replies": re.compile(
        r"unexpected role 'user' after role 'tool'|roles must alternate", re.IGNORECASE
    ),
    "thoughts": re.compile(
        r"missing\W+reasoning_content|reasoning_content\W.{0,60}?(?:passed back|is missing)",
        re.IGNORECASE | re.DOTALL,
    ),
    "signatures": re.compile(r"missing a thought_?signature", re.IGNORECASE),
}
REPLY = "OK."
# Not empty, because some servers count an empty text as missing.
THOUGHTS = " "
# Google's value for calls of other models.
SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}

Message = dict[str, Any]


def find_required_fill(error: str, *, fills: Collection[Fill]) -> Fill | None:
    """Return the addition that a server's error asks for; None if the request had it.

    None also for other errors. `fills`: the additions of the request.
    """
    found = (fill for fill, pattern in _ERRORS.items() if pattern.search(error))
    return next((fill for fill in found if fill not in fills), None)


def fill_messages(messages: Sequence[Message], *, fills: Collection[Fill]) -> list[Message]:
    """Return the messages of a request body with the additions that its server requires."""
    filled = list(messages)
    if "replies" in fills:
        filled = list(_fill_replies(filled))
    if "thoughts" in fills:
        filled = [_fill_thoughts(message) for message in filled]
    if "signatures" in fills:
        filled = [_fill_signature(message) for message in filled]
    return filled


def list_effective_fills(messages: Sequence[Message]) -> list[Fill]:
    """Return the additions that change the messages of a request."""
    return [fill for fill in FILLS if fill_messages(messages, fills=[fill]) != list(messages)]


def _fill_replies(messages: Sequence[Message]) -> Iterator[Message]:
    yield from messages[:1]
    for before, message in pairwise(messages):
        if (before["role"], message["role"]) == ("tool", "user"):
            yield {"role": "assistant", "content": REPLY}
        yield message


def _fill_thoughts(message: Message) -> Message:
    if message["role"] != "assistant" or message.get("reasoning_content"):
        return message
    return {**message, "reasoning_content": THOUGHTS}


def _fill_signature(message: Message) -> Message:
    """Return a message whose first call has a signature. Parallel calls share one."""
    calls = message.get("tool_calls") or []
    if not calls or any("extra_content" in call for call in calls):
        return message
    first, *others = calls
    return {**message, "tool_calls": [{**first, "extra_content": SIGNATURE}, *others]}
