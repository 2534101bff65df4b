"""Assembles the tool calls of a reply from the pieces that servers send.

The pieces of a call have the same index, and the first has the id and the name. Servers deviate:
they repeat the id and name in each piece, use a new id for each piece, number all parallel calls 0,
omit index or id, send the index as text, send a complete call twice, or send `{}` before the
arguments.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chats.ground.texts import sanitise_text
from chats.providers.base import ExtraFields, ToolCallDelta
from chats.providers.extras import FieldsSoFar
from chats.providers.sse import TextJoiner
from contextpolicy.engine.messages.extras import select_unknown_call_fields

# Such an id returns in the next reply. A model that reads on in a long result by its id would get
# the result of another call.
NUMBERED_ID = re.compile(r"(?:call|tool|tool_?call|function|id)?[-_:]?\d{1,4}", re.IGNORECASE)
_LONGEST_INDEX = 6


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


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a call as the server sent it."""

    index: int | None
    given_id: str
    name: str
    arguments: str
    # The fields to send back with the call.
    unknown: dict[str, Any]


class ToolCalls:
    """The tool calls of one reply, each with a distinct position and id.

    The ids of a server that numbers the calls of each reply are replaced.
    """

    def __init__(self) -> None:
        self._calls: list[_PartialCall] = []
        # The calls of each index, the newest last. None: of pieces without an index.
        self._of_index: dict[int | None, list[_PartialCall]] = {}
        # By index, a piece with a name but no arguments, which begins a call if arguments follow.
        self._heads: dict[int | None, _Piece] = {}

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
        found = _parse_piece(piece)
        call = self._find(found)
        if call is not None and _is_repeated_head(call, found):
            self._heads[found.index] = found
            return None
        head = self._heads.pop(found.index, None)
        if call is not None and head is not None and _follows_head(call, found):
            # The first arguments of a call that its head announced.
            call = None
            found = replace(found, name=head.name, given_id=head.given_id)
            found.unknown.update({**head.unknown, **found.unknown})
        is_new = call is None or _begins_anew(call, found)
        if call is None or is_new:
            call = self._begin(found.index, found.given_id)
        elif found.arguments.lstrip().startswith("{") and call.is_whole and not call.held:
            # A repetition of the complete call.
            return None
        call.unknown.add(found.unknown)
        return _grow_call(call, name=found.name, arguments=found.arguments, is_new=is_new)

    def _find(self, piece: _Piece) -> _PartialCall | None:
        """Return the call of a piece: that with its id, or the newest with its index."""
        calls = self._of_index.get(piece.index, [])
        same = (call for call in calls if piece.given_id and call.given_id == piece.given_id)
        return next(same, calls[-1] if calls else None)

    def _begin(self, index: int | None, given_id: str) -> _PartialCall:
        is_taken = any(call.call_id == given_id for call in self._calls)
        is_usable = given_id and not is_taken and not NUMBERED_ID.fullmatch(given_id)
        call_id = given_id if is_usable else f"call_{uuid.uuid4().hex[:24]}"
        call = _PartialCall(slot=len(self._calls), call_id=call_id, given_id=given_id)
        self._calls.append(call)
        self._of_index.setdefault(index, []).append(call)
        return call


def _parse_piece(piece: Mapping[str, Any]) -> _Piece:
    function = piece.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return _Piece(
        index=_parse_index(piece.get("index")),
        given_id=_text(piece.get("id")),
        name=_text(function.get("name")),
        arguments=arguments if isinstance(arguments, str) else "",
        unknown=select_unknown_call_fields(piece),
    )


def _parse_index(value: object) -> int | None:
    """Return the index of a piece, which some servers send as text. None: it has none."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _LONGEST_INDEX:
        return int(value)
    return value if isinstance(value, int) else None


def is_object(text: str) -> bool:
    """Return True if the text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _begins_anew(call: _PartialCall, piece: _Piece) -> bool:
    """Return True if a piece for the index of a call starts another call.

    The piece must have a name, and either a different id or no id. The previous call must be
    complete, or have another name or no arguments yet.
    """
    if not piece.name or _is_of(call, piece):
        return False
    is_other_name = bool(call.name) and piece.name != call.name
    is_other_id = bool(piece.given_id and call.given_id)
    if call.is_whole:
        return is_other_name or bool(piece.arguments)
    if call.has_arguments:
        return is_other_name and is_other_id
    # Two calls without arguments. A server that sends a new id in each piece sends arguments, too.
    return is_other_name or (is_other_id and not piece.arguments)


def _is_repeated_head(call: _PartialCall, piece: _Piece) -> bool:
    """Return True if a piece only names the tool of a complete call again.

    Servers that name the tool in each piece end a call so. Others begin the next call so.
    """
    is_named = bool(piece.name) and piece.name == call.name
    return is_named and not piece.arguments and not _is_of(call, piece) and call.is_whole


def _follows_head(call: _PartialCall, piece: _Piece) -> bool:
    """Return True if a piece has the arguments of a call that its head announced."""
    return bool(piece.arguments) and not _is_of(call, piece) and piece.name in ("", call.name)


def _is_of(call: _PartialCall, piece: _Piece) -> bool:
    """Return True if a piece has the id of a call."""
    return bool(piece.given_id) and piece.given_id == call.given_id


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
