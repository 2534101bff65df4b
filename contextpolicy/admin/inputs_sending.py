"""Inputs of the policy form: the strategy, the layout, and the system text."""

from django import forms

from contextpolicy.admin.fields import (
    UNSET,
    WordsField,
    choice,
    lock,
    several,
    text_area,
    yes_or_no,
)
from contextpolicy.admin.offered import history_providers, skills_offered, strategies
from contextpolicy.admin.stored_values import NO_TEXT
from contextpolicy.admin.words import CHAT_SYSTEMS, LAYOUTS
from contextpolicy.linter.errors import LONGEST_TEXT


class SendingInputs(forms.Form):
    """Fields of what is sent beside the history: strategy, layout, system text."""

    strategy = choice(
        "Strategy",
        "What chooses the history that goes along with each question. Of several policies the "
        "nearest one counts.",
        strategies,
    )
    lock_strategy = lock()
    history_provider = choice(
        "History provider",
        "Chooses the earlier messages that a prompt starts from. Packages can add providers.",
        history_providers,
    )
    lock_history_provider = lock()
    layout = choice(
        "Layout",
        "How the chosen parts become messages of the request. Text layouts (A, B, C) are for "
        "models that are used to them: they cost the provider's prompt cache and show no tools.",
        [UNSET, *LAYOUTS.items()],
    )
    lock_layout = lock()
    question_prefix = WordsField(
        label="Before the question",
        max_length=200,
        help_text="In layouts A and C these words stand between the history and the question. "
        f"Spaces count. {NO_TEXT}: no words.",
    )
    lock_question_prefix = lock()
    chat_system = choice(
        "A chat's own system text",
        "What becomes of the text that a person gives a chat, beside this policy's.",
        [UNSET, *CHAT_SYSTEMS.items()],
    )
    lock_chat_system = lock()
    show_date = yes_or_no(
        "Tell the date", "Whether the day of the question stands right before it (year-month-day)."
    )
    lock_show_date = lock()
    plain_sections = yes_or_no(
        "Plain sections",
        "Sends preferences and retrieved context as plain text, without the introduction, the "
        "dates and the names of speakers. The introduction says that preferences are not "
        "instructions.",
    )
    lock_plain_sections = lock()
    dates = yes_or_no(
        "Dates",
        "Adds a line with the day before the first message of each day, and days to summaries, so "
        "that the model can resolve “yesterday”. Only in the layout of separate messages.",
    )
    lock_dates = lock()
    system_text = WordsField(
        label="System text",
        max_length=LONGEST_TEXT,
        widget=text_area(8),
        help_text="Stands before everything. Write no secrets here: models can repeat it. "
        f"{NO_TEXT}: no text, whatever farther policies say.",
    )
    lock_system_text = lock()
    hide_system_text = yes_or_no(
        "Hide the system text", "People then see its length and hash, not its words."
    )
    lock_hide_system_text = lock()
    runtime_note = yes_or_no(
        "Say what serves the chat",
        "A sentence before the system text: this server and the model's name. No time.",
    )
    lock_runtime_note = lock()
    skills = several(
        "Skills",
        "Texts of the page Skills that stand behind the system text.",
        skills_offered,
    )
    lock_skills = lock()
    budget_note = yes_or_no(
        "Say the limits",
        "A sentence at the end of the system text: the longest reply and the longest tool result.",
    )
    lock_budget_note = lock()
