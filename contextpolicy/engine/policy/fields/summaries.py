"""Policy fields about summaries, and about the permissions on them."""

from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.policy.fields.declaration import WITHOUT_SUMMARY, declare
from contextpolicy.engine.text.fact_scanner import KINDS
from contextpolicy.engine.text.phrases import Phrase, gettext_noop

# The holders of a permission for a chat's summaries: its owner, people who edit policies, or no
# one.
Right = Literal["owner", "admins", "nobody"]
PERMISSION_LABELS = {
    "owner": gettext_noop("The chat’s owner"),
    "admins": gettext_noop("Policy administrators"),
    "nobody": gettext_noop("No user"),
}


@dataclass(frozen=True, kw_only=True)
class SummaryFields:
    """The timing, the model and the approval of summaries."""

    prepare_at: float = declare(
        default=0.70,
        group="summary",
        # xgettext:no-python-format, a percent sign
        label=gettext_noop("Write a summary at (% full)"),
        help_text=gettext_noop(
            "When the prompt reaches this share of its limit, a summary is prepared in the "
            "background. It is used when the history is shortened."
        ),
        unused_with=WITHOUT_SUMMARY,
    )
    prepare_at_tokens: int | None = declare(
        default=None,
        group="summary",
        label=gettext_noop("Write a summary at (tokens)"),
        help_text=gettext_noop(
            "The lower of this number and the percentage applies. 0: only the percentage applies."
        ),
        unused_with=WITHOUT_SUMMARY,
    )
    turn_threshold: int | None = declare(
        default=None,
        group="summary",
        label=gettext_noop("Summarise after (turns)"),
        help_text=gettext_noop(
            "If the prompt has more turns than this, the oldest turns are summarised. A turn is a "
            "question with its reply. 0: never."
        ),
        unused_with=WITHOUT_SUMMARY,
    )
    fold_turns: int = declare(
        default=5,
        group="summary",
        label=gettext_noop("Turns summarised at once"),
        help_text=gettext_noop(
            "Limits summaries started by “Summarise after (turns)” to this many turns, "
            "oldest first."
        ),
        unused_with=WITHOUT_SUMMARY,
    )
    # Empty: the built-in extractor.
    summarization_model: str = declare(
        default="",
        group="summary",
        label=gettext_noop("Summarising model"),
        help_text=gettext_noop(
            "Writes the summaries, the titles of new chats and the suggested preferences. A "
            "small model is sufficient."
        ),
        choices="summarisers",
        unused_with=WITHOUT_SUMMARY,
    )
    summary_max_tokens: int = declare(
        default=2_000,
        group="summary",
        label=gettext_noop("Maximum summary length"),
        help_text=gettext_noop(
            "Limits summaries to this many tokens. Longer summaries are rejected."
        ),
        combine="min",
        unused_with=WITHOUT_SUMMARY,
    )
    pinned_kinds: tuple[str, ...] = declare(
        default=(),
        group="summary",
        label=gettext_noop("Required facts"),
        help_text=gettext_noop(
            "A summary must contain all facts of these kinds. A summary that loses a fact is "
            "rejected, and the original messages stay in the prompt."
        ),
        values=KINDS,
        labels={
            "url": gettext_noop("Addresses (URLs)"),
            "date": gettext_noop("Dates and times"),
            "identifier": gettext_noop("Identifiers, paths and e-mail addresses"),
            "number": gettext_noop("Numbers"),
            "name": gettext_noop("Names"),
        },
        unused_with=WITHOUT_SUMMARY,
    )
    summary_instruction: str = declare(
        default="",
        group="summary",
        label=gettext_noop("Summary instruction"),
        help_text=gettext_noop(
            "The model that writes summaries also receives these instructions, such as “Keep "
            "every order number with its state.” They come after the built-in rules. "
            "{no_text}: no instructions, even if a less specific policy sets some."
        ),
        longest=4_000,
        rows=4,
        is_private=True,
        unused_with=WITHOUT_SUMMARY,
    )
    # Empty: the built-in headings.
    summary_sections: tuple[str, ...] = declare(
        default=(),
        group="summary",
        label=gettext_noop("Summary headings"),
        help_text=gettext_noop(
            "Enter one heading per line, in order. “{built_in}”: {headings}. A model’s summary "
            "that lacks one of the headings is rejected. The built-in summarizer places sentences "
            "that fit no heading under the first one."
        ),
        widget="headings",
        wanted=Phrase(gettext_noop("a list of headings")),
        unused_with=WITHOUT_SUMMARY,
    )
    archive: bool = declare(
        default=True,
        group="summary",
        label=gettext_noop("Searchable originals"),
        help_text=gettext_noop(
            "If on, users can search the chat, and models can search the messages that the "
            "prompt leaves out. Retrieved context can use these messages. The chat also shows "
            "them below each summary."
        ),
    )
    approval: Right = declare(
        default="nobody",
        group="permissions",
        label=gettext_noop("Approved by"),
        help_text=gettext_noop(
            "Sets who approves a summary before it is used. Until then, the original messages "
            "are sent. If they no longer fit, only the newest ones are sent."
        ),
        labels={
            "nobody": gettext_noop("Not required: summaries are used when they are ready"),
            "owner": gettext_noop("The chat’s owner"),
            "admins": gettext_noop("A policy administrator"),
        },
    )
    undo_right: Right = declare(
        default="owner",
        group="permissions",
        label=gettext_noop("Undo permission"),
        help_text=gettext_noop(
            "Sets who can undo and redo a summary: the chat’s owner, policy administrators, or "
            "no user."
        ),
        labels=PERMISSION_LABELS,
    )
    # An undo pauses automatic compaction; by default until a user resumes it.
    undo_pause_hours: int | None = declare(
        default=None,
        group="permissions",
        label=gettext_noop("Pause after an undo (hours)"),
        help_text=gettext_noop(
            "After an undo, automatic compaction pauses for this time. 0: it pauses until a user "
            "resumes it. The pause also ends when the prompt no longer fits."
        ),
    )
    edit_right: Right = declare(
        default="owner",
        group="permissions",
        label=gettext_noop("Edit permission"),
        help_text=gettext_noop(
            "Sets who can edit and regenerate a summary: the chat’s owner, policy "
            "administrators, or no user."
        ),
        labels=PERMISSION_LABELS,
    )
