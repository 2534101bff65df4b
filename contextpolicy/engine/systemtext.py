"""Puts the system text of a call together from ordered parts with their origins.

None of the parts is ever a message in the history. Text derived from users is data and stands in
the prompt's tail (`transcript.Background`), never here.
"""

from collections.abc import Sequence

from contextpolicy.engine.policy import PolicyValues

# The order on the wire; the names are those of the receipt.
ORDER = ("runtime", "profile", "policy", "agent", "team", "task", "chat", "skills", "budget")


class UnknownOrigin(ValueError):
    """A part of the system text names an origin that has no place."""

    code = "unknown_origin"


def system_parts(parts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Order (origin, text) parts as on the wire and leave out the empty ones.

    Several of one origin keep their order. Raises UnknownOrigin.
    """
    for origin, _ in parts:
        if origin not in ORDER:
            raise UnknownOrigin(f"There is no origin {origin!r}. Use one of {', '.join(ORDER)}.")
    filled = [(origin, text) for origin, text in parts if text]
    return tuple(sorted(filled, key=lambda part: ORDER.index(part[0])))


def governed(
    parts: Sequence[tuple[str, str]], *, values: PolicyValues
) -> tuple[tuple[str, str], ...]:
    """Keep the parts that a policy allows, by its rule for a chat's own text beside the policy's.

    `replace` takes the policy's text away where the chat has one, `ignore` the chat's. `layout`
    means `replace` in layout A and `append` in the others.
    """
    rule = values.chat_system
    if rule == "layout":
        rule = "replace" if values.layout == "A" else "append"
    has_own = any(origin == "chat" and text for origin, text in parts)
    gone = {"ignore": "chat", "replace": "policy" if has_own else ""}.get(rule, "")
    return tuple(part for part in parts if part[0] != gone)


def runtime_note(model: str) -> str:
    """State what serves the chat; no time and no figure, so it changes with the model alone."""
    return (
        f"This chat is served by Palimpsest with the model {model}. Older messages may be "
        "summarised or left out."
    )


def budget_note(values: PolicyValues) -> str:
    """State the policy's fixed limits in a sentence; without running figures, it never changes."""
    return (
        f"Replies end after {values.reserve_tokens:,} tokens. Tool results are shown up to "
        f"{values.tool_output_limit:,} characters."
    )
