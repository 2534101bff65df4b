"""Builds the draft of a chat from another product's entries, and lists the losses."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import cast

from django.utils.crypto import salted_hmac
from django.utils.functional import Promise
from django.utils.translation import gettext_noop

from chats.exchange.drafts import ChatDraft, DraftSummary, Node
from chats.exchange.entry_values import (
    Role,
    SourceEntry,
    derive_source,
    encode_as_json,
    parse_milliseconds,
    shorten_id,
)
from chats.exchange.jsonstream import get_list_items, is_json_list
from chats.exchange.named_files import build_named_file
from chats.exchange.shelf import IN_MEMORY, Shelf, shelve_node
from chats.exchange.thoughts import extract_reasoning_parts
from chats.exchange.tool_results import ResultPlacer
from chats.ground.texts import sanitise_text
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)

# Maximum number of losses listed for a chat; the others are counted.
MOST_LOSSES = 50


# Prefix of the loss of content that has an unknown form.
DROPPED = "content_dropped:"


# Types of blocks that are files.
FILES = frozenset(
    {"image", "image_url", "image_file", "input_image", "file", "input_file", "document"}
)
# Names of JSON types where a text was expected.
NAMES = {dict: "object", list: "list", bool: "boolean", int: "number", float: "number"}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A chat in a file that cannot be imported, with the reason."""

    title: str
    reason: str | Promise


@dataclass(slots=True)
class Builder:
    """Builds one chat from entries in any order.

    The tree follows the parents that entries name. Lists of children determine the order of
    siblings, and the parent of an entry that names none. `counted` is the number of messages in the
    file, including tool results. `lost` is the number of those missing from the draft.
    """

    entries: dict[str, SourceEntry] = field(default_factory=dict)
    children: dict[str, list[str] | str] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    counted: int = 0
    lost: int = 0
    # The number of losses when the last entry was complete.
    reported: int = 0
    calls: int = 0
    # The next number of a new id, by the known id.
    numbers: dict[str, int] = field(default_factory=dict)
    # Whether an entry without a known parent follows the previous entry of the file.
    is_chain: bool = False
    # Holds the content of all but the first entries on disk.
    shelf: Shelf = field(default_factory=Shelf)

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
        """Add a message after `parent` and return its id in the draft.

        A message without parts is skipped. If its content was dropped, it counts as lost. An exact
        repetition is ignored; another message with a known id gets a new id.
        """
        listed = list(parts)
        self.counted += bool(listed)
        if not listed:
            self.count_dropped()
        self.reported = len(self.losses)
        own_id, parent = intern(own_id), intern(parent) if parent is not None else None
        known = self.entries.get(own_id)
        if known is not None and known.parts and listed:
            if [*known.parts] == listed and known.parent == parent:
                self.counted -= 1
                return own_id
            self.losses.append(f"id_twice:{own_id[:80]}")
            own_id = self.find_free_id(own_id)
        if known is None or listed:
            is_named = isinstance(model, str) and role == "assistant"
            by = sanitise_text(cast(str, model)[:200]) if is_named else ""
            self.entries[own_id] = SourceEntry(
                own_id, parent, role, self.shelved(listed), parse_milliseconds(ts), intern(by)
            )
        return own_id

    def find_free_id(self, own_id: str) -> str:
        """Return an id that no entry has yet, for another entry with a known id."""
        number = max(self.numbers.get(own_id, 0), len(self.entries))
        while (free := f"{own_id}~{number}") in self.entries:
            number += 1
        self.numbers[own_id] = number + 1
        return free

    def shelved(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Return the parts of an entry, moved to disk if the chat is large.

        Calls stay in memory until their results are known.
        """
        if len(self.entries) < IN_MEMORY or any(isinstance(part, ToolCallPart) for part in parts):
            return parts
        return self.shelf.parts(parts)

    def skip(self, own_id: str, *, parent: str | None) -> None:
        """Leave out an entry that is not a message. Its children are attached to its parent."""
        parent = intern(parent) if parent is not None else None
        self.entries.setdefault(intern(own_id), SourceEntry(own_id, parent))
        self.reported = len(self.losses)

    def drop(self, loss: str) -> None:
        """Record the loss of content that cannot be imported."""
        self.counted += 1
        self.lost += 1
        self.losses.append(loss)
        self.reported = len(self.losses)

    def count_dropped(self) -> None:
        """Count a message as lost if its content was dropped since the previous entry."""
        is_dropped = self.has_dropped()
        self.counted += is_dropped
        self.lost += is_dropped
        self.reported = len(self.losses)

    def has_dropped(self) -> bool:
        """Return True if content was dropped since the previous entry."""
        return any(loss.startswith(DROPPED) for loss in self.losses[self.reported :])

    def result(
        self,
        call_id: str,
        content: object,
        *,
        own_id: str = "",
        parent: str | None = None,
        files: Sequence[FilePart] = (),
    ) -> None:
        """Add the result of a call, with its files.

        Without an id, it belongs to the nearest preceding call.
        """
        self.counted += 1
        if not content and not files:
            self.lost += self.has_dropped()
        own_id = own_id or f"result-{len(self.entries)}"
        if own_id in self.entries:
            own_id = self.find_free_id(own_id)
        entry = SourceEntry(own_id, parent, result=(call_id, content), files=files)
        self.entries[own_id] = entry
        self.reported = len(self.losses)

    def names_children(self, own_id: str, children: object) -> None:
        listed = [intern(child) for child in get_list_items(children) if isinstance(child, str)]
        if listed:
            self.children[intern(own_id)] = listed if len(listed) > 1 else listed[0]

    def parents(self) -> dict[str, str | None]:
        """Return the parent of each entry. Breaks loops and reports missing parents."""
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
            if parent is None or parent == own_id or parent not in self.entries:
                is_missing = parent is not None
                parent = by_children.get(own_id)
                if parent is None and is_missing:
                    missing.append(own_id)
                    parent = before if self.is_chain else None
            found[own_id] = parent
            before = own_id
        # The first entry may follow one that is never exported.
        roots = sum(parent is None for parent in found.values())
        self.losses += [
            f"parent_missing:{own_id[:80]}"
            for own_id in missing
            if found[own_id] is not None or roots > 1
        ]
        self.cut_loops(found)
        return found

    def has_parent(self, own_id: str) -> bool:
        """Return True if the file contains the parent that an entry names."""
        entry = self.entries.get(own_id)
        return entry is not None and entry.parent != own_id and entry.parent in self.entries

    def cut_loops(self, parents: dict[str, str | None]) -> None:
        """Break each loop by turning its first entry into a root."""
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
        """Return the ids of all entries: parents first, siblings in their parent's order."""
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
        pinned: object = None,
        archived: object = None,
        folder: object = None,
    ) -> ChatDraft | Unreadable:
        """Return the chat, or `Unreadable` if it has no messages.

        `source`: the id of the chat; if empty, one is derived from its messages. `active`: the last
        entry of the active path. Without it, this is the last message added. `pinned`, `archived`:
        the values of the file, which count if they are True. `folder`: an object with its name, or
        its id, with which it cannot be found.
        """
        name = title if isinstance(title, str) else ""
        if not any(entry.parts for entry in self.entries.values()):
            return Unreadable(
                name, gettext_noop("The chat contains no messages from a user or a model.")
            )
        folder_name = self.find_folder_name(folder)
        own_ids = [own_id for own_id, entry in self.entries.items() if entry.parts]
        # Keyed with the server's key, because a plain hash of short texts can be guessed.
        content = salted_hmac("chats.exchange.content", name, algorithm="sha256")
        parents = self.parents()
        order = self.in_order(parents)
        # The message for each entry: itself, or its nearest ancestor that is a message.
        message_of: dict[str, str | None] = {}
        for own_id in order:
            parent = parents[own_id]
            before = message_of[parent] if parent is not None else None
            message_of[own_id] = own_id if self.entries[own_id].parts else before
        placer = ResultPlacer(self.entries, parents, message_of, self.losses)
        placer.place_all(order)
        self.lost += placer.lost
        end = message_of.get(active) if active is not None else None
        end = end or next(key for key in reversed(self.entries) if self.entries[key].parts)
        nodes = []
        is_large = len(order) > IN_MEMORY
        for own_id in order:
            entry = self.entries.pop(own_id)
            if not entry.parts:
                continue
            parent = parents[own_id]
            before = message_of[parent] if parent is not None else None
            node = Node(
                id=shorten_id(own_id),
                role=entry.role,
                parts=extract_reasoning_parts(entry.parts)
                if entry.role == "assistant"
                else entry.parts,
                parent=shorten_id(before) if before is not None else None,
                metadata=entry.metadata(),
            )
            if not source:
                said = [part.text for part in node.parts if isinstance(part, TextPart)]
                content.update(json.dumps([node.role, said]).encode())
            nodes.append(shelve_node(node, self.shelf) if is_large else node)
        return ChatDraft(
            source=shorten_id(source) if source else derive_source(own_ids, content.hexdigest),
            has_id=bool(source),
            nodes=tuple(nodes),
            active=shorten_id(end),
            title=name,
            losses=self.named_losses(),
            counted=self.counted,
            lost=self.lost,
            summary=summary,
            folder=folder_name,
            pinned=pinned is True,
            archived=archived is True,
        )

    def find_folder_name(self, folder: object) -> str:
        """Return the name of a folder. Any other value that is not empty is a loss."""
        name = folder.get("name") if isinstance(folder, Mapping) else None
        if isinstance(name, str) and name:
            return name
        self.losses += ["project_left_out"] if folder else []
        return ""

    def named_losses(self) -> tuple[str, ...]:
        """Return the losses of the chat for its report, up to the limit."""
        losses = self.losses[:MOST_LOSSES]
        if len(self.losses) > MOST_LOSSES:
            losses.append(f"further_losses:{len(self.losses) - MOST_LOSSES}")
        return tuple(losses)

    def blocks(self, content: object) -> list[Part]:
        """Parse content: text, or a list of typed blocks."""
        if not is_json_list(content):
            return [TextPart(text) for text in self.texts([content])]
        found: list[Part] = []
        for block in get_list_items(content):
            found += self.block(block)
        return found

    def block(self, block: object) -> list[Part]:
        """Parse one block. An unknown type is reported as a loss."""
        if not isinstance(block, Mapping):
            return [TextPart(text) for text in self.texts([block])]
        kind = block.get("type")
        if kind in ("text", "input_text", "output_text"):
            return [TextPart(text) for text in self.texts([block.get("text")])]
        if kind == "thinking":
            return [ReasoningPart(text) for text in self.texts([block.get("thinking")])]
        if kind in ("tool_use", "toolCall"):
            called = block.get("input", block.get("arguments", {}))
            self.calls += 1
            own = str(block.get("id") or f"call-{self.calls}")
            return [ToolCallPart(own, str(block.get("name") or "tool"), encode_as_json(called))]
        if kind in FILES:
            return [*self.files([block], is_image="image" in str(kind))]
        self.losses.append(f"content_dropped:{str(kind)[:40]}")
        return []

    def files(self, listed: Iterable[object], *, is_image: bool = False) -> list[FilePart]:
        """Return the files of a message. Those without content are a loss."""
        found = [build_named_file(item, is_image=is_image) for item in listed]
        self.losses += ["file_by_name_only" for part in found if not part.reference]
        return found

    def texts(self, values: Iterable[object]) -> list[str]:
        """Return the strings among the values. Any other value that is not empty is a loss."""
        found = []
        for value in values:
            if isinstance(value, str):
                found += [value] if value.strip() else []
            elif value is not None and value not in ([], {}):
                self.losses.append(f"{DROPPED}{NAMES.get(type(value), 'value')}")
        return found
