"""Policies change by new immutable versions and assignments, each with an event."""

import hashlib
import uuid
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.ledger import find_ledger_breaks
from contextpolicy.linter.errors import LONGEST_TEXT, find_policy_errors
from contextpolicy.linter.general_warnings import find_policy_warnings
from contextpolicy.models import (
    AuditEvent,
    ContextPolicy,
    ModelSpec,
    PolicyAssignment,
    PolicyVersion,
)
from contextpolicy.policy_assignments import assign_policy, unassign_policy
from contextpolicy.policy_refusals import (
    PolicyChangedMeanwhile,
    PolicyInUse,
    PolicyNotInUse,
    PolicyProblems,
)
from contextpolicy.publish import change_policy, create_policy, create_policy_version

CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")

pytestmark = pytest.mark.django_db


@pytest.fixture
def policy(now: datetime) -> ContextPolicy:
    """A policy with one version."""
    return create_policy(
        slug="support",
        name="Support",
        values={"token_budget": 20_000, "system_text": "Be brief."},
        locks=["token_budget"],
        actor="user:7",
        now=now,
    )


def events(kind: str) -> list[dict[str, Any]]:
    """The data of the events of one type, oldest first."""
    return list(AuditEvent.objects.filter(type=kind).order_by("id").values_list("data", flat=True))


class TestNewVersion:
    def test_it_holds_only_what_was_set_and_applies_at_once(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        version = create_policy_version(
            policy=policy,
            values={"token_budget": 24_000},
            locks=[],
            note="More room",
            actor="user:8",
            now=now,
        )

        policy.refresh_from_db()
        assert policy.current == version
        assert version.number == 2
        assert version.values == {"token_budget": 24_000}
        assert (version.created_by_id, version.created_at, version.note) == (8, now, "More room")

    def test_the_version_before_it_stays_as_it_was(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        create_policy_version(policy=policy, values={}, locks=[], note="", actor="user:8", now=now)

        first = PolicyVersion.objects.get(policy=policy, number=1)
        assert first.values == {"token_budget": 20_000, "system_text": "Be brief."}
        assert first.locks == ["token_budget"]

    def test_the_event_says_what_changed_and_keeps_texts_out(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        create_policy_version(
            policy=policy,
            values={"system_text": "Be very brief.", "fold_turns": 3},
            locks=["fold_turns"],
            note="why",
            actor="user:8",
            now=now,
        )

        event = events("policy.version_created")[-1]
        old, new = (
            {"sha256": hashlib.sha256(text.encode()).hexdigest(), "characters": len(text)}
            for text in ("Be brief.", "Be very brief.")
        )
        assert event == {
            "policy": "support",
            "version": 2,
            "note": "why",
            "changes": {
                "fold_turns": {"to": 3},
                "system_text": {"from": old, "to": new},
                "token_budget": {"from": 20_000},
            },
            "locks": {"from": ["token_budget"], "to": ["fold_turns"]},
        }
        assert list(find_ledger_breaks()) == []

    def test_a_version_made_meanwhile_is_not_written_over(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        create_policy_version(policy=policy, values={}, locks=[], note="", actor="user:8", now=now)

        with pytest.raises(PolicyChangedMeanwhile, match="Version 2"):
            create_policy_version(
                policy=policy, values={}, locks=[], note="", actor="user:9", now=now, based_on=1
            )

    def test_nothing_is_written_when_the_ledger_cannot_be(
        self, policy: ContextPolicy, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_args: object, **_kwargs: object) -> None:
            raise RuntimeError("no ledger")

        monkeypatch.setattr("contextpolicy.publish.record_event", fail)

        with pytest.raises(RuntimeError):
            create_policy_version(
                policy=policy, values={}, locks=[], note="", actor="user:8", now=now
            )

        policy.refresh_from_db()
        assert policy.versions.count() == 1
        assert policy.current is not None
        assert policy.current.number == 1

    def test_no_event_holds_the_text_itself(self, policy: ContextPolicy) -> None:
        assert "Be brief." not in str(list(AuditEvent.objects.values()))


@pytest.mark.requirement("S0.7")
@pytest.mark.parametrize(
    ("values", "locks", "code", "field", "words"),
    [
        ({"reserve_tokens": 20_000}, [], "reserve_exceeds_budget", "reserve_tokens", "20,000"),
        (
            {"token_budget": 3_000, "reserve_tokens": 4_000},
            [],
            "reserve_exceeds_budget",
            "token_budget",
            "3,000",
        ),
        ({"compact_to": 0.95}, [], "marks_out_of_order", "compact_to", "11,400"),
        ({"summary_max_tokens": 9_000}, [], "summary_reaches_low_mark", "compact_to", "9,000"),
        (
            {"keep_last_messages": 30, "window_size": 12},
            [],
            "keep_last_exceeds_window",
            "window_size",
            "12",
        ),
        ({"token_budget": 0}, [], "number_out_of_range", "token_budget", "0"),
        ({"token_budget": "many"}, [], "malformed_policy", "token_budget", "whole number"),
        ({"colour": "red"}, [], "malformed_policy", "colour", "no field"),
        ({"strategy": "magic"}, [], "unknown_strategy", "strategy", "sliding_window"),
        ({"strategy": ["simple"]}, [], "malformed_policy", "strategy", "a string"),
        ({"strategy_config": {"a": 1}}, [], "config_without_strategy", "strategy", "Also choose"),
        ({}, ["archive"], "lock_without_value", "archive", "no value"),
        ({"strategy": "simple"}, ["strategy_config"], "lock_without_value", "strategy", "Lock"),
        ({"summarization_model": "ghost"}, [], "unknown_model", "summarization_model", "ghost"),
        ({"allowed_models": ["ghost"]}, [], "unknown_model", "allowed_models", "ghost"),
        ({"system_text": "x" * (LONGEST_TEXT + 5)}, [], "too_long", "system_text", "by 5"),
        (
            {"summary_instruction": "x" * 4_003},
            [],
            "too_long",
            "summary_instruction",
            "The limit is 4,000. Shorten it by 3.",
        ),
        ({"summary_instruction": "a\0"}, [], "invalid_character", "summary_instruction", "2"),
        ({"summary_sections": "Orders"}, [], "malformed_policy", "summary_sections", "a list"),
        ({"summary_sections": ["A", "a"]}, [], "headings_refused", "summary_sections", "twice"),
        ({"summary_sections": ["# A"]}, [], "headings_refused", "summary_sections", "“# A”"),
        ({"summary_sections": ["A:"]}, [], "headings_refused", "summary_sections", "“A:”"),
        ({"summary_sections": ["A\nB"]}, [], "headings_refused", "summary_sections", "one line"),
        ({"summary_sections": [""]}, [], "headings_refused", "summary_sections", "“”"),
        ({"summary_sections": ["x" * 61]}, [], "headings_refused", "summary_sections", "60"),
        (
            {"summary_sections": [f"Part {n}" for n in range(11)]},
            [],
            "headings_refused",
            "summary_sections",
            "at most 10",
        ),
        (
            {"summary_sections": ["长" * 60, "短" * 60], "summary_max_tokens": 200},
            [],
            "headings_too_large",
            "summary_sections",
            "200",
        ),
        ({"system_text": "a\0b"}, [], "invalid_character", "system_text", "position 2"),
        ({"system_text": "长" * 11_500}, [], "system_text_too_long", "system_text", "Shorten"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_what_cannot_work_is_refused_with_its_fields_and_a_sentence(
    values: dict[str, Any],
    locks: list[str],
    code: str,
    field: str,
    words: str,
    policy: ContextPolicy,
    now: datetime,
) -> None:
    with pytest.raises(PolicyProblems) as refusal:
        create_policy_version(
            policy=policy, values=values, locks=locks, note="", actor="user:8", now=now
        )

    found = refusal.value.problems
    assert code in {problem.code for problem in found}
    assert field in {name for problem in found for name in problem.fields}
    assert words in str(refusal.value)
    assert refusal.value.code == "policy_impossible"
    assert policy.versions.count() == 1


def test_every_problem_is_named_at_once() -> None:
    found = find_policy_errors(
        {"summarization_model": "ghost", "strategy_config": {}}, locks=["archive", "fold_turns"]
    )

    assert {name for problem in found for name in problem.fields} == {
        "summarization_model",
        "strategy_config",
        "strategy",
        "archive",
        "fold_turns",
    }


def test_a_known_model_may_be_named() -> None:
    ModelSpec.objects.create(slug="small", provider="demo", name="small")

    assert find_policy_errors({"summarization_model": "small", "allowed_models": ["small"]}) == []
    assert find_policy_errors({"summarization_model": "", "allowed_models": None}) == []


class TestAssignment:
    def test_a_policy_applies_where_it_is_assigned(
        self, policy: ContextPolicy, alice: User, support: Group, now: datetime
    ) -> None:
        assign_policy(policy=policy, level="instance", actor="user:7", now=now)
        assign_policy(policy=policy, level="group", group=support, actor="user:7", now=now)
        assign_policy(policy=policy, level="user", user=alice, actor="user:7", now=now)
        assign_policy(policy=policy, level="chat", chat_id=CHAT, actor="user:7", now=now)

        assert PolicyAssignment.objects.count() == 4
        assert events("policy.assigned") == [
            {"level": "instance", "policy": "support", "previous": None},
            {"level": "group", "group": support.pk, "policy": "support", "previous": None},
            {"level": "user", "user": alice.pk, "policy": "support", "previous": None},
            {"level": "chat", "policy": "support", "previous": None},
        ]
        assert AuditEvent.objects.get(scope=f"chat:{CHAT}").chat_id == CHAT

    def test_it_takes_the_place_of_what_applied_there(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        other = create_policy(slug="other", name="Other", values={}, actor="user:7", now=now)
        assign_policy(policy=policy, level="instance", actor="user:7", now=now)

        assign_policy(policy=other, level="instance", actor="user:8", now=now)

        assert PolicyAssignment.objects.get().policy == other
        assert events("policy.assigned")[-1]["previous"] == "support"

    def test_a_removal_that_comes_too_late_leaves_the_policy_that_took_its_place(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        row = assign_policy(policy=policy, level="instance", actor="user:7", now=now)
        seen = PolicyAssignment.objects.select_related("policy").get(pk=row.pk)
        other = create_policy(slug="other", name="Other", values={}, actor="user:7", now=now)
        assign_policy(policy=other, level="instance", actor="user:8", now=now)

        unassign_policy(assignment=seen, actor="user:7", now=now)

        assert PolicyAssignment.objects.get().policy == other
        assert events("policy.unassigned") == []

    def test_assigning_again_changes_and_records_nothing(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        first = assign_policy(policy=policy, level="instance", actor="user:7", now=now)
        again = assign_policy(policy=policy, level="instance", actor="user:7", now=now)

        assert first == again
        assert len(events("policy.assigned")) == 1

    def test_it_can_be_taken_back(self, policy: ContextPolicy, now: datetime) -> None:
        row = assign_policy(policy=policy, level="chat", chat_id=CHAT, actor="user:7", now=now)

        # The second of two who remove it at once.
        for _ in range(2):
            unassign_policy(assignment=row, actor="user:8", now=now)

        assert not PolicyAssignment.objects.exists()
        event = AuditEvent.objects.get(type="policy.unassigned")
        assert (event.data, event.chat_id) == ({"level": "chat", "policy": "support"}, CHAT)

    def test_a_retired_policy_is_not_assigned(self, policy: ContextPolicy, now: datetime) -> None:
        change_policy(
            policy=policy, name="Old", description="", retired=True, actor="user:7", now=now
        )

        with pytest.raises(PolicyNotInUse):
            assign_policy(policy=policy, level="instance", actor="user:7", now=now)

    def test_a_policy_that_applies_is_not_retired(
        self, policy: ContextPolicy, now: datetime
    ) -> None:
        assign_policy(policy=policy, level="instance", actor="user:7", now=now)

        with pytest.raises(PolicyInUse):
            change_policy(
                policy=policy, name="Old", description="", retired=True, actor="user:7", now=now
            )


def test_a_new_name_is_recorded_and_the_same_name_is_not(
    policy: ContextPolicy, now: datetime
) -> None:
    for _ in range(2):
        change_policy(
            policy=policy, name="Help", description="", retired=False, actor="user:7", now=now
        )

    assert policy.name == "Help"
    assert events("policy.changed") == [
        {"policy": "support", "changes": {"name": {"from": "Support", "to": "Help"}}}
    ]


def test_checking_asks_for_models_in_one_query() -> None:
    values = {"allowed_models": [f"m{n}" for n in range(20)], "summarization_model": "m1"}
    with CaptureQueriesContext(connection) as queries:
        find_policy_errors(values)

    assert len(queries) == 1


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (PolicyValues(), []),
        (PolicyValues(system_text="Use sk-abcdefghij0123456789 for it"), ["secret_in_text"]),
        (PolicyValues(system_text="The password: hunter2hunter2"), ["secret_in_text"]),
        (PolicyValues(system_text="Never ask for a password: it is theirs."), []),
        (PolicyValues(compact_to=0.69, prepare_at=0.7, compact_at=0.75), ["marks_close_together"]),
        (PolicyValues(strategy="simple", compact_to=0.9), ["setting_unused"]),
        (PolicyValues(strategy="simple", window_size=12), []),
        (PolicyValues(chat_system="ignore"), ["chat_text_ignored"]),
        (PolicyValues(layout="A"), ["layout_flattens_roles", "layout_costs_cache"]),
        (
            PolicyValues(layout="B", tool_output_rules={"*": {"keep_newest": 1}}),
            ["layout_flattens_roles", "layout_costs_cache", "tool_rules_without_effect"],
        ),
        (PolicyValues(question_prefix="Asked: "), ["setting_unused"]),
        (
            PolicyValues(layout="C", question_prefix="Asked: "),
            ["layout_flattens_roles", "layout_costs_cache"],
        ),
        (PolicyValues(window_size=49), []),
        (PolicyValues(window_size=50), ["window_beyond_limit"]),
        (PolicyValues(window_turns=25), ["window_beyond_limit"]),
        (PolicyValues(window_tokens=12_000), ["window_beyond_limit"]),
        (PolicyValues(window_tokens=11_999), []),
        (PolicyValues(max_bytes=35_999), ["bytes_bind_first"]),
        (PolicyValues(max_bytes=36_000), []),
        (PolicyValues(max_bytes=96_001), ["bytes_never_bind"]),
        (PolicyValues(pins_tokens=5_400), ["pins_reach_low_mark"]),
        (PolicyValues(strategy="simple", pins_tokens=6_001), ["pins_crowd_out"]),
        (PolicyValues(pins_tokens=2_000), []),
        (
            PolicyValues(tool_output_rules={"look_up": {"limit": 8_001}}),
            ["tool_limit_above_general"],
        ),
        (PolicyValues(state_schema={"type": "object"}), ["setting_unused"]),
        (
            PolicyValues(strategy="entity_state", state_schema={"type": "object"}),
            ["state_beside_dialogue"],
        ),
        (
            PolicyValues(
                strategy="entity_state",
                state_schema={"type": "object"},
                keep_last_messages=0,
                window_turns=900,
            ),
            ["setting_unused"],
        ),
        (PolicyValues(strategy="sliding_window", pinned_kinds=("url",)), ["setting_unused"]),
        (PolicyValues(strategy="of_a_package", turn_threshold=3), []),
        (PolicyValues(reserve_tokens=100), ["small_reserve"]),
    ],
)
def test_what_works_but_surprises_is_said(values: PolicyValues, codes: list[str]) -> None:
    found = find_policy_warnings(values)

    assert [finding.code for finding in found] == codes
    assert all(finding.field in values.to_json() for finding in found)
    assert all(finding.sentence.endswith(".") for finding in found)


@pytest.mark.parametrize(
    ("values", "code", "field"),
    [
        ({"question_prefix": "a\0b"}, "invalid_character", "question_prefix"),
        ({"state_schema": {"type": "array"}}, "schema_not_an_object", "state_schema"),
        (
            {"state_schema": {"type": "object", "patternProperties": {}}},
            "schema_keyword_unsupported",
            "state_schema",
        ),
    ],
)
def test_what_no_strategy_could_use_is_refused_under_any(
    values: dict[str, object], code: str, field: str
) -> None:
    assert [(problem.code, problem.fields) for problem in find_policy_errors(values)] == [
        (code, (field,))
    ]
