"""Fields of the policy form: when summaries are written, by which model, and who approves them."""

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from contextpolicy.admin.fields import (
    LOWEST,
    UNSET,
    WordsField,
    choice,
    headings,
    lock,
    number,
    percent,
    several,
    text_area,
    yes_or_no,
)
from contextpolicy.admin.offered import summarisers
from contextpolicy.admin.stored_values import NO_TEXT
from contextpolicy.admin.words import APPROVALS, KIND_NAMES, RIGHTS
from contextpolicy.admin.written import BUILT_IN, NONE
from contextpolicy.engine.prompts import SECTIONS
from contextpolicy.wording import join_sentences_lazy


class SummaryInputs(forms.Form):
    """Fields for the timing, model and approval of summaries."""

    prepare_at = percent(
        # xgettext:no-python-format, a percent sign
        gettext_lazy("Write a summary at, % full"),
        gettext_lazy("Share of the prompt limit at which a summary is prepared in the background."),
    )
    lock_prepare_at = lock()
    prepare_at_tokens = number(
        gettext_lazy("or at, tokens"),
        gettext_lazy("Whichever comes first. 0: only the share applies."),
    )
    lock_prepare_at_tokens = lock()
    turn_threshold = number(
        gettext_lazy("Summarise after, turns"),
        gettext_lazy(
            "A turn is a question and its reply. If the prompt has more turns than "
            "this, the oldest are summarised. 0: never."
        ),
    )
    lock_turn_threshold = lock()
    fold_turns = number(
        gettext_lazy("Turns summarised at once"), gettext_lazy("Counted from the oldest."), 1
    )
    lock_fold_turns = lock()
    summarization_model = choice(
        gettext_lazy("Summary written by"),
        gettext_lazy("A light model is sufficient. It also writes the titles of new chats."),
        summarisers,
    )
    lock_summarization_model = lock()
    summary_max_tokens = number(
        gettext_lazy("Longest summary"), join_sentences_lazy(gettext_lazy("In tokens."), LOWEST), 1
    )
    lock_summary_max_tokens = lock()
    pinned_kinds = several(
        gettext_lazy("Required facts"),
        gettext_lazy(
            "A summary that loses any of these is rejected, and the originals stay in the prompt."
        ),
        [*KIND_NAMES.items(), (NONE, gettext_lazy("None of them"))],
    )
    lock_pinned_kinds = lock()
    summary_instruction = WordsField(
        label=gettext_lazy("Summary instruction"),
        help_text=format_lazy(
            gettext_lazy(
                "Additional instructions for the model that writes summaries, such as "
                "“Keep every order number with its state.” They follow the built-in "
                "rules. {no_text}: none, even if a farther policy sets some."
            ),
            no_text=NO_TEXT,
        ),
        widget=text_area(4),
    )
    lock_summary_instruction = lock()
    summary_sections = headings(
        gettext_lazy("Summary headings"),
        format_lazy(
            gettext_lazy(
                "One per line, in order. {built_in}: {headings}. A summary without one "
                "of them is rejected. Text that belongs under none goes under the "
                "first."
            ),
            built_in=BUILT_IN,
            headings=", ".join(SECTIONS),
        ),
    )
    lock_summary_sections = lock()
    archive = yes_or_no(
        gettext_lazy("Archive"),
        gettext_lazy("Covered messages stay searchable and are shown under their summary."),
    )
    lock_archive = lock()
    approval = choice(
        gettext_lazy("Approved by"),
        gettext_lazy(
            "Who approves a summary before it is used. Until then, the newest messages are sent."
        ),
        [UNSET, *APPROVALS.items()],
    )
    lock_approval = lock()
    undo_right = choice(
        gettext_lazy("Undo permission"),
        gettext_lazy("People who can undo and redo a summary."),
        [UNSET, *RIGHTS.items()],
    )
    lock_undo_right = lock()
    undo_pause_hours = number(
        gettext_lazy("Pause after an undo, hours"),
        gettext_lazy(
            "Time without new summaries after an undo. 0: until they are resumed manually."
        ),
    )
    lock_undo_pause_hours = lock()
    edit_right = choice(
        gettext_lazy("Edit permission"),
        gettext_lazy("People who can edit a summary."),
        [UNSET, *RIGHTS.items()],
    )
    lock_edit_right = lock()
