"""Builds drafts message by message from what other products wrote, and names what is lost."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from chats.exchange.drafts import ChatDraft, Node
from contextpolicy.engine.messages import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

Role = Literal["user", "assistant"]
# So many losses are named for one chat; the rest is counted.
MOST_LOSSES = 50


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A chat of a file that has no known form."""

    title: str
    reason: str


@dataclass(slots=True)
class SourceMessage:
    """A message that is being read."""

    id: str
    parent: str | None
    role: Role
    parts: list[Part]
    metadata: dict[str, object]


@dataclass(slots=True)
class Builder:
    """The messages of one chat so far. What is passed over leads to what stood before it."""

    said: dict[str, SourceMessage] = field(default_factory=dict)
    # The message that stands for each id that was named: itself, or the one before it.
    stands: dict[str, str | None] = field(default_factory=dict)
    calls: dict[str, tuple[SourceMessage, str]] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)

    def add(
        self,
        own_id: str,
        *,
        parent: str | None,
        role: Role,
        parts: Iterable[Part],
        ts: object = None,
        model: object = None,
    ) -> None:
        """Add a message behind another; one without parts is passed over."""
        listed = list(parts)
        if own_id in self.said:
            named = own_id
            if self.said[own_id].parts == listed:
                return
            self.losses.append(f"id_twice:{named[:80]}")
            own_id = f"{named}~{len(self.said)}"
            self.keep(own_id, parent=parent, role=role, parts=listed, ts=ts, model=model)
            self.stands[named] = self.stands[own_id]
            return
        self.keep(own_id, parent=parent, role=role, parts=listed, ts=ts, model=model)

    def keep(
        self,
        own_id: str,
        *,
        parent: str | None,
        role: Role,
        parts: list[Part],
        ts: object,
        model: object,
    ) -> None:
        """Keep a message under an id that no other has."""
        listed, before = parts, self.before(parent)
        if not listed:
            self.stands[own_id] = before
            return
        metadata: dict[str, object] = {"kind": "normal"}
        if (moment := milliseconds(ts)) is not None:
            metadata = {"ts": moment, **metadata}
        if isinstance(model, str) and model and role == "assistant":
            metadata["model"] = model[:200]
        made = SourceMessage(own_id, before, role, listed, metadata)
        self.said[own_id] = made
        self.stands[own_id] = own_id
        for part in listed:
            if isinstance(part, ToolCallPart):
                self.calls[part.call_id] = (made, part.name)

    def skip(self, own_id: str, *, parent: str | None) -> None:
        """Pass a message over: what follows it goes on from the one before it."""
        self.stands[own_id] = self.before(parent)

    def before(self, parent: str | None) -> str | None:
        """Return the message that stands for a parent; None: there is none."""
        return self.stands.get(parent) if parent is not None else None

    def result(self, call_id: str, content: object) -> None:
        """Add the result of a call; one without its call is lost."""
        found = self.calls.pop(call_id, None)
        if found is None:
            self.losses.append(f"stray_result:{call_id[:80]}")
            return
        made, name = found
        made.parts.append(ToolResultPart(call_id, name, text_in(content)))

    def last_call(self, own_id: str | None) -> str:
        """Return the id of the newest open call on the path to a message; empty: none is open."""
        while own_id is not None:
            said = self.said[own_id]
            for part in reversed(said.parts):
                if isinstance(part, ToolCallPart) and part.call_id in self.calls:
                    return part.call_id
            own_id = said.parent
        return ""

    def draft(
        self, *, source: str, title: object, active: str | None = None
    ) -> ChatDraft | Unreadable:
        """Return the chat; without any message it cannot be taken."""
        name = title if isinstance(title, str) else ""
        if not self.said:
            return Unreadable(name, "There is no message in it that people or a model wrote.")
        end = self.before(active) or next(reversed(self.said))
        losses = self.losses[:MOST_LOSSES]
        if len(self.losses) > MOST_LOSSES:
            losses.append(f"further_losses:{len(self.losses) - MOST_LOSSES}")
        return ChatDraft(
            source=short(source),
            nodes=tuple(
                Node(
                    id=short(said.id),
                    role=said.role,
                    parts=tuple(said.parts),
                    parent=short(said.parent) if said.parent is not None else None,
                    metadata=said.metadata,
                )
                for said in self.said.values()
            ),
            active=short(end),
            title=name,
            losses=tuple(losses),
        )

    def blocks(self, content: object) -> list[Part]:
        """Read content: a text, or a list of typed blocks as most programs have them."""
        if isinstance(content, str):
            return [TextPart(content)] if content.strip() else []
        found: list[Part] = []
        for block in content if isinstance(content, list) else []:
            found += self.block(block)
        return found

    def block(self, block: object) -> list[Part]:
        """Read one block; one of an unknown kind is lost, and named."""
        if isinstance(block, str):
            return [TextPart(block)] if block.strip() else []
        if not isinstance(block, Mapping):
            return []
        kind = block.get("type")
        if kind in ("text", "input_text", "output_text"):
            text = block.get("text")
            return [TextPart(text)] if isinstance(text, str) and text.strip() else []
        if kind == "thinking":
            text = block.get("thinking")
            return [ReasoningPart(text)] if isinstance(text, str) and text.strip() else []
        if kind in ("tool_use", "toolCall"):
            called = block.get("input", block.get("arguments", {}))
            own = str(block.get("id") or f"call-{len(self.calls) + len(self.said)}")
            return [ToolCallPart(own, str(block.get("name") or "tool"), json_of(called))]
        if kind in ("image", "image_url", "input_image", "file", "document"):
            name = str(block.get("file_name") or block.get("name") or "")
            return [FilePart("image/*" if "image" in str(kind) else "file/*", name, "")]
        self.losses.append(f"content_dropped:{str(kind)[:40]}")
        return []


def short(own_id: str) -> str:
    """Return an id that can be kept; a long or strange one by a digest of it."""
    if 0 < len(own_id) <= 200 and own_id.isprintable():
        return own_id
    return "id-" + hashlib.sha256(own_id.encode("utf-8", "surrogatepass")).hexdigest()


def text_in(content: object) -> str:
    """Return the text of a tool's result, whichever form it has."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            item["text"]
            for item in content
            if isinstance(item, Mapping) and isinstance(item.get("text"), str)
        ]
        if texts:
            return "\n\n".join(texts)
    return json_of(content) if content is not None else ""


def json_of(value: object) -> str:
    """Write a value as JSON; a text is taken for JSON already."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def milliseconds(ts: object) -> int | None:
    """Return a moment in milliseconds: of seconds, of milliseconds, or of ISO 8601."""
    if isinstance(ts, bool):
        return None
    if isinstance(ts, int | float) and 0 < ts < 10**14:
        return int(ts if ts > 10**11 else ts * 1000)
    if isinstance(ts, str):
        try:
            moment = datetime.fromisoformat(ts)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    return None


def texts_of(values: Iterable[Any]) -> list[str]:
    """Return the texts among values."""
    return [value for value in values if isinstance(value, str) and value.strip()]
