"""Inputs of the policy form: when summaries are written, by whom, and who decides on them."""

from django import forms

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


class SummaryInputs(forms.Form):
    """Fields of summaries: their time, their writer, and who decides on them."""

    prepare_at = percent(
        "Write a summary at, % full",
        "Of the prompt limit: it is written in the background, before it is needed.",
    )
    lock_prepare_at = lock()
    prepare_at_tokens = number("or at, tokens", "Whichever comes first. 0: the share alone counts.")
    lock_prepare_at_tokens = lock()
    turn_threshold = number(
        "Summarise after, turns",
        "A turn is a question and its reply. When more than this stand in full, the oldest are "
        "summarised. 0: never.",
    )
    lock_turn_threshold = lock()
    fold_turns = number("Turns summarised at once", "Counted from the oldest.", 1)
    lock_fold_turns = lock()
    summarization_model = choice(
        "Summary written by",
        "A light model does. It writes the titles of new chats, too.",
        summarisers,
    )
    lock_summarization_model = lock()
    summary_max_tokens = number("Longest summary", f"In tokens. {LOWEST}", 1)
    lock_summary_max_tokens = lock()
    pinned_kinds = several(
        "Never lost",
        "A summary that loses any of these is rejected, and the originals stay in the prompt.",
        [*KIND_NAMES.items(), (NONE, "None of them")],
    )
    lock_pinned_kinds = lock()
    summary_instruction = WordsField(
        label="Instruction of the summariser",
        help_text="What matters in these chats, for the model that writes summaries, such as "
        "“Keep every order number with its state.” It stands below the built-in rules, which "
        f"stay. {NO_TEXT}: none, whatever a farther policy says.",
        widget=text_area(4),
    )
    lock_summary_instruction = lock()
    summary_sections = headings(
        "Headings of a summary",
        f"One on each line, in their order. {BUILT_IN}: {', '.join(SECTIONS)}. A summary that "
        "lacks one is rejected; what fits under none stands under the first.",
    )
    lock_summary_sections = lock()
    archive = yes_or_no(
        "Archive", "Whether covered messages stay searchable and shown under their summary."
    )
    lock_archive = lock()
    approval = choice(
        "Approved by",
        "Who reads a summary before it is used. Until then the window answers.",
        [UNSET, *APPROVALS.items()],
    )
    lock_approval = lock()
    undo_right = choice(
        "May undo", "Who may take a summary back, and bring it in again.", [UNSET, *RIGHTS.items()]
    )
    lock_undo_right = lock()
    undo_pause_hours = number(
        "Pause after an undo, hours",
        "So long no new summary is made there. 0: until somebody resumes it.",
    )
    lock_undo_pause_hours = lock()
    edit_right = choice(
        "May correct", "Who may change the words of a summary.", [UNSET, *RIGHTS.items()]
    )
    lock_edit_right = lock()
