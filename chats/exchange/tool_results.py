"""Puts the tool results of an imported chat after their calls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

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
)


@dataclass(slots=True)
class ResultPlacer:
    """Puts results after their calls.

    `message_of`: the message for each entry, itself or its nearest ancestor. `losses` receives the
    results without a call; `lost` is their number.
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
            if find_result(self.calls[call_id][0].parts, call_id) is None:
                self.add_result(call_id, "", ())

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
        # An entry with calls is never on disk.
        parts = cast(list[Part], entry.parts)
        append_result(parts, call, "" if is_repeated else text, files)

    def find_nearest_call(self, own_id: str | None) -> str:
        """Return the id of the call that a result without an id belongs to; empty if none.

        It is the nearest call on the path to the message. If that one has a result, it is the
        nearest open call of those directly before it, because calls can be made together.
        """
        nearest = ""
        while own_id is not None:
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


def append_result(
    parts: list[Part], call: ToolCallPart, text: str, files: Sequence[FilePart] = ()
) -> None:
    """Add a result with its files to the parts of a message, or to the result of the same call."""
    place = find_result(parts, call.call_id)
    if place is None:
        parts += [*files, ToolResultPart(call.call_id, call.name, text)]
        return
    known = cast(ToolResultPart, parts[place])
    parts[place] = replace(known, content=JOINT.join(filter(None, (known.content, text))))
    parts[place:place] = [file for file in files if file not in parts]


def find_result(parts: Sequence[Part], call_id: str) -> int | None:
    """Return the index of the result of a call; None if it has none."""
    for place, part in enumerate(parts):
        if isinstance(part, ToolResultPart) and part.call_id == call_id:
            return place
    return None


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
