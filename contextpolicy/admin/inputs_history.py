"""Inputs of the policy form: the room of a prompt, and what of the history stays in it."""

from django import forms

from contextpolicy.admin.fields import (
    LOWEST,
    NO_LIMIT,
    UNSET,
    choice,
    lock,
    number,
    percent,
    schema,
)
from contextpolicy.admin.written import NONE, STATE_EXAMPLE


class HistoryInputs(forms.Form):
    """The room of a prompt, and what of the history stays in it."""

    state_schema = schema(
        "The state",
        "Which values are kept instead of the dialogue, one on each line: a name, its kind in "
        f"brackets, a colon and what it means, such as “{STATE_EXAMPLE}”. Kinds: text, number, "
        "whole number, yes or no, date, list of texts, one of a, b, c. A JSON Schema can be "
        f"written instead. “{NONE}”: no values.",
    )
    lock_state_schema = lock()
    token_budget = number(
        "Token budget",
        f"Most tokens of one call, prompt and reply together. {LOWEST}",
        1,
    )
    lock_token_budget = lock()
    reserve_tokens = number(
        "Reserved for the reply",
        "Tokens of the budget kept free; replies end there. Of several policies the largest value "
        "counts.",
        1,
    )
    lock_reserve_tokens = lock()
    max_bytes = number(
        "Most bytes",
        "Bytes of a prompt beside its tokens, for providers that limit the size of a request. "
        f"{LOWEST} {NO_LIMIT}",
    )
    lock_max_bytes = lock()
    pins_tokens = number(
        "Room for pins",
        f"Tokens of the prompt for pinned messages; the newest pins stay. {LOWEST} {NO_LIMIT}",
    )
    lock_pins_tokens = lock()
    window_size = number(
        "Window in messages",
        f"Most messages of the history. {LOWEST} {NO_LIMIT}",
    )
    lock_window_size = lock()
    window_turns = number(
        "Window in turns",
        f"Most turns of the history: a question and all it caused. {LOWEST} {NO_LIMIT}",
    )
    lock_window_turns = lock()
    window_tokens = number(
        "Window in tokens",
        f"Most tokens of the history. {LOWEST} {NO_LIMIT}",
    )
    lock_window_tokens = lock()
    max_chars_per_message = number(
        "Cut messages at",
        "Characters of each history message in the prompt; the stored message stays whole. "
        f"{LOWEST} {NO_LIMIT}",
    )
    lock_max_chars_per_message = lock()
    cut_style = choice(
        "Cut style",
        "Which part of a long message stays.",
        [UNSET, ("head", "The beginning"), ("head_tail", "Beginning and end")],
    )
    lock_cut_style = lock()
    keep_last_messages = number(
        "Newest messages kept",
        "Messages that are never summarised because the prompt is full, where they fit. With a "
        "state: messages of the dialogue that go along beside it.",
    )
    lock_keep_last_messages = lock()
    compact_at = percent(
        "Shorten the history at, % full",
        "Of the prompt limit: from here the oldest history leaves the prompt, in one batch.",
    )
    lock_compact_at = lock()
    compact_at_tokens = number("or at, tokens", "Whichever comes first. 0: the share alone counts.")
    lock_compact_at_tokens = lock()
    compact_to = percent("Shorten it to, % full", "Of the prompt limit: what is left afterwards.")
    lock_compact_to = lock()
    compact_to_tokens = number("or to, tokens", "Whichever is lower. 0: the share alone counts.")
    lock_compact_to_tokens = lock()
    compact_every_turns = number(
        "Shorten it every, turns",
        "Instead of “Shorten it to”: as much is left that the next time comes after about so many "
        "turns of the usual size. 0: this policy does not say.",
    )
    lock_compact_every_turns = lock()
