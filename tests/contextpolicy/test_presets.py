"""The shipped policies work, are created once, and never undo changes by administrators."""

from datetime import datetime

import pytest

from contextpolicy.engine.messages.messages import Message, TextPart
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import (
    PolicyValues,
    find_value_problems,
    get_strategy_defaults,
    parse_policy_values,
)
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, NotNeeded
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.linter.general_warnings import find_policy_warnings
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyAssignment, PolicyVersion
from contextpolicy.policy_assignments import unassign_policy
from contextpolicy.presets import PRESETS, RETRIEVED, Preset, replace_demo_policy, seed_policies
from contextpolicy.publish import change_policy, create_policy_version
from contextpolicy.resolution import load_policy_values, resolve_policy

pytestmark = pytest.mark.django_db


def whole(preset: Preset) -> PolicyValues:
    """The preset's values with the defaults of its strategy."""
    return parse_policy_values(preset.values, base=get_strategy_defaults(preset.values["strategy"]))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.slug)
def test_each_preset_can_be_saved_and_surprises_nobody(preset: Preset) -> None:
    assert find_policy_errors(preset.values) == []
    assert find_policy_warnings(whole(preset)) == []


@pytest.mark.requirement("S2.6")
def test_the_starter_policies_are_there(now: datetime) -> None:
    seed_policies(now=now)

    strategies = {
        policy.slug: policy.current.values["strategy"]
        for policy in ContextPolicy.objects.select_related("current")
        if policy.current
    }
    assert strategies["support"] == "sliding_window"
    assert strategies["novelist"] == "dynamic_summary"
    assert strategies["booking"] == "entity_state"


@pytest.mark.requirement("S1.7")
def test_one_policy_gives_a_chinese_plain_text_instruction_for_messengers() -> None:
    messenger = next(preset for preset in PRESETS if preset.slug == "messenger")
    text = messenger.values["system_text"]

    han = sum("一" <= letter <= "鿿" for letter in text)
    assert han > len(text) / 2
    assert "纯文本" in text


@pytest.mark.requirement("S0.7")
def test_a_new_instance_begins_with_the_demo_and_leaves_it_once(now: datetime) -> None:
    seed_policies(now=now)
    first = resolve_policy(user_id=1, group_ids=[], chat_id=None, model_window=None, defaults={})

    assert first.label == "Demo v1"
    assert replace_demo_policy(actor="user:1", now=now)
    assert not replace_demo_policy(actor="user:1", now=now)


@pytest.mark.requirement("S0.7")
def test_the_default_of_an_instance_with_a_model_counts_tokens_only(now: datetime) -> None:
    seed_policies(now=now)
    replace_demo_policy(actor="user:1", now=now)

    row = resolve_policy(user_id=1, group_ids=[], chat_id=None, model_window=None, defaults={})

    values = load_policy_values(row)
    assert row.label == "Long chats v1"
    # With excerpts of messages outside the prompt; all other values are defaults.
    assert values == PolicyValues(strategy="dynamic_summary", turn_threshold=None, **RETRIEVED)
    assert values.references
    assert values.reference_share == 0.45
    assert compute_prompt_limit(values, model_window=None) == 12_000


@pytest.mark.requirement("S2.4")
def test_the_preset_rounds_folds_by_turns() -> None:
    rounds = whole(next(preset for preset in PRESETS if preset.slug == "rounds"))

    assert (rounds.turn_threshold, rounds.fold_turns) == (10, 5)


@pytest.mark.requirement("S0.3")
def test_the_simple_window_leaves_its_sizes_to_the_server(now: datetime) -> None:
    simple = next(preset for preset in PRESETS if preset.slug == "simple-window")

    assert "window_size" not in simple.values
    assert (whole(simple).window_size, whole(simple).max_chars_per_message) == (12, 4_000)


def short_chat(turns: int) -> list[Message]:
    """Short questions with answers as long as the demo model's."""
    messages: list[Message] = []
    for turn in range(turns):
        for role, tokens in (("user", 18), ("assistant", 124)):
            seq = len(messages) + 1
            messages.append(
                Message(
                    id=f"m{seq}",
                    seq=seq,
                    role=role,  # type: ignore[arg-type]  # one of the two literals
                    parts=(TextPart("word " * (tokens - 4)),),
                    tokens=tokens,
                    turn=f"t{turn}",
                )
            )
    return messages


def test_six_short_messages_lead_to_a_summary_under_the_demo_policy() -> None:
    demo = whole(next(preset for preset in PRESETS if preset.slug == "demo"))
    limit = compute_prompt_limit(demo, model_window=None)

    def planned(turns: int) -> CompactionPlan | NotNeeded:
        return plan_compaction(
            short_chat(turns), previous=None, values=demo, prompt_limit=limit, fixed_tokens=60
        )

    assert isinstance(planned(5), NotNeeded)
    due = planned(6)
    assert isinstance(due, CompactionPlan)
    assert (due.from_seq, due.to_seq, due.trigger) == (1, 6, "turns")
    assert due.tokens_after < due.tokens_before
    assert find_value_problems(demo, model_window=4_096) == []


def test_seeding_again_changes_nothing(now: datetime) -> None:
    seed_policies(now=now)
    counts = [model.objects.count() for model in (ContextPolicy, PolicyVersion, AuditEvent)]

    seed_policies(now=now)

    assert counts == [m.objects.count() for m in (ContextPolicy, PolicyVersion, AuditEvent)]
    assert counts[0] == len(PRESETS)


def test_what_an_administrator_changed_stays_changed(now: datetime) -> None:
    seed_policies(now=now)
    rounds = ContextPolicy.objects.get(slug="rounds")
    create_policy_version(
        policy=rounds, values={"turn_threshold": 20}, locks=[], note="", actor="user:1", now=now
    )
    change_policy(
        policy=rounds, name="Mine", description="", retired=False, actor="user:1", now=now
    )
    unassign_policy(assignment=PolicyAssignment.objects.get(), actor="user:1", now=now)

    seed_policies(now=now)

    rounds = ContextPolicy.objects.select_related("current").get(slug="rounds")
    assert rounds.name == "Mine"
    assert rounds.current is not None
    assert rounds.current.values == {"turn_threshold": 20}
    assert not PolicyAssignment.objects.exists()


def test_an_instance_policy_that_is_already_there_stays(now: datetime, lay: object) -> None:
    lay("ours", {}, level="instance")  # type: ignore[operator]  # the fixture's protocol

    seed_policies(now=now)

    assert PolicyAssignment.objects.get(level="instance").policy.slug == "ours"
