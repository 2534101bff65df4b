"""A policy in plain words names what it does, with its numbers."""

import pytest

from contextpolicy.admin.words import plain_words
from contextpolicy.engine.policy import PolicyValues


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (PolicyValues(), "Sends at most 12,000 tokens and keeps 4,000 free for the reply."),
        (PolicyValues(), "From 8,400 tokens on the built-in extractor prepares a summary"),
        (PolicyValues(turn_threshold=10), "or after more than 10 rounds, the built-in extractor"),
        (PolicyValues(), "At 10,800 tokens it takes their place, down to 5,400;"),
        (PolicyValues(summarization_model="light"), "light prepares a summary"),
        (PolicyValues(strategy="simple", window_size=12), "the newest 12 messages go along."),
        (PolicyValues(strategy="simple"), "as many of the newest messages go along as fit."),
        (PolicyValues(strategy="sliding_window"), "the oldest history stays behind"),
        (PolicyValues(strategy="sliding_window", window_size=40), "Never more than 40 of them"),
        (PolicyValues(strategy="other"), "The strategy other chooses what history goes along."),
        (PolicyValues(max_chars_per_message=4_000), "is cut to 4,000 characters."),
        (PolicyValues(), "New messages over 32,000 characters are refused."),
        (PolicyValues(allowed_models=("a", "b")), "Allowed models: a, b."),
        (PolicyValues(system_text="x", hide_system_text=True), "The system text is hidden"),
    ],
)
def test_the_sentences_carry_the_numbers(values: PolicyValues, words: str) -> None:
    assert words in plain_words(values)
