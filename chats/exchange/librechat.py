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
            parts=builder.blocks(flatten_librechat_blocks(content)),
            ts=item.get("createdAt"),
            model=item.get("model"),
        )
        waiting += [(child, own) for child in get_list_items(item.get("children"))][::-1]
    return builder.draft(source=str(chat.get("conversationId") or ""), title=title)


def flatten_librechat_blocks(content: object) -> object:
    """Return content with LibreChat's nested texts flattened."""
    if not is_json_list(content):
        return content
    plain: list[object] = []
    for block in get_list_items(content):
        if not isinstance(block, Mapping):
            plain.append(block)
            continue
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, Mapping):
            plain.append({"type": "text", "text": text.get("value")})
        elif block.get("type") == "think":
            plain.append({"type": "thinking", "thinking": block.get("think")})
        elif block.get("type") == "tool_call" and isinstance(block.get("tool_call"), Mapping):
            call = block["tool_call"]
            named = f"{call.get('name')}({encode_as_json(call.get('args'))})"
            output = extract_result_text(call.get("output"))
            plain.append({"type": "text", "text": f"{named}\n{output}"})
        else:
            plain.append(block)
    return plain
