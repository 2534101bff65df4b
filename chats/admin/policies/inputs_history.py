"""Fields of the policy form: the prompt budget, and which history the prompt keeps."""

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from chats.admin.policies.form_fields import (
    LOWEST,
    NO_LIMIT,
    UNSET,
    build_choice_field,
    build_integer_field,
    build_lock_field,
    build_percent_field,
    build_schema_field,
)
from chats.admin.policies.line_formats import NONE, STATE_EXAMPLE
from contextpolicy.wording import join_sentences_lazy


class HistoryInputs(forms.Form):
    """Fields for the prompt budget and the history that the prompt keeps."""

    state_schema = build_schema_field(
        gettext_lazy("State values"),
        format_lazy(
            gettext_lazy(
                "Values that are sent instead of the dialogue, one per line: the name, the type "
                "in brackets, a colon and a description, such as “{example}”. Types: text, "
                "number, whole number, yes or no, date, list of texts, one of a, b, c. You can "
                "also enter a JSON Schema. “{none}”: no values."
            ),
            example=STATE_EXAMPLE,
            none=NONE,
        ),
    )
    lock_state_schema = build_lock_field()
    token_budget = build_integer_field(
        gettext_lazy("Token budget"),
        join_sentences_lazy(
            gettext_lazy(
                "Prompt and reply of one request can have at most this many tokens together."
            ),
            LOWEST,
        ),
        1,
    )
    lock_token_budget = build_lock_field()
    reserve_tokens = build_integer_field(
        gettext_lazy("Reserved for the reply"),
        gettext_lazy(
            "Tokens of the budget that are reserved for the reply. Longer replies are cut off. If "
            "several policies apply, the highest value wins."
        ),
        1,
    )
    lock_reserve_tokens = build_lock_field()
    max_bytes = build_integer_field(
        gettext_lazy("Maximum bytes"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum bytes of a prompt, in addition to the token limit, for "
                "providers that limit the request size."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_max_bytes = build_lock_field()
    pins_tokens = build_integer_field(
        gettext_lazy("Limit for pins"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum tokens of pinned messages in the prompt. If the limit is exceeded, the "
                "oldest pins are left out."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_pins_tokens = build_lock_field()
    window_size = build_integer_field(
        gettext_lazy("Window in messages"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum number of history messages in a prompt. The oldest are left out."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_window_size = build_lock_field()
    window_turns = build_integer_field(
        gettext_lazy("Window in turns"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum number of history turns in a prompt. A turn is a question with its reply "
                "and tool calls."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_window_turns = build_lock_field()
    window_tokens = build_integer_field(
        gettext_lazy("Window in tokens"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum number of history tokens in a prompt. The oldest messages are left out."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_window_tokens = build_lock_field()
    max_chars_per_message = build_integer_field(
        gettext_lazy("Cut messages at"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum characters of each history message in the prompt. The stored messages do "
                "not change."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_max_chars_per_message = build_lock_field()
    cut_style = build_choice_field(
        gettext_lazy("Cut style"),
        gettext_lazy("The part of a long message that is sent."),
        [
            UNSET,
            ("head", gettext_lazy("The beginning")),
            ("head_tail", gettext_lazy("Beginning and end")),
        ],
    )
    lock_cut_style = build_lock_field()
    keep_last_messages = build_integer_field(
        gettext_lazy("Newest messages kept"),
        gettext_lazy(
            "Number of newest messages that are not summarised, if they fit into the prompt. With "
            "a state: number of messages that are sent in addition to it."
        ),
    )
    lock_keep_last_messages = build_lock_field()
    compact_at = build_percent_field(
        # xgettext:no-python-format, a percent sign
        gettext_lazy("Shorten the history at (% full)"),
        gettext_lazy(
            "The oldest messages leave the prompt, in one batch, at this share of its limit."
        ),
    )
    lock_compact_at = build_lock_field()
    compact_at_tokens = build_integer_field(
        gettext_lazy("or at (tokens)"),
        gettext_lazy("The lower of the two applies. 0: only the share applies."),
    )
    lock_compact_at_tokens = build_lock_field()
    compact_to = build_percent_field(
        # xgettext:no-python-format, a percent sign
        gettext_lazy("Shorten the history to (% full)"),
        gettext_lazy("Share of the prompt limit that remains in use afterwards."),
    )
    lock_compact_to = build_lock_field()
    compact_to_tokens = build_integer_field(
        gettext_lazy("or to (tokens)"),
        gettext_lazy("The lower of the two applies. 0: only the share applies."),
    )
    lock_compact_to_tokens = build_lock_field()
    compact_every_turns = build_integer_field(
        gettext_lazy("Shorten the history every (turns)"),
        gettext_lazy(
            "Replaces “Shorten the history to”. Each time, the history is shortened enough for "
            "about this many turns of average size. 0: not set."
        ),
    )
    lock_compact_every_turns = build_lock_field()
