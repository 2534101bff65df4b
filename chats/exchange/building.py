"""Builds the draft of a chat from the entries of another product, and names what is lost."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from sys import intern
from typing import Any, Literal

from chats.exchange.drafts import ChatDraft, DraftSummary, Node
from chats.exchange.jsonstream import is_list, items
from contextpolicy.engine import names
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
class SourceEntry:
    """An entry of a file: a message, the result of a tool, or something that is passed over.

    `parts` is empty for all but messages. `result`: the id of the call and its content; an empty id
    stands for the nearest open call before it.
    """

    id: str
    parent: str | None
    role: Role = "user"
    parts: list[Part] = field(default_factory=list)
    ts: int | None = None
    model: str = ""
    result: tuple[str, object] | None = None

    def metadata(self) -> dict[str, object]:
        """Return what is known of the message beside its words."""
        known = {"ts": self.ts, "kind": "normal", "model": self.model}
        return {name: value for name, value in known.items() if value is not None and value != ""}


@dataclass(slots=True)
class Builder:
    """Builds one chat of entries in any order.

    The tree is made of the parents that entries name. Lists of children only give the order, and
    name the parent of an entry that names none itself. `counted` is the number of messages in the
    file, results of tools among them; `lost` is how many of them are not in the draft.
    """

    entries: dict[str, SourceEntry] = field(default_factory=dict)
    children: dict[str, list[str] | str] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    counted: int = 0
    lost: int = 0
    calls: int = 0
    # What an entry without a known parent follows: nothing, or the entry before it in the file.
    is_chain: bool = False

    def add(
        self,
        own_id: str,
        *,
        parent: str | None,
        role: Role,
        parts: Iterable[Part],
        ts: object = None,
        model: object = None,
    ) -> str:
        """Add a message behind another and return its id here. One without parts is passed over."""
        listed = list(parts)
        self.counted += bool(listed)
        own_id, parent = intern(own_id), intern(parent) if parent is not None else None
        known = self.entries.get(own_id)
        if known is not None and known.parts and listed:
            if known.parts == listed and known.parent == parent:
                self.counted -= 1
                return own_id
            self.losses.append(f"id_twice:{own_id[:80]}")
            own_id = f"{own_id}~{len(self.entries)}"
        if known is None or listed:
            by = model[:200] if isinstance(model, str) and role == "assistant" else ""
            self.entries[own_id] = SourceEntry(
                own_id, parent, role, listed, milliseconds(ts), intern(by)
            )
        return own_id

    def skip(self, own_id: str, *, parent: str | None) -> None:
        """Pass an entry over: what follows it goes on from the one before it."""
        parent = intern(parent) if parent is not None else None
        self.entries.setdefault(intern(own_id), SourceEntry(own_id, parent))

    def drop(self, loss: str) -> None:
        """Report a message that cannot be taken."""
        self.counted += 1
        self.lost += 1
        self.losses.append(loss)

    def result(
        self, call_id: str, content: object, *, own_id: str = "", parent: str | None = None
    ) -> None:
        """Add the result of a call; without its id, that of the nearest open call before it."""
        self.counted += 1
        own_id = own_id or f"result-{len(self.entries)}"
        if own_id in self.entries:
            own_id = f"{own_id}~{len(self.entries)}"
        self.entries[own_id] = SourceEntry(own_id, parent, result=(call_id, content))

    def names_children(self, own_id: str, children: object) -> None:
        """Note the order in which the children of an entry stand."""
        listed = [intern(child) for child in items(children) if isinstance(child, str)]
        if listed:
            self.children[intern(own_id)] = listed if len(listed) > 1 else listed[0]

    def parents(self) -> dict[str, str | None]:
        """Return the parent of each entry. Loops are cut, and missing parents are reported."""
        by_children = {
            child: own_id
            for own_id, listed in self.children.items()
            for child in ([listed] if isinstance(listed, str) else listed)
            if own_id in self.entries and not self.has_parent(child)
        }
        found: dict[str, str | None] = {}
        missing: list[str] = []
        before: str | None = None
        for own_id, entry in self.entries.items():
            parent = entry.parent
            if parent == own_id:
                parent = None
            if parent is None or parent not in self.entries:
                is_missing = parent is not None
                parent = by_children.get(own_id)
                if parent is None and is_missing:
                    missing.append(own_id)
                    parent = before if self.is_chain else None
            found[own_id] = parent
            before = own_id
        # The first of all may follow something that no export has.
        roots = sum(parent is None for parent in found.values())
        self.losses += [
            f"parent_missing:{own_id[:80]}"
            for own_id in missing
            if found[own_id] is not None or roots > 1
        ]
        self.cut_loops(found)
        return found

    def has_parent(self, own_id: str) -> bool:
        """Return True if an entry names a parent that is in the file."""
        entry = self.entries.get(own_id)
        return entry is not None and entry.parent in self.entries

    def cut_loops(self, parents: dict[str, str | None]) -> None:
        """Make the first entry of each loop the first of its path."""
        sound: set[str] = set()
        for start in parents:
            path: dict[str, None] = {}
            own_id: str | None = start
            while own_id is not None and own_id not in sound and own_id not in path:
                path[own_id] = None
                own_id = parents[own_id]
            if own_id is not None and own_id in path:
                self.losses.append(f"loop_cut:{own_id[:80]}")
                parents[own_id] = None
            sound.update(path)

    def in_order(self, parents: Mapping[str, str | None]) -> list[str]:
        """Return the ids of all entries: parents first, siblings as their parent lists them."""
        below: dict[str | None, list[str]] = {}
        for own_id, parent in parents.items():
            below.setdefault(parent, []).append(own_id)
        for own_id, listed in self.children.items():
            if not isinstance(listed, str) and len(siblings := below.get(own_id, [])) > 1:
                places = {child: place for place, child in enumerate(listed)}
                siblings.sort(key=lambda child, places=places: places.get(child, len(places)))  # type: ignore[misc]  # bound now
        order: list[str] = []
        waiting = list(reversed(below.get(None, [])))
        while waiting:
            own_id = waiting.pop()
            order.append(own_id)
            waiting += reversed(below.get(own_id, []))
        return order

    def draft(
        self,
        *,
        source: str,
        title: object,
        active: str | None = None,
        summary: DraftSummary | None = None,
    ) -> ChatDraft | Unreadable:
        """Return the chat; without any message it cannot be taken."""
        name = title if isinstance(title, str) else ""
        if not any(entry.parts for entry in self.entries.values()):
            return Unreadable(name, "It has no message that a person or a model wrote.")
        parents = self.parents()
        order = self.in_order(parents)
        # The message that stands for each entry: itself, or the nearest one before it.
        stands: dict[str, str | None] = {}
        for own_id in order:
            parent = parents[own_id]
            before = stands[parent] if parent is not None else None
            stands[own_id] = own_id if self.entries[own_id].parts else before
        self.place_results(order, parents, stands)
        end = stands.get(active) if active is not None else None
        end = end or next(key for key in reversed(self.entries) if self.entries[key].parts)
        nodes = []
        for own_id in order:
            entry = self.entries.pop(own_id)
            if not entry.parts:
                continue
            parent = parents[own_id]
            before = stands[parent] if parent is not None else None
            nodes.append(
                Node(
                    id=short(own_id),
                    role=entry.role,
                    parts=tuple(entry.parts),
                    parent=short(before) if before is not None else None,
                    metadata=entry.metadata(),
                )
            )
        return ChatDraft(
            source=short(source),
            nodes=tuple(nodes),
            active=short(end),
            title=name,
            losses=self.named_losses(),
            counted=self.counted,
            lost=self.lost,
            summary=summary,
        )

    def named_losses(self) -> tuple[str, ...]:
        """Return the losses, as many as are named for one chat."""
        losses = self.losses[:MOST_LOSSES]
        if len(self.losses) > MOST_LOSSES:
            losses.append(f"further_losses:{len(self.losses) - MOST_LOSSES}")
        return tuple(losses)

    def place_results(
        self,
        order: Iterable[str],
        parents: Mapping[str, str | None],
        stands: Mapping[str, str | None],
    ) -> None:
        """Put the results of tools behind their calls; one without a call is reported."""
        open_calls: dict[str, tuple[SourceEntry, ToolCallPart]] = {}
        for entry in self.entries.values():
            for part in entry.parts:
                if isinstance(part, ToolCallPart):
                    open_calls[part.call_id] = (entry, part)
        for own_id in order:
            said = self.entries[own_id].result
            if said is None:
                continue
            call_id, content = said
            if not call_id:
                call_id = self.nearest_call(stands[own_id], parents, stands, open_calls)
            found = open_calls.pop(call_id, None)
            if found is None:
                self.lost += 1
                self.losses.append(f"stray_result:{(call_id or own_id)[:80]}")
                continue
            entry, call = found
            entry.parts.append(ToolResultPart(call.call_id, call.name, text_in(content)))

    def nearest_call(
        self,
        own_id: str | None,
        parents: Mapping[str, str | None],
        stands: Mapping[str, str | None],
        open_calls: Mapping[str, object],
    ) -> str:
        """Return the id of the newest open call on the path to a message; empty: none is open."""
        while own_id is not None:
            for part in reversed(self.entries[own_id].parts):
                if isinstance(part, ToolCallPart) and part.call_id in open_calls:
                    return part.call_id
            parent = parents[own_id]
            own_id = stands[parent] if parent is not None else None
        return ""

    def blocks(self, content: object) -> list[Part]:
        """Read content: a text, or a list of typed blocks as most programs have them."""
        if isinstance(content, str):
            return [TextPart(content)] if content.strip() else []
        found: list[Part] = []
        for block in items(content):
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
            self.calls += 1
            own = str(block.get("id") or f"call-{self.calls}")
            return [ToolCallPart(own, str(block.get("name") or "tool"), json_of(called))]
        if kind in ("image", "image_url", "input_image", "file", "document"):
            name = str(block.get("file_name") or block.get("name") or "")
            return [FilePart("image/*" if "image" in str(kind) else "file/*", name, "")]
        self.losses.append(f"content_dropped:{str(kind)[:40]}")
        return []


def short(own_id: str) -> str:
    """Return an id that can be kept; a long or strange one by a digest of it."""
    if len(own_id) <= 200 and names.is_sound(own_id):
        return own_id
    return "id-" + hashlib.sha256(own_id.encode("utf-8", "surrogatepass")).hexdigest()


def text_in(content: object) -> str:
    """Return the text of a tool's result, whichever form it has."""
    if isinstance(content, str):
        return content
    if is_list(content):
        texts = [
            item["text"]
            for item in items(content)
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
