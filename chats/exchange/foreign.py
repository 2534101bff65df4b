"""Tells the files of other products apart, and reads sessions of agents and plain messages."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

from django.utils.crypto import salted_hmac

from chats.exchange import bounds, trees
from chats.exchange.building import Builder, Role, Unreadable, texts_of
from chats.exchange.drafts import ChatDraft, ImportRefused
from contextpolicy.engine.chatmessages import MalformedChatMessage, from_chat_messages
from contextpolicy.engine.messages import Part, ReasoningPart, ToolCallPart

Found = ChatDraft | Unreadable
UNKNOWN = (
    "The form of the file is not known here. Import UI messages (JSONL), a bundle, an export of"
    " ChatGPT, Claude, Open WebUI or LibreChat, a session of Claude Code, pi or Codex, or plain"
    " messages with role and content, one a line."
)
# The key by which a chat of a product is known, and how it is read.
READERS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Found]]] = {
    "mapping": ("chatgpt", trees.chatgpt),
    "chat_messages": ("claude", trees.claude),
    "chat": ("open_webui", trees.open_webui),
    "conversationId": ("librechat", trees.librechat),
}


def unknown() -> ImportRefused:
    """Return the refusal of a file in no known form."""
    return ImportRefused("import_unknown_form", UNKNOWN)


def chats_in(document: object) -> tuple[str, int, Iterable[Found]]:
    """Return the product of a document, how many chats it has, and these.

    Raises `ImportRefused`.
    """
    listed = document if isinstance(document, list) else [document]
    kinds = {kind for chat in listed if (kind := product_of(chat))}
    if len(kinds) != 1:
        raise unknown()
    key = kinds.pop()
    name, read = READERS[key]
    return name, len(listed), each(listed, key=key, read=read)


def each(
    listed: list[Any], *, key: str, read: Callable[[Mapping[str, Any]], Found]
) -> Iterator[Found]:
    """Yield the chats of a list; one that is malformed within is named."""
    for place, chat in enumerate(listed, start=1):
        if product_of(chat) != key:
            yield Unreadable(f"Chat {place}", "It has another form than the others.")
            continue
        yield read(chat)


def product_of(chat: object) -> str:
    """Return the key by which the product of a chat is known; empty: it is not."""
    if not isinstance(chat, Mapping):
        return ""
    if "chat" in chat and not isinstance(chat["chat"], Mapping):
        return ""
    if "conversationId" in chat and "messages" not in chat:
        return ""
    return next((key for key in READERS if key in chat), "")


def is_one_document(file: IO[bytes]) -> bool:
    """Tell whether a file is one JSON document, and no list of lines."""
    head = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    file.seek(0)
    if not head.startswith(b"{"):
        return head.startswith(b"[")
    first = first_line(file)
    return not first or bool(product_of(first))


def first_line(file: IO[bytes]) -> Mapping[str, Any]:
    """Return the object of the first line; empty where it is none. Raises `ImportRefused`."""
    line = file.readline(bounds.LINE_BYTES + 1)
    file.seek(0)
    if bounds.depth_of(line) > bounds.DEPTH:
        raise ImportRefused("import_too_deep", "The JSON in line 1 has too many levels.")
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def session_form(first: Mapping[str, Any]) -> str:
    """Return the program whose session begins with this line; empty: it is none."""
    if "payload" in first:
        return "codex"
    if "sessionId" in first or "isSidechain" in first or first.get("type") == "summary":
        return "claude_code"
    if first.get("type") == "session":
        return "pi"
    if "role" in first and "content" in first and "parts" not in first:
        return "plain"
    return ""


def is_session(first: Mapping[str, Any]) -> bool:
    """Tell whether a file that begins with this line is a session, or plain messages."""
    return bool(session_form(first))


def session(file: IO[bytes]) -> list[Found]:
    """Read a session. Raises `ImportRefused`."""
    form = session_form(first_line(file))
    values = [value for _, value in bounds.lines_in(file) if isinstance(value, Mapping)]
    readers = {"codex": codex, "claude_code": claude_code, "pi": pi, "plain": plain}
    return [readers[form](values)]


def claude_code(lines: list[Mapping[str, Any]]) -> Found:
    """Read a session of Claude Code: a tree by `parentUuid`; side chains are branches of it."""
    builder = Builder()
    title, source = "", ""
    for line in lines:
        message, own = line.get("message"), line.get("uuid")
        source = source or str(line.get("sessionId") or "")
        if line.get("type") == "summary":
            title = title or str(line.get("summary") or "")
        if not isinstance(own, str):
            continue
        parent = line.get("parentUuid")
        parent = parent if isinstance(parent, str) else None
        role = message.get("role") if isinstance(message, Mapping) else ""
        if not isinstance(message, Mapping) or line.get("isMeta") or role not in ROLES:
            builder.skip(own, parent=parent)
            continue
        content = results_in(message.get("content"), builder)
        builder.add(
            own,
            parent=parent,
            role="user" if role == "user" else "assistant",
            parts=builder.blocks(content),
            ts=line.get("timestamp"),
            model=message.get("model"),
        )
    return builder.draft(source=source or ids_of(builder), title=title)


ROLES = ("user", "assistant")


def results_in(content: object, builder: Builder) -> object:
    """Add the tool results in content to their calls; return the rest."""
    if not isinstance(content, list):
        return content
    rest = []
    for block in content:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            builder.result(str(block.get("tool_use_id")), block.get("content"))
        else:
            rest.append(block)
    return rest


def pi(lines: list[Mapping[str, Any]]) -> Found:
    """Read a session of pi: messages in order, in newer ones with the entry before each."""
    builder = Builder()
    source = str(lines[0].get("id") or "")
    before: str | None = None
    for place, line in enumerate(lines, start=1):
        own = str(line.get("id") or f"line-{place}")
        parent = line.get("parentId", before)
        parent = parent if isinstance(parent, str) else None
        message = line.get("message")
        if line.get("type") != "message" or not isinstance(message, Mapping):
            if line.get("type") not in ("session", "model_change", "thinking_level_change"):
                builder.losses.append(f"entry_dropped:{str(line.get('type'))[:40]}")
            builder.skip(own, parent=parent)
        elif message.get("role") == "toolResult":
            builder.result(str(message.get("toolCallId")), message.get("content"))
            builder.skip(own, parent=parent)
        elif message.get("role") in ROLES:
            builder.add(
                own,
                parent=parent,
                role="user" if message["role"] == "user" else "assistant",
                parts=builder.blocks(message.get("content")),
                ts=message.get("timestamp") or line.get("timestamp"),
                model=message.get("model"),
            )
        else:
            builder.skip(own, parent=parent)
        before = own
    return builder.draft(source=source or ids_of(builder), title="")


def codex(lines: list[Mapping[str, Any]]) -> Found:
    """Read a session of Codex: items in order."""
    builder = Builder()
    source, before = "", None
    for place, line in enumerate(lines, start=1):
        item = line.get("payload")
        if not isinstance(item, Mapping):
            continue
        if line.get("type") == "session_meta":
            source = str(item.get("id") or "")
        elif line.get("type") == "response_item":
            before = codex_item(
                item, own=f"line-{place}", before=before, ts=line.get("timestamp"), builder=builder
            )
    return builder.draft(source=source or ids_of(builder), title="")


def codex_item(
    item: Mapping[str, Any], *, own: str, before: str | None, ts: object, builder: Builder
) -> str | None:
    """Read one item of Codex; return the id of what the next one follows."""
    kind = item.get("type")
    if kind in ("function_call_output", "custom_tool_call_output"):
        builder.result(str(item.get("call_id")), item.get("output"))
        return before
    parts: list[Part] = []
    if kind == "message" and item.get("role") in ROLES:
        parts = builder.blocks(item.get("content"))
    elif kind in ("function_call", "custom_tool_call"):
        told = str(item.get("arguments") or item.get("input") or "{}")
        parts = [ToolCallPart(str(item.get("call_id")), str(item.get("name")), told)]
    elif kind == "reasoning":
        listed = [s.get("text") for s in item.get("summary") or [] if isinstance(s, Mapping)]
        parts = [ReasoningPart(text) for text in texts_of(listed)]
    role: Role = "user" if item.get("role") == "user" else "assistant"
    builder.add(own, parent=before, role=role, parts=parts, ts=ts)
    return own


def plain(lines: list[Mapping[str, Any]]) -> Found:
    """Read messages with role and content, one a line; a system text has no effect here.

    Raises `ImportRefused`.
    """
    try:
        read = from_chat_messages(lines)
    except MalformedChatMessage as error:
        raise ImportRefused("import_malformed", str(error)) from error
    builder = Builder(losses=list(read.losses))
    if read.system:
        builder.losses.append("system_text_left_out")
    before = None
    # Made with the server's key: of short words a plain hash would tell too much.
    digest = salted_hmac("chats.exchange.plain", json.dumps(lines), algorithm="sha256").hexdigest()
    for place, message in enumerate(read.messages, start=1):
        own = f"line-{place}"
        builder.add(own, parent=before, role=message.role, parts=message.parts)
        before = own
    return builder.draft(source=f"file:{digest}", title="")


def ids_of(builder: Builder) -> str:
    """Return a name for a session without an id, made of the ids in it."""
    return "ids:" + hashlib.sha256("\n".join(builder.said).encode()).hexdigest()
