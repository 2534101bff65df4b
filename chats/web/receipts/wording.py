"""The words of receipts: what differed from plain sending, and where each piece stands."""

from collections.abc import Mapping, Sequence

from chats.web.reasons import CHANGES, FALLBACKS, LAYOUTS, REPAIRS, STATE_KEPT

# The origins that stand in the block of text of a text layout.
_BLOCK = frozenset({"summary", "pin", "tail", "history"})


def note_words(notes: Sequence[str]) -> list[str]:
    """Return the notes of a receipt as sentences; an unknown note is shown as it is."""
    details = [note for note in notes if note.startswith("strategy:")]
    found = []
    for note in notes:
        if note == "strategy":
            found.append(" ".join([CHANGES[note], *map(_fallback, details)]))
        elif note not in details:
            found.append(CHANGES.get(note) or _of_message(note))
    return found


def adjusted_words(adjusted: Sequence[Sequence[object]]) -> list[str]:
    """Say which values were used because those of the policies cannot work with the model."""
    return [
        f"{name} is {_value(used)} instead of {_value(wanted)}: the policies' values cannot work "
        "together with this model."
        for name, wanted, used in adjusted
    ]


def places(origins: Sequence[str], *, layout: str) -> list[str]:
    """Say for each segment of a text layout in which message of the request it stands.

    Empty for layouts that send each message for itself, and for the steps of the reply.
    """
    if layout not in LAYOUTS:
        return [""] * len(origins)
    first = 1 + ("system" in origins)
    has_block = any(origin in _BLOCK for origin in origins)
    asked = first + (layout == "B" and has_block)
    numbers: Mapping[str, int] = {
        "system": 1,
        "question": asked,
        "continue": asked,
        **dict.fromkeys(_BLOCK, first),
    }
    return [
        f"in message {numbers[origin]} of the request" if origin in numbers else ""
        for origin in origins
    ]


def _fallback(note: str) -> str:
    _, kind, *detail = note.split(":", 2)
    return FALLBACKS.get(kind, kind).format(detail=":".join(detail))


def _of_message(note: str) -> str:
    seq, _, repair = note.partition(":")
    if seq == "state":
        return f"The state is the one before: {STATE_KEPT.get(repair, repair.replace('_', ' '))}."
    words = REPAIRS.get(repair.partition(":")[0])
    return f"Message {seq}: {words}." if words else note


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
