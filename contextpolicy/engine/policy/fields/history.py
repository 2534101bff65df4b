"""Policy fields about the size of a prompt, its history, and compactions."""

from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.policy.fields.declaration import WITHOUT_MARKS, declare
from contextpolicy.engine.text.phrases import gettext_noop, ngettext_noop

CutStyle = Literal["head", "head_tail"]


@dataclass(frozen=True, kw_only=True)
class HistoryFields:
    """The token budget, the ceilings of history, and the marks of compactions.

    Marks are shares of the prompt limit, each with an optional absolute value in tokens; the lower
    one applies. The first ceiling of history that is reached moves the window.
    """

    token_budget: int = declare(
        default=16_000,
        group="size",
        label=gettext_noop("Token budget"),
        help_text=gettext_noop(
            "Limits the prompt and the reply of each request to this many tokens in total."
        ),
        combine="min",
    )
    reserve_tokens: int = declare(
        default=4_000,
        group="size",
        label=gettext_noop("Reserved for the reply"),
        help_text=gettext_noop(
            "Reserves this many tokens of the budget for the reply. Longer replies are cut off."
        ),
        combine="max",
    )
    max_bytes: int | None = declare(
        default=None,
        group="size",
        label=gettext_noop("Maximum bytes"),
        help_text=gettext_noop(
            "Limits each prompt to this many bytes. The token limit also applies. Set this limit "
            "for providers that limit the request size."
        ),
        combine="min",
        sentence=ngettext_noop("A prompt has at most {n} byte.", "A prompt has at most {n} bytes."),
    )
    pins_tokens: int | None = declare(
        default=None,
        group="size",
        label=gettext_noop("Limit for pins"),
        help_text=gettext_noop(
            "Limits pinned messages to this many tokens of each prompt. If they exceed the "
            "limit, the oldest pins are left out. Without a limit, users can pin up to half of "
            "the prompt limit."
        ),
        combine="min",
        sentence=ngettext_noop("Pins may use {n} token.", "Pins may use {n} tokens."),
    )
    window_size: int | None = declare(
        default=None,
        group="history",
        label=gettext_noop("Window in messages"),
        help_text=gettext_noop(
            "Limits the history in a prompt to this many messages. Older messages are left out."
        ),
        combine="min",
        unused_with=("entity_state",),
    )
    window_turns: int | None = declare(
        default=None,
        group="history",
        label=gettext_noop("Window in turns"),
        help_text=gettext_noop(
            "Limits the history in a prompt to this many turns. A turn is a question with its "
            "reply and tool calls."
        ),
        combine="min",
        unused_with=("entity_state",),
    )
    window_tokens: int | None = declare(
        default=None,
        group="history",
        label=gettext_noop("Window in tokens"),
        help_text=gettext_noop(
            "Limits the history in a prompt to this many tokens. The oldest messages are left out."
        ),
        combine="min",
        unused_with=("entity_state",),
    )
    # The limit counts characters (code points).
    max_chars_per_message: int | None = declare(
        default=None,
        group="history",
        label=gettext_noop("Cut messages at (characters)"),
        help_text=gettext_noop(
            "Cuts each message in the history to this many characters in prompts. Stored "
            "messages do not change."
        ),
        combine="min",
        sentence=ngettext_noop(
            "Each message in the history is cut to {n} character.",
            "Each message in the history is cut to {n} characters.",
        ),
    )
    cut_style: CutStyle = declare(
        default="head",
        group="history",
        label=gettext_noop("Cut style"),
        help_text=gettext_noop("Sets which part of a long message is sent."),
        labels={
            "head": gettext_noop("The beginning"),
            "head_tail": gettext_noop("Beginning and end"),
        },
    )
    keep_last_messages: int = declare(
        default=30,
        group="history",
        label=gettext_noop("Newest messages kept"),
        help_text=gettext_noop(
            "Keeps this many of the newest messages out of summaries, if they fit into the "
            "prompt. With a state, these messages are sent in addition to the state."
        ),
        smallest=0,
        unused_with=("simple", "sliding_window"),
    )
    compact_at: float = declare(
        default=0.90,
        group="compaction",
        # xgettext:no-python-format, a percent sign
        label=gettext_noop("Shorten the history at (% full)"),
        help_text=gettext_noop(
            "When the prompt reaches this share of its limit, the oldest messages are removed "
            "from the prompt in one batch."
        ),
        unused_with=WITHOUT_MARKS,
    )
    compact_at_tokens: int | None = declare(
        default=None,
        group="compaction",
        label=gettext_noop("Shorten the history at (tokens)"),
        help_text=gettext_noop(
            "The lower of this number and the percentage applies. 0: only the percentage applies."
        ),
        unused_with=WITHOUT_MARKS,
    )
    compact_to: float = declare(
        default=0.45,
        group="compaction",
        # xgettext:no-python-format, a percent sign
        label=gettext_noop("Shorten the history to (% full)"),
        help_text=gettext_noop(
            "Shortening the history reduces the prompt to about this share of its limit."
        ),
        unused_with=WITHOUT_MARKS,
    )
    compact_to_tokens: int | None = declare(
        default=None,
        group="compaction",
        label=gettext_noop("Shorten the history to (tokens)"),
        help_text=gettext_noop(
            "The lower of this number and the percentage applies. 0: only the percentage applies."
        ),
        unused_with=WITHOUT_MARKS,
    )
    # The low mark is set so that about this number of turns fits until the next compaction.
    compact_every_turns: int | None = declare(
        default=None,
        group="compaction",
        label=gettext_noop("Shorten the history every (turns)"),
        help_text=gettext_noop(
            "Replaces “Shorten the history to”. Each time, the history is shortened to make room "
            "for about this many turns of average size. 0: not set."
        ),
        unused_with=WITHOUT_MARKS,
    )


def compute_mark_tokens(share: float, absolute: int | None, *, prompt_limit: int) -> int:
    """Return a mark in tokens: its share of the prompt limit, or its absolute value.

    If both are set, the lower one applies.
    """
    by_share = int(share * prompt_limit)
    return by_share if absolute is None else min(by_share, absolute)
