"""Date lines in prompts: their positions, their cost, and unchanged messages."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    ComposeInput,
    WindowNeeded,
    compose_context,
)
from contextpolicy.engine.messages.days import find_day_starts
from contextpolicy.engine.messages.messages import Message, Role, TextPart, extract_message_text
from contextpolicy.engine.messages.tokens import (
    ApproximateCounter,
    count_uncut_tokens,
    count_wire_tokens,
)
from contextpolicy.engine.messages.transcript import format_day_line
from contextpolicy.engine.policy.policy import PolicyValues

COUNTER = ApproximateCounter()


def said(seq: int, text: str, *, day: str = "", role: Role = "user", turn: str = "") -> Message:
    """A message of one text."""
    parts = (TextPart(text),)
    tokens = count_uncut_tokens(parts, role, COUNTER)
    return Message(f"m{seq}", seq, role, parts, tokens, day=day, turn=turn)


def prompt_of(
    history: tuple[Message, ...],
    question: Message,
    *,
    values: PolicyValues | None = None,
    strict: bool = False,
    window_to: int = 0,
) -> AssembledContext | WindowNeeded:
    """Compose a prompt of a history and a question."""
    return compose_context(
        ComposeInput(
            values=values or PolicyValues(strategy="sliding_window"),
            model_window=None,
            counter=COUNTER,
            system=(),
            history=history,
            window_to=window_to,
            question=(question,),
            last_seq=question.seq,
            strict_roles=strict,
        )
    )


def composed(*messages: Message, strict: bool = False, window_to: int = 0) -> AssembledContext:
    """Compose a prompt that answers the last of some messages."""
    made = prompt_of(messages[:-1], messages[-1], strict=strict, window_to=window_to)
    assert isinstance(made, AssembledContext)
    return made


def test_a_line_precedes_the_first_message_and_each_new_day() -> None:
    made = composed(
        said(1, "Hello", day="2023-05-08"),
        said(2, "Hi", day="2023-05-08", role="assistant"),
        said(3, "Yesterday I met Ann", day="2023-05-25"),
        said(4, "Nice", day="2023-05-25", role="assistant"),
        said(5, "When?", day="2023-05-25"),
    )
    assert [wire.content for wire in made.messages] == [
        "[Mon 2023-05-08]\nHello",
        "Hi",
        "[Thu 2023-05-25]\nYesterday I met Ann",
        "Nice",
        "When?",
    ]
    days = [s for s in made.segments if s.origin == "day"]
    assert [s.message_id for s in days] == ["2023-05-08", "2023-05-25"]
    assert [made.texts[s.text_ref] for s in days] == ["[Mon 2023-05-08]", "[Thu 2023-05-25]"]


def test_a_day_that_begins_with_a_reply_gets_a_message_of_its_own() -> None:
    messages = (
        said(1, "Hello", day="2023-05-08"),
        said(2, "Good morning", day="2023-05-09", role="assistant"),
        said(3, "Well?", day="2023-05-09"),
    )
    assert [(wire.role, wire.content) for wire in composed(*messages).messages] == [
        ("user", "[Mon 2023-05-08]\nHello"),
        ("user", "[Tue 2023-05-09]"),
        ("assistant", "Good morning"),
        ("user", "Well?"),
    ]
    joined = composed(*messages, strict=True)
    assert [wire.role for wire in joined.messages] == ["user", "assistant", "user"]
    assert joined.messages[0].content == "[Mon 2023-05-08]\nHello\n\n[Tue 2023-05-09]"


def test_a_question_on_a_new_day_keeps_its_line_as_history() -> None:
    first = said(1, "Hello", day="2023-05-08", turn="a")
    reply = said(2, "Hi", day="2023-05-08", role="assistant", turn="a")
    question = said(3, "Next", day="2023-05-10", turn="b")
    asked = composed(first, reply, question)
    answer = said(4, "Yes", day="2023-05-11", role="assistant", turn="b")
    later = composed(first, reply, question, answer, said(5, "And?", day="2023-05-11"))
    assert later.messages[: len(asked.messages)] == asked.messages
    # A reply that came after midnight belongs to the day of its question.
    assert [wire.content for wire in later.messages[3:]] == ["Yes", "[Thu 2023-05-11]\nAnd?"]


def test_the_first_message_of_a_window_has_its_day() -> None:
    made = composed(
        *(said(n, f"word {n}", day="2023-05-08") for n in range(1, 6)),
        window_to=2,
    )
    assert made.messages[0].content == "[Mon 2023-05-08]\nword 3"


@pytest.mark.parametrize("layout", ["A", "B", "C"])
def test_layouts_of_text_have_no_days(layout: str) -> None:
    # A parameter is a plain string to the type checker.
    values = PolicyValues(strategy="sliding_window", layout=layout)  # type: ignore[arg-type]
    messages = said(1, "Hello", day="2023-05-08"), said(2, "Next", day="2023-05-09")
    made = prompt_of(messages[:1], messages[1], values=values)
    assert isinstance(made, AssembledContext)
    assert not [s for s in made.segments if s.origin == "day"]
    assert "2023" not in "".join(wire.content for wire in made.messages)


@given(
    days=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    roles=st.lists(st.sampled_from(["user", "assistant"]), min_size=12, max_size=12),
    turns=st.lists(st.sampled_from(["", "a", "b"]), min_size=12, max_size=12),
    strict=st.booleans(),
    budget=st.integers(150, 400),
    most_bytes=st.sampled_from([None, 900]),
)
def test_every_prompt_with_days_fits_and_adds_up(
    days: list[int],
    roles: list[Role],
    turns: list[str],
    strict: bool,
    budget: int,
    most_bytes: int | None,
) -> None:
    history = tuple(
        said(n, f"message {n} " * 3, day=f"2023-05-0{day}", role=roles[n - 1], turn=turns[n - 1])
        for n, day in enumerate(days, start=1)
    )
    question = said(len(days) + 1, "Well?", day="2023-05-04")
    values = PolicyValues(
        strategy="sliding_window", token_budget=budget, reserve_tokens=50, max_bytes=most_bytes
    )
    window_to = 0
    while True:
        made = prompt_of(history, question, values=values, strict=strict, window_to=window_to)
        if isinstance(made, AssembledContext):
            break
        assert made.to_seq > window_to
        window_to = made.to_seq
    assert made.prompt_tokens <= budget - 50
    assert made.prompt_tokens == sum(count_wire_tokens(wire, COUNTER) for wire in made.messages)
    assert sum(len(wire.content) for wire in made.messages) <= (most_bytes or 10**6)
    seqs = {s.seq for s in made.segments if s.seq}
    sent = [message for message in (*history, question) if message.seq in seqs]
    plain = "\n".join(wire.content for wire in made.messages)
    assert all(extract_message_text(message) in plain for message in sent)
    begun = find_day_starts(sent)
    assert min(begun) == sent[0].seq
    lines = [s.message_id for s in made.segments if s.origin == "day"]
    assert lines == [message.day for message in sent if message.seq in begun]


def test_a_day_line_names_the_weekday() -> None:
    assert format_day_line("2024-02-29") == "[Thu 2024-02-29]"


def pinned(seq: int, text: str, *, day: str = "") -> Message:
    """A pinned message of one text."""
    return replace(said(seq, text, day=day), pinned=True)


def compose_with_pins(*pins: Message, layout: str = "multi_turn") -> AssembledContext:
    """Compose a prompt whose window leaves out everything but the pins and the last message."""
    question = said(9, "When?", day="2023-05-25")
    made = compose_context(
        ComposeInput(
            # A parameter is a plain string to the type checker.
            values=PolicyValues(strategy="sliding_window", layout=layout),  # type: ignore[arg-type]
            model_window=None,
            counter=COUNTER,
            system=(),
            pins=pins,
            window_to=8,
            question=(question,),
            last_seq=9,
        )
    )
    assert isinstance(made, AssembledContext)
    return made


def test_each_pinned_message_has_its_day() -> None:
    made = compose_with_pins(
        pinned(2, "I move to Oslo tomorrow.", day="2023-05-08"),
        pinned(3, "The flat has two rooms.", day="2023-05-08"),
    )

    first, second, asked = (wire.content for wire in made.messages)
    assert first.startswith("[Mon 2023-05-08]\nPinned message #2 from earlier")
    # Each has a line, so that no pin depends on another one.
    assert second.startswith("[Mon 2023-05-08]\nPinned message #3 from earlier")
    assert asked == "[Thu 2023-05-25]\nWhen?"
    assert made.prompt_tokens == sum(count_wire_tokens(wire, COUNTER) for wire in made.messages)
    assert [s.seq for s in made.segments] == [0, 2, 0, 3, 0, 9]
    # The day counts towards the pinned message, not the history.
    assert made.budget.pins == sum(s.tokens for s in made.segments[:4])
    assert [(out.from_seq, out.to_seq) for out in made.left_out] == [(1, 1), (4, 8)]


def test_a_pinned_message_without_a_day_has_no_line() -> None:
    made = compose_with_pins(pinned(2, "I move to Oslo tomorrow."))
    assert made.messages[0].content.startswith("Pinned message #2")


def test_a_pinned_message_in_a_layout_of_text_has_no_day() -> None:
    made = compose_with_pins(pinned(2, "I move to Oslo tomorrow.", day="2023-05-08"), layout="A")
    assert "2023-05-08" not in made.messages[0].content
    assert "I move to Oslo" in made.messages[0].content


def test_a_pinned_message_that_does_not_fit_is_left_out_with_its_day() -> None:
    values = PolicyValues(strategy="sliding_window", pins_tokens=60)
    made = compose_context(
        ComposeInput(
            values=values,
            model_window=None,
            counter=COUNTER,
            system=(),
            pins=tuple(pinned(n, "A rather short text.", day="2023-05-08") for n in (1, 2)),
            window_to=8,
            question=(said(9, "When?", day="2023-05-25"),),
            last_seq=9,
        )
    )
    assert isinstance(made, AssembledContext)
    assert [s.seq for s in made.segments if s.origin == "pin"] == [2]
    assert (1, 1, "budget") in [(o.from_seq, o.to_seq, o.reason) for o in made.left_out]
    assert [s.message_id for s in made.segments if s.origin == "day"] == [
        "2023-05-08",
        "2023-05-25",
    ]
