"""Policy values: defaults per strategy, JSON form, and invalid values."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_low_mark,
    compute_prepare_mark,
    compute_prompt_limit,
    convert_provider_tokens,
)
from contextpolicy.engine.policy.policy import (
    INSTANCE_DEFAULTS,
    LIMIT_FIELDS,
    PRESETS,
    MalformedPolicy,
    PolicyValues,
    apply_policy_fields,
    find_value_problems,
    get_strategy_defaults,
    parse_policy_values,
)
from contextpolicy.engine.strategies.contract import STRATEGIES


def named(value: PolicyValues | str) -> str:
    """The unusual values of a policy, for the names of tests."""
    if isinstance(value, str):
        return value
    usual = PolicyValues().to_json()
    unusual = {key: item for key, item in value.to_json().items() if item != usual[key]}
    return " ".join(f"{key}={str(item)[:20]}" for key, item in unusual.items()) or "usual"


def codes(values: PolicyValues, model_window: int | None = None) -> list[str]:
    return [problem.code for problem in find_value_problems(values, model_window=model_window)]


@pytest.mark.requirement("S0.7")
def test_each_strategy_has_the_defaults_of_its_document() -> None:
    simple, sliding, summary = (
        get_strategy_defaults(name) for name in ("simple", "sliding_window", "dynamic_summary")
    )
    assert (simple.window_size, simple.max_chars_per_message) == (12, 4_000)
    assert (sliding.window_size, sliding.max_chars_per_message) == (None, None)
    assert compute_prompt_limit(sliding, model_window=None) == 12_000
    assert compute_prompt_limit(summary, model_window=None) == 12_000
    assert (summary.turn_threshold, summary.fold_turns) == (10, 5)
    assert (summary.keep_last_messages, summary.summary_max_tokens) == (30, 2_000)


@pytest.mark.requirement("S0.7")
def test_the_defaults_can_be_saved() -> None:
    schema = {"type": "object", "properties": {"date": {"type": "string"}}}
    for values in (*INSTANCE_DEFAULTS.values(), *PRESETS.values()):
        assert find_value_problems(replace(values, state_schema=schema), model_window=None) == []


def test_the_presets_differ_in_the_turn_trigger() -> None:
    assert PRESETS["rounds"].turn_threshold == 10
    assert PRESETS["long_chats"] == PolicyValues()
    assert PRESETS["long_chats"].turn_threshold is None


def test_every_strategy_that_ships_has_defaults_under_its_name() -> None:
    assert set(INSTANCE_DEFAULTS) == set(STRATEGIES)
    assert all(get_strategy_defaults(name).strategy == name for name in STRATEGIES)


def test_a_strategy_of_a_package_keeps_its_name() -> None:
    assert get_strategy_defaults("novelist") == PolicyValues(strategy="novelist")


def test_values_survive_the_way_to_json_and_back() -> None:
    values = PolicyValues(allowed_models=("a", "b"), strategy_config={"x": [1]}, window_size=3)
    written = values.to_json()
    assert list(written) == sorted(written)
    assert written["allowed_models"] == ["a", "b"]
    assert parse_policy_values(written) == values
    assert parse_policy_values({}) == PolicyValues()


def test_fields_that_are_absent_keep_the_value_of_the_base() -> None:
    base = get_strategy_defaults("simple")
    made = parse_policy_values({"window_size": None}, base=base)
    assert made == replace(base, window_size=None)


def test_a_reserve_that_nobody_sets_is_a_quarter_of_the_budget() -> None:
    base = parse_policy_values({})
    assert apply_policy_fields({"token_budget": 8000}, base=base).reserve_tokens == 2000
    assert (
        apply_policy_fields({"token_budget": 8000, "reserve_tokens": 500}, base=base).reserve_tokens
        == 500
    )
    assert apply_policy_fields({}, base=replace(base, token_budget=3)).reserve_tokens == 1
    with pytest.raises(MalformedPolicy, match="no field 'windw'"):
        apply_policy_fields({"windw": 1}, base=base)


def test_equal_values_have_equal_digests_and_others_do_not() -> None:
    first = PolicyValues(strategy_config={"a": 1, "b": 2})
    assert first.digest() == PolicyValues(strategy_config={"b": 2, "a": 1}).digest()
    assert first.digest() != PolicyValues(strategy_config={"a": 1}).digest()
    assert len(first.digest()) == 64


def test_a_share_written_as_a_whole_number_has_the_digest_of_the_fraction() -> None:
    assert parse_policy_values({"compact_at": 1}).digest() == PolicyValues(compact_at=1.0).digest()
    off = parse_policy_values({"reference_share": 0})
    assert off.digest() == PolicyValues(reference_share=0.0).digest()
    assert find_value_problems(off, model_window=None) == []


@pytest.mark.parametrize(
    "data",
    [
        {"windowsize": 3},
        {"window_size": "3"},
        {"window_size": True},
        {"token_budget": None},
        {"token_budget": 1.5},
        {"token_budget": 10**400},
        {"cut_style": "tail"},
        {"prepare_at": "0.7"},
        {"prepare_at": -(10**400)},
        {"prepare_at": 1e308},
        {"archive": 1},
        {"system_text": 5},
        {"strategy_config": []},
        {"allowed_models": "gpt"},
        {"allowed_models": [1]},
    ],
    ids=str,
)
def test_malformed_values_are_refused_with_the_field_named(data: dict[str, object]) -> None:
    with pytest.raises(MalformedPolicy, match=next(iter(data))) as refusal:
        parse_policy_values(data)
    assert refusal.value.code == "malformed_policy"


def test_the_limit_fields_exist() -> None:
    assert set(LIMIT_FIELDS) <= {field.name for field in fields(PolicyValues)}
    assert LIMIT_FIELDS["reserve_tokens"] == "max"
    assert LIMIT_FIELDS["allowed_models"] == "intersection"


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (PolicyValues(reserve_tokens=16_000), "reserve_exceeds_budget"),
        (PolicyValues(token_budget=-1), "number_out_of_range"),
        (PolicyValues(window_size=0), "number_out_of_range"),
        (PolicyValues(token_budget=10**12), "number_out_of_range"),
        (PolicyValues(token_budget=4_500), "prompt_limit_too_small"),
        (PolicyValues(system_text="word " * 10_000), "system_text_too_long"),
        (PolicyValues(prepare_at=0.95), "marks_out_of_order"),
        (PolicyValues(compact_to=0.7), "marks_out_of_order"),
        (PolicyValues(compact_at=1.01), "marks_out_of_order"),
        (PolicyValues(compact_to=-0.1), "marks_out_of_order"),
        (PolicyValues(compact_to_tokens=9_000, compact_to=0.8), "marks_out_of_order"),
        (PolicyValues(prepare_at_tokens=1_000), "marks_out_of_order"),
        (PolicyValues(summary_max_tokens=11_500), "summary_too_large"),
        (PolicyValues(summary_max_tokens=6_000), "summary_reaches_low_mark"),
        (PolicyValues(keep_last_messages=2_000), "keep_last_never_folds"),
        (PolicyValues(window_size=29), "keep_last_exceeds_window"),
        (PolicyValues(turn_threshold=3), "fold_exceeds_threshold"),
        (
            PolicyValues(window_size=12, turn_threshold=10, keep_last_messages=4),
            "window_below_threshold",
        ),
    ],
    ids=named,
)
def test_inv_22_what_cannot_work_is_named(values: PolicyValues, code: str) -> None:
    assert code in codes(values)
    for problem in find_value_problems(values, model_window=None):
        assert problem.fields
        assert problem.sentence.endswith(".")


@pytest.mark.requirement("S0.7")
def test_the_documents_mixed_in_one_policy_are_refused() -> None:
    mixed = PolicyValues(window_size=12, keep_last_messages=30, turn_threshold=10)
    assert codes(mixed) == ["keep_last_exceeds_window", "window_below_threshold"]


def test_inv_22_the_sentence_says_with_numbers_what_would_fit() -> None:
    (found,) = find_value_problems(PolicyValues(summary_max_tokens=11_500), model_window=None)[:1]
    assert "11,500" in found.sentence
    assert "Lower it to 11,000" in found.sentence


def test_a_small_model_is_part_of_the_judgement() -> None:
    assert codes(PolicyValues(), model_window=200_000) == []
    assert codes(PolicyValues(), model_window=4_000) == ["reserve_exceeds_window"]
    assert "prompt_limit_too_small" in codes(PolicyValues(), model_window=4_500)


def test_simple_needs_no_marks_and_no_room_for_a_summary() -> None:
    odd = PolicyValues(strategy="simple", compact_to=0.99, prepare_at=0.1, window_size=1)
    assert codes(odd) == []


@pytest.mark.requirement("S2.3")
def test_a_sliding_window_may_fill_its_room_exactly() -> None:
    assert codes(PolicyValues(strategy="sliding_window", compact_at=0.9, compact_to=0.9)) == []


def test_the_system_text_is_counted_by_the_given_counter() -> None:
    values = PolicyValues(strategy="simple", system_text="word " * 100)
    assert find_value_problems(values, model_window=None, count=lambda text: 11_500)[0].code == (
        "system_text_too_long"
    )


def test_a_mark_is_the_share_or_the_absolute_value_whichever_comes_first() -> None:
    values = PolicyValues(prepare_at_tokens=7_000, compact_at_tokens=20_000, compact_to_tokens=99)
    assert compute_prepare_mark(values, prompt_limit=12_000) == 7_000
    assert compute_compact_mark(values, prompt_limit=12_000) == 10_800
    assert compute_low_mark(values, prompt_limit=12_000) == 99


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_prompt_limit_follows_the_smaller_of_budget_and_window(
    budget: int, window: int
) -> None:
    values = PolicyValues(token_budget=budget, reserve_tokens=10)
    assert compute_prompt_limit(values, model_window=window) == min(budget, window) - 10


def test_a_calibration_that_is_no_factor_is_refused() -> None:
    assert convert_provider_tokens(1_200, calibration=1.2) == 1_000
    with pytest.raises(ValueError, match="positive"):
        convert_provider_tokens(1, calibration=0)


@pytest.mark.parametrize("field", ["approval", "undo_right", "edit_right"])
def test_a_right_belongs_to_the_owner_to_admins_or_to_nobody(field: str) -> None:
    for who in ("owner", "admins", "nobody"):
        assert getattr(parse_policy_values({field: who}), field) == who
    with pytest.raises(MalformedPolicy, match=field):
        parse_policy_values({field: "everyone"})


def test_the_pause_after_an_undo_has_an_end_or_none() -> None:
    assert parse_policy_values({"undo_pause_hours": None}).undo_pause_hours is None
    assert parse_policy_values({"undo_pause_hours": 12}).undo_pause_hours == 12
    assert [
        p.code for p in find_value_problems(PolicyValues(undo_pause_hours=0), model_window=None)
    ] == ["number_out_of_range"]


@pytest.mark.parametrize("kinds", [["pdf", "zip"], "pdf", {"pdf": True}, 7])
def test_kinds_of_files_are_a_list_of_known_ones(kinds: object) -> None:
    assert parse_policy_values({"file_kinds": ["pdf", "image"]}).file_kinds == ("pdf", "image")
    with pytest.raises(MalformedPolicy):
        parse_policy_values({"file_kinds": kinds})
