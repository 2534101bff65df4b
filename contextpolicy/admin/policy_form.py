"""The policy editor's form: an empty field says nothing, a lock stands beside each field."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ClassVar

from django import forms

from contextpolicy.admin.words import STRATEGY_NAMES
from contextpolicy.engine.policy import PolicyValues, Problem, defaults_for
from contextpolicy.lint import LONGEST_TEXT, check, offered_strategies
from contextpolicy.models import ContextPolicy, ModelSpec

UNSET = ("", "not set")
# What stands for the empty string: no model writes the summary, sentences are picked.
BUILT_IN = "(built in)"

SHARES = frozenset({"prepare_at", "compact_at", "compact_to"})
# Where 0 in the form is an explicit "none": unlike an empty field it overrides a farther policy.
NONE_IS_ZERO = frozenset(
    {
        "window_size",
        "max_chars_per_message",
        "turn_threshold",
        "prepare_at_tokens",
        "compact_at_tokens",
        "compact_to_tokens",
    }
)
YES_OR_NO = {True: "yes", False: "no"}


def lock() -> forms.BooleanField:
    """The box beside a field."""
    return forms.BooleanField(label="Locked", required=False)


def number(label: str, text: str, smallest: int = 0) -> forms.IntegerField:
    """A whole number."""
    return forms.IntegerField(
        label=label, help_text=text, required=False, min_value=smallest, max_value=100_000_000
    )


def percent(label: str, text: str) -> forms.DecimalField:
    """A share of the prompt limit."""
    return forms.DecimalField(
        label=label, help_text=text, required=False, min_value=1, max_value=100, decimal_places=2
    )


def choice(
    label: str, text: str, choices: list[tuple[str, str]] | Callable[[], list[tuple[str, str]]]
) -> forms.ChoiceField:
    """One of several, or nothing."""
    return forms.ChoiceField(label=label, help_text=text, required=False, choices=choices)


def yes_or_no(label: str, text: str) -> forms.ChoiceField:
    """Yes, no, or nothing."""
    return choice(label, text, [UNSET, ("yes", "Yes"), ("no", "No")])


class ConfigField(forms.JSONField):
    """JSON that is an empty field when nothing is set, not the word null."""

    def prepare_value(self, value: Any) -> Any:
        """The text in the field."""
        return "" if value is None else super().prepare_value(value)


def strategies() -> list[tuple[str, str]]:
    """The strategies that exist."""
    return [UNSET, *((name, STRATEGY_NAMES.get(name, name)) for name in offered_strategies())]


def models() -> list[tuple[str, str]]:
    """The models a policy can name."""
    return [(model.slug, f"{model} ({model.provider})") for model in ModelSpec.objects.all()]


def summarisers() -> list[tuple[str, str]]:
    """Who can write summaries."""
    return [UNSET, (BUILT_IN, "No model: pick sentences from the messages"), *models()]


class PolicyForm(forms.ModelForm[ContextPolicy]):
    """A policy and the values of its next version.

    After `is_valid`, `policy_values` holds the fields that are set and `policy_locks` the locks.
    """

    strategy = choice("Strategy", "What chooses the history that goes along.", strategies)
    lock_strategy = lock()
    strategy_config = ConfigField(
        label="Strategy config",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
        help_text="JSON, for strategies that ask for it.",
    )
    token_budget = number(
        "Token budget", "Most tokens of one call, prompt and reply together. The lowest wins.", 1
    )
    lock_token_budget = lock()
    reserve_tokens = number(
        "Reserved for the reply", "Tokens of the budget kept free. The largest wins.", 1
    )
    lock_reserve_tokens = lock()
    window_size = number(
        "Window", "Most messages of the history. The lowest wins. 0: no limit from this policy."
    )
    lock_window_size = lock()
    max_chars_per_message = number(
        "Cut messages at",
        "Characters of each history message in the prompt; the stored message stays whole. "
        "The lowest wins. 0: no limit from this policy.",
    )
    lock_max_chars_per_message = lock()
    cut_style = choice(
        "Cut style",
        "Which part of a long message stays.",
        [UNSET, ("head", "The beginning"), ("head_tail", "Beginning and end")],
    )
    lock_cut_style = lock()
    keep_last_messages = number(
        "Newest messages kept", "The token marks never fold these, where they fit."
    )
    lock_keep_last_messages = lock()
    prepare_at = percent("Prepare at, %", "Of the prompt limit: a summary is written meanwhile.")
    lock_prepare_at = lock()
    prepare_at_tokens = number("or at, tokens", "Whichever comes first. 0: no absolute mark.")
    lock_prepare_at_tokens = lock()
    compact_at = percent("Compact at, %", "Of the prompt limit: the summary takes effect.")
    lock_compact_at = lock()
    compact_at_tokens = number("or at, tokens", "Whichever comes first. 0: no absolute mark.")
    lock_compact_at_tokens = lock()
    compact_to = percent("Compact to, %", "Of the prompt limit: what is left afterwards.")
    lock_compact_to = lock()
    compact_to_tokens = number("or to, tokens", "Whichever is lower. 0: no absolute mark.")
    lock_compact_to_tokens = lock()
    turn_threshold = number(
        "Fold after rounds", "More rounds of question and answer than this are folded. 0: never."
    )
    lock_turn_threshold = lock()
    fold_turns = number("Rounds folded at once", "Counted from the oldest.", 1)
    lock_fold_turns = lock()
    summarization_model = choice("Summary written by", "A light model does.", summarisers)
    lock_summarization_model = lock()
    summary_max_tokens = number("Longest summary", "In tokens. The lowest wins.", 1)
    lock_summary_max_tokens = lock()
    input_length_limit = number(
        "Longest message", "In characters; longer ones are refused. The lowest wins.", 1
    )
    lock_input_length_limit = lock()
    tool_output_limit = number(
        "Longest tool result", "In characters of the prompt. The lowest wins.", 1
    )
    lock_tool_output_limit = lock()
    allowed_models = forms.MultipleChoiceField(
        label="Allowed models",
        required=False,
        choices=models,
        widget=forms.CheckboxSelectMultiple,
        help_text="None ticked: this policy says nothing. Of several policies all must allow it.",
    )
    lock_allowed_models = lock()
    archive = yes_or_no(
        "Archive", "Whether covered messages stay searchable and shown under their summary."
    )
    lock_archive = lock()
    system_text = forms.CharField(
        label="System text",
        required=False,
        strip=False,
        max_length=LONGEST_TEXT,
        widget=forms.Textarea(attrs={"rows": 8, "cols": 80}),
        help_text="Stands before everything. Write no secrets here: models can repeat it.",
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
        values = current.values if current else {}
        for name, value in values.items():
            if name in self.fields:
                self.initial.setdefault(name, shown(name, value))
        for name in current.locks if current else ():
            self.initial.setdefault(f"lock_{name}", True)
        self.initial.setdefault("based_on", current.number if current else None)
        self.show_defaults(values)

    def show_defaults(self, values: Mapping[str, Any]) -> None:
        """Say in each empty number field what holds when no policy says anything."""
        defaults = defaults_for(values.get("strategy", PolicyValues().strategy))
        for name, field in self.fields.items():
            if isinstance(field, forms.IntegerField | forms.DecimalField) and name != "based_on":
                default = shown(name, getattr(defaults, name))
                none = "none" if name in NONE_IS_ZERO and default == 0 else default
                field.widget.attrs["placeholder"] = f"not set: {none}"

    def clean(self) -> dict[str, Any]:
        """Collect what is set, and put each problem at the fields it is about."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        fields = [name for name in PolicyValues().to_json() if name in cleaned]
        said = {name: meant(name, cleaned[name]) for name in fields if not is_empty(cleaned[name])}
        self.policy_values = said
        self.policy_locks = [name for name in fields if cleaned.get(f"lock_{name}")]
        if not self.errors:
            for problem in check(said, locks=self.policy_locks):
                self.say(problem)
        self.refuse_a_stale_form(cleaned.get("based_on"))
        return cleaned

    def say(self, problem: Problem) -> None:
        """The sentence at the fields that were set, else at the first one it names."""
        named = [name for name in problem.fields if name in self.policy_values]
        for name in named or problem.fields[:1]:
            self.add_error(name if name in self.fields else None, problem.sentence)

    def refuse_a_stale_form(self, based_on: int | None) -> None:
        """Nobody writes over a version they have not seen."""
        current = self.instance.current
        if current is not None and based_on != current.number:
            self.add_error(
                None,
                f"Version {current.number} was saved while you were editing. "
                "Open the policy again and repeat your changes.",
            )

    def is_new_version(self) -> bool:
        """Whether anything differs from the version in force."""
        current = self.instance.current
        if current is None:
            return True
        said = (current.values, current.locks)
        return said != (self.policy_values, sorted(self.policy_locks))


def is_empty(value: object) -> bool:
    """Whether a field says nothing; 0 says something."""
    return value is None or value in ("", [], {})


def meant(name: str, value: Any) -> Any:
    """A form's value as policies store it."""
    if name in SHARES:
        return float(Decimal(value) / 100)
    if name in NONE_IS_ZERO and value == 0:
        return None
    if value == BUILT_IN:
        return ""
    if isinstance(getattr(PolicyValues(), name), bool):
        return value == "yes"
    return value


def shown(name: str, value: Any) -> Any:
    """A stored value as the form shows it."""
    if name in SHARES:
        return f"{value * 100:g}"
    if name in NONE_IS_ZERO and value is None:
        return 0
    if isinstance(value, bool):
        return YES_OR_NO[value]
    if name == "summarization_model" and value == "":
        return BUILT_IN
    return value
