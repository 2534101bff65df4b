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

# The maximum messages that are searched for the call of a result without an id.
LOOKED_AT = 200


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
    # Each call with the id of its entry, and the results of each call that has one.
    calls: dict[str, tuple[str, ToolCallPart]] = field(default_factory=dict)
    results: dict[str, list[Part]] = field(default_factory=dict)

    def place_all(self, order: Iterable[str]) -> None:
        """Place the results of the entries in this order.

        Further results of a call are added to its first one. An empty result is stored only if the
        call has no other.
        """
        for own_id, entry in self.entries.items():
            for part in list_entry_calls(entry):
                self.calls[part.call_id] = (own_id, part)
        for own_id in order:
            self.place(own_id)
        for call_id, parts in self.results.items():
            own_id, call = self.calls[call_id]
            # An entry with calls is never on disk.
            into = cast(list[Part], self.entries[own_id].parts)
            into += join_results(parts or [ToolResultPart(call_id, call.name, "")])

    def place(self, own_id: str) -> None:
        """Find the call of the result of an entry, if it is a result."""
        entry = self.entries[own_id]
        if entry.result is None:
            return
        call_id, content = entry.result
        call_id = call_id or self.find_nearest_call(self.message_of[own_id])
        if call_id not in self.calls:
            self.lost += 1
            self.losses.append(f"stray_result:{(call_id or own_id)[:80]}")
            return
        text = extract_result_text(content)
        found = self.results.setdefault(call_id, [])
        if text.strip() or entry.files:
            found += [*entry.files, ToolResultPart(call_id, self.calls[call_id][1].name, text)]

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
                if call_id not in self.results:
                    return call_id
            nearest = nearest or next(iter(calls), "")
            parent = self.parents[own_id]
            own_id = self.message_of[parent] if parent is not None else None
        return nearest


@dataclass(slots=True)
class _Result:
    """The first result of a call, the texts of all its results, and the files before each."""

    first: ToolResultPart
    texts: list[str]
    files: list[FilePart]

    def join(self) -> list[Part]:
        content = JOINT.join(filter(None, dict.fromkeys(self.texts)))
        return [*dict.fromkeys(self.files), replace(self.first, content=content)]


def join_results(parts: Iterable[Part]) -> list[Part]:
    """Return the parts of a message with one result for each call, in place of its first one.

    The files directly before a result stay directly before it. Repeated texts and files are there
    once.
    """
    joined: list[Part | _Result] = []
    results: dict[str, _Result] = {}
    files: list[FilePart] = []
    for part in parts:
        if isinstance(part, FilePart):
            files.append(part)
            continue
        if isinstance(part, ToolResultPart) and part.call_id in results:
            results[part.call_id].texts.append(part.content)
            results[part.call_id].files += files
        elif isinstance(part, ToolResultPart):
            results[part.call_id] = _Result(part, [part.content], files)
            joined.append(results[part.call_id])
        else:
            joined += [*files, part]
        files = []
    joined += files
    return [
        one for item in joined for one in (item.join() if isinstance(item, _Result) else [item])
    ]


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
