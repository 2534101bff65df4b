"""Puts the tool results of an imported chat after their calls."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from chats.exchange.draft_messages import LONGEST_MESSAGE
from chats.exchange.entry_values import SourceEntry, extract_result_text, list_entry_calls
from contextpolicy.engine.messages.messages import (
    JOINT,
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    name_result_image,
    parse_result_image,
    serialize_parts,
)

# The maximum messages that are searched for the call of a result without an id.
LOOKED_AT = 200
# Characters of a message that results leave free: reasoning in texts becomes parts, and images in
# results get longer names.
KEPT_FREE = 100_000


class ResultCollector:
    """Collects the results of the calls in one message, and joins those of each call once.

    `parts` gets a result for each call with one, where its first result was added. `losses`
    receives those that would make the message longer than an import may store.
    """

    def __init__(self, parts: list[Part], losses: list[str]) -> None:
        self.parts = parts
        self.losses = losses
        self.texts: dict[str, list[str]] = {}
        self.files: dict[str, dict[FilePart, None]] = {}
        # The calls whose result was in the message from the beginning.
        self.own = {part.call_id for part in parts if isinstance(part, ToolResultPart)}

    def has_result(self, call_id: str) -> bool:
        """Return True if the message has a result of a call, maybe an empty one."""
        return call_id in self.texts or call_id in self.own

    def add(self, call: ToolCallPart, text: str, files: Sequence[FilePart] = ()) -> None:
        """Add a result with its files after the parts, or to the result of the same call."""
        if not self.has_result(call.call_id):
            self.parts.append(ToolResultPart(call.call_id, call.name, ""))
        texts = self.texts.setdefault(call.call_id, [])
        texts += [text] if text else []
        self.files.setdefault(call.call_id, {}).update(dict.fromkeys(files))

    def finish(self) -> int:
        """Write the collected results into the parts. Return the number of those left out."""
        if not self.texts:
            return 0
        room = LONGEST_MESSAGE - KEPT_FREE - sum(map(measure_part, self.parts))
        known = {part for part in self.parts if isinstance(part, FilePart)}
        found: list[Part] = []
        lost = 0
        for part in self.parts:
            if not isinstance(part, ToolResultPart) or part.call_id not in self.texts:
                found.append(part)
                continue
            files = [file for file in self.files.pop(part.call_id) if file not in known]
            known.update(files)
            room -= sum(map(measure_part, files))
            kept = [part.content] if part.content else []
            for text in self.texts.pop(part.call_id):
                size = measure_text(JOINT + text)
                if size <= room:
                    room -= size
                    kept.append(text)
                else:
                    lost += 1
                    self.losses.append(f"result_dropped:{part.call_id[:80]}")
            found += [*files, ToolResultPart(part.call_id, part.name, JOINT.join(kept))]
        self.parts[:] = found
        return lost


@dataclass(slots=True)
class ResultPlacer:
    """Puts results after their calls.

    `message_of`: the message for each entry, itself or its nearest ancestor. `losses` receives the
    results without a call, and those for which the message has no room; `lost` is their number.
    """

    entries: Mapping[str, SourceEntry]
    parents: Mapping[str, str | None]
    message_of: Mapping[str, str | None]
    losses: list[str]
    lost: int = 0
    # Each call with its entry, and the calls that have a result, maybe an empty one.
    calls: dict[str, tuple[SourceEntry, ToolCallPart]] = field(default_factory=dict)
    answered: dict[str, None] = field(default_factory=dict)
    # The texts of the placed results, with the call of each.
    texts: set[tuple[str, str]] = field(default_factory=set)
    # The results of each message, by the id of its entry.
    collectors: dict[str, ResultCollector] = field(default_factory=dict)

    def place_all(self, order: Iterable[str]) -> None:
        """Place the results of the entries in this order.

        Further results of a call are added to its first one. An empty result is stored only if the
        call has no other.
        """
        for entry in self.entries.values():
            for part in list_entry_calls(entry):
                self.calls[part.call_id] = (entry, part)
        for own_id in order:
            self.place(own_id)
        for call_id in self.answered:
            self.add_result(call_id, "", ())
        for collector in self.collectors.values():
            self.lost += collector.finish()

    def place(self, own_id: str) -> None:
        """Place the result of an entry, if it is one."""
        entry = self.entries[own_id]
        if entry.result is None:
            return
        call_id, content = entry.result
        call_id = call_id or self.find_nearest_call(self.message_of[own_id])
        if call_id not in self.calls:
            self.lost += 1
            self.losses.append(f"stray_result:{(call_id or own_id)[:80]}")
            return
        self.answered[call_id] = None
        text = extract_result_text(content)
        if text.strip() or entry.files:
            self.add_result(call_id, text, entry.files)

    def add_result(self, call_id: str, text: str, files: Sequence[FilePart]) -> None:
        """Add a result with its files to a call. The text of a repeated result is not repeated."""
        entry, call = self.calls[call_id]
        is_repeated = (call_id, text) in self.texts
        self.texts.add((call_id, text))
        if entry.id not in self.collectors:
            # An entry with calls is never on disk.
            parts = cast(list[Part], entry.parts)
            self.collectors[entry.id] = ResultCollector(parts, self.losses)
        self.collectors[entry.id].add(call, "" if is_repeated else text, files)

    def find_nearest_call(self, own_id: str | None) -> str:
        """Return the id of the call that a result without an id belongs to; empty if none.

        It is the nearest call on the path to the message. If that one has a result, it is the
        nearest open call of those directly before it, because calls can be made together.
        """
        nearest = ""
        for _ in range(LOOKED_AT):
            if own_id is None:
                break
            calls = [part.call_id for part in list_entry_calls(self.entries[own_id])][::-1]
            if nearest and not calls:
                break
            for call_id in calls:
                if call_id not in self.answered:
                    return call_id
            nearest = nearest or next(iter(calls), "")
            parent = self.parents[own_id]
            own_id = self.message_of[parent] if parent is not None else None
        return nearest


def measure_part(part: Part) -> int:
    """Return the characters that a part takes in a stored message.

    An image or a file in a data URL is stored elsewhere, so only a short reference counts.
    """
    if isinstance(part, FilePart) and part.reference.startswith("data:"):
        part = FilePart(part.media_type, part.name, "-" * 200, part.text)
    return measure_text(serialize_parts([part]))


def measure_text(value: object) -> int:
    """Return the characters of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False))


def name_result_images(parts: Sequence[Part]) -> Sequence[Part]:
    """Return a reply's parts with the images directly before a result as images of this result.

    Returns the same object if there are none. Images whose bytes are not known are not changed.
    """
    found = [*parts]
    for place in range(len(found) - 2, -1, -1):
        part, behind = found[place], found[place + 1]
        if not isinstance(part, FilePart) or part.image is None or parse_result_image(part)[0]:
            continue
        if isinstance(behind, ToolResultPart):
            call_id, offset = behind.call_id, len(behind.content)
        elif isinstance(behind, FilePart) and parse_result_image(behind)[0]:
            call_id, offset = parse_result_image(behind)
        else:
            continue
        found[place] = name_result_image(part, call_id=call_id, offset=offset)
    return parts if found == [*parts] else tuple(found)


def split_files(parts: Iterable[Part]) -> tuple[list[str], list[FilePart]]:
    """Return the texts and the files of a result."""
    listed = [*parts]
    texts = [part.text for part in listed if isinstance(part, TextPart)]
    return texts, [part for part in listed if isinstance(part, FilePart)]
