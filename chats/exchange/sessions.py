"""Parses sessions of agents and of local applications, and plain messages.

The formats are public: Claude Code (github.com/daaain/claude-code-log), pi
(github.com/badlogic/pi-mono, `packages/coding-agent/docs/session.md`), Codex
(github.com/openai/codex, `codex-rs/protocol`), opencode (github.com/sst/opencode, `opencode
export`), and the web UI of llama.cpp (github.com/ggml-org/llama.cpp, `tools/ui`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.crypto import salted_hmac
from django.utils.translation import gettext_noop

from chats.exchange.draft_builder import Builder, Unreadable
from chats.exchange.drafts import ChatDraft, DraftSummary, ImportRefused, find_message_path
from chats.exchange.entry_values import (
    Role,
    encode_as_json,
    extract_result_text,
    shorten_id,
)
from chats.exchange.jsonstream import get_list_items
from chats.exchange.response_items import CALLS, OUTPUTS, build_call, build_reasoning
from contextpolicy.engine.messages.messages import (
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)
from contextpolicy.engine.messages.openai_chat import MalformedChatMessage, parse_chat_messages

Found = ChatDraft | Unreadable


Lines = Iterable[Mapping[str, Any]]


ROLES = ("user", "assistant")


@dataclass(slots=True)
class _ClaudeCode:
    """A Claude Code session while it is being read."""

    builder: Builder = field(default_factory=lambda: Builder(is_chain=True))
    title: str = ""
    source: str = ""
    # The last message outside of side chains.
    last: str | None = None
    # The id and text of the newest compaction, and the entry before it.
    compact: tuple[str, str] | None = None
    compact_parent: str = ""

    def read(self, line: Mapping[str, Any]) -> None:
        own = line.get("uuid")
        self.source = self.source or str(line.get("sessionId") or "")
        if line.get("type") == "summary":
            self.title = self.title or str(line.get("summary") or "")
        if not isinstance(own, str):
            if line.get("type") in ROLES:
                self.builder.drop("message_dropped:no_id")
            return
        parent = line.get("parentUuid")
        parent = line.get("logicalParentUuid") if parent is None else parent
        is_compaction = line.get("subtype") == "compact_boundary" or line.get("isCompactSummary")
        # Older sessions have no parent here.
        parent = self.last if parent is None and is_compaction else parent
        parent = parent if isinstance(parent, str) else None
        message = line.get("message")
        is_said = isinstance(message, Mapping) and message.get("role") in ROLES
        if isinstance(message, Mapping) and is_said and line.get("isCompactSummary"):
            if self.compact is not None:
                self.builder.losses.append("summary_replaced")
            self.compact = (own, extract_result_text(message.get("content")))
            self.compact_parent = parent or ""
        elif isinstance(message, Mapping) and is_said and not line.get("isMeta"):
            self.add(own, message, line, parent=parent)
        elif line.get("type") in ROLES and not is_said:
            self.builder.drop(f"message_dropped:{own[:80]}")
        self.builder.skip(own, parent=parent)

    def before_compaction(self) -> str:
        """Return the id of the last message before the newest compaction; empty without one."""
        # Each entry once: parents of a damaged file can form a loop.
        seen: set[str] = set()
        own = self.compact_parent or None
        while own is not None and own not in seen:
            seen.add(own)
            entry = self.builder.entries.get(own)
            if entry is None:
                break
            if entry.parts:
                return entry.id
            own = entry.parent
        return ""

    def add(
        self, own: str, message: Mapping[str, Any], line: Mapping[str, Any], *, parent: str | None
    ) -> None:
        content = attach_tool_results(message.get("content"), self.builder, own=own, parent=parent)
        parts = self.builder.blocks(content)
        if not parts:
            self.builder.count_dropped()
        else:
            made = self.builder.add(
                own,
                parent=parent,
                role="user" if message["role"] == "user" else "assistant",
                parts=parts,
                ts=line.get("timestamp"),
                model=message.get("model"),
            )
            self.last = self.last if line.get("isSidechain") else made


def parse_claude_code_session(lines: Lines) -> Found:
    """Parse a Claude Code session: a tree by `parentUuid`, with side chains as branches.

    After `/compact`, a new tree begins: `logicalParentUuid` names the entry that it continues, and
    the text that replaces earlier messages becomes a summary.
    """
    session = _ClaudeCode()
    for line in lines:
        session.read(line)
    source = session.source
    before = session.before_compaction()
    found = session.builder.draft(source=source, title=session.title, active=session.last)
    if session.compact is None or isinstance(found, Unreadable):
        return found
    return add_draft_summary(found, session.compact, before=before)


def add_draft_summary(found: ChatDraft, compact: tuple[str, str], *, before: str) -> ChatDraft:
    """Return a draft with a summary of the messages up to and including `before`.

    If the text is empty, or the message is not on the active path or is its end, the draft gets a
    loss instead.
    """
    own, text = compact
    parents = {node.id: node.parent for node in found.nodes}
    path = find_message_path(shorten_id(before), parents)
    if (
        not text.strip()
        or not path
        or path[-1] not in find_message_path(found.active, parents)[:-1]
    ):
        return replace(found, losses=(*found.losses, "summary_left_out:not_on_path"))
    summary = DraftSummary(
        id=shorten_id(own),
        text=text,
        first=path[0],
        last=path[-1],
        exceptions=frozenset(),
        metadata={"kind": "summary"},
    )
    return replace(found, summary=summary)


def attach_tool_results(
    content: object, builder: Builder, *, own: str, parent: str | None
) -> object:
    """Add the tool results in the content to their calls. Return the remaining content."""
    if not isinstance(content, list):
        return content
    rest = []
    for block in content:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            call_id = str(block.get("tool_use_id") or "?")
            builder.result(call_id, block.get("content"), own_id=f"{own}/{call_id}", parent=parent)
        else:
            rest.append(block)
    return rest


def parse_pi_session(lines: Lines) -> Found:
    """Parse a pi session: messages in order. Newer sessions also name the parents of messages."""
    builder = Builder(is_chain=True)
    source = ""
    before: str | None = None
    for place, line in enumerate(lines, start=1):
        if place == 1:
            source = str(line.get("id") or "")
        own = str(line.get("id") or f"line-{place}")
        parent = line.get("parentId", before)
        parent = parent if isinstance(parent, str) else None
        message = line.get("message")
        if line.get("type") != "message" or not isinstance(message, Mapping):
            if line.get("type") not in ("session", "model_change", "thinking_level_change"):
                builder.losses.append(f"entry_dropped:{str(line.get('type'))[:40]}")
            builder.skip(own, parent=parent)
        elif message.get("role") == "toolResult":
            call_id = str(message.get("toolCallId") or "?")
            builder.result(call_id, message.get("content"), own_id=own, parent=parent)
        elif message.get("role") in ROLES:
            own = builder.add(
                own,
                parent=parent,
                role="user" if message["role"] == "user" else "assistant",
                parts=builder.blocks(message.get("content")),
                ts=message.get("timestamp") or line.get("timestamp"),
                model=message.get("model"),
            )
        else:
            builder.losses.append(f"entry_dropped:{str(message.get('role'))[:40]}")
            builder.skip(own, parent=parent)
        before = own
    return builder.draft(source=source, title="")


def parse_codex_session(lines: Lines) -> Found:
    """Parse a Codex session, in which each item follows the previous item."""
    builder = Builder(is_chain=True)
    source, before = "", None
    for place, line in enumerate(lines, start=1):
        item = line.get("payload")
        if not isinstance(item, Mapping):
            if line.get("type") == "response_item":
                builder.drop(f"message_dropped:line-{place}")
            continue
        if line.get("type") == "session_meta":
            source = str(item.get("id") or "")
        elif line.get("type") == "response_item":
            own = f"line-{place}"
            parse_codex_item(
                item, own=own, before=before, ts=line.get("timestamp"), builder=builder
            )
            before = own
    return builder.draft(source=source, title="")


def parse_codex_item(
    item: Mapping[str, Any], *, own: str, before: str | None, ts: object, builder: Builder
) -> None:
    kind = item.get("type")
    if kind in OUTPUTS:
        call_id = str(item.get("call_id") or "?")
        builder.result(call_id, item.get("output"), own_id=own, parent=before)
        return
    parts: list[Part] = []
    if kind == "message" and item.get("role") in ROLES:
        parts = builder.blocks(item.get("content"))
    elif kind in CALLS:
        parts = [build_call(item)]
    elif kind == "reasoning":
        parts = build_reasoning(item)
    elif kind != "message":
        builder.losses.append(f"entry_dropped:{str(kind)[:40]}")
    elif item.get("role") not in ("system", "developer"):
        builder.drop(f"message_dropped:{own}")
    role: Role = "user" if item.get("role") == "user" else "assistant"
    builder.add(own, parent=before, role=role, parts=parts, ts=ts)


def parse_opencode_session(chat: Mapping[str, Any]) -> Found:
    """Parse an opencode session: messages in order, with parts."""
    about = chat["info"]
    if not isinstance(about, Mapping):
        return Unreadable(
            "", gettext_noop("The session’s `info` is not an object. Export the session again.")
        )
    builder = Builder(is_chain=True)
    before: str | None = None
    for place, item in enumerate(get_list_items(chat.get("messages")), start=1):
        info = item.get("info") if isinstance(item, Mapping) else None
        if not isinstance(info, Mapping) or info.get("role") not in ROLES:
            builder.drop(f"message_dropped:{place}")
            continue
        own = str(info.get("id") or f"message-{place}")
        time = info.get("time")
        parts, results = parse_opencode_parts(get_list_items(item.get("parts")), builder)
        made = builder.add(
            own,
            parent=before,
            role="user" if info["role"] == "user" else "assistant",
            parts=parts,
            ts=time.get("created") if isinstance(time, Mapping) else None,
            model=info.get("modelID"),
        )
        for call_id, output in results:
            builder.counted -= 1
            builder.result(call_id, output, own_id=f"{own}/{call_id}", parent=made)
        before = made
    return builder.draft(source=str(about.get("id") or ""), title=about.get("title"))


def parse_opencode_parts(
    listed: Iterable[Any], builder: Builder
) -> tuple[list[Part], list[tuple[str, object]]]:
    """Return the parts of a message, and the results of its tools by call id."""
    parts: list[Part] = []
    results: list[tuple[str, object]] = []
    for part in listed:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("text", "reasoning") and not part.get("synthetic"):
            made = TextPart if kind == "text" else ReasoningPart
            parts += [made(text) for text in builder.texts([part.get("text")])]
        elif kind == "tool":
            call, output = parse_opencode_call(part, number=len(parts))
            parts.append(call)
            results += [(call.call_id, output)] if output is not None else []
        elif kind == "file":
            parts += builder.files([part])
        elif str(kind) not in OPENCODE_OTHERS:
            builder.losses.append(f"content_dropped:{str(kind)[:40]}")
    return parts, results


# Kinds of parts that have no text, only progress information.
OPENCODE_OTHERS = frozenset(
    {"text", "reasoning", "step-start", "step-finish", "snapshot", "patch", "agent", "compaction"}
)


def parse_opencode_call(part: Mapping[str, Any], *, number: int) -> tuple[ToolCallPart, object]:
    """Return a tool call, and its result if there is one."""
    state = part.get("state")
    state = state if isinstance(state, Mapping) else {}
    call_id = str(part.get("callID") or part.get("id") or f"call-{number}")
    called = encode_as_json(state.get("input") or {})
    output = state.get("output", state.get("error"))
    return ToolCallPart(call_id, str(part.get("tool") or "tool"), called), output


def parse_plain_messages(lines: Lines) -> Found:
    """Parse messages with role and content, one per line. System messages are not imported.

    Raises `ImportRefused`.
    """
    listed = list(lines)
    try:
        read = parse_chat_messages(listed)
    except MalformedChatMessage as error:
        raise ImportRefused("import_malformed", str(error)) from error
    builder = Builder(losses=list(read.losses))
    if read.system:
        builder.losses.append("system_text_left_out")
    before = None
    # Keyed with the server's key, because a plain hash of short texts can be guessed.
    digest = salted_hmac("chats.exchange.plain", json.dumps(listed), algorithm="sha256").hexdigest()
    for place, message in enumerate(read.messages, start=1):
        own = f"line-{place}"
        builder.add(own, parent=before, role=message.role, parts=message.parts)
        before = own
    draft = builder.draft(source=f"file:{digest}", title="")
    return draft if isinstance(draft, Unreadable) else replace(draft, has_id=False)
