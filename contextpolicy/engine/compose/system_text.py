"""Builds the system text of a call from ordered parts with their origins.

None of the parts is ever a message in the history. Text derived from users is data and belongs in
the prompt's tail (`transcript.Background`), never here.
"""

from collections.abc import Sequence

from contextpolicy.engine.policy.policy import PolicyValues

# Wire order; the names are those of the receipt.
ORDER = ("runtime", "profile", "policy", "agent", "team", "task", "chat", "skills", "budget")


class UnknownOrigin(ValueError):
    """A part of the system text has an unknown origin."""

    code = "unknown_origin"


def order_system_parts(parts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Order (origin, text) parts for the wire and drop the empty ones.

    Several parts of one origin keep their order. Raises UnknownOrigin.
    """
    for origin, _ in parts:
        if origin not in ORDER:
            raise UnknownOrigin(f"Unknown origin {origin!r}. Use one of {', '.join(ORDER)}.")
    filled = [(origin, text) for origin, text in parts if text]
    return tuple(sorted(filled, key=lambda part: ORDER.index(part[0])))


def filter_system_parts(
    parts: Sequence[tuple[str, str]], *, values: PolicyValues
) -> tuple[tuple[str, str], ...]:
    """Keep the parts that a policy allows, by its rule for a chat's own system text.

    `replace` drops the policy's text if the chat has one, `ignore` drops the chat's text. `layout`
    means `replace` in layout A and `append` in the others.
    """
    rule = values.chat_system
    if rule == "layout":
        rule = "replace" if values.layout == "A" else "append"
    has_own = any(origin == "chat" and text for origin, text in parts)
    gone = {"ignore": "chat", "replace": "policy" if has_own else ""}.get(rule, "")
    return tuple(part for part in parts if part[0] != gone)


def format_runtime_note(model: str) -> str:
    """State which model serves the chat. Without times and figures, only the model changes it."""
    return (
        f"This chat is served by Palimpsest with the model {model}. Older messages may be "
        "summarised or left out."
    )


def format_budget_note(values: PolicyValues) -> str:
    """State the policy's fixed limits in a sentence. Without running figures, it never changes."""
    return (
        f"Replies end after {values.reserve_tokens:,} tokens. Tool results are shown up to "
        f"{values.tool_output_limit:,} characters."
    )
