"""A policy in plain words names what it does, with its numbers."""

import pytest

from contextpolicy.admin.words import plain_words
from contextpolicy.engine.policy import PolicyValues

STATE = {"type": "object", "properties": {"destination": {}, "date": {}}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (PolicyValues(), "Sends at most 12,000 tokens and keeps 4,000 free for the reply."),
        (PolicyValues(), "From 8,400 tokens on the built-in extractor prepares a summary"),
        (PolicyValues(turn_threshold=10), "or after more than 10 turns, the built-in extractor"),
        (PolicyValues(), "At 10,800 tokens it takes their place, down to 5,400 tokens;"),
        (PolicyValues(summarization_model="light"), "light prepares a summary"),
        (PolicyValues(strategy="simple", window_size=12), "the newest 12 messages go along."),
        (PolicyValues(strategy="simple"), "as many of the newest messages go along as fit."),
        (PolicyValues(strategy="sliding_window"), "the oldest history stays behind"),
        (PolicyValues(strategy="sliding_window", window_size=40), "Never more than 40 messages of"),
        (PolicyValues(strategy="other"), "The strategy other chooses what history goes along."),
        (PolicyValues(max_chars_per_message=4_000), "is cut to 4,000 characters."),
        (PolicyValues(), "New messages over 32,000 characters are refused."),
        (PolicyValues(allowed_models=("a", "b")), "Allowed models: a, b."),
        (
            PolicyValues(strategy="entity_state", keep_last_messages=0, state_schema=STATE),
            "No past dialogue goes along; a state (destination, date) stands for the rest.",
        ),
        (
            PolicyValues(strategy="entity_state", keep_last_messages=4),
            "The newest 4 messages go along; a state stands for the rest.",
        ),
        (PolicyValues(compact_every_turns=30), "the next time comes in about 30 turns;"),
        (
            PolicyValues(window_size=9, window_turns=8, window_tokens=7_000),
            "Never more than 9 messages or 8 turns or 7,000 tokens of the history go along.",
        ),
        (PolicyValues(max_bytes=60_000), "A prompt has at most 60,000 bytes."),
        (PolicyValues(pins_tokens=900), "Pins may take 900 tokens."),
        (
            PolicyValues(pinned_kinds=("url", "number")),
            "that loses any of these is rejected: addresses (URLs), numbers.",
        ),
        (
            PolicyValues(
                tool_output_rules={"look_up": {"limit": 4_000, "keep_newest": 3}, "*": {}}
            ),
            "Results of look_up are cut to 4,000 characters and are left out but for the newest 3.",
        ),
        (PolicyValues(tool_output_rules={"*": {"limit": 9}}), "Results of other tools are cut"),
        (PolicyValues(layout="A"), "The history goes along as text (layout A)."),
        (PolicyValues(show_date=True), "The day stands before the question."),
        (
            PolicyValues(references=True, reference_count=4, reference_tokens=900),
            "At most 4 passages of earlier messages (900 tokens) go along",
        ),
        (PolicyValues(chat_system="ignore"), "A chat has no system text of its own."),
        (PolicyValues(system_text="x", hide_system_text=True), "The system text is hidden"),
    ],
)
def test_the_sentences_carry_the_numbers(values: PolicyValues, words: str) -> None:
    assert words in plain_words(values)
