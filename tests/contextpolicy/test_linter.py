"""The linter finds values that fail, work badly or surprise; its suggested fixes work."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextpolicy.engine.policy.policy import (
    PolicyValues,
    apply_policy_fields,
    compute_default_reserve,
    get_strategy_defaults,
)
from contextpolicy.linter.lint import apply_fix, lint_policy
from contextpolicy.linter.policy_warning import UNSET
from contextpolicy.models import ModelSpec
from contextpolicy.presets import PRESETS
from contextpolicy.resolution import Layer, merge_layers

pytestmark = pytest.mark.django_db

SUMMARY: Mapping[str, Any] = {"strategy": "dynamic_summary", "turn_threshold": None}
WINDOW: Mapping[str, Any] = {"strategy": "sliding_window"}

# Headings that are longer than a summary of a hundred tokens.
LONG = [f"{number} {'x' * 56}" for number in range(10)]

# Values, the code, the values of its button, and a number in the sentence.
TABLE: list[tuple[dict[str, Any], str, dict[str, Any], str]] = [
    # Thresholds that are never or always reached.
    (
        {**WINDOW, "compact_at_tokens": 50_000},
        "mark_never_counts",
        {"compact_at_tokens": UNSET},
        "10,800",
    ),
    (
        {**SUMMARY, "prepare_at_tokens": 9_000},
        "mark_never_counts",
        {"prepare_at_tokens": UNSET},
        "8,400",
    ),
    (
        {**WINDOW, "compact_every_turns": 90},
        "every_turns_beyond_mark",
        {"compact_every_turns": 11},
        "22",
    ),
    ({**SUMMARY, "turn_threshold": 40}, "turns_never_fire", {"turn_threshold": 16}, "19,200"),
    (
        {**SUMMARY, "turn_threshold": 8, "fold_turns": 1},
        "turns_always_fire",
        {"fold_turns": 4},
        "8",
    ),
    (
        {**WINDOW, "compact_to": 0.85},
        "marks_close_together",
        {"compact_to": 0.45, "compact_to_tokens": UNSET},
        "5%",
    ),
    # Newest messages and a summary above the window.
    (
        {**SUMMARY, "token_budget": 8_000, "keep_last_messages": 20},
        "kept_above_mark",
        {"summary_max_tokens": 600},
        "6,800",
    ),
    (
        {**SUMMARY, "keep_last_messages": 60},
        "kept_above_mark",
        {"keep_last_messages": 36},
        "14,400",
    ),
    # The models it would apply to.
    (
        {**SUMMARY, "summarization_model": "tiny"},
        "summariser_below_chunk",
        {"summarization_model": ""},
        "2,048",
    ),
    (
        {**SUMMARY, "summarization_model": "wordy", "file_models": ["tiny"]},
        "summariser_without_files",
        {"file_models": ["tiny", "wordy"]},
        "wordy",
    ),
    ({"allowed_models": ["wordy"]}, "reserve_below_output", {"reserve_tokens": 8_000}, "8,000"),
    (
        {**WINDOW, "allowed_models": ["tiny"]},
        "model_window_below_budget",
        {"token_budget": 2_048},
        "16,000",
    ),
    # A window that moves at each turn, with its cost.
    (
        {"strategy": "simple", "window_size": 12, "allowed_models": ["wordy"]},
        "window_slides_each_turn",
        {"strategy": "sliding_window"},
        "≈ 0.58 for 100 turns",
    ),
    # Values that cannot work.
    ({"reserve_tokens": 20_000}, "reserve_exceeds_budget", {"reserve_tokens": 4_000}, "20,000"),
    (
        {"token_budget": 900},
        "prompt_limit_too_small",
        {"token_budget": 2_000, "reserve_tokens": UNSET},
        "675",
    ),
    (
        {**SUMMARY, "summary_max_tokens": 9_000},
        "summary_reaches_low_mark",
        {"summary_max_tokens": 4_050},
        "9,000",
    ),
    (
        {**SUMMARY, "fold_turns": 9, "turn_threshold": 5},
        "fold_exceeds_threshold",
        {"fold_turns": 5},
        "9",
    ),
    (
        {**SUMMARY, "window_size": 8, "keep_last_messages": 9},
        "keep_last_exceeds_window",
        {"keep_last_messages": 8},
        "8",
    ),
    (
        {**SUMMARY, "turn_threshold": 9, "window_size": 12, "keep_last_messages": 4},
        "window_below_threshold",
        {"window_size": 20},
        "20",
    ),
    ({"window_tokens": 10}, "window_too_small", {"window_tokens": 1_000}, "1,000"),
    ({"max_bytes": 40}, "max_bytes_too_small", {"max_bytes": 4_000}, "1,000"),
    ({"pins_tokens": 50_000}, "pins_too_large", {"pins_tokens": 11_000}, "50,000"),
    (
        {"references": True, "reference_tokens": 50_000},
        "references_too_large",
        {"reference_tokens": 11_000},
        "12,000",
    ),
    ({"retention_days": 90_000}, "retention_too_long", {"retention_days": 36_500}, "36,500"),
    ({**WINDOW, "retention_days": 2}, "retention_short", {"retention_days": 90}, "2 days"),
    ({"reference_count": 400}, "too_many_references", {"reference_count": 300}, "300"),
    (
        {"reference_share": 1.5},
        "reference_share_out_of_range",
        {"reference_share": 0.45},
        "0.9",
    ),
    (
        {"system_text": "x" * 20_000, "token_budget": 8_000},
        "system_text_too_long",
        {"token_budget": 10_667},
        "6,667",
    ),
    (
        {**SUMMARY, "token_budget": 40_000, "summary_max_tokens": 100, "summary_sections": LONG},
        "headings_too_large",
        {"summary_max_tokens": 414},
        "414",
    ),
    # Surprising values.
    (
        {"tool_output_limit": 900, "tool_output_rules": {"a": {"limit": 950}, "b": {"limit": 990}}},
        "tool_limit_above_general",
        {"tool_output_rules": {"a": {"limit": 900}, "b": {"limit": 900}}},
        "900",
    ),
    (
        {"layout": "A", "tool_output_rules": {"a": {"keep_newest": 3, "limit": 9}}},
        "tool_rules_without_effect",
        {"tool_output_rules": {"a": {"limit": 9}}},
        "layout A",
    ),
    (
        {"layout": "A", "tool_output_rules": {"a": {"keep_newest": 3}}},
        "tool_rules_without_effect",
        {"tool_output_rules": UNSET},
        "layout A",
    ),
    ({"layout": "B"}, "layout_flattens_roles", {"layout": "multi_turn"}, "Layout B"),
    ({"layout": "B"}, "layout_costs_cache", {"layout": "multi_turn"}, "layout B"),
    ({"unmanaged": "all"}, "programs_unrecorded", {"unmanaged": "keys"}, "All client"),
    ({"chat_system": "ignore"}, "chat_text_ignored", {"chat_system": UNSET}, "not sent"),
    (
        {**SUMMARY, "summary_instruction": "Be brief."},
        "instruction_unread",
        {"summary_instruction": UNSET},
        "No model",
    ),
    # References to deleted rows.
    (
        {"allowed_models": ["ghost", "wordy"], "summarization_model": "gone"},
        "unknown_model",
        {"allowed_models": ["wordy"], "summarization_model": UNSET},
        "'gone'",
    ),
    ({"skills": ["ghost"]}, "unknown_skill", {"skills": UNSET}, "'ghost'"),
    ({"tools": ["ghost/look"]}, "unknown_tool", {"tools": UNSET}, "'ghost/look'"),
    (
        {"system_text": "x" * 4_000, "allowed_models": ["tiny", "wordy"]},
        "model_too_small",
        {"allowed_models": ["wordy"]},
        "2,048",
    ),
]
# A person must decide: a text, a schema, a choice of a package, or an intended value.
BY_A_PERSON = {
    "config_invalid",
    "config_without_strategy",
    # Prices, and their currency.
    "cost_in_currencies",
    "cost_without_price",
    "headings_refused",
    "invalid_character",
    "malformed_policy",
    "number_out_of_range",
    # Reported from a model's window alone; the linter reports it as `model_too_small`.
    "reserve_exceeds_window",
    "retention_takes_summaries",
    "secret_in_text",
    "state_schema_missing",
    "too_long",
    # Which tools are needed, or a larger limit.
    "tools_do_not_fit",
    "tools_take_half",
    "unknown_strategy",
}
ELSEWHERE = {
    "bytes_bind_first",
    "bytes_never_bind",
    "keep_last_never_folds",
    "lock_without_value",
    "marks_out_of_order",
    "pins_crowd_out",
    "pins_reach_low_mark",
    "question_prefix_too_long",
    "setting_unused",
    "small_reserve",
    "state_beside_dialogue",
    "summary_too_large",
    "window_beyond_limit",
}


@pytest.fixture
def models(db: None) -> None:
    """A model with a small window, and one with long outputs and a price."""
    ModelSpec.objects.create(slug="tiny", provider="demo", name="tiny", context_window=2_048)
    ModelSpec.objects.create(
        slug="wordy", provider="demo", name="wordy", max_output=8_000, input_price=2
    )


def test_each_warning_has_its_number_and_a_fix_that_ends_it(models: None) -> None:
    for values, code, fix, number in TABLE:
        found = {each.code: each for each in lint_policy(values)}
        assert code in found, (values, list(found))
        warning = found[code]
        assert warning.fix == fix, (code, warning.fix, warning.sentence)
        assert number in warning.sentence, warning.sentence
        after = lint_policy(apply_fix(values, warning.fix))
        assert (code, warning.field) not in {(each.code, each.field) for each in after}
        had_errors = {each.code for each in found.values() if each.level == "error"}
        assert {each.code for each in after if each.level == "error"} <= had_errors


@pytest.mark.parametrize(
    ("values", "code", "fix"),
    [
        ({**WINDOW, "max_bytes": 30_000}, "bytes_bind_first", {"max_bytes": 72_000}),
        ({**WINDOW, "max_bytes": 99_000_000}, "bytes_never_bind", {"max_bytes": UNSET}),
        (
            {**SUMMARY, "token_budget": 90_000, "keep_last_messages": 60_000},
            "keep_last_never_folds",
            {"keep_last_messages": 30},
        ),
        ({**WINDOW, "pins_tokens": 6_000}, "pins_reach_low_mark", {"pins_tokens": 2_700}),
        ({"strategy": "simple", "pins_tokens": 7_000}, "pins_crowd_out", {"pins_tokens": 3_000}),
        (
            {"question_prefix": "x" * 300, "layout": "A"},
            "question_prefix_too_long",
            {"question_prefix": "x" * 200},
        ),
        ({"strategy": "simple", "fold_turns": 3}, "setting_unused", {"fold_turns": UNSET}),
        ({"reserve_tokens": 100}, "small_reserve", {"reserve_tokens": 4_000}),
        (
            {
                "strategy": "entity_state",
                "keep_last_messages": 4,
                "state_schema": {"type": "object", "properties": {"a": {"type": "string"}}},
            },
            "state_beside_dialogue",
            {"keep_last_messages": 0},
        ),
        (
            {**SUMMARY, "summary_max_tokens": 11_500},
            "summary_too_large",
            {"summary_max_tokens": 4_050},
        ),
        ({**WINDOW, "window_turns": 900}, "window_beyond_limit", {"window_turns": 24}),
    ],
)
def test_each_other_warning_has_a_fix_that_ends_it(
    values: dict[str, Any], code: str, fix: dict[str, Any], models: None
) -> None:
    warning = next(each for each in lint_policy(values) if each.code == code)
    assert warning.fix == fix, warning
    after = {(each.code, each.field) for each in lint_policy(apply_fix(values, warning.fix))}
    assert (code, warning.field) not in after


def test_a_lock_without_a_value_gets_the_value_that_holds(models: None) -> None:
    def fix(values: dict[str, Any], lock: str) -> Mapping[str, object]:
        found = lint_policy(values, locks=[lock])
        return next(each.fix for each in found if each.code == "lock_without_value")

    assert fix({"token_budget": 8_000}, "reserve_tokens") == {"reserve_tokens": 2_000}
    assert fix({}, "strategy") == {"strategy": "dynamic_summary"}
    # The effective value is empty, so the fix writes none.
    assert fix({}, "state_schema") == {}
    assert fix({}, "system_text") == {}


def test_no_warning_is_without_a_fix_unless_only_a_person_can_say() -> None:
    """From the sources: each code is in one of the tables."""
    root = Path(lint_policy.__code__.co_filename).parents[1]
    sources = [*root.glob("linter/*.py"), root / "engine/policy/checks.py", root / "plugins.py"]
    made = re.compile(r'(?:PolicyWarning|Problem)\(\s*"(\w+)"|(?:append\(|\[)\(\s*"(\w+)", \(')
    codes = {
        one or other
        for source in sources
        for one, other in made.findall(source.read_text(encoding="utf-8"))
    }
    assert len(codes) > 40
    fixed = {code for _, code, _, _ in TABLE} | ELSEWHERE
    assert codes - fixed - BY_A_PERSON == set()


@pytest.mark.parametrize(
    ("prices", "code"),
    [
        ({"input_price": None, "output_price": "1"}, "cost_without_price"),
        ({"input_price": "1", "output_price": None}, "cost_without_price"),
        ({"input_price": "1", "output_price": "1", "currency": "EUR"}, "cost_in_currencies"),
        ({"input_price": "1", "output_price": "1", "currency": "USD"}, ""),
    ],
)
def test_calls_that_a_limit_on_the_cost_does_not_count(
    models: None, prices: dict[str, Any], code: str
) -> None:
    ModelSpec.objects.update(input_price="1", output_price="1", currency="USD")
    ModelSpec.objects.filter(slug="tiny").update(**prices)
    codes = {"cost_without_price", "cost_in_currencies"}
    found = {each.code for each in lint_policy({"cost_per_month": 5})} & codes
    assert found == ({code} if code else set())
    assert not {each.code for each in lint_policy({})} & codes


def test_a_model_that_is_too_small_for_the_policy_is_named(models: None) -> None:
    values = {"system_text": "x" * 4_000, "allowed_models": ["tiny"]}
    found = {each.code: each for each in lint_policy(values)}
    assert "This policy does not work with tiny (2,048 tokens)" in found["model_too_small"].sentence
    assert found["model_too_small"].level == "risk"
    assert found["model_too_small"].fix == {}
    # A model that is not allowed, or disabled, is ignored.
    assert "model_too_small" not in {
        e.code for e in lint_policy({**values, "allowed_models": ["wordy"]})
    }
    ModelSpec.objects.filter(slug="tiny").update(enabled=False)
    assert "model_too_small" not in {
        each.code for each in lint_policy({"system_text": "x" * 4_000})
    }


def test_the_worst_stands_first_and_all_of_it_is_said(models: None) -> None:
    values = {
        **SUMMARY,
        "reference_count": 400,
        "fold_turns": 9,
        "turn_threshold": 5,
        "keep_last_messages": 60,
        "max_bytes": 99_000_000,
    }
    levels = [each.level for each in lint_policy(values)]
    assert levels == sorted(levels, key=["error", "risk", "note"].index)
    assert {"error", "risk", "note"} == set(levels)
    codes = {
        each.code
        for each in lint_policy({"colour": 1, "token_budget": "x", "reference_count": 400})
    }
    assert codes == {"malformed_policy", "too_many_references"}


def test_what_nobody_wrote_is_no_ones_mistake() -> None:
    assert lint_policy({}) == []
    # The default of ten turns exceeds the limit, and the policy does not set it.
    small = {"strategy": "dynamic_summary", "token_budget": 5_000, "keep_last_messages": 4}
    assert "turns_never_fire" not in {each.code for each in lint_policy(small)}
    for preset in PRESETS:
        levels = {each.level for each in lint_policy(preset.values)}
        assert levels <= {"note"}, (preset.slug, lint_policy(preset.values))


def test_an_unset_reserve_is_a_quarter_of_the_budget_that_holds() -> None:
    values = apply_policy_fields({"token_budget": 8_000}, base=get_strategy_defaults("simple"))
    assert (values.reserve_tokens, PolicyValues().reserve_tokens) == (2_000, 4_000)
    assert (
        apply_policy_fields(
            {"token_budget": 8_000, "reserve_tokens": 90}, base=values
        ).reserve_tokens
        == 90
    )
    assert compute_default_reserve(3) == 1

    def layer(level: str, **fields: Any) -> Layer:
        return Layer(level, level, level, 1, fields, frozenset())

    merged, sources = merge_layers(
        [layer("instance", token_budget=40_000), layer("group", token_budget=6_000)], defaults={}
    )
    assert (merged.reserve_tokens, sources["reserve_tokens"][0]) == (1_500, "default")
    merged, sources = merge_layers(
        [layer("instance", reserve_tokens=700), layer("group", token_budget=6_000)], defaults={}
    )
    assert (merged.reserve_tokens, sources["reserve_tokens"][0]) == (700, "instance")
