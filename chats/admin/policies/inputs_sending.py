"""Fields of the policy form: the strategy, the layout, and the system text."""

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from chats.admin.policies.choices import (
    list_history_provider_choices,
    list_skill_choices,
    list_strategy_choices,
)
from chats.admin.policies.form_fields import (
    UNSET,
    WordsField,
    build_choice_field,
    build_lock_field,
    build_multiple_choice_field,
    build_textarea,
    build_yes_no_field,
)
from chats.admin.policies.form_values import NO_TEXT
from chats.admin.policies.labels import CHAT_SYSTEMS, LAYOUTS
from contextpolicy.linter.errors import LONGEST_TEXT


class SendingInputs(forms.Form):
    """Fields for the strategy, the layout and the system text."""

    strategy = build_choice_field(
        gettext_lazy("Strategy"),
        gettext_lazy(
            "Decides which messages are sent with each question. If several policies set it, "
            "the most specific one wins, with its config."
        ),
        list_strategy_choices,
    )
    lock_strategy = build_lock_field()
    history_provider = build_choice_field(
        gettext_lazy("History provider"),
        gettext_lazy(
            "Chooses the earlier messages from which the strategy selects. Empty: the "
            "messages of the chat. Packages can add providers."
        ),
        list_history_provider_choices,
    )
    lock_history_provider = build_lock_field()
    layout = build_choice_field(
        gettext_lazy("Layout"),
        gettext_lazy(
            "How the parts of the prompt are divided into messages. The text layouts (A, B, C) "
            "are for models that work better with them. They reduce prompt caching and do not "
            "show tool calls."
        ),
        [UNSET, *LAYOUTS.items()],
    )
    lock_layout = build_lock_field()
    question_prefix = WordsField(
        label=gettext_lazy("Before the question"),
        max_length=200,
        help_text=format_lazy(
            gettext_lazy(
                "In layouts A and C, this text is inserted between the history and the question. "
                "Spaces count. {no_text}: no text."
            ),
            no_text=NO_TEXT,
        ),
    )
    lock_question_prefix = build_lock_field()
    chat_system = build_choice_field(
        gettext_lazy("System text of a chat"),
        gettext_lazy(
            "How the system text of a chat is combined with the system text of this policy."
        ),
        [UNSET, *CHAT_SYSTEMS.items()],
    )
    lock_chat_system = build_lock_field()
    show_date = build_yes_no_field(
        gettext_lazy("Date of the question"),
        gettext_lazy("Adds a line with the date (year-month-day) before the question."),
    )
    lock_show_date = build_lock_field()
    plain_sections = build_yes_no_field(
        gettext_lazy("Plain sections"),
        gettext_lazy(
            "Sends preferences and retrieved context as plain text, without their introduction, "
            "dates and speaker names. The introduction says that preferences are not instructions."
        ),
    )
    lock_plain_sections = build_lock_field()
    dates = build_yes_no_field(
        gettext_lazy("Dates"),
        gettext_lazy(
            "Adds the date before the first message of each day and to summaries, so that the "
            "model can resolve “yesterday”. Only in the layout of separate messages."
        ),
    )
    lock_dates = build_lock_field()
    system_text = WordsField(
        label=gettext_lazy("System text"),
        max_length=LONGEST_TEXT,
        widget=build_textarea(8),
        help_text=format_lazy(
            gettext_lazy(
                "Sent first in every prompt. Do not include secrets, because models can repeat "
                "them. {no_text}: no text, even if a less specific policy sets one."
            ),
            no_text=NO_TEXT,
        ),
    )
    lock_system_text = build_lock_field()
    hide_system_text = build_yes_no_field(
        gettext_lazy("Hide the system text"),
        gettext_lazy(
            "If on, people see only the length and the hash of the system text in receipts "
            "and previews."
        ),
    )
    lock_hide_system_text = build_lock_field()
    runtime_note = build_yes_no_field(
        gettext_lazy("Model name in the prompt"),
        gettext_lazy(
            "Adds a sentence with the name of this server and of the model before the system text."
        ),
    )
    lock_runtime_note = build_lock_field()
    skills = build_multiple_choice_field(
        gettext_lazy("Skills"),
        gettext_lazy(
            "Skills whose texts are sent after the system text of each prompt, in this order."
        ),
        list_skill_choices,
    )
    lock_skills = build_lock_field()
    budget_note = build_yes_no_field(
        gettext_lazy("Limits in the prompt"),
        gettext_lazy(
            "Adds a sentence with the maximum length of replies and tool results after the system "
            "text."
        ),
    )
    lock_budget_note = build_lock_field()
