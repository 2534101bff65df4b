"""Assembles the tool calls of a reply from the pieces that servers send.

The pieces of a call have the same index, and the first has the id and the name. Servers deviate:
they repeat the id and name in each piece, use a new id for each piece, number all parallel calls 0,
omit index or id, send a complete call twice, or send `{}` before the arguments.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chats.ground.texts import sanitise_text
from chats.providers.base import ExtraFields, ToolCallDelta
from chats.providers.extras import FieldsSoFar
from chats.providers.sse import TextJoiner
from contextpolicy.engine.messages.extras import select_unknown_call_fields

# Such an id returns in the next reply. A model that reads on in a long result by its id would get
# the result of another call.
NUMBERED_ID = re.compile(r"(?:call|tool|tool_?call|function|id)?[-_:]?\d{1,4}", re.IGNORECASE)


@dataclass(slots=True)
class _PartialCall:
    """One call as received so far."""

    slot: int
    call_id: str
    # The server's id. Empty if it sent none.
    given_id: str
    name: str = ""
    joiner: TextJoiner = field(default_factory=TextJoiner)
    pieces: list[str] = field(default_factory=list)
    # `{}`, until it is known that no arguments follow.
    held: str = ""
    unknown: FieldsSoFar = field(default_factory=FieldsSoFar)

    @property
    def has_arguments(self) -> bool:
        return bool(self.held) or any(self.pieces)

    @property
    def is_whole(self) -> bool:
        """True if the arguments are a complete JSON object, so that nothing can follow."""
        text = self.held or "".join(self.pieces).strip()
        return text.endswith("}") and is_object(text)


class ToolCalls:
    """The tool calls of one reply, each with a distinct position and id.

    The ids of a server that numbers the calls of each reply are replaced.
    """

    def __init__(self) -> None:
        self._calls: list[_PartialCall] = []
        self._of_index: dict[int | None, _PartialCall] = {}

    @property
    def any(self) -> bool:
        """True if the reply has a tool call."""
        return bool(self._calls)

    def extras(self) -> Iterator[ExtraFields]:
        """Yield the unknown fields of each call that has any."""
        for call in self._calls:
            if fields := call.unknown.fields:
                yield ExtraFields(call.slot, fields)

    def flush(self) -> Iterator[ToolCallDelta]:
        """Yield the arguments of each call that got only `{}`. Call it at the end of the reply."""
        for call in self._calls:
            if call.held:
                yield ToolCallDelta(call.slot, call.call_id, "", call.held)

    def delta(self, piece: Mapping[str, Any]) -> ToolCallDelta | None:
        """Return the part that a piece adds to its call. None if it adds nothing."""
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        name, given_id = _text(function.get("name")), _text(piece.get("id"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        said = arguments if isinstance(arguments, str) else ""
        index = piece.get("index")
        index = index if isinstance(index, int) else None
        call = self._of_index.get(index)
        is_new = call is None or _begins_anew(call, given_id=given_id, name=name)
        if call is None or is_new:
            call = self._begin(index, given_id)
        elif said.lstrip().startswith("{") and call.is_whole and not call.held:
            # A repetition of the complete call.
            return None
        call.unknown.add(select_unknown_call_fields(piece))
        return _grow_call(call, name=name, arguments=said, is_new=is_new)

    def _begin(self, index: int | None, given_id: str) -> _PartialCall:
        is_taken = any(call.call_id == given_id for call in self._calls)
        is_usable = given_id and not is_taken and not NUMBERED_ID.fullmatch(given_id)
        call_id = given_id if is_usable else f"call_{uuid.uuid4().hex[:24]}"
        call = _PartialCall(slot=len(self._calls), call_id=call_id, given_id=given_id)
        self._calls.append(call)
        self._of_index[index] = call
        return call


def is_object(text: str) -> bool:
    """Return True if a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _begins_anew(call: _PartialCall, *, given_id: str, name: str) -> bool:
    """Return True if a piece with the index of a call starts another call.

    The piece must have a name, and either a different id or no id. The previous call must be
    complete, or have another name and no arguments yet.
    """
    if not name or (given_id and given_id == call.given_id):
        return False
    return call.is_whole or (not call.has_arguments and name != call.name)


def _grow_call(
    call: _PartialCall, *, name: str, arguments: str, is_new: bool
) -> ToolCallDelta | None:
    """Append a piece to a call, and return the addition; None if it adds nothing.

    The name is set once; later pieces only repeat it.
    """
    added = "" if call.name else name
    call.name = call.name or name
    joined = _replace_placeholder(call, call.joiner.push(arguments))
    call.pieces.append(joined)
    if not (is_new or added or joined):
        return None
    return ToolCallDelta(index=call.slot, call_id=call.call_id, name=added, arguments=joined)


def _replace_placeholder(call: _PartialCall, piece: str) -> str:
    """Return a piece of the arguments without the `{}` that LiteLLM and others send before them."""
    if not piece:
        return ""
    if not call.has_arguments and piece.strip() == "{}":
        call.held = "{}"
        return ""
    before, call.held = call.held, ""
    return piece if piece.lstrip().startswith("{") else before + piece


def _text(value: object) -> str:
    """Return a name or an id that can be stored."""
    return sanitise_text(value) if isinstance(value, str) else ""
