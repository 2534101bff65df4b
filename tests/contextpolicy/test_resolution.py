"""Several policies resolve to one effective policy, by the rules of limits, choices and locks."""

import json
import uuid
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from contextpolicy.engine.policy.budget import PolicyImpossible
from contextpolicy.engine.policy.policy import LIMIT_FIELDS, PolicyValues, find_value_problems
from contextpolicy.models import EffectivePolicy
from contextpolicy.resolution import load_policy_values, resolve_policy

CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")
SETTINGS = {"window_size": 12, "max_chars_per_message": 4_000}

Lay = Callable[..., Any]


class Resolve(Protocol):
    """Resolves for Alice's chat."""

    def __call__(
        self, *, model_window: int | None = None, chat_id: Any = CHAT
    ) -> EffectivePolicy: ...


@pytest.fixture
def resolved(alice: User, support: Group) -> Resolve:
    """The effective policy of Alice, a member of the support staff, in her chat."""

    def call(*, model_window: int | None = None, chat_id: Any = CHAT) -> EffectivePolicy:
        return resolve_policy(
            user_id=alice.pk,
            group_ids=[support.pk],
            chat_id=chat_id,
            model_window=model_window,
            defaults=SETTINGS,
        )

    return call


def test_without_any_policy_the_built_in_defaults_hold_and_say_so(resolved: Resolve) -> None:
    row = resolved()

    assert load_policy_values(row) == PolicyValues(turn_threshold=10)
    assert row.label == "Built-in defaults"
    assert set(map(tuple, row.sources.values())) == {("default", "", 0, False)}


def test_the_stored_row_names_every_field_and_a_source_for_each(
    lay: Lay, resolved: Resolve
) -> None:
    lay("everyone", {"token_budget": 20_000}, version=4, level="instance")

    row = resolved()

    names = {item.name for item in fields(PolicyValues)}
    assert set(row.values) == names
    assert set(row.sources) == names
    assert row.sources["token_budget"] == ["instance", "everyone", 4, False]
    assert row.sources["archive"] == ["default", "", 0, False]
    assert row.label == "Everyone v4"


@pytest.mark.parametrize(
    "field", sorted(name for name, kind in LIMIT_FIELDS.items() if kind != "intersection")
)
@pytest.mark.parametrize("near_is_larger", [True, False], ids=["near larger", "near smaller"])
def test_a_limit_takes_the_strictest_value_of_all_levels(
    field: str, near_is_larger: bool, lay: Lay, resolved: Resolve
) -> None:
    within = {"window_size": (40, 50), "reference_count": (4, 5), "file_percent": (20, 30)}
    small, large = within.get(field, (1_500, 1_600))
    far, near = (small, large) if near_is_larger else (large, small)
    budget = {"token_budget": 9_000} if field != "token_budget" else {}
    rest = {"summary_max_tokens": 600, "reserve_tokens": 300, "keep_last_messages": 4}
    rest.pop(field, None)
    if field == "token_budget":
        small, large = 3_000, 3_100
        far, near = (small, large) if near_is_larger else (large, small)
    lay("everyone", {**rest, **budget, field: far}, level="instance")
    lay("mine", {field: near}, level="chat", chat_id=CHAT)

    row = resolved()

    strictest = max(small, large) if LIMIT_FIELDS[field] == "max" else min(small, large)
    assert row.values[field] == strictest
    assert row.sources[field][0] == ("instance" if strictest == far else "chat")


def test_a_reserve_is_a_limit_whose_strictest_value_is_the_largest(
    lay: Lay, resolved: Resolve
) -> None:
    lay("everyone", {"reserve_tokens": 5_000}, level="instance")
    lay("mine", {"reserve_tokens": 1_000}, level="chat", chat_id=CHAT)

    assert resolved().values["reserve_tokens"] == 5_000


def test_a_level_that_sets_no_limit_does_not_lift_the_limit_of_another(
    lay: Lay, resolved: Resolve
) -> None:
    lay("everyone", {"window_size": 40}, level="instance")
    lay("mine", {"window_size": None}, level="chat", chat_id=CHAT)

    assert resolved().values["window_size"] == 40


def test_allowed_models_are_those_that_every_level_allows(lay: Lay, resolved: Resolve) -> None:
    lay("everyone", {"allowed_models": ["small", "middle", "large"]}, level="instance")
    lay("mine", {"allowed_models": ["large", "small", "huge"]}, level="chat", chat_id=CHAT)

    assert resolved().values["allowed_models"] == ["small", "large"]


def test_a_choice_takes_the_nearest_level_that_makes_it(
    lay: Lay, resolved: Resolve, alice: User, support: Group
) -> None:
    lay("everyone", {"cut_style": "head", "archive": False, "fold_turns": 3}, level="instance")
    lay("staff", {"cut_style": "head_tail", "fold_turns": 4}, level="group", group=support)
    lay("hers", {"fold_turns": 2}, level="user", user=alice)

    row = resolved()

    assert row.values["fold_turns"] == 2
    assert row.sources["fold_turns"] == ["user", "hers", 1, False]
    assert row.values["cut_style"] == "head_tail"
    assert row.sources["cut_style"][1] == "staff"
    assert row.values["archive"] is False
    assert row.label == "Hers v1"


def test_an_explicit_nothing_is_a_choice_too(lay: Lay, resolved: Resolve) -> None:
    lay("everyone", {"turn_threshold": 10}, level="instance")
    lay("mine", {"turn_threshold": None}, level="chat", chat_id=CHAT)

    assert resolved().values["turn_threshold"] is None


def test_the_strategy_and_its_config_are_one_choice(lay: Lay, resolved: Resolve) -> None:
    lay(
        "everyone",
        {"strategy": "dynamic_summary", "strategy_config": {"threshold": 10}},
        level="instance",
    )
    lay("mine", {"strategy": "sliding_window"}, level="chat", chat_id=CHAT)

    row = resolved()

    assert row.values["strategy"] == "sliding_window"
    assert row.values["strategy_config"] == {}
    assert row.sources["strategy_config"] == row.sources["strategy"] == ["chat", "mine", 1, False]


def test_a_lock_ends_the_search_for_choices(lay: Lay, resolved: Resolve) -> None:
    lay("everyone", {"fold_turns": 3}, locks=("fold_turns",), level="instance")
    lay("mine", {"fold_turns": 2}, level="chat", chat_id=CHAT)

    row = resolved()

    assert row.values["fold_turns"] == 3
    assert row.sources["fold_turns"] == ["instance", "everyone", 1, True]


def test_a_lock_ends_the_search_for_limits_after_the_levels_before_it(
    lay: Lay, resolved: Resolve, support: Group
) -> None:
    lay("everyone", {"input_length_limit": 9_000}, level="instance")
    lay(
        "staff",
        {"input_length_limit": 20_000},
        locks=("input_length_limit",),
        level="group",
        group=support,
    )
    lay("mine", {"input_length_limit": 100}, level="chat", chat_id=CHAT)

    row = resolved()

    assert row.values["input_length_limit"] == 9_000
    assert row.sources["input_length_limit"] == ["instance", "everyone", 1, True]


def test_a_lock_of_the_strategy_locks_its_config(lay: Lay, resolved: Resolve) -> None:
    lay("everyone", {"strategy": "sliding_window"}, locks=("strategy",), level="instance")
    lay(
        "mine",
        {"strategy": "dynamic_summary", "strategy_config": {"threshold": 3}},
        level="chat",
        chat_id=CHAT,
    )

    row = resolved()

    assert (row.values["strategy"], row.values["strategy_config"]) == ("sliding_window", {})


class TestSeveralGroups:
    """The strictest limits apply; other values follow the order of the policies' slugs."""

    @pytest.fixture
    def resolve_both(self, alice: User, support: Group) -> Callable[[], EffectivePolicy]:
        second = Group.objects.create(name="Night shift")
        self.groups = [support, second]

        def call() -> EffectivePolicy:
            return resolve_policy(
                user_id=alice.pk,
                group_ids=[second.pk, support.pk],
                chat_id=CHAT,
                model_window=None,
                defaults=SETTINGS,
            )

        return call

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as made", "the other way"])
    def test_the_first_slug_makes_the_choice_whoever_was_assigned_first(
        self, order: tuple[int, int], lay: Lay, resolve_both: Callable[[], EffectivePolicy]
    ) -> None:
        lay("b-night", {"fold_turns": 2}, level="group", group=self.groups[order[0]])
        lay("a-day", {"fold_turns": 4}, level="group", group=self.groups[order[1]])

        row = resolve_both()

        assert row.values["fold_turns"] == 4
        assert row.label == "A-Day v1"

    def test_a_locked_choice_stands_above_an_unlocked_one(
        self, lay: Lay, resolve_both: Callable[[], EffectivePolicy]
    ) -> None:
        lay("a-day", {"fold_turns": 4}, level="group", group=self.groups[0])
        lay(
            "b-night", {"fold_turns": 2}, locks=("fold_turns",), level="group", group=self.groups[1]
        )

        assert resolve_both().values["fold_turns"] == 2

    def test_the_strictest_limit_of_all_groups_holds(
        self, lay: Lay, resolve_both: Callable[[], EffectivePolicy]
    ) -> None:
        lay("a-day", {"input_length_limit": 400}, level="group", group=self.groups[0])
        lay("b-night", {"input_length_limit": 300}, level="group", group=self.groups[1])

        assert resolve_both().values["input_length_limit"] == 300


@pytest.mark.requirement("S0.4")
class TestServerSettings:
    """HISTORY_WINDOW and MAX_CHARS_PER_MESSAGE are defaults of strategy `simple` only."""

    def test_they_hold_under_simple_where_no_level_sets_a_value(
        self, lay: Lay, resolved: Resolve, alice: User, support: Group
    ) -> None:
        lay("everyone", {"strategy": "simple"}, level="instance")

        row = resolve_policy(
            user_id=alice.pk,
            group_ids=[support.pk],
            chat_id=CHAT,
            model_window=None,
            defaults={"window_size": 7, "max_chars_per_message": 900},
        )

        assert (row.values["window_size"], row.values["max_chars_per_message"]) == (7, 900)
        assert row.sources["window_size"] == ["setting", "", 0, False]

    def test_a_policy_overrides_both_and_they_are_no_ceiling(
        self, lay: Lay, resolved: Resolve
    ) -> None:
        lay(
            "everyone",
            {"strategy": "simple", "window_size": 50, "max_chars_per_message": 9_000},
            level="instance",
        )

        row = resolved()

        assert (row.values["window_size"], row.values["max_chars_per_message"]) == (50, 9_000)

    @pytest.mark.parametrize("strategy", ["sliding_window", "dynamic_summary"])
    def test_in_other_strategies_an_unset_window_is_no_limit(
        self, strategy: str, lay: Lay, resolved: Resolve
    ) -> None:
        lay("everyone", {"strategy": strategy}, level="instance")

        row = resolved()

        assert row.values["window_size"] is None
        assert row.values["max_chars_per_message"] is None


@pytest.mark.requirement("S0.7")
class TestValuesThatCannotWork:
    """Keep-last, then the low mark are lowered; values that still fail are refused."""

    def test_keep_last_is_lowered_to_what_the_window_lets_in(
        self, lay: Lay, resolved: Resolve
    ) -> None:
        lay("everyone", {"turn_threshold": None, "keep_last_messages": 30}, level="instance")
        lay("mine", {"window_size": 12}, level="chat", chat_id=CHAT)

        row = resolved()

        assert row.values["keep_last_messages"] == 12
        assert row.adjusted == [["keep_last_messages", 30, 12]]

    def test_the_low_mark_is_lowered_when_keep_last_does_not_help(
        self, lay: Lay, resolved: Resolve
    ) -> None:
        lay("everyone", {"compact_to": 0.60}, level="instance")
        lay("mine", {"prepare_at": 0.50}, level="chat", chat_id=CHAT)

        row = resolved()

        assert row.values["compact_to"] == 0.49
        assert row.adjusted == [["compact_to", 0.60, 0.49]]
        assert find_value_problems(load_policy_values(row), model_window=None) == []

    def test_values_that_work_are_not_adjusted(self, resolved: Resolve) -> None:
        assert resolved().adjusted == []

    def test_a_reserve_over_the_budget_is_refused_with_the_numbers(
        self, lay: Lay, resolved: Resolve
    ) -> None:
        lay("everyone", {"reserve_tokens": 9_000}, level="instance")
        lay("mine", {"token_budget": 8_000}, level="chat", chat_id=CHAT)

        with pytest.raises(PolicyImpossible, match=r"9,000.*8,000") as refusal:
            resolved()

        assert refusal.value.code == "policy_impossible"
        assert not EffectivePolicy.objects.exists()

    def test_a_model_too_small_for_the_policy_is_refused(self, resolved: Resolve) -> None:
        with pytest.raises(PolicyImpossible, match="It must be at least 1,000"):
            resolved(model_window=900)

    @pytest.mark.parametrize("window", [2_048, 4_096, 8_192])
    def test_reserve_and_summary_shrink_with_a_small_model(
        self, window: int, resolved: Resolve
    ) -> None:
        row = resolved(model_window=window)
        values = load_policy_values(row)
        assert values.reserve_tokens == 4_000 * window // 16_000
        assert values.summary_max_tokens == 2_000 * window // 16_000
        adjusted = {field for field, _, _ in row.adjusted}
        assert {"reserve_tokens", "summary_max_tokens"} <= adjusted

    def test_a_window_that_fits_changes_nothing(self, resolved: Resolve) -> None:
        assert resolved(model_window=12_000).adjusted == []


def test_equal_policies_share_one_row_and_a_new_version_makes_another(
    lay: Lay, resolved: Resolve
) -> None:
    policy = lay("everyone", {"fold_turns": 3}, level="instance")
    first, again = resolved(), resolved()
    policy.current.number = 2
    policy.current.save()

    assert first.pk == again.pk
    assert resolved().pk != first.pk
    assert EffectivePolicy.objects.count() == 2


def test_what_is_stored_reads_back_as_the_same_values(lay: Lay, resolved: Resolve) -> None:
    lay(
        "everyone",
        {
            "strategy_config": {"b": [1, 2], "a": "ä"},
            "strategy": "dynamic_summary",
            "allowed_models": ["x"],
            "system_text": "请用纯文本回答。",
        },
        level="instance",
    )
    row = resolved()
    reread = EffectivePolicy.objects.get(pk=row.pk)

    assert load_policy_values(reread) == load_policy_values(row)
    assert json.loads(json.dumps(row.values)) == reread.values


def test_another_persons_policies_do_not_apply(lay: Lay, resolved: Resolve) -> None:
    bob = User.objects.create(username="bob")
    lay("his", {"fold_turns": 1}, level="user", user=bob)
    lay("elsewhere", {"fold_turns": 1}, level="chat", chat_id=uuid.uuid4())
    lay("others", {"fold_turns": 1}, level="group", group=Group.objects.create(name="Others"))

    assert resolved().label == "Built-in defaults"


def test_a_chat_that_does_not_exist_yet_gets_the_policies_of_its_owner(
    lay: Lay, resolved: Resolve, alice: User
) -> None:
    lay("hers", {"fold_turns": 1}, level="user", user=alice)

    assert resolved(chat_id=None).values["fold_turns"] == 1


def test_resolving_takes_two_queries_however_many_policies_apply(
    lay: Lay, resolved: Resolve, alice: User, support: Group
) -> None:
    lay("everyone", {"fold_turns": 3}, level="instance")
    resolved()
    with CaptureQueriesContext(
        connection,
    ) as with_one:
        resolved()
    lay("staff", {"fold_turns": 4}, level="group", group=support)
    lay("hers", {"fold_turns": 2}, level="user", user=alice)
    lay("mine", {"fold_turns": 1}, level="chat", chat_id=CHAT)
    resolved()
    with CaptureQueriesContext(connection) as with_four:
        resolved()

    assert len(with_one) == len(with_four) == 2
