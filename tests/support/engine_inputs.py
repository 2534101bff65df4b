"""Strategies for policies, inputs and whole chats of the engine."""

from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import ComposeInput
from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.messages.transcript import Background, TextEntry
from contextpolicy.engine.messages.turn_groups import has_content
from contextpolicy.engine.policy.policy import PolicyValues
from tests.engine.engine_builders import COUNTER, chats, given, message, step, texts
from tests.support.full_prompts import TOOLS

FULL_BACKGROUND = Background(
    preferences="likes tea",
    references=(TextEntry("user", "my cat likes fish"),),
    date="2026-03-01",
)
Run = tuple[PolicyValues, list[tuple[str, str, bool]]]
STRATEGIES = ("simple", "sliding_window", "dynamic_summary", "entity_state")


@st.composite
def policies(draw: st.DrawFn) -> PolicyValues:
    """Policies with any strategy and layout, also with very small budgets."""
    rule = st.fixed_dictionaries(
        {}, optional={"limit": st.integers(1, 200), "keep_newest": st.integers(0, 2)}
    )
    return PolicyValues(
        strategy=draw(st.sampled_from(STRATEGIES)),
        layout=draw(st.sampled_from(["multi_turn"] * 3 + ["A", "B", "C"])),
        window_turns=draw(st.none() | st.none() | st.integers(1, 6)),
        window_tokens=draw(st.none() | st.none() | st.integers(1, 2_000)),
        max_bytes=draw(st.none() | st.none() | st.integers(200, 9_000)),
        pins_tokens=draw(st.none() | st.none() | st.integers(1, 500)),
        compact_every_turns=draw(st.none() | st.integers(1, 5)),
        tool_output_rules=draw(st.just({}) | st.fixed_dictionaries({"look_up": rule})),
        window_size=draw(st.none() | st.integers(1, 12)),
        max_chars_per_message=draw(st.none() | st.integers(1, 200)),
        cut_style=draw(st.sampled_from(["head", "head_tail"])),
        token_budget=draw(st.integers(60, 400) | st.integers(60, 3_000)),
        reserve_tokens=20,
        keep_last_messages=draw(st.integers(0, 6)),
        tool_output_limit=draw(st.integers(1, 300)),
    )


@st.composite
def inputs(draw: st.DrawFn) -> ComposeInput:
    """Inputs of a composition: history, summary, pins, question, steps and tools."""
    history = draw(chats())
    unread = draw(st.integers(0, len(history))) if draw(st.booleans()) else 0
    hidden, summary = history[:unread], None
    loose: tuple[Message, ...] = ()
    if draw(st.booleans()) and hidden:
        passed = [m for m in hidden if m.pinned or m.excluded or m.incomplete or not has_content(m)]
        loose = tuple(m for m in passed if not m.pinned)
        told = draw(texts())
        exceptions = tuple(m.seq for m in passed)
        summary = Summary("s", told, 1, unread, exceptions, COUNTER.count(told))
    seq = len(history) + 1
    question = message(seq, draw(texts()), role="user")
    steps = []
    for _ in range(draw(st.integers(0, 4))):
        seq += 1
        if draw(st.booleans()):
            steps.append(step(seq, draw(texts()), calls=draw(st.integers(1, 2))))
        else:
            steps.append(message(seq, draw(texts()), role="user"))
    return given(
        (*loose, *history[unread:]),
        summary=summary,
        unloaded=(1, unread) if hidden and not summary else None,
        pins=tuple(item for item in hidden if item.pinned),
        values=draw(policies()),
        question=(question,),
        steps=tuple(steps),
        tail=draw(st.sampled_from(["", "The user prefers tea."])),
        background=draw(st.sampled_from([Background(), FULL_BACKGROUND])),
        tools=draw(st.sampled_from([(), TOOLS])),
        strict_roles=draw(st.booleans()),
        calibration=draw(st.sampled_from([0.8, 1.0, 1.4])),
    )


@st.composite
def played(draw: st.DrawFn) -> Run:
    """A policy, and the questions and replies of a chat that it governs."""
    values = PolicyValues(
        strategy=draw(st.sampled_from(["sliding_window", "dynamic_summary"])),
        max_chars_per_message=draw(st.none() | st.integers(20, 200)),
        token_budget=draw(st.integers(700, 1_500)),
        reserve_tokens=100,
        keep_last_messages=draw(st.integers(0, 6)),
        summary_max_tokens=120,
        window_size=draw(st.none() | st.integers(6, 20)),
    )
    questions = st.tuples(texts(), texts(), st.sampled_from([False] * 9 + [True]))
    return values, draw(st.lists(questions, min_size=4, max_size=25))
