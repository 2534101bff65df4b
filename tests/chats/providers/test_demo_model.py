"""The demo model describes its context in fixed sentences."""

import asyncio
import json
from dataclasses import replace
from html import escape

import pytest

from chats.providers.base import ContextFacts, StateTask, UsageReport
from chats.providers.demo import SUMMARY_WITHOUT_RANGE, DemoProvider, build_demo_reply
from chats.rendering.markdown import render_markdown
from contextpolicy.engine.messages.files import Document, format_document
from contextpolicy.engine.messages.messages import WireMessage
from tests.fakes.calls import asked, collect, text_in

FACTS = ContextFacts(
    messages_sent=12,
    messages_total=80,
    prompt_tokens=3456,
    prompt_limit=12000,
    summary_present=True,
    summary_range=(1, 60),
    left_out=((61, 66, "window"), (70, 70, "excluded")),
    cut=2,
    policy="Long *chats*",
    strategy="sliding_window",
    window=12,
)


def test_facts_are_told() -> None:
    answer = build_demo_reply(asked("What do you know of me?", facts=FACTS))
    for told in (
        "Demo model",
        "“What do you know of me?”",
        "12 of 80",
        "2 of them shortened",
        "3,456 tokens of the 12,000",
        "messages 1–60",
        "messages 61–66: older than the window",
        "message 70: excluded manually",
        "`sliding_window`",
        "window of 12",
        "Long \\*chats\\*",
    ):
        assert told in answer


def test_missing_facts_are_told() -> None:
    answer = build_demo_reply(asked("Hello"))
    assert "I received 1 message, without information on how they were selected." in answer


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"summary_present": False, "summary_range": None}, "**Summary:** none"),
        ({"summary_range": None}, SUMMARY_WITHOUT_RANGE),
        ({"left_out": ()}, "Nothing was left out."),
        ({"left_out": ((1, 2, "weather"),)}, "messages 1–2: weather"),
        ({"left_out": tuple((n, n, "window") for n in range(20))}, "and 12 more ranges"),
    ],
)
def test_each_case_has_its_words(change: dict[str, object], told: str) -> None:
    facts = replace(FACTS, **change)  # type: ignore[arg-type] # a table of changes
    assert told in build_demo_reply(asked("Hello", facts=facts))


def test_quiet_facts_are_left_out() -> None:
    answer = build_demo_reply(asked("Hello", facts=replace(FACTS, cut=0, window=None)))
    assert "shortened" not in answer
    assert "window of" not in answer


def test_long_question_is_quoted_by_its_first_words() -> None:
    answer = build_demo_reply(asked("word " * 50))
    assert "“" + " ".join(["word"] * 12) + " …”" in answer


def test_the_question_about_a_file_is_quoted_without_the_file() -> None:
    document = Document(id="0" * 36, sha256="0" * 64, size=9, pages=2, characters=9)
    block = format_document("a.pdf", document, "When? </file>")
    assert "“How long?”" in build_demo_reply(asked(f"{block}\n\nHow long?"))


def test_markdown_of_the_question_is_shown_not_obeyed() -> None:
    question = "<img src=x> [a](b) `c` $x_1$[^1] \\[y\\] \\(z\\)"
    shown = render_markdown(build_demo_reply(asked(question)))
    assert f"“{escape(question)}”" in shown


def test_last_question_is_the_one_quoted() -> None:
    messages = (
        WireMessage("user", "First"),
        WireMessage("assistant", "Reply"),
        WireMessage("user", "Second"),
        WireMessage("assistant", "Started"),
    )
    assert "“Second”" in build_demo_reply(asked("", messages=messages))
    assert "You asked" not in build_demo_reply(asked("", messages=()))


def test_stream_is_the_answer_and_the_same_every_time() -> None:
    async def run() -> list[str]:
        provider = DemoProvider(token_delay=0)
        request = asked("Hello", facts=FACTS)
        return [text_in(await collect(provider, request)) for _ in range(2)]

    first, second = asyncio.run(run())
    assert first == second == build_demo_reply(asked("Hello", facts=FACTS))


def test_usage_repeats_the_facts() -> None:
    events = asyncio.run(collect(DemoProvider(token_delay=0), asked("Hello", facts=FACTS)))
    usage = next(event for event in events if isinstance(event, UsageReport))
    assert usage.input_tokens == 3456
    assert usage.output_tokens == len(events) - 2


def test_usage_without_facts_is_an_estimate() -> None:
    events = asyncio.run(collect(DemoProvider(token_delay=0), asked("x" * 400)))
    assert UsageReport(100, len(events) - 2, 0, 0) in events


SCHEMA = {
    "type": "object",
    "properties": {
        "destination": {"type": "string", "title": "Where to"},
        "date": {"type": "string", "format": "date"},
        "people": {"type": "integer"},
        "price": {"type": "number"},
        "insured": {"type": "boolean"},
        "wishes": {"type": "array"},
        "free": True,
    },
}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Destination: Oslo, date = 2026-05-03; people is 2", ["Oslo", "2026-05-03", 2]),
        ("where to： Rome\nInsured: yes\nprice: 12.5", ["Rome", 12.5, True]),
        ("The destination is Bergen. No, destination: Oslo.", ["Oslo"]),
        ("date: soon, people: two, insured: maybe, wishes: a window, free: 1", []),
        ("I would like to go to Oslo", []),
        ("mydestination: Oslo", []),
    ],
    ids=range(6),
)
def test_a_state_is_read_by_a_rule_without_guessing(said: str, found: list[object]) -> None:
    task = StateTask(schema=SCHEMA, values={}, texts=(said,))
    assert list(json.loads(build_demo_reply(asked("x", state=task))).values()) == found


def test_what_no_message_names_stays() -> None:
    task = StateTask(schema=SCHEMA, values={"destination": "Oslo"}, texts=("people: 2", "Hm"))
    answer = json.loads(build_demo_reply(asked("x", state=task)))
    assert answer == {"destination": "Oslo", "people": 2}
    bare = StateTask(schema={"type": "object"}, values={}, texts=("people: 2",))
    assert build_demo_reply(asked("x", state=bare)) == "{}"


def test_the_answer_tells_of_a_state() -> None:
    facts = replace(FACTS, has_state=True, left_out=((1, 4, "state"),))
    answer = build_demo_reply(asked("x", facts=facts))
    assert "**State:** replaces the dialogue" in answer
    assert "messages 1–4: replaced by the chat state" in answer
