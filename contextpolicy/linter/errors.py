"""Finds errors that prevent saving a policy. Warnings are in `general_warnings`."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext

from contextpolicy import plugins
from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.engine.policy.policy import (
    MalformedPolicy,
    PolicyValues,
    Problem,
    apply_policy_fields,
    find_value_problems,
    get_strategy_defaults,
    parse_policy_values,
)
from contextpolicy.engine.text.schema import SchemaRefused, check_schema
from contextpolicy.history_providers import find_provider_problems
from contextpolicy.linter.tools import find_tool_problems
from contextpolicy.models import ModelSpec, Skill
from contextpolicy.wording import translate_phrase

# Maximum characters of each text. A prefix that is too long has a separate code.
LONGEST = {
    name: declared.longest
    for name, declared in FIELDS.items()
    if declared.longest is not None and name != "question_prefix"
}
LONGEST_TEXT = LONGEST["system_text"]


def find_policy_errors(values: Mapping[str, Any], *, locks: Collection[str] = ()) -> list[Problem]:
    """Return the errors of these values and locks; empty if they can be saved.

    `values` contains only the fields that the policy sets. Other fields are checked with the
    strategy's defaults, so that every policy also works on its own.
    """
    malformed = [problem for name in values for problem in _find_malformed(name, values[name])]
    if malformed:
        unread = {name for problem in malformed for name in problem.fields}
        read = {name: value for name, value in values.items() if name not in unread}
        rest = find_policy_errors(read, locks=set(locks) - unread) if read else []
        # A problem between two values may be caused by one of them being invalid.
        return malformed + [problem for problem in rest if len(problem.fields) == 1]
    strategy = values.get("strategy", PolicyValues().strategy)
    whole = apply_policy_fields(values, base=get_strategy_defaults(strategy))
    found = _lock_problems(values, locks) + _strategy_problems(values)
    found += _text_problems(whole) + _schema_problems(values) + _model_problems(values)
    found += _skill_problems(values) + find_tool_problems(values)
    found += find_provider_problems(whole.history_provider)
    return found + [
        replace(problem, sentence=translate_phrase(problem.sentence))
        for problem in find_value_problems(whole, model_window=None)
    ]


def _find_malformed(name: str, value: object) -> list[Problem]:
    try:
        parse_policy_values({name: value})
    except MalformedPolicy as error:
        return [Problem(error.code, (name,), translate_phrase(error.args[0]))]
    return []


def _lock_problems(values: Mapping[str, Any], locks: Collection[str]) -> list[Problem]:
    found = []
    for name in sorted(locks):
        if name == "strategy_config":
            sentence = gettext(
                "“strategy_config” cannot be locked alone. Lock “strategy”, which also locks "
                "its configuration."
            )
            found.append(Problem("lock_without_value", ("strategy",), sentence))
        elif name not in values:
            sentence = gettext(
                "{field} is locked but has no value. Enter a value, or unlock the field."
            ).format(field=name)
            found.append(Problem("lock_without_value", (name,), sentence))
    return found


def _strategy_problems(values: Mapping[str, Any]) -> list[Problem]:
    if "strategy" not in values:
        if "strategy_config" not in values:
            return []
        sentence = gettext("A config belongs to its strategy. Also choose the strategy.")
        return [Problem("config_without_strategy", ("strategy", "strategy_config"), sentence)]
    name = str(values["strategy"])
    return plugins.find_strategy_problems(name, values.get("strategy_config") or {})


def list_offered_strategies() -> tuple[str, ...]:
    """Return the strategies that a policy may name."""
    return plugins.list_strategy_names()


def _text_problems(values: PolicyValues) -> list[Problem]:
    for name, longest in LONGEST.items():
        length = len(getattr(values, name))
        if length > longest:
            sentence = gettext(
                "{field} has {n:,} characters. The limit is {longest:,}. Shorten it by {excess:,}."
            ).format(field=name, n=length, longest=longest, excess=length - longest)
            return [Problem("too_long", (name,), sentence)]
    for name in (*LONGEST, "question_prefix"):
        text = getattr(values, name)
        if "\0" in text:
            sentence = gettext(
                "{field} contains a NUL character at position {position}. Remove it."
            ).format(field=name, position=text.index("\0") + 1)
            return [Problem("invalid_character", (name,), sentence)]
    return []


def _schema_problems(values: Mapping[str, Any]) -> list[Problem]:
    """Check that a state's schema is supported, even if the strategy does not use it yet."""
    schema = values.get("state_schema")
    if not schema:
        return []
    try:
        check_schema(schema)
    except SchemaRefused as error:
        return [
            Problem(
                error.code, ("state_schema",), f"state_schema: {translate_phrase(error.args[0])}"
            )
        ]
    return []


def _model_problems(values: Mapping[str, Any]) -> list[Problem]:
    named = {
        "allowed_models": list(values.get("allowed_models") or []),
        "file_models": list(values.get("file_models") or []),
        "summarization_model": [name for name in [values.get("summarization_model")] if name],
    }
    wanted = [slug for slugs in named.values() for slug in slugs]
    known = set(ModelSpec.objects.filter(slug__in=wanted).values_list("slug", flat=True))
    return [
        Problem(
            "unknown_model",
            (name,),
            gettext("Model {slug!r} does not exist. Choose another one.").format(slug=slug),
        )
        for name, slugs in named.items()
        for slug in slugs
        if slug not in known
    ]


def _skill_problems(values: Mapping[str, Any]) -> list[Problem]:
    wanted = list(values.get("skills") or [])
    known = set(
        Skill.objects.filter(slug__in=wanted, group=None, team_id=None).values_list(
            "slug", flat=True
        )
    )
    return [
        Problem(
            "unknown_skill",
            ("skills",),
            gettext("Skill {slug!r} does not exist. Choose another one.").format(slug=slug),
        )
        for slug in wanted
        if slug not in known
    ]
