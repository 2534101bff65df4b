"""Fields of the policy form: the prompt budget, and which history the prompt keeps."""

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

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
from contextpolicy.wording import join_sentences_lazy


class HistoryInputs(forms.Form):
    """Fields for the prompt budget and the history that the prompt keeps."""

    state_schema = schema(
        gettext_lazy("State values"),
        format_lazy(
            gettext_lazy(
                "Values that are kept instead of the dialogue, one per line: a name, "
                "its kind in brackets, a colon and its meaning, such as “{example}”. "
                "Kinds: text, number, whole number, yes or no, date, list of texts, one"
                " of a, b, c. You can also enter a JSON Schema. “{none}”: no values."
            ),
            example=STATE_EXAMPLE,
            none=NONE,
        ),
    )
    lock_state_schema = lock()
    token_budget = number(
        gettext_lazy("Token budget"),
        join_sentences_lazy(
            gettext_lazy("Maximum tokens of one request, prompt and reply together."), LOWEST
        ),
        1,
    )
    lock_token_budget = lock()
    reserve_tokens = number(
        gettext_lazy("Reserved for the reply"),
        gettext_lazy(
            "Tokens of the budget that are kept free for the reply. Longer replies "
            "are cut off. If several policies apply, the highest value wins."
        ),
        1,
    )
    lock_reserve_tokens = lock()
    max_bytes = number(
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
    lock_max_bytes = lock()
    pins_tokens = number(
        gettext_lazy("Room for pins"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum tokens of pinned messages in the prompt. The newest pins are kept."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_pins_tokens = lock()
    window_size = number(
        gettext_lazy("Window in messages"),
        join_sentences_lazy(gettext_lazy("Maximum messages of the history."), LOWEST, NO_LIMIT),
    )
    lock_window_size = lock()
    window_turns = number(
        gettext_lazy("Window in turns"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum turns of the history. A turn is a question and everything it caused."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_window_turns = lock()
    window_tokens = number(
        gettext_lazy("Window in tokens"),
        join_sentences_lazy(gettext_lazy("Maximum tokens of the history."), LOWEST, NO_LIMIT),
    )
    lock_window_tokens = lock()
    max_chars_per_message = number(
        gettext_lazy("Cut messages at"),
        join_sentences_lazy(
            gettext_lazy(
                "Maximum characters of each history message in the prompt. The stored "
                "message is not changed."
            ),
            LOWEST,
            NO_LIMIT,
        ),
    )
    lock_max_chars_per_message = lock()
    cut_style = choice(
        gettext_lazy("Cut style"),
        gettext_lazy("Which part of a long message is kept."),
        [
            UNSET,
            ("head", gettext_lazy("The beginning")),
            ("head_tail", gettext_lazy("Beginning and end")),
        ],
    )
    lock_cut_style = lock()
    keep_last_messages = number(
        gettext_lazy("Newest messages kept"),
        gettext_lazy(
            "Newest messages that are not summarised when the prompt is full, if "
            "they fit. With a state: messages that are sent in addition to it."
        ),
    )
    lock_keep_last_messages = lock()
    compact_at = percent(
        # xgettext:no-python-format, a percent sign
        gettext_lazy("Shorten the history at, % full"),
        gettext_lazy(
            "Share of the prompt limit at which the oldest messages leave the prompt, in one batch."
        ),
    )
    lock_compact_at = lock()
    compact_at_tokens = number(
        gettext_lazy("or at, tokens"),
        gettext_lazy("Whichever comes first. 0: only the share applies."),
    )
    lock_compact_at_tokens = lock()
    compact_to = percent(
        # xgettext:no-python-format, a percent sign
        gettext_lazy("Shorten it to, % full"),
        gettext_lazy("Share of the prompt limit that remains in use afterwards."),
    )
    lock_compact_to = lock()
    compact_to_tokens = number(
        gettext_lazy("or to, tokens"),
        gettext_lazy("Whichever is lower. 0: only the share applies."),
    )
    lock_compact_to_tokens = lock()
    compact_every_turns = number(
        gettext_lazy("Shorten it every, turns"),
        gettext_lazy(
            "Replaces “Shorten it to”: leaves room for about this many turns of "
            "average size. 0: not set."
        ),
    )
    lock_compact_every_turns = lock()
