"""The policy editor's form. An empty field is unset; each field has a lock next to it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

from django import forms
from django.http import QueryDict
from django.utils.text import slugify
from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from chats.admin.policies.config_fields import (
    build_initial_config,
    find_error_field,
    list_config_fields,
    read_config,
)
from chats.admin.policies.conflicts import Conflict, find_edit_conflicts
from chats.admin.policies.form_fields import Choices
from chats.admin.policies.form_values import format_form_value, is_empty, parse_form_value
from chats.admin.policies.policy_inputs import PolicyInputs
from contextpolicy import policy_refusals, publish
from contextpolicy.engine.policy.policy import PolicyValues, Problem
from contextpolicy.imports import PolicyExists, ReservedName, check_slug_free
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.linter.lint import lint_policy
from contextpolicy.linter.policy_warning import UNSET, PolicyWarning
from contextpolicy.models import ContextPolicy, PolicyVersion

# Form fields that request a redraw instead of a save.
LOOK, FIX, PREVIEW, TRIAL = "_look", "_fix", "_preview", "_trial"
UNSAVED = frozenset({LOOK, FIX, PREVIEW, TRIAL})
# The fields in which the other administrator's value is kept.
THEIRS = "keep_theirs"
OF_THE_POLICY = ("name", "description", "retired")


class PolicyForm(PolicyInputs, forms.ModelForm[ContextPolicy]):
    """The form of a policy and the values of its next version.

    After `is_valid`, `policy_values` has the fields that are set and `policy_locks` the locks. A
    form that is only redrawn is never valid, so nothing is saved. `add_config_fields` adds the
    fields of the strategies' configs.
    """

    note = forms.CharField(
        label=gettext_lazy("Reason for the change"),
        required=False,
        max_length=500,
        help_text=gettext_lazy(
            "The version history shows this reason for the change. At most 500 characters."
        ),
    )
    based_on = forms.IntegerField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = ContextPolicy
        fields = ("name", "slug", "description", "retired")
        labels: ClassVar = {
            "name": gettext_lazy("Name"),
            "slug": gettext_lazy("Slug"),
            "description": gettext_lazy("Description"),
            "retired": pgettext_lazy("policy", "Retired"),
        }
        widgets: ClassVar = {"description": forms.Textarea(attrs={"rows": 2, "cols": 80})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.policy_values: dict[str, Any] = {}
        self.policy_locks: list[str] = []
        self.conflicts: list[Conflict] = []
        self.fixed: dict[str, Any] = {}
        # The fields whose value cannot be parsed.
        self.unread: set[str] = set()
        self.is_look = self.is_bound and not UNSAVED.isdisjoint(self.data)
        # The policy version that a new policy is copied from.
        start: PolicyVersion | None = self.initial.pop("start", None)
        self.start_values: Mapping[str, Any] = start.values if start else {}
        self.start_locks: Sequence[str] = start.locks if start else ()
        self.stored: Mapping[str, Any] = self.edited.values if self.edited else {}
        for name, value in self.initial_of(start or self.edited).items():
            self.initial.setdefault(name, value)
        self.initial.setdefault("based_on", self.newest.number if self.newest else None)
        for name in OF_THE_POLICY:
            if name in self.fields:
                # Distinguishes the user's changes from concurrent ones.
                self.fields[name].show_hidden_initial = self.instance.pk is not None
        for field in self.fields.values():
            if isinstance(field.widget, forms.TextInput | forms.NumberInput | forms.Textarea):
                # The style sheet detects an empty field by the placeholder.
                field.widget.attrs["placeholder"] = " "
        if "slug" in self.fields:
            self.fields["slug"].required = False
            self.fields["slug"].help_text = gettext(
                "The slug cannot be changed later. Empty: it is created from the name."
            )
        for name, value in (self.start_values or self.stored).items():
            self.keep_choosable(name, value)

    @cached_property
    def newest(self) -> PolicyVersion | None:
        """The latest version: a draft, or the active one. None for a new policy."""
        return self.instance.newest if self.instance.pk else None

    @cached_property
    def edited(self) -> PolicyVersion | None:
        newest = self.newest
        version = str(self.data.get("based_on", "")) if self.is_bound else ""
        if newest is None or not version.isdecimal() or int(version[:9]) == newest.number:
            return newest
        return self.instance.versions.filter(number=int(version[:9])).first() or newest

    def initial_of(self, version: PolicyVersion | None) -> dict[str, Any]:
        if version is None:
            return {}
        values = version.values
        found = {
            name: format_form_value(name, values[name]) for name in values if name in self.fields
        }
        found |= build_initial_config(values.get("strategy", ""), values.get("strategy_config", {}))
        return found | {f"lock_{name}": True for name in version.locks}

    def keep_choosable(self, name: str, value: object) -> None:
        """Add the stored values of a field to its choices, even those that no longer exist.

        Otherwise a save would drop them. Saving reports a missing package, model, skill or tool.
        """
        field = self.fields.get(name)
        if not isinstance(field, forms.ChoiceField):
            return
        shown = format_form_value(name, value)
        offered = list(cast("Choices", field.choices))
        known = {choice for choice, _ in offered}
        wanted = shown if isinstance(shown, list) else [shown]
        missing = [str(each) for each in wanted if each is not None and each not in known]
        words = "{strategy}"
        if name in ("strategy", "history_provider"):
            words = gettext("{strategy} (not installed)")
        if missing:
            field.choices = [*offered, *((each, words.format(strategy=each)) for each in missing)]

    def is_valid(self) -> bool:
        """Return True if the form can be saved; a form that is only redrawn cannot."""
        if self.is_bound and FIX in self.data:
            self.fix(str(self.data[FIX]))
        return super().is_valid() and not self.is_look

    def fix(self, wanted: str) -> None:
        """Fill in the values of a suggested fix, without saving."""
        self.full_clean()
        for warning in self.warnings:
            if f"{warning.code}:{warning.field}" == wanted and warning.fix:
                self.put(
                    {name: format_fix_value(name, value) for name, value in warning.fix.items()}
                )
                self.fixed = dict(warning.fix)
                for stale in ("warnings", "changed_data"):
                    self.__dict__.pop(stale, None)
                self.full_clean()
                return

    def put(self, fields: Mapping[str, Any]) -> None:
        """Replace the submitted values of these fields when the form is shown again."""
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
    def warnings(self) -> list[PolicyWarning]:
        """All errors, risks and notes from the linter about the submitted values."""
        found = lint_policy(self.policy_values, locks=self.policy_locks)
        return [each for each in found if each.level != "error" or each.field not in self.unread]

    def clean(self) -> dict[str, Any]:
        """Collect the values that are set, and add each problem to its fields.

        A field that was not changed keeps the newest version's value, even if the form cannot show
        it.
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
                said[name] = parse_form_value(name, cleaned[name])
        self.policy_values = {**said, **self.config(cleaned, touched, latest)}
        self.policy_locks = self.locks(names, cleaned, touched)
        for problem in find_policy_errors(self.policy_values, locks=self.policy_locks):
            if self.unread.isdisjoint(problem.fields):
                self.say(problem)
        self.show_both_changes(touched)
        return cleaned

    def _post_clean(self) -> None:
        """Validate the policy itself, which also rejects an empty name."""
        super()._post_clean()  # type: ignore[misc]  # Django's hook, which the stubs leave out
        if self.is_look:
            self.pass_over_what_is_empty()

    def left_to_others(self) -> set[str]:
        """Return the fields in which the user accepts the other administrator's value."""
        kept = set(self.data.getlist(THEIRS)) if hasattr(self.data, "getlist") else set()
        return kept | {f"lock_{name}" for name in kept}

    def locks(self, names: list[str], cleaned: Mapping[str, Any], touched: set[str]) -> list[str]:
        """Return the locks: those of the newest version, except where the user changed them."""
        latest = set(self.newest.locks if self.newest else ())
        return [
            name
            for name in names
            if (cleaned.get(f"lock_{name}") if f"lock_{name}" in touched else name in latest)
        ]

    def clean_slug(self) -> str:
        """Create the slug from the name if it is empty; raises ValidationError."""
        slug: str = self.cleaned_data["slug"] or slugify(self.cleaned_data.get("name", ""))[:60]
        if not slug and self.cleaned_data.get("name"):
            raise forms.ValidationError(
                gettext(
                    "Enter a slug. None can be created from the name, which contains no digits "
                    "and no letters A to Z."
                )
            )
        try:
            check_slug_free(slug)
        except (ReservedName, PolicyExists) as error:
            raise forms.ValidationError(str(error)) from error
        return slug

    def clean_name(self) -> str:
        """Reject a name that another policy has; raises ValidationError."""
        name: str = self.cleaned_data["name"]
        stored = ContextPolicy.objects.filter(pk=self.instance.pk).first()
        try:
            publish.check_name_free(name, but=stored)
        except policy_refusals.PolicyNameTaken as error:
            raise forms.ValidationError(str(error)) from error
        return name

    def config(
        self, cleaned: Mapping[str, Any], touched: set[str], latest: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the config of the chosen strategy; empty if it has none.

        Strategy and config are one choice: the config of another strategy is dropped.
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
        """Add a problem to those of its fields that are set, otherwise to its first field."""
        named = [name for name in problem.fields if name in self.policy_values]
        for name in named or problem.fields[:1]:
            if name == "strategy_config":
                name = find_error_field(str(self.policy_values.get("strategy")), problem.sentence)
            error = forms.ValidationError(problem.sentence, code=problem.code)
            self.add_error(name if name in self.fields else None, error)

    def pass_over_what_is_empty(self) -> None:
        """Ignore a missing name while the form is only redrawn."""
        for name in ("name", "slug"):
            if not self.data.get(name):
                self.errors.pop(name, None)

    def show_both_changes(self, touched: set[str]) -> None:
        """Refuse to overwrite a version that the user has not seen, and show both changes.

        The fields then show the values that a save would store: the user's values where they were
        changed, the other administrator's elsewhere.
        """
        newest, edited = self.newest, self.edited
        if newest is None or edited is None or newest.number == edited.number:
            return
        self.conflicts = find_edit_conflicts(
            touched=touched,
            values=self.policy_values,
            locks=self.policy_locks,
            labels={name: str(field.label) for name, field in self.fields.items()},
            base=edited,
            theirs=newest,
        )
        self.add_error(
            None,
            gettext(
                "Version {number} was saved while you were editing. Your changes are not lost. "
                "Compare both versions below, choose the values to keep, and save again."
            ).format(number=newest.number),
        )
        untouched = {n for n in self.fields if n not in touched and n not in ("note", *OWN)}
        theirs = self.initial_of(newest)
        self.put({name: theirs.get(name) for name in untouched})
        self.put({"based_on": newest.number})

    def is_new_version(self) -> bool:
        """Return True if anything differs from the newest version."""
        if self.newest is None:
            return True
        said = (self.newest.values, self.newest.locks)
        return said != (self.policy_values, sorted(self.policy_locks))


# Fields of the policy, not of a version.
OWN = ("name", "slug", "description", "retired", "based_on")


def format_fix_value(name: str, value: object) -> Any:
    """Return a value of a suggested fix, formatted as its field expects."""
    return None if value == UNSET else format_form_value(name, value)


def add_config_fields(form: type[PolicyForm]) -> type[PolicyForm]:
    made = {field.name: field.make() for field in list_config_fields()}
    return type(form.__name__, (form,), made)
