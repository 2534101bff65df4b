"""Sentences of receipts: changes to the prompt, and positions of segments."""

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext

from chats.prompt.client import HOSTED
from chats.prompt.prompt_skills import SKILL, SKILL_FILE
from chats.web.reasons import STATE_KEPT
from chats.web.receipt_labels import CHANGES, FALLBACKS, LAYOUTS, REPAIRS
from contextpolicy.engine.messages.skill_files import parse_part_key
from contextpolicy.wording import join_sentences

# Origins that are part of the text block in a text layout.
_BLOCK = frozenset({"summary", "pin", "tail", "history"})


def note_words(notes: Sequence[str]) -> list[str]:
    """Return the notes of a receipt as sentences. Unknown notes are returned unchanged."""
    details = [note for note in notes if note.startswith("strategy:")]
    found = []
    for note in notes:
        if note == "strategy":
            found.append(join_sentences(CHANGES[note], *map(_fallback, details)))
        elif note.startswith(HOSTED):
            words = gettext("The model’s server was allowed to run the hosted tool {name}.")
            found.append(words.format(name=note.removeprefix(HOSTED)))
        elif note not in details:
            found.append(str(CHANGES[note]) if note in CHANGES else _of_message(note))
    return found


def describe_adjusted_values(adjusted: Sequence[Sequence[object]]) -> list[str]:
    """Return sentences about policy values that were adjusted to fit the model."""
    words = gettext(
        "{name} is {used} instead of {wanted}, because the policies’ values do not fit this model."
    )
    of_tools = gettext(
        "{name} is {used} instead of {wanted}, because this model allows no other tools."
    )
    return [
        (of_tools if name == "tools" else words).format(
            name=name, used=_value(used), wanted=_value(wanted)
        )
        for name, wanted, used in adjusted
    ]


def describe_segment_places(origins: Sequence[str], *, layout: str) -> list[str]:
    """For each segment of a text layout, describe the request message that contains it.

    Empty for layouts that send each message separately, and for the steps of the reply.
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
    words = gettext("in message {n} of the request")
    return [words.format(n=numbers[origin]) if origin in numbers else "" for origin in origins]


def _fallback(note: str) -> str:
    _, kind, *detail = note.split(":", 2)
    return str(FALLBACKS.get(kind, kind)).format(detail=":".join(detail))


def _of_message(note: str) -> str:
    seq, _, repair = note.partition(":")
    if seq == SKILL:
        return gettext("The skill “{slug}” was loaded.").format(slug=repair)
    if seq == SKILL_FILE:
        return describe_loaded_file(repair) or note
    if seq == "state":
        reason = STATE_KEPT.get(repair, repair.replace("_", " "))
        return gettext("The state was not updated: {reason}.").format(reason=reason)
    words = REPAIRS.get(repair.partition(":")[0])
    return gettext("Message {seq}: {words}.").format(seq=seq, words=words) if words else note


def describe_loaded_file(detail: str) -> str:
    """Return the sentence about a loaded part of a file.

    `detail` contains the key, the hash and the token count of the part. Returns an empty string
    if the note is malformed.
    """
    key, _, rest = detail.partition(":")
    sha256, _, tokens = rest.partition(":")
    part = parse_part_key(key)
    if part is None or not tokens.isdecimal():
        return ""
    words = gettext(
        "The file “{name}” of the skill “{slug}” was loaded: characters {start:,} to {end:,}, "
        "{tokens:,} tokens, SHA-256 {sha256}."
    )
    return words.format(
        slug=part.slug,
        name=part.name,
        start=part.start,
        end=part.end,
        tokens=int(tokens),
        sha256=sha256,
    )


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
