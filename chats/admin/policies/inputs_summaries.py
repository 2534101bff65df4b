"""Fields of the policy form: when summaries are written, by which model, and who approves them."""

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from chats.admin.policies.choices import list_summariser_choices
from chats.admin.policies.form_fields import (
    LOWEST,
    UNSET,
    WordsField,
    build_choice_field,
    build_headings_field,
    build_integer_field,
    build_lock_field,
    build_multiple_choice_field,
    build_percent_field,
    build_textarea,
    build_yes_no_field,
)
from chats.admin.policies.form_values import NO_TEXT
from chats.admin.policies.labels import APPROVALS, KIND_NAMES, RIGHTS
from chats.admin.policies.line_formats import BUILT_IN, NONE
from contextpolicy.engine.summaries.prompts import SECTIONS
from contextpolicy.wording import join_sentences_lazy


class SummaryInputs(forms.Form):
    """Fields for the timing, model and approval of summaries."""

    prepare_at = build_percent_field(
        # xgettext:no-python-format, a percent sign
        gettext_lazy("Write a summary at (% full)"),
        gettext_lazy(
            "From this share of the prompt limit on, a summary is prepared in the background. "
            "It is used when the history is shortened."
        ),
    )
    lock_prepare_at = build_lock_field()
    prepare_at_tokens = build_integer_field(
        gettext_lazy("or at (tokens)"),
        gettext_lazy("The lower of the two applies. 0: only the share applies."),
    )
    lock_prepare_at_tokens = build_lock_field()
    turn_threshold = build_integer_field(
        gettext_lazy("Summarise after, turns"),
        gettext_lazy(
            "If the prompt has more turns than this, the oldest turns are summarised. A turn is a "
            "question with its reply. 0: never."
        ),
    )
    lock_turn_threshold = build_lock_field()
    fold_turns = build_integer_field(
        gettext_lazy("Turns summarised at once"),
        gettext_lazy(
            "Number of turns that one summary covers at most, oldest first, if the number of "
            "turns causes it."
        ),
        1,
    )
    lock_fold_turns = build_lock_field()
    summarization_model = build_choice_field(
        gettext_lazy("Summary written by"),
        gettext_lazy("A small model is sufficient. It also writes the titles of new chats."),
        list_summariser_choices,
    )
    lock_summarization_model = build_lock_field()
    summary_max_tokens = build_integer_field(
        gettext_lazy("Maximum summary length"),
        join_sentences_lazy(
            gettext_lazy("Maximum tokens of a summary. Longer summaries are rejected."), LOWEST
        ),
        1,
    )
    lock_summary_max_tokens = build_lock_field()
    pinned_kinds = build_multiple_choice_field(
        gettext_lazy("Required facts"),
        gettext_lazy(
            "Facts that a summary must contain. A summary that loses one is rejected, and the "
            "original messages stay in the prompt."
        ),
        [*KIND_NAMES.items(), (NONE, gettext_lazy("None of these"))],
    )
    lock_pinned_kinds = build_lock_field()
    summary_instruction = WordsField(
        label=gettext_lazy("Summary instruction"),
        help_text=format_lazy(
            gettext_lazy(
                "Additional instructions for the model that writes summaries, such as “Keep every "
                "order number with its state.” They follow the built-in rules. {no_text}: none, "
                "even if a less specific policy sets some."
            ),
            no_text=NO_TEXT,
        ),
        widget=build_textarea(4),
    )
    lock_summary_instruction = build_lock_field()
    summary_sections = build_headings_field(
        gettext_lazy("Summary headings"),
        format_lazy(
            gettext_lazy(
                "One heading per line, in order. {built_in}: {headings}. A summary without one of "
                "them is rejected. Text that fits no heading is placed under the first."
            ),
            built_in=BUILT_IN,
            headings=", ".join(SECTIONS),
        ),
    )
    lock_summary_sections = build_lock_field()
    archive = build_yes_no_field(
        gettext_lazy("Searchable originals"),
        gettext_lazy(
            "If on, people and models can search messages covered by a summary, and they are "
            "shown under it."
        ),
    )
    lock_archive = build_lock_field()
    approval = build_choice_field(
        gettext_lazy("Approved by"),
        gettext_lazy(
            "The person who approves a summary before it is used. Until then, only the newest "
            "messages are sent."
        ),
        [UNSET, *APPROVALS.items()],
    )
    lock_approval = build_lock_field()
    undo_right = build_choice_field(
        gettext_lazy("Undo permission"),
        gettext_lazy(
            "Who can undo and redo a summary: the owner of the chat, policy administrators, "
            "or no user."
        ),
        [UNSET, *RIGHTS.items()],
    )
    lock_undo_right = build_lock_field()
    undo_pause_hours = build_integer_field(
        gettext_lazy("Pause after an undo (hours)"),
        gettext_lazy(
            "No summaries are written for this time after an undo. 0: until a user resumes them."
        ),
    )
    lock_undo_pause_hours = build_lock_field()
    edit_right = build_choice_field(
        gettext_lazy("Edit permission"),
        gettext_lazy(
            "Who can edit and regenerate a summary: the owner of the chat, policy "
            "administrators, or no user."
        ),
        [UNSET, *RIGHTS.items()],
    )
    lock_edit_right = build_lock_field()
