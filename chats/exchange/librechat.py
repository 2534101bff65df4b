"""Parses the exports of LibreChat.

The format is public (github.com/danny-avila/LibreChat, the exporter
`client/src/hooks/Conversations/useExportConversation.ts` and the importer
`api/server/utils/import/importers.js`).
"""

from collections.abc import Mapping
from typing import Any

from chats.exchange.draft_builder import Builder, Unreadable
from chats.exchange.drafts import ChatDraft
from chats.exchange.entry_values import NO_PARENT, encode_as_json, extract_result_text
from chats.exchange.jsonstream import get_list_items, is_json_list
from chats.exchange.response_items import ReplyParts, describe_output
from contextpolicy.engine.messages.messages import FilePart, Part, ReasoningPart

Found = ChatDraft | Unreadable


def get_librechat_messages(chat: Mapping[str, Any]) -> object:
    """Return the messages of a LibreChat export; None if it is not one.

    By default, they are a tree. An export without branches can have a list instead.
    """
    if "conversationId" not in chat:
        return None
    return chat.get("messagesTree") or chat.get("messages", chat.get("messagesTree"))


def parse_librechat_chat(chat: Mapping[str, Any]) -> Found:
    """Parse a LibreChat conversation: a list with parents, or a tree of `children`."""
    title, listed = chat.get("title"), get_librechat_messages(chat)
    builder = Builder()
    # Each message with the id of the message whose `children` contain it.
    waiting: list[tuple[Any, str | None]] = []
    waiting += [(item, None) for item in get_list_items(listed)][::-1]
    while waiting:
        item, above = waiting.pop()
        if not isinstance(item, Mapping):
            builder.drop("message_dropped")
            continue
        own = str(item.get("messageId") or f"message-{len(builder.entries)}")
        parent = item.get("parentMessageId", above)
        is_user = item.get("isCreatedByUser") is True or item.get("sender") == "User"
        content = item.get("content") if item.get("content") else item.get("text")
        builder.add(
            own,
            parent=parent if isinstance(parent, str) and parent not in NO_PARENT else None,
            role="user" if is_user else "assistant",
            parts=[
                *parse_librechat_content(own, content, builder),
                *parse_librechat_files(item, builder),
            ],
            ts=item.get("createdAt"),
            model=item.get("model"),
        )
        waiting += [(child, own) for child in get_list_items(item.get("children"))][::-1]
    return builder.draft(source=str(chat.get("conversationId") or ""), title=title)


def parse_librechat_content(own: str, content: object, builder: Builder) -> list[Part]:
    """Return the parts of a message from its text or its blocks."""
    if not is_json_list(content):
        return builder.blocks(content)
    reply = ReplyParts(own, builder)
    for block in get_list_items(content):
        kind = block.get("type") if isinstance(block, Mapping) else None
        text = block.get(kind) if kind in ("text", "think") else None
        if isinstance(text, Mapping):
            text = text.get("value")
        if kind == "text":
            reply.parts += builder.blocks(text)
        elif kind == "think":
            reply.parts += [ReasoningPart(thought) for thought in builder.texts([text])]
        elif kind == "tool_call" and isinstance(block.get("tool_call"), Mapping):
            read_tool_call(block["tool_call"], reply)
        else:
            reply.parts += builder.block(block)
    return reply.finish()


def parse_librechat_files(item: Mapping[str, Any], builder: Builder) -> list[FilePart]:
    """Return the files of a message, and those that its tools made, each once."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in (*get_list_items(item.get("files")), *get_list_items(item.get("attachments"))):
        if isinstance(file, Mapping) and (file.get("file_id") or file.get("filename")):
            found.setdefault(str(file.get("file_id") or file["filename"]), file)
        else:
            kind = file.get("type") if isinstance(file, Mapping) else "value"
            builder.losses.append(f"content_dropped:{str(kind)[:40]}")
    return builder.files(found.values())


def read_tool_call(call: Mapping[str, Any], reply: ReplyParts) -> None:
    """Add a call with its result. Calls of assistants have these in an object `function`."""
    code, inner = call.get("code_interpreter"), call.get("function")
    if isinstance(code, Mapping):
        output = describe_output(code.get("outputs"))
        reply.add_code(str(code.get("input") or ""), language="python", output=output)
        return
    about = inner if isinstance(inner, Mapping) else call
    arguments = encode_as_json(about.get("args") or about.get("arguments") or {})
    own_id = reply.add_call(call.get("id"), about.get("name"), arguments)
    if output := about.get("output"):
        reply.add_own_result(own_id, extract_result_text(output))
