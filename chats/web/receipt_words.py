"""What a receipt says, in words: where each piece came from, why others stayed out, what differed.

The engine's closed lists are walked by a test: a kind without words fails it.
"""

from collections.abc import Mapping, Sequence

ORIGINS = {
    "system": "System",
    "tools": "Tools",
    "opening": "Opening",
    "summary": "Summary",
    "pin": "Pin",
    "history": "History",
    "tail": "Beside the chat",
    "question": "Your message",
    "continue": "Instruction to go on",
    "step": "Step of this reply",
}
# The parts of the system text and of the tail, by the label of their segment.
PARTS = {
    "runtime": "Of this server",
    "profile": "Of your profile",
    "policy": "Of the policy",
    "agent": "Of the agent",
    "chat": "Of this chat",
    "skills": "Of the skills",
    "budget": "The limits, as a sentence",
    "preferences": "Preferences",
    "state": "State",
    "schema": "Schema of the state",
    "references": "References",
    "date": "Date",
    "tail": "Further text",
}
REASONS = {
    "covered": "Part of the summary",
    "window": "Older than the window",
    "budget": "No room left in the prompt",
    "excluded": "Excluded by a person",
    "incomplete": "An incomplete reply that nobody kept",
    "empty": "Nothing in it that could be sent",
    "turn_split": "No room left within this turn",
    "tool_parts": "Only tool calls and results, which this layout cannot show as text",
    "state": "The state stands for it",
    "strategy": "The strategy of the policy left it out",
}
LAYOUTS = {
    "A": "Layout A: the history goes along as text, with your message in one user message. "
    "The chat's own system text replaces the policy's.",
    "B": "Layout B: the history goes along as text in a user message before yours.",
    "C": "Layout C: the history goes along as text, with your message in one user message. "
    "The chat's own system text stands behind the policy's.",
}
# Repairs of one message for the wire; what was stored stays as it is.
REPAIRS = {
    "no_result": "a tool call had no result, so one that says so was put in",
    "stray_result": "a tool result without its call was left out",
    "call_id_renamed": "two tool calls had the same id, so one was renamed",
    "tool_part_in_user_message": "tool parts in a user message were left out",
    "results_left_out": "tool results were left out, as the policy's rules for tools say",
    "tool_parts_left_out": "its tool calls and results cannot be shown as text",
}
CHANGES = {
    "opening_added": "The chat begins with a reply, so a line that says so was put before it.",
    "messages_joined": "Neighbouring messages of one role were joined, as the provider demands.",
    "strategy": "The strategy of the policy could not decide; the sliding window stood in.",
}
FALLBACKS = {
    "missing": "Its package is not installed.",
    "failed": "It failed with {detail}.",
    "changed_tools": "It changed the tools.",
    "unsound": "Its choice did not fit the prompt or did not name each message once.",
}
# Why a message was not taken over into the state.
KEPT = {
    "model_unavailable": "the model that reads it cannot be used now",
    "provider_auth": "the provider refused the key",
    "provider_rate_limited": "the provider had too many requests",
    "provider_timeout": "the model did not answer in time",
    "provider_unavailable": "the provider could not be reached",
    "state_changed": "a person corrected it meanwhile",
    "state_invalid": "the model's answer does not fit the schema",
    "state_not_an_object": "the model's answer is no JSON object",
    "state_not_finished": "the model's answer was cut",
    "state_not_json": "the model's answer is no JSON",
    "state_too_large": "the model's answer is too large",
    "stopped": "the reply was stopped",
}
# The origins that stand in the block of text of a text layout.
_BLOCK = frozenset({"summary", "pin", "tail", "history"})


def reason_words(reason: str) -> str:
    """Why messages stayed out; a reason of a package's strategy is named as it is."""
    return REASONS.get(reason, f"Left out by the strategy: {reason}")


def note_words(notes: Sequence[str]) -> list[str]:
    """The notes of a receipt as sentences; a note that is not known is shown as it is."""
    details = [note for note in notes if note.startswith("strategy:")]
    found = []
    for note in notes:
        if note == "strategy":
            found.append(" ".join([CHANGES[note], *map(_fallback, details)]))
        elif note not in details:
            found.append(CHANGES.get(note) or _of_message(note))
    return found


def adjusted_words(adjusted: Sequence[Sequence[object]]) -> list[str]:
    """What was used instead of what the policies say, because that cannot work with the model."""
    return [
        f"{name} is {_value(used)} instead of {_value(wanted)}: the policies' values cannot work "
        "together with this model."
        for name, wanted, used in adjusted
    ]


def places(origins: Sequence[str], *, layout: str) -> list[str]:
    """Beside each segment of a text layout: the message of the request in which it stands.

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
        return f"The state is the one before: {KEPT.get(repair, repair.replace('_', ' '))}."
    words = REPAIRS.get(repair.partition(":")[0])
    return f"Message {seq}: {words}." if words else note


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
