"""Parses chats from the llama.cpp web page."""

from collections.abc import Iterator, Mapping
from typing import Any

from chats.exchange.draft_builder import Builder
from chats.exchange.entry_values import (
    encode_as_json,
    select_texts,
)
from chats.exchange.jsonstream import get_list_items
from chats.exchange.sessions import ROLES, Found, Lines
from contextpolicy.engine.messages.messages import (
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)


def parse_llama_chats(lines: Lines) -> Iterator[Found]:
    """Parse conversations from the llama.cpp web page: each has a header and a tree of messages."""
    head: Mapping[str, Any] | None = None
    builder = Builder()
    for line in lines:
        if line.get("type") == "session":
            if head is not None:
                yield build_llama_draft(head, builder)
            head, builder = line, Builder()
        elif isinstance(message := line.get("message"), Mapping):
            parse_llama_message(message, builder)
        else:
            builder.losses.append(f"entry_dropped:{str(line.get('type'))[:40]}")
    if head is not None:
        yield build_llama_draft(head, builder)


def parse_llama_conversation(chat: Mapping[str, Any]) -> Found:
    """Parse a conversation from an older llama.cpp web page: `conv` and `messages`."""
    builder = Builder()
    for message in get_list_items(chat.get("messages")):
        if isinstance(message, Mapping):
            parse_llama_message(message, builder)
        else:
            builder.drop("message_dropped")
    head = chat["conv"]
    return build_llama_draft(head if isinstance(head, Mapping) else {}, builder)


def build_llama_draft(head: Mapping[str, Any], builder: Builder) -> Found:
    """Return the draft of a conversation with this header."""
    end = head.get("currNode")
    return builder.draft(
        source=str(head.get("id") or ""),
        title=head.get("name"),
        active=str(end) if end is not None else None,
    )


def parse_llama_message(message: Mapping[str, Any], builder: Builder) -> None:
    """Parse one message from the llama.cpp web page."""
    own = str(message.get("id", f"message-{len(builder.entries)}"))
    parent = message.get("parent")
    parent = str(parent) if parent is not None and str(parent) != "-1" else None
    builder.names_children(own, [str(child) for child in get_list_items(message.get("children"))])
    role, content = message.get("role"), message.get("content")
    if message.get("type") == "root" or role not in (*ROLES, "tool"):
        if message.get("type") != "root" and select_texts([content]):
            builder.losses.append(f"system_left_out:{str(role)[:40]}")
        builder.skip(own, parent=parent)
        return
    if role == "tool":
        call_id = str(message.get("toolCallId") or "")
        builder.result(call_id, content, own_id=own, parent=parent)
        return
    builder.add(
        own,
        parent=parent,
        role="user" if role == "user" else "assistant",
        parts=parse_llama_parts(message, builder, own=own),
        ts=message.get("timestamp"),
        model=message.get("model"),
    )


def parse_llama_parts(message: Mapping[str, Any], builder: Builder, *, own: str) -> list[Part]:
    """Return the parts of a message from the llama.cpp web page."""
    thoughts = select_texts([message.get("reasoningContent"), message.get("thinking")])
    parts: list[Part] = [ReasoningPart(text) for text in thoughts]
    parts += builder.blocks(message.get("content"))
    for extra in get_list_items(message.get("extra")):
        name = str(extra.get("name") or "")[:200] if isinstance(extra, Mapping) else ""
        text = select_texts([extra.get("content")]) if isinstance(extra, Mapping) else []
        if text and extra.get("type") in ("TEXT", "textFile", "context"):
            parts.append(TextPart(f"{name}\n\n{text[0]}"))
        else:
            parts += builder.files([extra])
    for call in get_list_items(message.get("toolCalls")):
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            called = encode_as_json(function.get("arguments") or "{}")
            call_id = str(call.get("id") or f"{own}-call")
            parts.append(ToolCallPart(call_id, str(function.get("name") or "tool"), called))
    return parts
