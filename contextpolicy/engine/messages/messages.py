"""The value types above the provider adapters.

They contain no vendor types and no database rows. A `Message` is a stored message (roles `user` and
`assistant`, tool calls and their results as parts). A `WireMessage` is the input of an adapter
(roles `system` and `tool` exist only on the wire).
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from contextpolicy.engine.messages.files import (
    CLEANED_LINE,
    add_missing_text_note,
    build_file_label,
    format_document,
    parse_document_reference,
)
from contextpolicy.engine.messages.images import NAMED_LINE, Image, parse_image_reference

Role = Literal["user", "assistant"]
WireRole = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text that is shown to users."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """A model's thoughts before its reply; stored and shown.

    They are sent back only with tool calls whose server requires them (see `extras`).
    """

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A model's request to run a tool; `arguments` is the JSON text as the model wrote it.

    `extra` is JSON text that the model's server requires to be sent back with the call (see
    `extras`).
    """

    call_id: str
    name: str
    arguments: str
    extra: str = ""


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The result of the tool call with the same id."""

    call_id: str
    name: str
    content: str


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file that belongs to a message: its name and location, and the text of a document.

    `reference` is an internal label or a URL. The model gets the name and the type, and for a
    document (see `files`) also `text`, which may be cut. For an image in a user message or a tool
    result (see `images`), the model gets the image.
    """

    media_type: str
    name: str
    reference: str
    text: str = ""

    @property
    def image(self) -> Image | None:
        """The image that the reference marks; None for any other file."""
        return parse_image_reference(self.reference)


# The name of an image in a tool result: the offset in the result's text, and the id of its call.
_OF_RESULT = re.compile(r"(\d{1,9}):(.+)", re.DOTALL)

Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | FilePart

LONGEST_FILE_NAME = 100
# The separator between the texts of one message.
JOINT = "\n\n"


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message of a branch.

    `id` is an opaque label of the database row. `seq` counts from 1 without gaps. `tokens` is the
    stored count of the whole message as sent (`tokens.count_uncut_tokens`). `excluded` and
    `incomplete` messages are omitted from prompts; `left` is any other reason to omit a message.
    `speaker` and `role_id` identify a team member, `addressees` are the names of the recipients.
    `day` is the ISO day of the message ("2023-05-08", in the chat's time zone); empty if prompts of
    the chat contain no dates.
    """

    id: str
    seq: int
    role: Role
    parts: tuple[Part, ...]
    tokens: int
    speaker: str = ""
    role_id: str = ""
    addressees: tuple[str, ...] = ()
    left: str = ""
    turn: str = ""
    pinned: bool = False
    excluded: bool = False
    incomplete: bool = False
    created_at: str = ""
    day: str = ""


class WireMessage(NamedTuple):
    """One message as passed to an adapter, before conversion to a provider's format.

    `images` are positioned by character offsets in `content`; an offset past the end of a cut text
    means its end. `thoughts` precede calls whose server requires them back (see `extras`).
    """

    role: WireRole
    content: str
    tool_calls: tuple[ToolCallPart, ...] = ()
    tool_call_id: str = ""
    images: tuple[tuple[int, FilePart], ...] = ()
    thoughts: str = ""

    def shown(self, *, by_hash: bool = False) -> str:
        """Return the text with one line for each image.

        `by_hash`: the line includes the image's hash, or its URL.
        """
        if not self.images:
            return self.content
        write = format_image_text if by_hash else format_file_text
        return JOINT.join(p if isinstance(p, str) else write(p) for p in self.pieces())

    def pieces(self) -> list[str | FilePart]:
        """Return texts and images in order, without the blank lines between them."""
        found: list[str | FilePart] = []
        start = 0
        for place, part in self.images:
            found += [self.content[start:place].removeprefix(JOINT), part]
            start = place
        found.append(self.content[start:].removeprefix(JOINT) if start else self.content[start:])
        return [piece for piece in found if piece]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool offered to the model; `parameters` is its JSON Schema.

    `strict` is the tool owner's setting; None: it is not sent. `hosted`: the provider runs the
    tool, and `parameters` is its whole definition, in the provider's own format.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    strict: bool | None = None
    hosted: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """An active summary: it covers the messages `from_seq`..`to_seq` except `exceptions`.

    `exceptions` are the seqs in the range that were not sources (pinned, excluded or incomplete at
    the time). `tokens` counts `text` alone.
    """

    id: str
    text: str
    from_seq: int
    to_seq: int
    exceptions: tuple[int, ...]
    tokens: int


class MalformedParts(ValueError):
    """The stored or imported parts of a message are malformed."""

    code = "malformed_parts"


_TYPES: dict[str, tuple[type[Part], tuple[str, ...]]] = {
    "text": (TextPart, ("text",)),
    "reasoning": (ReasoningPart, ("text",)),
    "tool_call": (ToolCallPart, ("call_id", "name", "arguments")),
    "tool_result": (ToolResultPart, ("call_id", "name", "content")),
    "file": (FilePart, ("media_type", "name", "reference")),
}
# Fields that are omitted if empty.
_OPTIONAL: Mapping[type[Part], str] = {ToolCallPart: "extra", FilePart: "text"}
_NAMES: dict[type[Part], str] = {kind: name for name, (kind, _) in _TYPES.items()}


def parse_parts(data: object) -> tuple[Part, ...]:
    """Parse parts from their JSON form, a list of objects with a `type`.

    Raises MalformedParts if the value is not a list, or if a part has an unknown type or a missing,
    extra or non-text field.
    """
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise MalformedParts("The parts of a message must be a list. Send a list of objects.")
    return tuple(_part_from_json(item, place) for place, item in enumerate(data, start=1))


def serialize_parts(parts: Sequence[Part]) -> list[dict[str, str]]:
    """Convert parts to the JSON form that `parse_parts` parses."""
    written = []
    for part in parts:
        name = _NAMES[type(part)]
        fields = {field: str(getattr(part, field)) for field in _TYPES[name][1]}
        optional = _OPTIONAL.get(type(part), "")
        if optional and (value := getattr(part, optional)):
            fields[optional] = value
        written.append({"type": name, **fields})
    return written


def extract_message_text(message: Message) -> str:
    """Return the visible text of a message: its text parts, separated by blank lines."""
    return JOINT.join(part.text for part in message.parts if isinstance(part, TextPart))


def format_file_text(part: FilePart) -> str:
    """Format a file for the model as one short line. All files cost about the same."""
    if (image := part.image) is not None:
        told = f"{image.size:,} bytes" if image.sha256 else "at an address"
        return f"[Image: {_describe_image(part, image)}, {told}]"
    named = f"{part.name} ({part.media_type})"
    document = parse_document_reference(part.reference)
    if document is not None and document.line >= CLEANED_LINE:
        return f"[Attached file: {build_file_label(named, limit=LONGEST_FILE_NAME)}]"
    return f"[Attached file: {' '.join(named.split())[:LONGEST_FILE_NAME]}]"


def format_file_content(part: FilePart) -> str:
    """Return the text of a file for the model: a document's text as data, else one short line."""
    document = parse_document_reference(part.reference)
    if document is not None and part.text:
        return format_document(part.name, document, part.text)
    return add_missing_text_note(format_file_text(part), document)


def format_image_text(part: FilePart) -> str:
    """Return an image's line for models that accept no images, and in receipts.

    It has the type, for newer images also the name and the size in pixels, then the size in bytes
    and the hash, or the URL.
    """
    image = part.image
    if image is None:
        return format_file_text(part)
    place = f"{image.size:,} bytes, SHA-256 {image.sha256}" if image.sha256 else image.url
    return f"[Image: {_describe_image(part, image)}, {place}]"


def _describe_image(part: FilePart, image: Image) -> str:
    """Return the type of an image. In a line of version 2, with its name and size in pixels."""
    if image.line < NAMED_LINE:
        return part.media_type
    # The name of an image in a tool result is internal.
    name = "" if parse_result_image(part)[0] else part.name
    label = build_file_label(name, limit=LONGEST_FILE_NAME)
    told = [f'"{label}"'] if label else []
    told.append(build_file_label(part.media_type, limit=LONGEST_FILE_NAME))
    told += [f"{image.width:,} × {image.height:,} pixels"] if image.width else []
    return ", ".join(told)


def _part_from_json(item: object, place: int) -> Part:
    kind_name = item.get("type") if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or not isinstance(kind_name, str) or kind_name not in _TYPES:
        raise MalformedParts(
            f"Part {place} of the message has no known type. Use one of: {', '.join(_TYPES)}."
        )
    kind, fields = _TYPES[kind_name]
    if _OPTIONAL.get(kind) in item:
        fields = (*fields, _OPTIONAL[kind])
    if set(item) != {"type", *fields} or not all(isinstance(item[name], str) for name in fields):
        raise MalformedParts(
            f"Part {place} of the message is of type {kind_name!r} and needs exactly these text "
            f"fields: {', '.join(fields)}."
        )
    return kind(*(item[name] for name in fields))


def name_result_image(part: FilePart, *, call_id: str, offset: int) -> FilePart:
    """Return an image as part of the result of a call, at an offset in the result's text.

    The image part is stored before the result, in the same message.
    """
    return replace(part, name=f"{offset}:{call_id}")


def parse_result_image(part: FilePart) -> tuple[str, int]:
    """Return the call id and the offset of an image in a tool result.

    The id is empty if the file is not an image in a tool result.
    """
    found = _OF_RESULT.fullmatch(part.name) if part.image is not None else None
    return (found[2], int(found[1])) if found else ("", 0)


def find_result_images(parts: Sequence[Part]) -> dict[str, list[tuple[int, FilePart]]]:
    """Return the images in the tool results of a message, by call id, with their text offsets.

    Images of a call without a stored result are left out.
    """
    images: dict[str, list[tuple[int, FilePart]]] = defaultdict(list)
    for part in parts:
        if isinstance(part, FilePart) and (place := parse_result_image(part))[0]:
            images[place[0]].append((place[1], part))
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    return {call_id: found for call_id, found in images.items() if call_id in answered}


def convert_parts_to_wires(role: Role, parts: Sequence[Part]) -> list[WireMessage]:
    """Convert valid parts (see `turn_groups.repair_tool_parts`) to wire messages.

    Reasoning is omitted, except for the part that a server requires to be sent back with its calls.
    An assistant's texts and calls up to the first result form one message. Each result forms one
    message of role `tool`, with its images. Parts after the results start the next assistant
    message. Returns an empty list if the parts have no content to send.
    """
    wires: list[WireMessage] = []
    texts: list[str] = []
    calls: list[ToolCallPart] = []
    results: list[ToolResultPart] = []
    images: list[tuple[int, FilePart]] = []
    thoughts: list[str] = []
    parts, shown = _split_result_images(role, parts)
    for part in parts:
        if isinstance(part, ToolResultPart):
            results.append(part)
        elif isinstance(part, FilePart) and role == "user" and part.image is not None:
            images.append((len(JOINT.join(texts)), part))
        elif isinstance(part, ReasoningPart):
            thoughts.append(part.text)
        else:
            if results:
                wires += _step(role, texts, calls, results, thoughts, shown)
                texts, calls, results, thoughts = [], [], [], []
            if isinstance(part, ToolCallPart):
                calls.append(part)
            else:
                texts.append(part.text if isinstance(part, TextPart) else format_file_content(part))
    step = _step(role, texts, calls, results, thoughts, shown)
    if not images:
        return wires + step
    # Only a user's message has images, and it has no calls: it is one wire message, even without
    # text.
    return [WireMessage(role, JOINT.join(texts), images=tuple(images))]


def _split_result_images(
    role: Role, parts: Sequence[Part]
) -> tuple[Sequence[Part], dict[str, list[tuple[int, FilePart]]]]:
    """Return the parts of a message without the images of its tool results, and those images."""
    shown = find_result_images(parts) if role == "assistant" else {}
    if not shown:
        return parts, {}
    kept = [
        part
        for part in parts
        if not (isinstance(part, FilePart) and parse_result_image(part)[0] in shown)
    ]
    return kept, shown


def _step(
    role: Role,
    texts: list[str],
    calls: list[ToolCallPart],
    results: list[ToolResultPart],
    thoughts: list[str],
    shown: Mapping[str, Sequence[tuple[int, FilePart]]],
) -> list[WireMessage]:
    content = JOINT.join(texts)
    head = [WireMessage(role, content, tuple(calls))] if content or calls else []
    if thoughts and any(call.extra for call in calls):
        head = [head[0]._replace(thoughts=JOINT.join(thoughts))]
    return head + [
        WireMessage("tool", part.content, (), part.call_id, tuple(shown.get(part.call_id, ())))
        for part in results
    ]
