"""The description of a policy states its effects, with numbers."""

import pytest

from chats.admin.policies.description import build_description_parts, describe_policy
from chats.admin.policies.figures import Figure
from chats.admin.policies.strategy_sentences import NEWEST_THAT_FIT, OLDEST_DROPPED
from contextpolicy.engine.policy.policy import PolicyValues

STATE = {"type": "object", "properties": {"destination": {}, "date": {}}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (PolicyValues(), "Sends at most 12,000 tokens and keeps 4,000 free for the reply."),
        (PolicyValues(), "reaches 8,400 tokens, the built-in extractor prepares a summary"),
        (PolicyValues(turn_threshold=10), "or after more than 10 turns, the built-in extractor"),
        (
            PolicyValues(),
            "the summary replaces these messages and reduces the prompt to 5,400 tokens.",
        ),
        (PolicyValues(summarization_model="light"), "light prepares a summary"),
        (PolicyValues(strategy="simple", window_size=12), "Sends the last 12 messages."),
        (PolicyValues(strategy="simple"), str(NEWEST_THAT_FIT)),
        (
            PolicyValues(strategy="sliding_window"),
            str(OLDEST_DROPPED).format(high="10,800 tokens", low="5,400 tokens"),
        ),
        (PolicyValues(strategy="sliding_window", window_size=40), "Sends at most 40 messages of"),
        (PolicyValues(strategy="other"), "The strategy other decides which messages are sent."),
        (PolicyValues(max_chars_per_message=4_000), "is cut to 4,000 characters."),
        (PolicyValues(), "New messages over 32,000 characters are refused."),
        (PolicyValues(allowed_models=("a", "b")), "Allowed models: a, b."),
        (PolicyValues(file_kinds=("pdf", "csv")), "Allowed kinds of files: PDF, CSV table."),
        (PolicyValues(file_kinds=()), "Allowed kinds of files: none."),
        (PolicyValues(file_mebibytes=5), "A file has at most 5 MiB."),
        (PolicyValues(files_per_message=1), "A message has at most 1 file."),
        (PolicyValues(file_percent=40), "use at most 40 % of the prompt limit."),
        (
            PolicyValues(strategy="entity_state", keep_last_messages=0, state_schema=STATE),
            "Sends a state (destination, date) instead of earlier messages.",
        ),
        (
            PolicyValues(strategy="entity_state", keep_last_messages=4),
            "Sends the newest 4 messages, and a state instead of the older ones.",
        ),
        (PolicyValues(compact_every_turns=30), "make room for about 30 turns."),
        (
            PolicyValues(window_size=9, window_turns=8, window_tokens=7_000),
            "Sends at most 9 messages or 8 turns or 7,000 tokens of the history.",
        ),
        (
            PolicyValues(window_turns=1, window_tokens=1),
            "Sends at most 1 turn or 1 token of the history.",
        ),
        (PolicyValues(turn_threshold=1), "or after more than 1 turn, the built-in"),
        (PolicyValues(keep_last_messages=1), "The newest 1 message stays in full"),
        (PolicyValues(strategy="simple", window_size=1), "Sends the last 1 message."),
        (PolicyValues(max_bytes=60_000), "A prompt has at most 60,000 bytes."),
        (PolicyValues(pins_tokens=900), "Pins may use 900 tokens."),
        (
            PolicyValues(pinned_kinds=("url", "number")),
            "that loses any of these is rejected: addresses (URLs), numbers.",
        ),
        (
            PolicyValues(
                tool_output_rules={"look_up": {"limit": 4_000, "keep_newest": 3}, "*": {}}
            ),
            "Sends only the newest 3 results of look_up. Results of look_up are cut to 4,000",
        ),
        (PolicyValues(tool_output_rules={"*": {"limit": 9}}), "Results of other tools are cut"),
        (PolicyValues(layout="A"), "Sends the history as text (layout A)."),
        (PolicyValues(show_date=True), "Sends the date before the question."),
        (
            PolicyValues(references=True, reference_count=4, reference_tokens=900),
            "Adds up to 4 excerpts of earlier messages (900 tokens) that match",
        ),
        (PolicyValues(chat_system="ignore"), "A chat’s system text is not sent"),
        (PolicyValues(system_text="x", hide_system_text=True), "The system text is hidden"),
    ],
)
def test_the_sentences_carry_the_numbers(values: PolicyValues, words: str) -> None:
    assert words in describe_policy(values)


def figures(values: PolicyValues) -> dict[str, tuple[str, str]]:
    """The figures of a description: label, text, and field."""
    return {
        e.of: (e.text, e.field) for e in build_description_parts(values) if isinstance(e, Figure)
    }


def test_each_figure_knows_the_field_that_decides_it() -> None:
    found = figures(
        PolicyValues(
            summarization_model="light",
            compact_at_tokens=9_000,
            window_turns=8,
            pinned_kinds=("number",),
            tool_output_rules={"calc": {"limit": 4_000}, "b": {"limit": 7, "keep_newest": 3}},
        )
    )

    assert found["token_budget"] == ("12,000", "token_budget")
    assert found["compact_at"] == ("9,000", "compact_at_tokens")
    assert found["compact_to"] == ("5,400", "compact_to")
    assert found["summarization_model"] == ("light", "summarization_model")
    assert found["window_turns"] == ("8", "window_turns")
    assert found["pinned_kinds"] == ("numbers", "pinned_kinds")
    assert found["limit of calc"] == ("4,000", "tool_output_rules")
    assert found["keep_newest of b"] == ("3", "tool_output_rules")


@pytest.mark.parametrize("strategy", ["simple", "sliding_window", "dynamic_summary", "other"])
def test_every_number_is_a_figure(strategy: str) -> None:
    values = PolicyValues(
        strategy=strategy,
        window_size=12,
        window_turns=8,
        window_tokens=7_000,
        turn_threshold=9,
        max_bytes=60_000,
        pins_tokens=900,
        max_chars_per_message=4_000,
        references=True,
        retention_days=30,
        recent_by_user=5,
        file_mebibytes=5,
        files_per_message=3,
        file_percent=40,
        compact_every_turns=6,
    )

    plain = "".join(each for each in build_description_parts(values) if isinstance(each, str))

    assert not any(letter.isdigit() for letter in plain), plain


def test_braces_that_people_wrote_are_no_places_for_figures() -> None:
    values = PolicyValues(
        strategy="{}",
        allowed_models=("{0}", "b"),
        skills=("{name}",),
        tool_output_rules={"{}": {"limit": 9}},
    )

    words = describe_policy(values)

    assert "The strategy {} decides" in words
    assert "Allowed models: {0}, b." in words
    assert "Results of {} are cut to 9 characters." in words
