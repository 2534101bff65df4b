"""Reads and checks requests of `useChat` clients."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange.foreign_metadata import hide_foreign_keys
from chats.exchange.ui_approvals import (
    ToolApproval,
    parse_approvals,
)
from chats.ground.refusals import Refusal
from chats.ground.texts import sanitise_value
from contextpolicy.engine.messages.given_parts import build_kept_parts, write_stored_parts
from contextpolicy.engine.messages.messages import FilePart, Part, TextPart
from contextpolicy.engine.messages.ui_messages import (
    MalformedUIMessage,
    UIMessage,
    parse_ui_message,
)
from contextpolicy.engine.text import names

LONGEST_ID = 200


# Bytes of a message's metadata and parts as JSON, without its texts and files.
MOST_EXTRAS = 65_536


# Fields of parts that have their own limits.
CONTENT: Mapping[str, Sequence[str]] = {"text": ("text",), "file": ("url", "text")}


Trigger = Literal["submit-message", "regenerate-message"]


class InvalidUIRequest(Refusal):
    """The body is not a `useChat` request. The error message gives the reason."""

    code = "invalid_ui_request"
    status = 422
    sentence = gettext_noop("This is not a `useChat` request: {problem}")


class UnsupportedUIMessage(Refusal):
    """The last message has a file with an external URL, adds a file to an edited message, or is a
    reply without approvals."""

    code = "unsupported_ui_message"
    status = 422
    sentence = gettext_noop(
        "The last message must be a user message with text and files. Send each file as a "
        "data URL or as the URL of one of your uploads. An edited message keeps its files, "
        "so send other files in a new message. An assistant message is accepted only if it "
        "answers requests for consent. Results of client tools are not supported."
    )


@dataclass(frozen=True, slots=True)
class UIRequest:
    """A parsed request of `useChat`: the chat's id, the last message, the trigger and the model."""

    # Id of the chat: ours, or one that the client made up.
    chat_id: str
    trigger: Trigger
    # The message to replace or to regenerate; None: none was named.
    message_id: str | None
    # The last message, and the id of the previous one. None: the request has no such message.
    last: UIMessage | None = None
    previous_id: str | None = None
    # Number of messages in the request. A single `message` is one.
    count: int = 0
    # The `data-…` parts of the last message.
    extras: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    # What restores the parts of the last message from the stored ones (`given_parts`). Empty: the
    # stored parts, followed by the extras, are equal to them.
    kept: Mapping[str, Any] = field(default_factory=dict)
    # The answers to requests for consent in the last message.
    approvals: Sequence[ToolApproval] = field(default_factory=tuple)
    # The ids of the tool calls in the last step of the last message.
    calls: frozenset[str] = frozenset()
    # Slug of the model to use from now on. Empty: no change.
    model: str = ""


def parse_ui_request(body: Mapping[str, Any]) -> UIRequest:
    """Parse the body of a request: `id`, `messages` or `message`, `trigger`, `messageId`, `model`.

    Other fields are ignored, because front ends add their own. Raises `InvalidUIRequest`.
    """
    trigger = body.get("trigger", "submit-message")
    if trigger not in ("submit-message", "regenerate-message"):
        raise InvalidUIRequest(
            problem=gettext_lazy("`trigger` must be submit-message or regenerate-message.")
        )
    message_id, model = body.get("messageId"), body.get("model") or ""
    if message_id is not None:
        check_id(message_id, name="messageId")
    if not isinstance(model, str):
        raise InvalidUIRequest(problem=gettext_lazy("`model` must be the ID of a model."))
    request = UIRequest(check_id(body.get("id"), name="id"), trigger, message_id, model=model)
    single = body.get("message")
    listed = body.get("messages") if single is None else [single]
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise InvalidUIRequest(problem=gettext_lazy("`messages` must be a list of messages."))
    if not listed:
        return request
    last = parse_last_message(listed[-1])
    extras = [
        sanitise_value(part)
        for part in listed[-1]["parts"]
        if isinstance(part, dict) and str(part.get("type")).startswith("data-")
    ]
    kept = listed[-1]["parts"] if last.role == "user" else extras
    if len(json.dumps([last.metadata, *map(strip_content, kept)])) > MOST_EXTRAS:
        sentence = gettext_lazy(
            "the metadata and data parts of a message may have at most {limit:,} bytes in total."
        )
        raise InvalidUIRequest(problem=format_lazy(sentence, limit=MOST_EXTRAS))
    previous = check_id(listed[-2].get("id"), name="messages") if len(listed) > 1 else None
    return replace(
        request,
        last=last,
        previous_id=previous,
        count=len(listed),
        extras=tuple(extras),
        kept=find_kept_parts(last, kept, extras=extras) if last.role == "user" else {},
        approvals=parse_approvals(listed[-1]["parts"]) if last.role == "assistant" else (),
        calls=list_last_step_calls(listed[-1]["parts"]),
    )


def strip_content(part: Any) -> Any:
    """Return a part without its text and its URL, which have their own limits."""
    if not isinstance(part, Mapping):
        return part
    own = CONTENT.get(str(part.get("type")), ())
    return {name: value for name, value in part.items() if name not in own}


def find_kept_parts(
    message: UIMessage, given: Sequence[Any], *, extras: Sequence[Any]
) -> dict[str, Any]:
    """Return the data that restores the parts of a user message from its stored parts.

    Empty if the stored parts, followed by the extras, are equal to the given ones.
    """
    stored: list[Part] = [part for part in message.parts if isinstance(part, FilePart)]
    text = join_message_texts(message)
    if text.strip() or not stored:
        stored.append(TextPart(text))
    usual = [*write_stored_parts(stored), *extras]
    if [strip_address(part) for part in usual] == [strip_address(part) for part in given]:
        return {}
    return build_kept_parts(given, stored)


def strip_address(part: Any) -> Any:
    """Return a part; if it is a file, without its URL and text, because the upload has both."""
    return strip_content(part) if isinstance(part, dict) and part.get("type") == "file" else part


def join_message_texts(message: UIMessage) -> str:
    """Return the text parts of a message, joined."""
    return "\n\n".join(part.text for part in message.parts if isinstance(part, TextPart))


def list_last_step_calls(parts: Sequence[Any]) -> frozenset[str]:
    """Return the ids of the tool calls after the last step mark. Earlier steps may use them too."""
    found: set[str] = set()
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") == "step-start":
            found.clear()
        elif isinstance(part, Mapping) and isinstance(part.get("toolCallId"), str):
            found.add(part["toolCallId"])
    return frozenset(found)


def check_id(value: object, *, name: str) -> str:
    """Return an id from the client. Raises `InvalidUIRequest` if it is invalid."""
    if (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST_ID
        and names.is_allowed_name(value)
        # The address of another chat's stream ends in this.
        and not value.endswith("/stream")
    ):
        return value
    sentence = gettext_lazy(
        "`{name}` needs an ID of 1 to {limit} characters that does not end in “/stream”."
    )
    raise InvalidUIRequest(problem=format_lazy(sentence, name=name, limit=LONGEST_ID))


def parse_last_message(value: Mapping[str, Any]) -> UIMessage:
    """Parse the last message of a request. Raises `InvalidUIRequest`.

    In its metadata, names that imports interpret are hidden (`foreign_metadata`), and a NUL becomes
    U+FFFD, because PostgreSQL cannot store it.
    """
    check_id(value.get("id"), name="messages")
    try:
        last = parse_ui_message(value)[0]
    except MalformedUIMessage as error:
        raise InvalidUIRequest(problem=str(error)) from error
    return replace(last, metadata=hide_foreign_keys(sanitise_value(dict(last.metadata))))
