"""Reasoning inside the text of a reply is separated from the answer, for every split."""

import time

import pytest

from chats.providers.base import Finished, TextDelta
from chats.providers.collector import ReplyCollector

PLAN = "The user asks about <b> tags & lamps.\nI answer."
SAID = "Lamps burn oil.\n\n<think> is a tag."


def told(*pieces: str, folds: bool = True) -> tuple[str, str]:
    """Return reasoning and text of a reply that arrives in pieces."""
    collector = ReplyCollector(splits_thoughts=folds)
    for piece in pieces:
        collector.hear(TextDelta(piece))
    collector.hear(Finished("stop"))
    return str(collector.reasoning), str(collector.text)


@pytest.mark.parametrize(
    "reply",
    [
        f"<think>\n{PLAN}\n</think>\n\n{SAID}",
        f"\n <THINK>{PLAN}</THINK>{SAID}",
        f"<thinking>{PLAN}</thinking>\n{SAID}",
        f"[THINK]{PLAN}[/THINK]{SAID}",
        f"<analysis>{PLAN}</analysis>\n{SAID}",
        # Some chat templates end the prompt with the opening tag.
        f"{PLAN}\n</think>\n\n{SAID}",
        f"\n{PLAN}</Thinking>\n{SAID}",
        f"{PLAN}\n</analysis>{SAID}",
        f"{PLAN}</think>{SAID}",
        # Tags of other model families.
        f"<seed:think>{PLAN}</seed:think>{SAID}",
        f'<think type="plan">{PLAN}</think>{SAID}',
        f"<Thinking budget = 3 effort='low'>{PLAN}</thinking>{SAID}",
        f"◁think▷{PLAN}◁/think▷{SAID}",
        f"<|begin_of_thought|>\n{PLAN}\n<|end_of_thought|>\n\n{SAID}",
        f"<|START_THINKING|>{PLAN}<|END_THINKING|>{SAID}",
        f"<reason>{PLAN}</reason>{SAID}",
        f"{PLAN}\n[/THINK]{SAID}",
        f"\ufeff<think>{PLAN}</think>{SAID}",
        f"<|channel|>analysis<|message|>{PLAN}<|end|><|start|>assistant<|channel|>final<|message|>{SAID}",
        f"<|start|>assistant<|channel|>analysis<|message|>{PLAN}<|end|>\n<|channel|>final<|message|>{SAID}",
        f"{PLAN}◁/think▷{SAID}",
        # The closing tag has another name.
        f"<think>\n{PLAN}\n</thinking>\n\n{SAID}",
        f"<thinking>{PLAN}</think>{SAID}",
        f"<analysis>{PLAN}\n</THINK>\n{SAID}",
        f"<think>{PLAN}</thought>\n\n{SAID}",
        f'<think type="plan">{PLAN}</thinking>{SAID}',
        f"<think>{PLAN}[/THINK]{SAID}",
        f"◁think▷{PLAN}</think>{SAID}",
        # It has spaces, or comes twice.
        f"<think>{PLAN}</think >{SAID}",
        f"<thinking>{PLAN}\n</ thinking>\n{SAID}",
        f"<think>{PLAN}</think\n>{SAID}",
        f"<think>{PLAN}</thinking >{SAID}",
        f"<think>\n{PLAN}\n</think>\n\n</think>\n\n{SAID}",
    ],
)
def test_thoughts_are_told_from_the_text_however_it_was_cut(reply: str) -> None:
    for place in range(len(reply) + 1):
        assert told(reply[:place], reply[place:]) == (PLAN, SAID)
    assert told(*reply) == (PLAN, SAID)


@pytest.mark.parametrize(
    "thoughts", ["İstanbul, then İzmir", "Ask ẞ", "計画する", "It is 4", "See `a`, (b)", "It is `4"]
)
def test_thoughts_in_any_letters_end_at_the_tag(thoughts: str) -> None:
    opened, unopened = f"<think>{thoughts}</think>{SAID}", f"{thoughts}</think>{SAID}"
    for reply in (opened, unopened):
        for place in range(len(reply) + 1):
            assert told(reply[:place], reply[place:]) == (thoughts, SAID)


MENTIONS = [
    "I write `</think>` there.",
    "I write `</thinking>` there.",
    "I write:\n```\n</think>\n```\nand\n```xml\n</thinking>\n```\nthen.",
    "The tag </thinking> is theirs.",
    "They write <analysis>\nx\n</analysis>\nand go on.",
    "They write\n</thinking>\nthere.",
]


@pytest.mark.parametrize("thoughts", MENTIONS)
def test_thoughts_that_mention_a_tag_end_at_their_own(thoughts: str) -> None:
    for reply in (f"<think>{thoughts}</think>{SAID}", f"<think>\n{thoughts}\n</think>\n\n{SAID}"):
        for place in range(len(reply) + 1):
            assert told(reply[:place], reply[place:]) == (thoughts, SAID)
        assert told(*reply) == (thoughts, SAID)


@pytest.mark.parametrize("thoughts", MENTIONS[:3])
def test_unopened_thoughts_that_mention_a_tag_end_at_the_next(thoughts: str) -> None:
    reply = f"{thoughts}\n</think>\n\n{SAID}"
    for place in range(len(reply) + 1):
        assert told(reply[:place], reply[place:]) == (thoughts, SAID)


@pytest.mark.parametrize(
    "answer",
    [
        "Close it with `</think>` and go on.",
        "So:\n```\n</think>\n```\nThat is all.",
        "The tag </think> ends them.",
        "Write `</thinking>`, not\n```\n</analysis>\n```",
    ],
)
def test_an_answer_that_mentions_a_tag_keeps_it(answer: str) -> None:
    for reply in (f"<think>{PLAN}</thinking>\n\n{answer}", f"<think>{PLAN}</think>{answer}"):
        for place in range(len(reply) + 1):
            assert told(reply[:place], reply[place:]) == (PLAN, answer)
        assert told(*reply) == (PLAN, answer)


@pytest.mark.parametrize("reply", [f"</think>\n\n{SAID}", f"\n</Thinking>{SAID}"])
def test_a_closing_tag_before_the_answer_is_no_text(reply: str) -> None:
    for place in range(len(reply) + 1):
        assert told(reply[:place], reply[place:]) == ("", SAID)
    assert told(*reply) == ("", SAID)


def test_the_answer_after_a_tag_of_another_name_is_never_sent_as_thinking() -> None:
    heard: list[tuple[str, str]] = []
    collector = ReplyCollector(say=lambda kind, piece, *_: heard.append((kind, piece)))
    for piece in f"<think>{PLAN}\n</thinking>\n\n{SAID}":
        collector.hear(TextDelta(piece))
    collector.hear(Finished("stop"))
    assert "".join(piece for kind, piece in heard if kind == "reasoning") == PLAN
    assert "".join(piece for kind, piece in heard if kind == "text") == SAID


def test_thoughts_with_an_open_code_block_end_at_their_tag() -> None:
    reply = f"<think>Like\n```py\nx = 1\n</think>\n{SAID}"
    assert told(*reply) == ("Like\n```py\nx = 1", SAID)


@pytest.mark.parametrize("reply", ["<think>a`</thinking> b `", "<think>Use </thinking> or"])
def test_thoughts_without_an_end_that_mention_a_tag_are_no_text(reply: str) -> None:
    assert told(*reply) == (reply.removeprefix("<think>"), "")


@pytest.mark.parametrize(
    "reply",
    [
        "<think>" + "a</thinking>" * 50_000,
        "<think>" + "`</think>` `" * 50_000,
        "<think>" + "<thinking></thinking>" * 30_000,
        "`a</think>" * 50_000 + "`",
    ],
    ids=["closings", "mentions", "pairs", "unopened"],
)
def test_many_tags_cost_little(reply: str) -> None:
    begun = time.process_time()
    told(reply)
    told(*(reply[n : n + 40] for n in range(0, len(reply), 40)))
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("reply", ["<thınk>x</thınk>y", "<thİnk>x", "<thin\u212a>x</thin\u212a>y"])
def test_other_letters_do_not_make_a_tag(reply: str) -> None:
    assert told(reply) == ("", reply)
    assert told(*reply) == ("", reply)


@pytest.mark.parametrize(
    "reply",
    [
        f"<think>One.</think>\n<think>Two.</think>\n\n{SAID}",
        f"<think>\nOne.\n</think><analysis>Two.</analysis>{SAID}",
    ],
)
def test_several_blocks_of_thoughts_before_the_answer(reply: str) -> None:
    for place in range(len(reply) + 1):
        assert told(reply[:place], reply[place:]) == ("One.\n\nTwo.", SAID)
    assert told(*reply) == ("One.\n\nTwo.", SAID)


@pytest.mark.parametrize(
    "reply",
    [
        SAID,
        "<thinker>x</thinker>",
        "<th",
        "<",
        "  ",
        "",
        "So. <think>x</think>",
        "< think>x",
        "<analysis of the text>\nIt is long.",
        "<think about it",
        '<think type="plan"',
        "[th",
        "Close it with `</think>` and go on.",
        "The tag </think> ends them.",
        "So:\n```\n</think>\n```\nThat is all.",
        "Write `Done.</think>` there.",
        "So <think>\nx\n</think>\nand on.",
        "Write `a</think>b` there.",
        'The text "Done</think>" ends them.',
    ],
)
def test_text_without_the_tag_at_its_beginning_stays_as_it_is(reply: str) -> None:
    assert told(*reply) == ("", reply)
    assert told(reply) == ("", reply)


def test_a_reply_of_unopened_thoughts_alone_has_no_text() -> None:
    collector = ReplyCollector()
    collector.hear(TextDelta("I wonder.\n</think>\n"))
    collector.hear(Finished("stop"))
    assert (str(collector.reasoning), str(collector.text)) == ("I wonder.", "")
    assert not collector.has_text


def test_thoughts_that_never_end_are_no_text() -> None:
    assert told("<think>On and ", "on </thi") == ("On and on </thi", "")


def test_what_only_begins_like_a_second_block_is_text() -> None:
    assert told("<think>On</think>", "<th") == ("On", "<th")


def test_thoughts_without_words_leave_the_text_alone() -> None:
    assert told("<think>\n\n</think>\n\n", SAID) == ("", SAID)


def test_the_header_of_an_answer_without_thoughts_is_no_text() -> None:
    reply = f"<|channel|>final<|message|>{SAID}"
    for place in range(len(reply) + 1):
        assert told(reply[:place], reply[place:]) == ("", SAID)


def test_a_program_gets_the_text_as_it_came() -> None:
    assert told(f"<think>{PLAN}</think>", SAID, folds=False) == ("", f"<think>{PLAN}</think>{SAID}")
