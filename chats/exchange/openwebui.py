"""Parses the exports of Open WebUI.

The format is public (github.com/open-webui/open-webui, `src/lib/utils` and
`backend/open_webui/utils/middleware.py`). A reply has its calls, their results and its reasoning in
`output`. Replies of older versions have them only in the text, as `<details>` blocks.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from django.utils.translation import gettext_noop

from chats.exchange.bounds import SEARCHED_TEXT
from chats.exchange.draft_builder import Builder, Unreadable
from chats.exchange.drafts import ChatDraft
from chats.exchange.entry_values import extract_result_text, select_texts
from chats.exchange.jsonstream import get_list_items, release_lazy_value
from chats.exchange.response_items import (
    CALLS,
    OUTPUTS,
    ReplyParts,
    build_call,
    build_reasoning,
    describe_output,
)
from chats.exchange.thoughts import MOST_BLOCKS, unquote_reasoning
from contextpolicy.engine.messages.messages import FilePart, Part, ReasoningPart, TextPart

Found = ChatDraft | Unreadable
# A block with a call, with reasoning or with code, and its attributes, which contain escaped text.
_BEGIN = r'<details((?:\s+[\w-]+="[^"]*+")++)\s*+>\s*+(?:<summary>[^<]*+</summary>)?+'
_BLOCK = re.compile(_BEGIN, re.ASCII)
# At the start of a line: a block, or a fence of code.
_NEXT = re.compile(
    rf"^(?:{_BEGIN}|[ ]{{0,3}}(`{{3,}}(?=[^`\n]*$)|~{{3,}}))", re.ASCII | re.MULTILINE
)
_ATTRIBUTE = re.compile(r'\s([\w-]+)="([^"]*+)"', re.ASCII)
_END = "</details>"
KINDS = frozenset({"tool_calls", "reasoning", "code_interpreter"})
CODE = "open_webui:code_interpreter"
_FENCE = re.compile(r"```([\w+-]*)\n(.*?)\n?```", re.DOTALL)


def parse_openwebui_chat(chat: Mapping[str, Any]) -> Found:
    """Parse an Open WebUI chat: a tree by `parentId`."""
    inner = chat["chat"]
    title = chat.get("title") or inner.get("title")
    history = inner.get("history")
    messages = history.get("messages") if isinstance(history, Mapping) else None
    if not isinstance(messages, Mapping):
        return Unreadable(
            str(title or ""),
            gettext_noop("The chat has no `history.messages`. Export the chat again."),
        )
    builder = Builder()
    for own, node in messages.items():
        if not isinstance(node, Mapping):
            builder.drop(f"message_dropped:{own[:80]}")
            continue
        builder.names_children(own, node.get("childrenIds"))
        parent = node.get("parentId")
        parent = parent if isinstance(parent, str) and parent else None
        role = node.get("role")
        if role not in ("user", "assistant"):
            if select_texts([node.get("content")]):
                builder.losses.append(f"system_left_out:{str(role)[:40]}")
            builder.skip(own, parent=parent)
            continue
        parts = parse_openwebui_content(own, node, builder)
        for file in get_list_items(node.get("files")):
            if isinstance(file, Mapping):
                parts.append(parse_openwebui_file(file, builder))
        builder.add(
            own,
            parent=parent,
            role=role,
            parts=parts,
            ts=node.get("timestamp"),
            model=node.get("model"),
        )
    current = history.get("currentId") if isinstance(history, Mapping) else None
    source = str(chat.get("id") or inner.get("id") or "")
    release_lazy_value(messages)
    return builder.draft(
        source=source,
        title=title,
        active=current if isinstance(current, str) else None,
        pinned=chat.get("pinned"),
        archived=chat.get("archived"),
        folder=chat.get("folder") or chat.get("folder_id"),
    )


def parse_openwebui_file(file: Mapping[str, Any], builder: Builder) -> Part:
    """Return a file in an Open WebUI message: an image, the text of a document, or its name."""
    name, url = str(file.get("name") or "")[:200], file.get("url")
    if isinstance(url, str) and url.startswith("data:"):
        return FilePart("image/*", name, url)
    stored = file.get("file")
    data = stored.get("data") if isinstance(stored, Mapping) else None
    content = data.get("content") if isinstance(data, Mapping) else None
    if isinstance(content, str) and content.strip():
        return TextPart(f"{name}\n\n{content}")
    (part,) = builder.files([file])
    return part


def parse_openwebui_content(own: str, node: Mapping[str, Any], builder: Builder) -> list[Part]:
    """Return the parts of a message without its files."""
    content = node.get("content")
    if node.get("role") != "assistant":
        return builder.blocks(content)
    reply = ReplyParts(own, builder)
    for item in get_list_items(node.get("output")):
        read_output_item(item, reply)
    is_read = bool(reply.parts)
    if not is_read or not any(isinstance(part, TextPart) for part in reply.parts):
        if not isinstance(content, str) or len(content) > SEARCHED_TEXT:
            reply.parts += builder.blocks(content)
        else:
            # The output may have the calls and the reasoning, but not the answer.
            read_reply_text(content, reply, is_text_only=is_read)
    return reply.finish()


def read_output_item(item: object, reply: ReplyParts) -> None:
    """Add an item of a reply's `output`."""
    if not isinstance(item, Mapping):
        reply.builder.losses.append("content_dropped:value")
        return
    kind = item.get("type")
    if kind == "message":
        reply.parts += reply.builder.blocks(item.get("content"))
    elif kind == "reasoning":
        reply.parts += build_reasoning(item)
    elif kind in CALLS:
        call = build_call(item)
        reply.add_call(item.get("call_id") or item.get("id"), call.name, call.arguments)
    elif kind in OUTPUTS:
        files = parse_result_files(item.get("files"), reply.builder)
        text = extract_result_text(item.get("output"))
        reply.add_result(str(item.get("call_id") or ""), text, files)
    elif kind == CODE:
        output = describe_output(item.get("output"))
        language = str(item.get("lang") or "python")
        reply.add_code(str(item.get("code") or ""), language=language, output=output)
    else:
        reply.builder.losses.append(f"content_dropped:{str(kind)[:40]}")


def parse_result_files(listed: object, builder: Builder) -> list[FilePart]:
    """Return the files of a result; each is an address or an object."""
    files = [{"url": file} if isinstance(file, str) else file for file in get_list_items(listed)]
    found = [parse_openwebui_file(file, builder) for file in files if isinstance(file, Mapping)]
    return [part for part in found if isinstance(part, FilePart)]


class DetailsBlock(NamedTuple):
    """A block in a text: where it starts and ends, its attributes, and the text in it."""

    start: int
    end: int
    given: Mapping[str, str]
    body: str


def read_reply_text(text: str, reply: ReplyParts, *, is_text_only: bool = False) -> None:
    """Add a reply's text and the blocks in it. Incomplete blocks stay in the text.

    `is_text_only`: the blocks are left out.
    """
    start = 0
    for block in iter_details_blocks(text):
        add_text(text, start, block.start, reply)
        if not is_text_only:
            read_block(block.given, block.body, reply)
        start = block.end
    add_text(text, start, len(text), reply)


def iter_details_blocks(text: str) -> Iterator[DetailsBlock]:
    """Yield the complete blocks of a text, up to a limit.

    A block starts a line, or follows another one. Blocks in fenced code are text.
    """
    at, end = 0, -1
    for _ in range(MOST_BLOCKS):
        found = (_BLOCK.match(text, at) if at == end else None) or find_next_block(text, at)
        # The end is searched once, also for many blocks before it.
        if found is not None and end < found.end() + len(_END):
            at_end = text.find(_END, found.end())
            end = at_end + len(_END) if at_end >= 0 else -1
        if found is None or end < 0:
            return
        at = found.end()
        given = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(found[1])}
        if given.get("type") in KINDS:
            yield DetailsBlock(found.start(), end, given, html.unescape(text[at : end - len(_END)]))
            at = end


def find_next_block(text: str, at: int) -> re.Match[str] | None:
    """Return the next start of a block at the start of a line, outside of fenced code."""
    while (found := _NEXT.search(text, at)) is not None and found[2]:
        # Code without a closing fence ends with the text.
        mark = re.escape(found[2][0])
        closing = re.compile(rf"^ {{0,3}}{mark}{{{len(found[2])},}}[ \t\r]*$", re.MULTILINE)
        closed = closing.search(text, found.end())
        if closed is None:
            return None
        at = closed.end()
    return found


def add_text(text: str, start: int, end: int, reply: ReplyParts) -> None:
    """Add a piece of a text. Line breaks after a block belong to the block."""
    piece = text[start:end].lstrip("\n") if start else text[:end]
    reply.parts += [TextPart(piece)] if piece.strip() else []


def read_block(given: Mapping[str, str], body: str, reply: ReplyParts) -> None:
    """Add a block with these attributes and this text after its summary."""
    kind = given["type"]
    if kind == "reasoning":
        thoughts = unquote_reasoning(body)
        reply.parts += [ReasoningPart(thoughts)] if thoughts.strip() else []
    elif kind == "code_interpreter":
        fence = _FENCE.search(body)
        language, code = (fence[1], fence[2]) if fence else ("", body.strip())
        output = given.get("output")
        reply.add_code(code, language=language, output=output or None)
    else:
        own_id = reply.add_call(
            given.get("id"), given.get("name"), decode_json_text(given.get("arguments", ""))
        )
        files = parse_result_files(decode_json_value(given.get("files", "")), reply.builder)
        result = decode_json_text(given.get("result") or body.strip())
        if result or files or given.get("done") == "true":
            reply.add_own_result(own_id, result, files)


def decode_json_value(text: str) -> object:
    """Return the value of a JSON text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def decode_json_text(text: str) -> str:
    """Return the string in a JSON text; the text itself if it is another value or not JSON."""
    value = decode_json_value(text)
    return value if isinstance(value, str) else text
