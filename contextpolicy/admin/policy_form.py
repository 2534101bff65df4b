"""The policy editor's form: an empty field says nothing, a lock stands beside each field."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms

from contextpolicy import plugins
from contextpolicy.admin.config_fields import (
    config_fields,
    field_for,
    read_config,
    shown_config,
)
from contextpolicy.admin.fields import (
    UNSET,
    Choices,
    WordsField,
    choice,
    lock,
    number,
    percent,
    rules,
    schema,
    several,
    text_area,
    yes_or_no,
)
from contextpolicy.admin.stored_values import (
    BUILT_IN,
    NO_TEXT,
    NONE_IS_ZERO,
    default_words,
    is_empty,
    meant,
    shown,
)
from contextpolicy.admin.words import (
    APPROVALS,
    CHAT_SYSTEMS,
    KIND_NAMES,
    LAYOUTS,
    RIGHTS,
    STRATEGY_NAMES,
)
from contextpolicy.admin.written import NONE, RULE_EXAMPLE, STATE_EXAMPLE
from contextpolicy.engine.policy import PolicyValues, Problem, defaults_for
from contextpolicy.lint import LONGEST_TEXT, check, offered_strategies
from contextpolicy.models import ContextPolicy, ModelSpec

# Help texts on limits: how several policies combine, and what 0 means.
LOWEST = "Of several policies the lowest value counts."
NO_LIMIT = "0: this policy sets no limit."


def strategies() -> Choices:
    """Return the strategies that exist, those of packages with the package."""
    found = plugins.installed().plugins
    return [
        UNSET,
        *(
            (name, f"{name} ({found[name].package})" if name in found else strategy_name(name))
            for name in offered_strategies()
        ),
    ]


def strategy_name(name: str) -> str:
    """Name a strategy that ships, as people see it."""
    return STRATEGY_NAMES.get(name, name)


def models() -> Choices:
    """Return the models a policy can name."""
    return [(model.slug, f"{model} ({model.provider})") for model in ModelSpec.objects.all()]


def summarisers() -> Choices:
    """Return the choices of what writes summaries."""
    return [UNSET, (BUILT_IN, "No model: pick sentences from the messages"), *models()]


class PolicyForm(forms.ModelForm[ContextPolicy]):
    """A policy and the values of its next version.

    After `is_valid`, `policy_values` holds the fields that are set and `policy_locks` the locks.
    The fields of the strategies' configs are added by `with_configs`.
    """

    strategy = choice(
        "Strategy",
        "What chooses the history that goes along with each question. Of several policies the "
        "nearest one counts.",
        strategies,
    )
    lock_strategy = lock()
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
    state_schema = schema(
        "The state",
        "Which values are kept instead of the dialogue, one on each line: a name, its kind in "
        f"brackets, a colon and what it means, such as “{STATE_EXAMPLE}”. Kinds: text, number, "
        "whole number, yes or no, date, list of texts, one of a, b, c. A JSON Schema can be "
        f"written instead. “{NONE}”: no values.",
    )
    lock_state_schema = lock()
    token_budget = number(
        "Token budget",
        f"Most tokens of one call, prompt and reply together. {LOWEST}",
        1,
    )
    lock_token_budget = lock()
    reserve_tokens = number(
        "Reserved for the reply",
        "Tokens of the budget kept free; replies end there. Of several policies the largest value "
        "counts.",
        1,
    )
    lock_reserve_tokens = lock()
    max_bytes = number(
        "Most bytes",
        "Bytes of a prompt beside its tokens, for providers that limit the size of a request. "
        f"{LOWEST} {NO_LIMIT}",
    )
    lock_max_bytes = lock()
    pins_tokens = number(
        "Room for pins",
        f"Tokens of the prompt for pinned messages; the newest pins stay. {LOWEST} {NO_LIMIT}",
    )
    lock_pins_tokens = lock()
    window_size = number(
        "Window in messages",
        f"Most messages of the history. {LOWEST} {NO_LIMIT}",
    )
    lock_window_size = lock()
    window_turns = number(
        "Window in turns",
        f"Most turns of the history: a question and all it caused. {LOWEST} {NO_LIMIT}",
    )
    lock_window_turns = lock()
    window_tokens = number(
        "Window in tokens",
        f"Most tokens of the history. {LOWEST} {NO_LIMIT}",
    )
    lock_window_tokens = lock()
    max_chars_per_message = number(
        "Cut messages at",
        "Characters of each history message in the prompt; the stored message stays whole. "
        f"{LOWEST} {NO_LIMIT}",
    )
    lock_max_chars_per_message = lock()
    cut_style = choice(
        "Cut style",
        "Which part of a long message stays.",
        [UNSET, ("head", "The beginning"), ("head_tail", "Beginning and end")],
    )
    lock_cut_style = lock()
    keep_last_messages = number(
        "Newest messages kept",
        "Messages that are never summarised because the prompt is full, where they fit. With a "
        "state: messages of the dialogue that go along beside it.",
    )
    lock_keep_last_messages = lock()
    compact_at = percent(
        "Shorten the history at, % full",
        "Of the prompt limit: from here the oldest history leaves the prompt, in one batch.",
    )
    lock_compact_at = lock()
    compact_at_tokens = number("or at, tokens", "Whichever comes first. 0: the share alone counts.")
    lock_compact_at_tokens = lock()
    compact_to = percent("Shorten it to, % full", "Of the prompt limit: what is left afterwards.")
    lock_compact_to = lock()
    compact_to_tokens = number("or to, tokens", "Whichever is lower. 0: the share alone counts.")
    lock_compact_to_tokens = lock()
    compact_every_turns = number(
        "Shorten it every, turns",
        "Instead of “Shorten it to”: as much is left that the next time comes after about so many "
        "turns of the usual size. 0: this policy does not say.",
    )
    lock_compact_every_turns = lock()
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
    tool_output_limit = number(
        "Longest tool result",
        f"In characters of the prompt. {LOWEST}",
        1,
    )
    lock_tool_output_limit = lock()
    tool_output_rules = rules(
        "Rules for tools",
        "One on each line: a tool's name (or * for all others), a colon, and its rule, such as "
        f"“{RULE_EXAMPLE}”. “limit” is in characters of a result in the prompt; “keep newest” "
        "replaces older results by a line that says so. “no rule” exempts a tool from *. "
        f"“{NONE}”: no rules.",
    )
    lock_tool_output_rules = lock()
    input_length_limit = number(
        "Longest message",
        f"In characters; longer ones are refused. {LOWEST}",
        1,
    )
    lock_input_length_limit = lock()
    allowed_models = several(
        "Allowed models",
        "None ticked: this policy says nothing. Of several policies all must allow it.",
        models,
    )
    lock_allowed_models = lock()
    temporary_chats = yes_or_no(
        "Temporary chats",
        "Whether people may begin chats that are erased when they sign out, or some time after "
        "the last message. The audit ledger keeps their numbers.",
    )
    lock_temporary_chats = lock()
    warm_up = yes_or_no(
        "Warm-ups",
        "Whether a model server that costs nothing reads a changed prompt in the background, so "
        "that the next message does not wait for it. A server can be left out in its settings.",
    )
    lock_warm_up = lock()
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
    note = forms.CharField(
        label="Why", required=False, max_length=500, help_text="For those who read the versions."
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = ContextPolicy
        fields = ("name", "slug", "description", "retired")
        widgets: ClassVar = {"description": forms.Textarea(attrs={"rows": 2, "cols": 80})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.policy_values: dict[str, Any] = {}
        self.policy_locks: list[str] = []
        current = self.instance.current
        self.stored: Mapping[str, Any] = current.values if current else {}
        for name, value in self.stored.items():
            if name in self.fields:
                self.initial.setdefault(name, shown(name, value))
        strategy = self.stored.get("strategy", "")
        self.initial.update(shown_config(strategy, self.stored.get("strategy_config", {})))
        for name in current.locks if current else ():
            self.initial.setdefault(f"lock_{name}", True)
        self.initial.setdefault("based_on", current.number if current else None)
        if "strategy" in self.fields:
            self.keep_choosable(strategy)
            self.show_defaults()

    def keep_choosable(self, strategy: str) -> None:
        """Keep a strategy whose package is gone as a choice.

        So saving says that it is missing instead of dropping it.
        """
        field = self.fields["strategy"]
        if isinstance(field, forms.ChoiceField) and strategy not in dict(strategies()):
            field.choices = [*strategies(), (strategy, f"{strategy} (not installed)")]

    def show_defaults(self) -> None:
        """Say at each field what holds when no policy says anything."""
        defaults = defaults_for(self.stored.get("strategy", PolicyValues().strategy))
        for name, value in defaults.to_json().items():
            field = self.fields.get(name)
            if isinstance(field, forms.IntegerField | forms.DecimalField):
                default = shown(name, value)
                none = "none" if name in NONE_IS_ZERO and default == 0 else default
                field.widget.attrs["placeholder"] = f"not set: {none}"
            elif field is not None:
                said = default_words(field, shown(name, value))
                field.help_text = f"{field.help_text} Not set: {said}."

    def clean(self) -> dict[str, Any]:
        """Collect what is set, and put each problem at the fields it is about.

        A field that nobody touched stays exactly as it is stored, whatever the form can show of it.
        """
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        names = [name for name in PolicyValues().to_json() if name in self.fields]
        touched = set(self.changed_data)
        said = {name: self.stored[name] for name in names if name in self.stored}
        for name in touched & set(names) & set(cleaned):
            said.pop(name, None)
            if not is_empty(cleaned[name]):
                said[name] = meant(name, cleaned[name])
        self.policy_values = {**said, **self.config(cleaned)}
        self.policy_locks = [name for name in names if cleaned.get(f"lock_{name}")]
        if not self.errors:
            for problem in check(self.policy_values, locks=self.policy_locks):
                self.say(problem)
        self.refuse_a_stale_form(cleaned.get("based_on"))
        return cleaned

    def clean_pinned_kinds(self) -> list[str]:
        """Refuse "none of them" beside other choices; raises ValidationError."""
        kinds: list[str] = self.cleaned_data["pinned_kinds"]
        if NONE in kinds and len(kinds) > 1:
            raise forms.ValidationError("Tick kinds, or none of them, not both.")
        return kinds

    def config(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config of the chosen strategy; empty if it has none.

        Strategy and config are one choice: a config of another strategy is dropped.
        """
        strategy = cleaned.get("strategy")
        is_the_same = bool(strategy) and strategy == self.stored.get("strategy")
        stored = self.stored.get("strategy_config", {}) if is_the_same else {}
        config = read_config(strategy, cleaned, stored=stored) if strategy else {}
        has_one = bool(config) or (is_the_same and "strategy_config" in self.stored)
        return {"strategy_config": config} if has_one else {}

    def say(self, problem: Problem) -> None:
        """Put the sentence at the fields that were set, else at the first one it names."""
        named = [name for name in problem.fields if name in self.policy_values]
        for name in named or problem.fields[:1]:
            if name == "strategy_config":
                name = field_for(str(self.policy_values.get("strategy")), problem.sentence)
            self.add_error(name if name in self.fields else None, problem.sentence)

    def refuse_a_stale_form(self, based_on: int | None) -> None:
        """Refuse to overwrite a version that the person has not seen."""
        current = self.instance.current
        if current is not None and based_on != current.number:
            self.add_error(
                None,
                f"Version {current.number} was saved while you were editing. "
                "Open the policy again and repeat your changes.",
            )

    def is_new_version(self) -> bool:
        """Tell whether anything differs from the version in force."""
        current = self.instance.current
        if current is None:
            return True
        said = (current.values, current.locks)
        return said != (self.policy_values, sorted(self.policy_locks))


def with_configs(form: type[PolicyForm]) -> type[PolicyForm]:
    """Add the config fields of the strategies that are installed now to the form."""
    made = {field.name: field.make() for field in config_fields()}
    return type(form.__name__, (form,), made)
