"""Plans of compactions for messages of a known size."""

from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.compaction import plan_compaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, NotNeeded
from tests.engine.engine_builders import message

# Prompt limit 1,000: prepare at 700, swap at 900, down to 450.
VALUES = PolicyValues(
    token_budget=1_100, reserve_tokens=100, summary_max_tokens=100, keep_last_messages=4
)
EARLIER_SUMMARY = Summary("s1", "## Facts\n- old [#2]", 1, 6, (), 10)


def build_talk(count: int, start: int = 1) -> list[Message]:
    """Messages of 24 tokens each."""
    return [message(n, "word " * 20) for n in range(start, start + count)]


def plan(messages: list[Message], **facts: object) -> CompactionPlan | NotNeeded:
    """Plan a compaction; `facts` replace the defaults."""
    defaults: dict[str, object] = {
        "previous": None,
        "values": VALUES,
        "prompt_limit": 1_000,
        "fixed_tokens": 0,
    }
    return plan_compaction(messages, **{**defaults, **facts})  # type: ignore[arg-type]  # facts of a test


def plan_needed(messages: list[Message], **facts: object) -> CompactionPlan:
    """Plan a compaction that must be needed."""
    found = plan(messages, **facts)
    assert isinstance(found, CompactionPlan), found
    return found


def plan_not_needed(messages: list[Message], **facts: object) -> NotNeeded:
    """Plan a compaction that must not be needed."""
    found = plan(messages, **facts)
    assert isinstance(found, NotNeeded), found
    return found
