"""Policy fields about the strategy, the layout, the state and the text of a prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from contextpolicy.engine.policy.fields.declaration import declare
from contextpolicy.engine.text.phrases import Phrase, gettext_noop

Layout = Literal["multi_turn", "A", "B", "C"]
ChatSystem = Literal["layout", "append", "replace", "ignore"]


@dataclass(frozen=True, kw_only=True)
class PromptFields:
    """The strategy and the parts of a prompt that are not history."""

    strategy: str = declare(
        default="dynamic_summary",
        group="prompt",
        label=gettext_noop("Strategy"),
        help_text=gettext_noop(
            "Decides which messages are sent with each question. If several policies set a "
            "strategy, the most specific policy wins, with its config."
        ),
        choices="strategies",
    )
    # JSON-ready and not merged, because it belongs to the strategy.
    strategy_config: Mapping[str, object] = declare(default={})
    # The package provider that selects the messages of history; empty: the newest ones.
    history_provider: str = declare(
        default="",
        group="prompt",
        label=gettext_noop("History provider"),
        help_text=gettext_noop(
            "Chooses the earlier messages from which the strategy selects. Empty: the chat’s "
            "messages. Packages can add providers."
        ),
        choices="history_providers",
        sentence=gettext_noop("The history provider {provider} chooses the earlier messages."),
    )
    layout: Layout = declare(
        default="multi_turn",
        group="prompt",
        label=gettext_noop("Layout"),
        help_text=gettext_noop(
            "Sets how the parts of the prompt are divided into messages. The text layouts (A, "
            "B, C) are for models that work better with them. They reduce prompt caching and "
            "do not show tool calls."
        ),
        labels={
            "multi_turn": gettext_noop("Separate messages"),
            "A": gettext_noop("A: history as text and the question in one message"),
            "B": gettext_noop("B: history as text in a separate message before the question"),
            "C": gettext_noop("C: like A, with both system texts"),
        },
    )
    question_prefix: str = declare(
        default="用户提问: ",
        group="prompt",
        label=gettext_noop("Before the question"),
        help_text=gettext_noop(
            "In layouts A and C, this text is inserted between the history and the question. "
            "Leading and trailing spaces are kept. {no_text}: no text."
        ),
        longest=200,
    )
    # `layout` leaves the choice to the layout: layout A replaces the text of the policy, the others
    # append to it.
    chat_system: ChatSystem = declare(
        default="layout",
        group="prompt",
        label=gettext_noop("System text of a chat"),
        help_text=gettext_noop(
            "Sets how a chat’s system text is combined with this policy’s system text."
        ),
        labels={
            "layout": gettext_noop(
                "Depends on the layout (A replaces the policy’s text, the others append to it)"
            ),
            "append": gettext_noop("Appended to the policy’s text"),
            "replace": gettext_noop("Replaces the policy’s text"),
            "ignore": gettext_noop("Not sent"),
        },
        sentence=gettext_noop(
            "A chat’s system text is [not sent]; only the policy’s system text is sent."
        ),
        described_if=lambda values: values.chat_system == "ignore",
    )
    # The day is in the tail of the prompt.
    show_date: bool = declare(
        default=False,
        group="prompt",
        label=gettext_noop("Question date"),
        help_text=gettext_noop("Adds a line with the date (year-month-day) before the question."),
        sentence=gettext_noop("Sends [the date] before the question."),
    )
    # Text layouts have no lines with dates.
    dates: bool = declare(
        default=False,
        group="prompt",
        label=gettext_noop("Dates"),
        help_text=gettext_noop(
            "Adds the date before the first message of each day and to summaries, so that the "
            "model can resolve “yesterday”. This requires the layout “Separate messages”, "
            "without “Plain sections”."
        ),
        sentence=gettext_noop("Sends [the date] before the messages of each day."),
        described_if=lambda values: values.layout == "multi_turn" and not values.plain_sections,
    )
    plain_sections: bool = declare(
        default=False,
        group="prompt",
        label=gettext_noop("Plain sections"),
        help_text=gettext_noop(
            "Sends preferences and retrieved context as plain text, without dates, speaker "
            "names, or the introduction that says preferences are not instructions."
        ),
        sentence=gettext_noop("Sends preferences and retrieved context as [plain text]."),
    )
    # The JSON Schema of the state of `entity_state`.
    state_schema: Mapping[str, object] = declare(
        default={},
        group="state",
        label=gettext_noop("State values"),
        help_text=gettext_noop(
            "The chat state with these values is sent instead of the dialogue. Enter one value per "
            "line: the name, the type in brackets, a colon and a description. Example: "
            "“{example}”. Types: “text”, “number”, “whole number”, “yes or no”, “date”, “list of "
            "texts”, or “one of a, b, c”. You can also enter a JSON Schema. “{none}”: no values."
        ),
        widget="state_schema",
        unused_with=("simple", "sliding_window", "dynamic_summary"),
    )
    system_text: str = declare(
        default="",
        group="text",
        label=gettext_noop("System text"),
        help_text=gettext_noop(
            "Prompts begin with this text, unless a chat’s system text replaces it. Do not "
            "include secrets, because models can repeat them. {no_text}: no text, even if a less "
            "specific policy sets one."
        ),
        longest=20_000,
        rows=8,
        is_private=True,
    )
    hide_system_text: bool = declare(
        default=False,
        group="text",
        label=gettext_noop("Hide the system text"),
        help_text=gettext_noop(
            "If on, users see only the length and the hash of the system text in receipts "
            "and previews."
        ),
        sentence=gettext_noop("The system text is [hidden] from users."),
        described_if=lambda values: bool(values.system_text),
    )
    runtime_note: bool = declare(
        default=False,
        group="text",
        label=gettext_noop("Model name in the prompt"),
        help_text=gettext_noop(
            "Adds a paragraph before the system text. It names Palimpsest and the model, and says "
            "that older messages may be left out."
        ),
    )
    skills: tuple[str, ...] = declare(
        default=(),
        group="text",
        label=gettext_noop("Skills"),
        help_text=gettext_noop(
            "Skills with the mode “Always” are sent after the system text of each prompt, in "
            "this order. For a skill on demand, one line with its description is sent, or its "
            "whole text if the model does not support tools."
        ),
        choices="skills",
        wanted=Phrase(gettext_noop("a list of skill names")),
        sentence=gettext_noop("Skills in the system text: {skills}."),
    )
    budget_note: bool = declare(
        default=False,
        group="text",
        label=gettext_noop("Limits in the prompt"),
        help_text=gettext_noop(
            "Adds a sentence with the maximum length of replies and tool results after the system "
            "text."
        ),
    )
