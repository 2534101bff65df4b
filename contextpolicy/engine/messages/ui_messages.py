"""UI messages: the JSON form in which chats are stored, shown, exported and imported.

A UI message is an object {id, role, parts, metadata}, with the role `user` or `assistant`. A tool
call and its result are one part, `tool-NAME`. Conversions lose only content that the other format
cannot express. Each loss is reported (`KIND:detail`), and a message that cannot be parsed is
rejected.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from contextpolicy.engine.messages.messages import (
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Role,
    Summary,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    extract_message_text,
)
from contextpolicy.engine.messages.tokens import TokenCounter, count_uncut_tokens
from contextpolicy.engine.strict_json import load_strict_json

Kind = Literal["normal", "summary"]
# Metadata keys of this product, in their usual order. A value of an unexpected type is kept like
# that of any other key.
METADATA = (
    "ts",
    "chatKey",
    "channel",
    "chatId",
    "userId",
    "username",
    "messageId",
    "messageThreadId",
    "chatType",
    "requestId",
    "runId",
    "kind",
    "sourceRange",
)


@dataclass(frozen=True, slots=True)
class UIMessage:
    """A UI message with its parts as the engine's types.

    `given`: the parts as JSON data if `parts` cannot express all of them; otherwise empty.
    """

    id: str
    role: Role
    parts: Sequence[Part]
    metadata: Mapping[str, object] = field(default_factory=dict)
    given: Sequence[object] = field(default=(), compare=False)

    @property
    def kind(self) -> Kind:
        """`summary` for a message that replaces others, otherwise `normal`."""
        return "summary" if self.metadata.get("kind") == "summary" else "normal"


class MalformedUIMessage(ValueError):
    """A UI message cannot be parsed. The error message states the location and the fix.

    `code` is `malformed_ui_message`, `system_in_history` or `duplicate_id`.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def parse_ui_messages(data: object) -> tuple[tuple[UIMessage, ...], tuple[str, ...]]:
    """Return the UI messages of a JSON list, and the losses as `KIND:detail`.

    Raises MalformedUIMessage for an unknown format or a repeated id.
    """
    if not isinstance(data, list | tuple):
        raise _build_malformed("The messages must be a list.")
    read = [parse_ui_message(item) for item in data]
    found = Counter(message.id for message, _ in read)
    twice = next((own_id for own_id, count in found.items() if count > 1), None)
    if twice is not None:
        raise MalformedUIMessage(
            "duplicate_id", f"The id {twice!r} occurs twice. Give each message a unique id."
        )
    return tuple(message for message, _ in read), tuple(loss for _, some in read for loss in some)


def parse_ui_message(data: object) -> tuple[UIMessage, tuple[str, ...]]:
    """Return a UI message from JSON, and the losses as `KIND:detail`. Raises MalformedUIMessage."""
    if not isinstance(data, Mapping):
        raise _build_malformed("A message must be an object.")
    own_id, role = data.get("id"), data.get("role")
    if not isinstance(own_id, str) or not own_id:
        raise _build_malformed("A message needs an id, a text.")
    if role == "system":
        raise MalformedUIMessage(
            "system_in_history",
            f"Message {own_id!r} has the role system. The system text is never part of the list: "
            "set it on the chat.",
        )
    if role not in ("user", "assistant"):
        raise _build_malformed(f"Message {own_id!r} has the role {role!r}. Use user or assistant.")
    listed, metadata = data.get("parts"), data.get("metadata") or {}
    if not isinstance(listed, list | tuple):
        raise _build_malformed(f"Message {own_id!r} needs a list of parts.")
    _check_metadata(metadata, own_id)
    reader = _PartReader(own_id, role)
    for item in listed:
        reader.read(item)
    return UIMessage(own_id, role, reader.parts(), metadata), tuple(reader.losses)


def serialize_ui_message(message: UIMessage) -> dict[str, object]:
    """Convert a UI message to JSON.

    Within a step texts come before calls, as on the wire. A result without a preceding call is
    dropped.
    """
    return {
        "id": message.id,
        "role": message.role,
        "parts": _write_parts(message.parts),
        "metadata": dict(message.metadata),
    }


def build_ui_message(message: Message, **metadata: object) -> UIMessage:
    return UIMessage(message.id, message.role, message.parts, {"kind": "normal", **metadata})


def convert_ui_message(ui: UIMessage, *, seq: int, counter: TokenCounter) -> Message:
    """Convert a UI message to a `Message` with `seq`. A summary becomes a message with its text."""
    tokens = count_uncut_tokens(ui.parts, ui.role, counter)
    speaker = ui.metadata.get("username")
    named = speaker if isinstance(speaker, str) else ""
    return Message(ui.id, seq, ui.role, tuple(ui.parts), tokens, named)


def build_summary_ui_message(
    summary: Summary, *, from_id: str, to_id: str, count: int
) -> UIMessage:
    """Return the active summary as a UI message: an assistant message with its source range."""
    covered = {"fromId": from_id, "toId": to_id, "count": count}
    metadata = {"kind": "summary", "sourceRange": covered}
    return UIMessage(summary.id, "assistant", (TextPart(summary.text),), metadata)


def parse_ui_summary(ui: UIMessage, *, ids: Sequence[str], counter: TokenCounter) -> Summary:
    """Parse a summary from a list whose original messages have `ids`, in order from seq 1.

    The summary covers its source range if the range can be verified: both ends are known
    and in order, and the stated count matches. Otherwise it covers nothing (`to_seq` 0) and
    is only shown.
    """
    text = extract_message_text(convert_ui_message(ui, seq=0, counter=counter))
    covered = ui.metadata.get("sourceRange")
    places = {own_id: seq for seq, own_id in enumerate(ids, start=1)}
    start, end = 1, 0
    if isinstance(covered, Mapping):
        first, last = places.get(covered.get("fromId", "")), places.get(covered.get("toId", ""))
        if first is not None and last is not None and last - first + 1 == covered.get("count"):
            start, end = first, last
    return Summary(ui.id, text, start, end, (), counter.count(text))


def select_stored_parts(final: Sequence[Part], *, visible_text: str) -> tuple[Part, ...]:
    """Return the stored parts of a reply: its final parts, or the visible text if it has none."""
    return tuple(final) or ((TextPart(visible_text),) if visible_text else ())


class _PartReader:
    """Parses parts in order: the results of a step follow all its calls."""

    def __init__(self, own_id: str, role: Role) -> None:
        self.own_id = own_id
        self.role = role
        self.losses: list[str] = []
        self._parts: list[Part] = []
        self._results: list[Part] = []

    def parts(self) -> tuple[Part, ...]:
        """Return the parsed parts. Between two results, texts precede calls, as on the wire."""
        settled: list[Part] = []
        run: list[Part] = []
        for part in (*self._parts, *self._results):
            if isinstance(part, ToolResultPart):
                settled += [*_texts_first(run), part]
                run = []
            else:
                run.append(part)
        return (*settled, *_texts_first(run))

    def read(self, item: object) -> None:
        """Parse one part. A part of an unknown type is a loss.

        Raises MalformedUIMessage for a part without a type, or of another form than its type.
        """
        kind = item.get("type") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(kind, str):
            raise _build_malformed(f"A part of message {self.own_id!r} has no type.")
        if kind == "step-start":
            self._close()
        elif kind.startswith("tool-") or kind == "dynamic-tool":
            self._tool(item, kind)
        elif kind in ("text", "reasoning", "file"):
            self._close()
            self._parts.append(self._plain(item, kind))
        else:
            # Content from outside the chat, such as sources, and types of later versions.
            self.losses.append(f"part_dropped:{kind}")

    def _close(self) -> None:
        self._parts += self._results
        self._results = []

    def _plain(self, item: Mapping[str, object], kind: str) -> Part:
        if kind == "file":
            name = item.get("filename") or ""
            text = item.get("text")
            return FilePart(
                self._text(item, "mediaType"),
                str(name),
                self._text(item, "url"),
                text if isinstance(text, str) else "",
            )
        return (TextPart if kind == "text" else ReasoningPart)(self._text(item, "text"))

    def _tool(self, item: Mapping[str, object], kind: str) -> None:
        if self.role == "user":
            self.losses.append(f"part_dropped:{kind}")
            return
        name = (
            kind.removeprefix("tool-") if kind != "dynamic-tool" else self._text(item, "toolName")
        )
        call_id = self._text(item, "toolCallId")
        raw = item.get("rawInput")
        arguments = raw if isinstance(raw, str) else self._as_json(item.get("input", {}))
        self._parts.append(ToolCallPart(call_id, name, arguments))
        if "output" in item:
            output = item["output"]
            if not isinstance(output, str):
                self.losses.append(f"output_as_text:{call_id}")
            content = output if isinstance(output, str) else self._as_json(output)
            self._results.append(ToolResultPart(call_id, name, content))
        elif "errorText" in item:
            self.losses.append(f"error_as_output:{call_id}")
            self._results.append(ToolResultPart(call_id, name, self._text(item, "errorText")))

    def _as_json(self, value: object) -> str:
        try:
            return _json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise _build_malformed(
                f"A tool part of message {self.own_id!r} is nested too deeply or is not valid JSON."
            ) from error

    def _text(self, item: Mapping[str, object], name: str) -> str:
        value = item.get(name)
        if not isinstance(value, str):
            raise _build_malformed(
                f"A part {item.get('type')!r} of message {self.own_id!r} needs {name}, a text."
            )
        return value


def _texts_first(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: isinstance(part, ToolCallPart))


def _write_parts(parts: Sequence[Part]) -> list[dict[str, object]]:
    results: dict[str, list[ToolResultPart]] = {}
    for part in parts:
        if isinstance(part, ToolResultPart):
            results.setdefault(part.call_id, []).append(part)
    written: list[dict[str, object]] = []
    for number, step in enumerate(_steps(parts)):
        if number:
            written.append({"type": "step-start"})
        calls = [part for part in step if isinstance(part, ToolCallPart)]
        written += [_plain(part) for part in step if not isinstance(part, ToolCallPart)]
        written += [_tool(call, results.get(call.call_id, [])) for call in calls]
    return written


def _steps(parts: Sequence[Part]) -> list[list[Part]]:
    """Split the parts, without results, into steps. A step ends with the results of its calls."""
    steps: list[list[Part]] = [[]]
    called: set[str] = set()
    answered = False
    for part in parts:
        if isinstance(part, ToolResultPart):
            answered = answered or part.call_id in called
            called.discard(part.call_id)
            continue
        if answered:
            steps.append([])
        answered = False
        steps[-1].append(part)
        called |= {part.call_id} if isinstance(part, ToolCallPart) else set()
    return steps


def _plain(part: Part) -> dict[str, object]:
    if isinstance(part, FilePart):
        named = {"filename": part.name} if part.name else {}
        text = {"text": part.text} if part.text else {}
        return {
            "type": "file",
            "mediaType": part.media_type,
            **named,
            "url": part.reference,
            **text,
        }
    kind = "reasoning" if isinstance(part, ReasoningPart) else "text"
    return {"type": kind, "text": cast(TextPart, part).text}


def _tool(call: ToolCallPart, waiting: list[ToolResultPart]) -> dict[str, object]:
    written: dict[str, object] = {
        "type": f"tool-{call.name}",
        "toolCallId": call.call_id,
        "state": "output-available" if waiting else "input-available",
    }
    try:
        written["input"] = load_strict_json(call.arguments)
    except (ValueError, RecursionError):
        written["input"] = None
    if _json(written["input"]) != call.arguments:
        # The original text, if it is not JSON or has other spaces.
        written["rawInput"] = call.arguments
    if waiting:
        written["output"] = waiting.pop(0).content
    return written


def _check_metadata(metadata: object, own_id: str) -> None:
    if not isinstance(metadata, Mapping):
        raise _build_malformed(f"The metadata of message {own_id!r} must be an object.")


def _build_malformed(sentence: str) -> MalformedUIMessage:
    return MalformedUIMessage("malformed_ui_message", sentence)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
