"""Recognises errors about a field that a server does not know, and removes it from a request.

Removed are only fields without which the request means the same: hints of clients about caches,
accounting and style, and the fields that a server sent with an earlier reply.

A refusal applies to all users of the account, and an error can repeat text of a client. So only
fields of the refused request count, unless one of its texts contains such an error itself. Adapters
store one only after the server accepted it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, combinations
from typing import Any

from contextpolicy.engine.strict_json import iter_json_strings

HINTS = frozenset(
    {
        "cache_prompt",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "user",
        "verbosity",
    }
)
_OF_A_MESSAGE = frozenset({"role", "content", "tool_calls", "tool_call_id", "prefix"})
_OF_A_CALL = frozenset({"id", "type", "function"})
# Quotes are escaped within JSON. A name can follow the path of its message.
_QUOTE = r"""\\?["'`]"""
_NAME = rf"{_QUOTE}?(?:[\w\[\]]+\.)*(\w+)"
# Limited, because the patterns also read the texts of a request, which can be long.
_BETWEEN = r"[^{}]{0,200}?"
_PATH = r"loc\W+\[[^\]]{0,200}?\b(\w+)\W*\]"
# The errors of Gemini; Groq and Cerebras; OpenAI and Azure; FastAPI (vLLM, Mistral); Fireworks.
_ERRORS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"unknown name {_NAME}{_QUOTE}",
        rf"property {_NAME}{_QUOTE} is (?:unsupported|not supported)",
        rf"(?:unsupported|unknown|unrecognized) (?:parameter|field|property)s?:? {_NAME}",
        rf"unrecognized request arguments? supplied: {_NAME}",
        rf"extra_forbidden{_BETWEEN}{_PATH}",
        rf"{_PATH}{_BETWEEN}(?:extra_forbidden|extra inputs are not permitted)",
        rf"extra inputs are not permitted, field: {_NAME}",
    )
)
# Up to this number of fields, receipts try each combination. No known server refuses more of them.
_MOST_COMBINED = 5
# Up to this number, they try each field alone. Clients choose the names of fields of messages.
_MOST_ALONE = 16

Body = Mapping[str, Any]


def find_refused_fields(error: str, *, body: Body) -> frozenset[str]:
    """Return the removable fields of a request body that an error of its server names.

    Without the fields that a text of the body names in the same way: the error may repeat it.
    """
    found = _find_names(error) & list_removable_fields(body).keys()
    for text in iter_json_strings(body) if found else ():
        if any(name in text for name in found):
            found -= _find_names(text)
    return frozenset(found)


def _find_names(error: str) -> set[str]:
    return {name for pattern in _ERRORS for name in pattern.findall(error)}


def list_removable_fields(body: Body) -> dict[str, None]:
    """Return the names of the fields that can be removed from a request body, in its order."""
    names = (name for name in body if name in HINTS)
    return dict.fromkeys(chain(names, _list_message_fields(body)))


def list_removals(body: Body) -> list[frozenset[str]]:
    """Return the sets of fields that a server may refuse in a request body, none first."""
    names = list(list_removable_fields(body))
    if len(names) > _MOST_COMBINED:
        return [frozenset(), *(frozenset({name}) for name in names[:_MOST_ALONE]), frozenset(names)]
    sizes = range(len(names) + 1)
    return [frozenset(found) for size in sizes for found in combinations(names, size)]


def remove_fields(body: Body, *, names: Collection[str]) -> dict[str, Any]:
    """Return a request body without removable fields of these names."""
    if not names:
        return dict(body)
    kept = {name: value for name, value in body.items() if name not in HINTS or name not in names}
    return {**kept, "messages": [_clean_message(each, names=names) for each in body["messages"]]}


def _list_message_fields(body: Body) -> Iterator[str]:
    for message in body["messages"]:
        yield from (name for name in message if name not in _OF_A_MESSAGE)
        for call in message.get("tool_calls") or ():
            yield from (name for name in call if name not in _OF_A_CALL)


def _clean_message(message: Body, *, names: Collection[str]) -> dict[str, Any]:
    kept = {
        name: value for name, value in message.items() if name in _OF_A_MESSAGE or name not in names
    }
    if calls := kept.get("tool_calls"):
        kept["tool_calls"] = [
            {name: value for name, value in call.items() if name in _OF_A_CALL or name not in names}
            for call in calls
        ]
    return kept
