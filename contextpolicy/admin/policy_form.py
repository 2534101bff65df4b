"""The policy editor's form: an empty field says nothing, a lock stands beside each field."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

from django import forms
from django.http import QueryDict
from django.utils.text import slugify

from contextpolicy.admin.config_fields import (
    config_fields,
    field_for,
    read_config,
    shown_config,
)
from contextpolicy.admin.conflicts import Conflict, conflicts_of
from contextpolicy.admin.inputs_around import AroundInputs
from contextpolicy.admin.inputs_history import HistoryInputs
from contextpolicy.admin.inputs_sending import SendingInputs
from contextpolicy.admin.inputs_summaries import SummaryInputs
from contextpolicy.admin.offered import strategies
from contextpolicy.admin.stored_values import is_empty, meant, shown
from contextpolicy.admin.written import NONE
from contextpolicy.engine.policy import PolicyValues, Problem
from contextpolicy.imports import RESERVED, ReservedName
from contextpolicy.linter.errors import check
from contextpolicy.linter.findings import UNSET, Finding
from contextpolicy.linter.judge import judge
from contextpolicy.models import ContextPolicy, PolicyVersion

# What a form is sent with that is to be shown again, and not saved.
LOOK, MEND, PREVIEW, TRIAL = "_look", "_mend", "_preview", "_trial"
UNSAVED = frozenset({LOOK, MEND, PREVIEW, TRIAL})
# The fields of which the colleague's value is to stay.
THEIRS = "keep_theirs"
OF_THE_POLICY = ("name", "description", "retired")


def some_or_none(chosen: list[str], *, what: str) -> list[str]:
    """Return what was ticked; raises ValidationError for "none of them" beside others."""
    if NONE in chosen and len(chosen) > 1:
        raise forms.ValidationError(f"Tick {what}, or none of them, not both.")
    return chosen


class PolicyForm(
    SendingInputs, HistoryInputs, SummaryInputs, AroundInputs, forms.ModelForm[ContextPolicy]
):
    """A policy and the values of its next version.

    After `is_valid`, `policy_values` holds the fields that are set and `policy_locks` the locks.
    A form that is only looked at is never valid, so nothing is saved. The fields of the strategies'
    configs are added by `with_configs`.
    """

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
        self.conflicts: list[Conflict] = []
        self.mended: dict[str, Any] = {}
        # The fields that say something that cannot be read.
        self.unread: set[str] = set()
        self.is_look = self.is_bound and not UNSAVED.isdisjoint(self.data)
        # The policy that a new one begins as a copy of.
        start: PolicyVersion | None = self.initial.pop("start", None)
        self.start_values: Mapping[str, Any] = start.values if start else {}
        self.start_locks: Sequence[str] = start.locks if start else ()
        self.stored: Mapping[str, Any] = self.edited.values if self.edited else {}
        for name, value in self.initial_of(start or self.edited).items():
            self.initial.setdefault(name, value)
        self.initial.setdefault("based_on", self.newest.number if self.newest else None)
        for name in OF_THE_POLICY:
            if name in self.fields:
                # Told from what a colleague changed meanwhile.
                self.fields[name].show_hidden_initial = self.instance.pk is not None
        for field in self.fields.values():
            if isinstance(field.widget, forms.TextInput | forms.NumberInput | forms.Textarea):
                # The style sheet tells an empty field by it.
                field.widget.attrs["placeholder"] = " "
        if "slug" in self.fields:
            self.fields["slug"].required = False
            self.fields["slug"].help_text = "Empty: made of the name. It stays for good."
        if "strategy" in self.fields:
            self.keep_choosable(str(self.stored.get("strategy", "")))

    @cached_property
    def newest(self) -> PolicyVersion | None:
        """The version that the next one follows: a draft, or the one in force."""
        return self.instance.newest if self.instance.pk else None

    @cached_property
    def edited(self) -> PolicyVersion | None:
        """The version that the person had before them."""
        newest = self.newest
        said = str(self.data.get("based_on", "")) if self.is_bound else ""
        if newest is None or not said.isdecimal() or int(said[:9]) == newest.number:
            return newest
        return self.instance.versions.filter(number=int(said[:9])).first() or newest

    def initial_of(self, version: PolicyVersion | None) -> dict[str, Any]:
        """Return what the fields show of a version."""
        if version is None:
            return {}
        values = version.values
        found = {name: shown(name, values[name]) for name in values if name in self.fields}
        found |= shown_config(values.get("strategy", ""), values.get("strategy_config", {}))
        return found | {f"lock_{name}": True for name in version.locks}

    def keep_choosable(self, strategy: str) -> None:
        """Keep a strategy whose package is gone as a choice.

        So saving says that it is missing instead of dropping it.
        """
        field = self.fields["strategy"]
        if isinstance(field, forms.ChoiceField) and strategy not in dict(strategies()):
            field.choices = [*strategies(), (strategy, f"{strategy} (not installed)")]

    def is_valid(self) -> bool:
        """Tell whether it can be saved; one that is only looked at is not."""
        if self.is_bound and MEND in self.data:
            self.mend(str(self.data[MEND]))
        return super().is_valid() and not self.is_look

    def mend(self, wanted: str) -> None:
        """Write the values that end a finding into the fields; nothing is saved."""
        self.full_clean()
        for finding in self.judged:
            if f"{finding.code}:{finding.field}" == wanted and finding.mend:
                self.put({name: shown_mend(name, value) for name, value in finding.mend.items()})
                self.mended = dict(finding.mend)
                for stale in ("judged", "changed_data"):
                    self.__dict__.pop(stale, None)
                self.full_clean()
                return

    def put(self, fields: Mapping[str, Any]) -> None:
        """Write values into the fields of a form that was sent."""
        data = cast(QueryDict, self.data).copy()
        for name, value in fields.items():
            field = self.fields.get(name)
            if field is None:
                continue
            value = field.prepare_value(value)
            empty = value is None or value is False or value == ""
            data.setlist(name, list(value) if isinstance(value, list) else [str(value)])
            if empty:
                data.pop(name, None)
        self.data = data

    @cached_property
    def judged(self) -> list[Finding]:
        """All that is to be known of what the fields say."""
        found = judge(self.policy_values, locks=self.policy_locks)
        return [each for each in found if each.level != "error" or each.field not in self.unread]

    def clean(self) -> dict[str, Any]:
        """Collect what is set, and put each problem at the fields it is about.

        A field that nobody touched stays as the newest version has it, whatever the form can show
        of it.
        """
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        names = [name for name in PolicyValues().to_json() if name in self.fields]
        touched = set(self.changed_data) - self.left_to_others()
        latest = self.newest.values if self.newest else {}
        said = {name: latest[name] for name in names if name in latest}
        self.unread = {name for name in self.errors if name not in cleaned}
        for name in touched & set(names):
            said.pop(name, None)
            if name not in self.unread and not is_empty(cleaned.get(name)):
                said[name] = meant(name, cleaned[name])
        self.policy_values = {**said, **self.config(cleaned, touched, latest)}
        self.policy_locks = self.locks(names, cleaned, touched)
        for problem in check(self.policy_values, locks=self.policy_locks):
            if self.unread.isdisjoint(problem.fields):
                self.say(problem)
        if self.is_look:
            self.pass_over_what_is_empty()
        self.show_both_changes(touched)
        return cleaned

    def left_to_others(self) -> set[str]:
        """Return the fields of which the person keeps what a colleague wrote."""
        kept = set(self.data.getlist(THEIRS)) if hasattr(self.data, "getlist") else set()
        return kept | {f"lock_{name}" for name in kept}

    def locks(self, names: list[str], cleaned: Mapping[str, Any], touched: set[str]) -> list[str]:
        """Return the locks: as the newest version has them, but for those that were touched."""
        latest = set(self.newest.locks if self.newest else ())
        return [
            name
            for name in names
            if (cleaned.get(f"lock_{name}") if f"lock_{name}" in touched else name in latest)
        ]

    def clean_slug(self) -> str:
        """Make the slug of the name where nobody gave one; raises ValidationError."""
        slug: str = self.cleaned_data["slug"] or slugify(self.cleaned_data.get("name", ""))[:60]
        if not slug and self.cleaned_data.get("name"):
            raise forms.ValidationError("Give a slug: the name has no letters for one.")
        if slug in RESERVED:
            raise forms.ValidationError(str(ReservedName(slug=slug)))
        return slug

    def clean_pinned_kinds(self) -> list[str]:
        """Refuse "none of them" beside other choices; raises ValidationError."""
        return some_or_none(self.cleaned_data["pinned_kinds"], what="kinds")

    def clean_skills(self) -> list[str]:
        """Refuse "none of them" beside other choices; raises ValidationError."""
        return some_or_none(self.cleaned_data["skills"], what="skills")

    def clean_allowed_models(self) -> list[str]:
        """Refuse "none of them" beside other choices; raises ValidationError."""
        return some_or_none(self.cleaned_data["allowed_models"], what="models")

    def clean_memory_providers(self) -> list[str]:
        """Refuse "none of them" beside other choices; raises ValidationError."""
        return some_or_none(self.cleaned_data["memory_providers"], what="providers")

    def config(
        self, cleaned: Mapping[str, Any], touched: set[str], latest: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the config of the chosen strategy; empty if it has none.

        Strategy and config are one choice: a config of another strategy is dropped.
        """
        strategy = cleaned.get("strategy") if "strategy" in touched else latest.get("strategy")
        is_the_same = bool(strategy) and strategy == latest.get("strategy")
        stored = latest.get("strategy_config", {}) if is_the_same else {}
        has_one = is_the_same and "strategy_config" in latest
        if is_the_same and not any(name.startswith("config__") for name in touched):
            return {"strategy_config": stored} if has_one else {}
        config = read_config(str(strategy), cleaned, stored=stored) if strategy else {}
        return {"strategy_config": config} if config or has_one else {}

    def say(self, problem: Problem) -> None:
        """Put the sentence at the fields that were set, else at the first one it names."""
        named = [name for name in problem.fields if name in self.policy_values]
        for name in named or problem.fields[:1]:
            if name == "strategy_config":
                name = field_for(str(self.policy_values.get("strategy")), problem.sentence)
            self.add_error(name if name in self.fields else None, problem.sentence)

    def pass_over_what_is_empty(self) -> None:
        """Leave out that a name is missing: nobody has asked to save yet."""
        for name in ("name", "slug"):
            if not self.data.get(name):
                self.errors.pop(name, None)

    def show_both_changes(self, touched: set[str]) -> None:
        """Refuse to write over a version that the person has not seen, and show both changes.

        The fields then say what a save would write: the person's where they touched them, the
        colleague's elsewhere.
        """
        newest, edited = self.newest, self.edited
        if newest is None or edited is None or newest.number == edited.number:
            return
        self.conflicts = conflicts_of(
            touched=touched,
            values=self.policy_values,
            locks=self.policy_locks,
            labels={name: str(field.label) for name, field in self.fields.items()},
            base=edited,
            theirs=newest,
        )
        self.add_error(
            None,
            f"Version {newest.number} was saved while you were editing. Nothing of yours is lost: "
            "see both changes below, decide, and save again.",
        )
        untouched = {n for n in self.fields if n not in touched and n not in ("note", *OWN)}
        theirs = self.initial_of(newest)
        self.put({name: theirs.get(name) for name in untouched})
        self.put({"based_on": newest.number})

    def is_new_version(self) -> bool:
        """Tell whether anything differs from the newest version."""
        if self.newest is None:
            return True
        said = (self.newest.values, self.newest.locks)
        return said != (self.policy_values, sorted(self.policy_locks))


# Fields that no version holds.
OWN = ("name", "slug", "description", "retired", "based_on")


def shown_mend(name: str, value: object) -> Any:
    """Return a value of a mend as its field shows it."""
    return None if value == UNSET else shown(name, value)


def with_configs(form: type[PolicyForm]) -> type[PolicyForm]:
    """Add the config fields of the strategies that are installed now to the form."""
    made = {field.name: field.make() for field in config_fields()}
    return type(form.__name__, (form,), made)
