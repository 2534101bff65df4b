"""The declarations of policy fields are complete: every place can be derived from them."""

import re

import pytest

from contextpolicy.engine.policy.fields import FIELDS, PolicyFields
from contextpolicy.engine.policy.fields.declaration import GROUPS, NO_LIMIT, PolicyField
from contextpolicy.engine.policy.policy import (
    MalformedPolicy,
    PolicyValues,
    find_value_problems,
    parse_policy_values,
)
from contextpolicy.engine.strategies.contract import STRATEGIES
from contextpolicy.engine.text.phrases import Plural

SHOWN = [declared for declared in FIELDS.values() if declared.group]


def named(declared: PolicyField) -> str:
    return declared.name


def test_each_field_is_declared_and_only_the_config_is_not_in_the_form() -> None:
    assert set(FIELDS) == set(PolicyFields.__dataclass_fields__)
    assert set(FIELDS) - {declared.name for declared in SHOWN} == {"strategy_config"}


@pytest.mark.parametrize("declared", SHOWN, ids=named)
def test_a_field_has_a_group_a_label_and_a_help_text(declared: PolicyField) -> None:
    assert declared.group in GROUPS
    assert declared.label
    assert declared.help_text.endswith(".")
    assert set(declared.unused_with) <= set(STRATEGIES)


@pytest.mark.parametrize(
    "declared", [each for each in SHOWN if each.kind in ("choice", "names")], ids=named
)
def test_each_value_of_a_choice_has_a_label(declared: PolicyField) -> None:
    if declared.kind == "choice":
        assert set(declared.labels) == set(declared.words)
    elif not declared.choices and not declared.widget:
        assert set(declared.labels) == set(declared.values)


@pytest.mark.parametrize("declared", [each for each in SHOWN if each.sentence], ids=named)
def test_a_sentence_has_one_place_for_the_value(declared: PolicyField) -> None:
    sentence = declared.sentence
    for words in sentence if isinstance(sentence, Plural) else (sentence,):
        assert len(re.findall(r"\{\w+\}|\[[^\]]+\]", words)) == 1
        assert isinstance(sentence, Plural) <= (declared.kind == "integer")


def test_only_limits_have_a_sentence_about_no_limit() -> None:
    unlimited = {name for name, declared in FIELDS.items() if declared.empty == NO_LIMIT}
    assert {"max_bytes", "files_per_message"} <= unlimited
    assert unlimited.isdisjoint({"token_budget", "retention_days", "recent_by_user"})


@pytest.mark.parametrize("declared", [each for each in SHOWN if each.kind == "integer"], ids=named)
def test_a_number_outside_its_bounds_is_refused(declared: PolicyField) -> None:
    for number, code in (
        (declared.smallest - 1, "number_out_of_range"),
        (int(declared.largest) + 1, declared.too_large),
    ):
        values = PolicyValues(strategy="simple", **{declared.name: number})  # type: ignore[arg-type]
        found = find_value_problems(values, model_window=None)
        assert (code, (declared.name,)) in [(each.code, each.fields) for each in found]


@pytest.mark.parametrize("rule", [7, {"most": 3}, {"limit": "3"}, {"limit": True}], ids=str)
def test_a_rule_for_a_tool_has_whole_numbers_under_known_names(rule: object) -> None:
    rules = {"look_up": {"limit": 4_000, "keep_newest": 3}, "*": {}}
    assert parse_policy_values({"tool_output_rules": rules}).tool_output_rules == rules
    with pytest.raises(MalformedPolicy):
        parse_policy_values({"tool_output_rules": {**rules, "calc": rule}})
