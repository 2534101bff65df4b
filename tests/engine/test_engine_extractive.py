"""The extractive summary: its selection, its size, and no nesting of summaries."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.acceptance import check_generated_summary, find_missing_sections
from contextpolicy.engine.summaries.extractive import build_extractive_summary
from contextpolicy.engine.summaries.sentence_candidates import BY_MODEL, BY_PARTNER, get_reply_share
from contextpolicy.engine.summaries.sentence_scores import (
    classify_sentence,
    find_addressed_names,
    is_question_sentence,
    is_small_talk,
    score_sentence,
)
from contextpolicy.engine.summaries.sentence_splitting import split_sentences
from tests.engine.engine_builders import COUNTER, chats, message, step
from tests.support.summary_validation import cut_out_section

TALK = [
    message(1, "Hello! I prefer trains to planes. My budget is 400 euros."),
    message(2, "Noted. The train to Oslo leaves on 2026-03-01 at 14:30."),
    message(3, "We decided to take it, see https://example.org/oslo for tickets."),
    message(4, "I booked two seats, the reference is AB_12345."),
    message(5, "Thanks! Can you remind me to pack the blue bag?"),
    message(6, "Sure. It is going to be a nice trip, and the weather will be fine. " * 8),
]


def summarised(messages: list[Message], previous: Summary | None = None, most: int = 2_000) -> str:
    return build_extractive_summary(messages, previous, max_tokens=most, counter=COUNTER)


@pytest.mark.requirement("S4.4")
def test_sentences_with_facts_and_decisions_are_kept_in_their_sections_with_their_sources() -> None:
    text = summarised(TALK)
    assert find_missing_sections(text) == ()
    assert "- User: I prefer trains to planes. [#1]" in cut_out_section(text, "Preferences")
    assert "- Assistant: The train to Oslo leaves on 2026-03-01 at 14:30. [#2]" in text
    assert "https://example.org/oslo for tickets. [#3]" in cut_out_section(text, "Decisions")
    assert "AB_12345. [#4]" in cut_out_section(text, "Done items")
    assert "blue bag? [#5]" in cut_out_section(text, "Open items")


def test_courtesies_go_first_when_room_is_short() -> None:
    text = summarised(TALK, most=80)
    assert "Hello" not in text
    assert "400 euros" in text


def test_bullets_of_a_section_stand_in_the_order_of_the_chat() -> None:
    sources = [
        int(n) for n in re.findall(r"\[#(\d+)\]", cut_out_section(summarised(TALK), "Facts"))
    ]
    assert sources == sorted(sources)


def test_inv_34_it_stays_in_the_language_of_the_chat() -> None:
    talk = [message(1, "我喜欢喝茶。会议在3月5日。"), message(2, "好的，我们决定用火车。" * 60)]
    text = summarised(talk)
    assert "我喜欢喝茶。[#1]" in cut_out_section(text, "Preferences")
    assert "会议在3月5日。[#1]" in text
    assert "我们决定用火车。[#2]" in cut_out_section(text, "Decisions")


def test_inv_33_the_previous_summary_is_merged_and_never_nested() -> None:
    first = summarised(TALK)
    previous = Summary("s1", first, 1, 6, (), COUNTER.count(first))
    second = summarised([message(7, "The budget is now 500 euros, says Ann.")], previous)
    assert second.count("## Facts") == 1
    assert "500 euros, says Ann. [#7]" in second
    assert "https://example.org/oslo for tickets. [#3]" in cut_out_section(second, "Decisions")
    assert not re.search(r"\[#\d+\] \[#", second)


def test_short_chinese_messages_share_a_bullet_with_a_mark_for_each() -> None:
    said = (
        "我最喜欢的歌是《听妈妈的话》。",
        "我打算去云南旅游，下个月出发。",
        "最近我在学做面食，也在学画画。",
    )
    talk = [message(2 * n + 1, text) for n, text in enumerate(said)]
    nice = "好的，听起来真不错，我很高兴听到这个消息。" * 9
    filler = [message(2 * n + 2, nice) for n in range(3)]
    text = summarised([*talk, *filler], most=70)
    assert "我最喜欢的歌是《听妈妈的话》。[#1]我打算去云南旅游，下个月出发。[#3]" in text
    assert COUNTER.count(text) <= 70
    # A sentence from an earlier summary keeps its source mark.
    previous = Summary("s1", text, 1, 6, (), COUNTER.count(text))
    meeting = message(7, "会议改到3月5日，地点在北京。" + "好的。" * 99)
    later = summarised([meeting], previous, most=90)
    assert "下个月出发。[#3]" in later
    assert "会议改到3月5日，地点在北京。[#7]" in later


def test_what_was_said_again_stands_once_with_its_later_source() -> None:
    text = summarised([message(n, "The code is 4711 for the door.") for n in (1, 2, 3)])
    assert text.count("4711") == 1
    assert "[#3]" in text


def test_a_summary_that_somebody_wrote_freely_is_carried_over_line_by_line() -> None:
    written = "Ann lives in Oslo.\n\n## Wishes\n1. tea at 16:00\n"
    previous = Summary("s1", written, 3, 4, (), COUNTER.count(written))
    text = summarised(TALK[4:], previous)
    assert "- Ann lives in Oslo." in cut_out_section(text, "Facts")
    assert "- tea at 16:00" in cut_out_section(text, "Facts")


def test_of_code_whole_lines_of_people_that_name_something_are_quoted() -> None:
    code = "```python\nx = order_1\nreturn\nx = `ls order_2`\nx = order_3" + "_" * 120 + "\n```"
    talk = [
        message(1, f"Use 3 workers.\n{code}\nThen call Ann Berg."),
        message(2, "So it goes:\n```python\ny = order_4\n```\n" + "It is so. " * 120),
    ]
    text = summarised(talk)
    assert "- User: Use 3 workers. Then call Ann Berg. `x = order_1` [#1]" in text
    for other in ("return", "order_2", "order_3", "order_4"):
        assert other not in text


def test_sentences_of_people_go_before_their_code() -> None:
    lines = "\n".join(f"value_{n} = order_{n}" for n in range(80))
    talk = [message(1, f"```\n{lines}\n```"), message(3, "The crate 4711 goes to Oslo on 3 May.")]
    text = summarised(talk, most=60)
    assert "The crate 4711 goes to Oslo on 3 May. [#3]" in text
    assert "`value_" in text


def test_a_small_summary_is_bullets_without_headings_and_is_accepted() -> None:
    text = summarised(TALK, most=60)
    assert "## " not in text
    assert [line[0] for line in text.splitlines()] == ["-"] * len(text.splitlines())
    sources = [int(n) for n in re.findall(r"\[#(\d+)\]", text)]
    assert sources == sorted(sources)
    judged = check_generated_summary(
        text,
        sources=TALK,
        previous=None,
        finish="stop",
        has_tool_calls=False,
        reasoning_only=False,
        values=PolicyValues(),
        counter=COUNTER,
        by_model=False,
    )
    assert judged.accepted, judged
    previous = Summary("s1", text, 1, 6, (), COUNTER.count(text))
    later = summarised([message(7, "The walk is 12 km long. " + "It is nice. " * 99)], previous)
    assert "https://example.org/oslo for tickets. [#3]" in cut_out_section(later, "Decisions")


def test_what_must_be_is_a_rule_and_what_must_be_nice_is_none() -> None:
    said = "It must be paid to Eva Holm in cash. It must be really nice to live in Oslo."
    text = summarised([message(1, said), message(2, "It is so. " * 90)])
    assert "- User: It must be paid to Eva Holm in cash. [#1]" in cut_out_section(
        text, "Preferences"
    )
    assert "- User: It must be really nice to live in Oslo. [#1]" in cut_out_section(text, "Facts")


@pytest.mark.parametrize(
    "talk",
    [
        "I read 《百年孤独》 and it was long.",
        "Yeah, well, I moved to Michigan with Peter Parker.",
    ],
)
def test_titles_and_names_outlive_what_only_keeps_the_talk_going(talk: str) -> None:
    chatter = ["Yeah, exactly!", "谢谢你，再见吧我的朋友。", "Oh, that sounds good!", "Definitely!"]
    said = [message(2 * n + 1, one) for n, one in enumerate([*chatter, talk] * 4)]
    text = summarised(said, most=32)
    assert talk in text
    assert not any(one in text for one in chatter)


def test_in_chinese_what_people_tell_of_themselves_outlives_courtesies() -> None:
    told = "我喜欢徒步、长跑、打篮球和攀岩。昨天晚上我做了一道宫保鸡丁，味道还不错。"
    chatter = "这些建议都很好，感谢你一直以来的陪伴和支持，希望我们继续保持联系。"
    talk = [told, "你可以多和朋友交流，也可以听听音乐放松自己。"]
    talk += [f"{chatter[number % 4 :]}很高兴认识你，希望每天和你聊天。" for number in range(20)]
    text = summarised([message(seq, said) for seq, said in enumerate(talk, start=1)], most=100)
    assert "徒步、长跑" in text
    assert "宫保鸡丁" in text
    assert "感谢" not in text


def test_speakers_and_tool_calls_are_named() -> None:
    spoken = Message(**{**{f: getattr(TALK[1], f) for f in Message.__slots__}, "speaker": "Ann"})
    text = summarised([spoken, step(3, "r" * 400)])
    assert "- Ann: The train to Oslo" in text
    assert 'look_up({"a": 1}) [#3]' in cut_out_section(text, "Done items")


def test_a_long_sentence_is_cut_after_a_word_with_an_ellipsis() -> None:
    text = summarised([message(1, "Pay 40 euros " + "and so on " * 100)])
    assert re.search(r"\b(and|so|on) … \[#1\]$", text, flags=re.M)
    assert "characters" not in text


def test_a_short_source_still_gets_its_most_telling_words() -> None:
    talk = [message(1, "Pay 40 euros to Ann before the first of May or else " + "much " * 40)]
    text = summarised(talk)
    assert "Pay 40" in text
    assert COUNTER.count(text) < talk[0].tokens


def test_with_no_room_at_all_the_headings_remain() -> None:
    assert find_missing_sections(summarised(TALK, most=5)) == ()


def test_headings_of_a_policy_take_the_place_of_the_usual_ones() -> None:
    """Content without a matching heading goes under the first; an earlier summary is included."""
    names = ("Trips", "open ITEMS")

    def under(talk: list[Message], previous: Summary | None = None) -> str:
        return build_extractive_summary(
            talk, previous, max_tokens=2_000, counter=COUNTER, sections=names
        )

    text = under(TALK)
    assert find_missing_sections(text, names) == ()
    assert re.findall(r"^## .*$", text, flags=re.M) == ["## Trips", "## open ITEMS"]
    assert "400 euros" in cut_out_section(text, "Trips")
    assert "blue bag? [#5]" in cut_out_section(text, "open ITEMS")

    earlier = Summary(
        "s", "## Facts\n- Ann has 12 cats. [#1]\n## Open items\n- A visa?", 1, 1, (), 30
    )
    carried = under(TALK, earlier)
    assert "12 cats" in cut_out_section(carried, "Trips")
    assert "A visa?" in cut_out_section(carried, "open ITEMS")


@given(chats(), st.integers(60, 400))
def test_inv_30_it_is_within_its_limit_and_smaller_than_what_it_folds(
    messages: tuple[Message, ...], most: int
) -> None:
    text = summarised(list(messages), most=most)
    tokens = COUNTER.count(text)
    assert tokens <= max(most, COUNTER.count(summarised([])))
    source = sum(item.tokens for item in messages)
    if source > 60:
        assert tokens < source
    assert text == summarised(list(messages), most=most)


class Superlinear:
    """A counter that counts more for a text than for its lines together."""

    version = "superlinear"

    def count(self, text: str) -> int:
        return int(len(text) ** 1.2 / 6)


def test_a_counter_that_does_not_add_up_is_obeyed_all_the_same() -> None:
    text = build_extractive_summary(TALK, None, max_tokens=110, counter=Superlinear())
    assert Superlinear().count(text) <= 110
    assert "[#" in text


def test_inv_33_it_does_not_grow_over_many_rounds() -> None:
    previous: Summary | None = None
    sizes = []
    for number in range(1, 200, 4):
        talk = [
            message(n, f"On 2026-01-{n % 28 + 1:02} Ann paid {n} euros.")
            for n in range(number, number + 4)
        ]
        text = summarised(talk, previous, most=300)
        previous = Summary("s", text, 1, number + 3, (), COUNTER.count(text))
        sizes.append(previous.tokens)
    assert max(sizes) <= 300
    assert "paid 19" in previous.text if previous else False


def long_talk(count: int) -> list[Message]:
    said = "The invoice {n} of 3 May 2026 goes to Anna Berg; see https://a.example/{n}. Shall we? "
    return [message(n, said.format(n=n)) for n in range(1, count + 1)]


@pytest.mark.slow
def test_ten_times_the_messages_take_about_ten_times_as_long_to_summarise_and_to_judge() -> None:
    def spent(count: int) -> float:
        talk = long_talk(count)
        begun = time.process_time()
        text = summarised(talk)
        check_generated_summary(
            text,
            sources=talk,
            previous=None,
            finish="stop",
            has_tool_calls=False,
            reasoning_only=False,
            values=PolicyValues(pinned_kinds=("number", "url")),
            counter=COUNTER,
        )
        return time.process_time() - begun

    few = min(spent(1_000) for _ in range(2))
    # Ten times, with a margin for a busy machine; quadratic time would be a hundred.
    assert spent(10_000) < 30 * few


def test_a_sentence_of_every_message_is_no_fact_of_the_chat() -> None:
    talk = [
        message(n, f"The crate {n} goes to Oslo on 2026-03-{n:02d}. Answer in one sentence.")
        for n in range(1, 20)
    ]
    earlier = Summary("s", "## Preferences\n- Answer in one sentence. [#3]", 1, 3, (), 20)
    text = summarised(talk, earlier)
    assert "Answer in one sentence" not in text
    assert "The crate 1 goes to Oslo on 2026-03-01. [#1]" in text
    once = [message(21, "Always answer in one sentence."), message(22, "It is so. " * 60)]
    assert "Always answer in one sentence. [#21]" in summarised([*TALK, *once])


def test_a_refrain_with_a_number_is_a_fact_and_one_alone_is_better_than_nothing() -> None:
    refrain = "The order 4711 goes to Anna."
    talk = [message(n, f"Day {n}: crate {n}0{n} left Bergen. {refrain}") for n in range(1, 20)]
    assert f"{refrain} [#19]" in summarised(talk)
    assert "Answer now. [#8]" in summarised([message(n, "Answer now. " * 9) for n in range(1, 9)])


def test_a_quoted_mark_of_a_template_is_made_harmless_and_carried_over_so() -> None:
    quoting = "Why does `<|im_start|>` user stand in line 40 of the log? Write <|EOT_ID|> there."
    said = [message(1, quoting), message(2, "It marks who speaks. " * 20)]
    earlier = Summary("s", "## Facts\n- The log has <|im_end|> in line 7. [#1]", 1, 1, (), 20)
    values = PolicyValues(pinned_kinds=("identifier",))
    for previous in (None, earlier):
        text = summarised(said, previous)
        judged = check_generated_summary(
            text,
            sources=said,
            previous=previous,
            finish="stop",
            has_tool_calls=False,
            reasoning_only=False,
            values=values,
            counter=COUNTER,
        )
        assert judged.accepted, judged
        assert "`< |im_start|>`" in text


def test_a_name_outlives_small_talk_over_many_rounds() -> None:
    previous: Summary | None = None
    for number in range(1, 53, 4):
        talk = [
            message(number, "My brother John moved to Oslo." if number == 1 else "I see, go on."),
            message(number + 1, "Woah, Maria, that sounds cool!"),
            message(
                number + 2, f"Woah, Maria, that sounds cool! I counted {number} of the crates."
            ),
            message(number + 3, "Thanks, Maria! " + "It is a nice day for everybody here. " * 4),
        ]
        text = summarised(talk, previous, most=120)
        previous = Summary("s", text, 1, number + 3, (), COUNTER.count(text))
        assert "My brother John moved to Oslo. [#1]" in text
        assert "sounds cool" not in text


@pytest.mark.parametrize(
    "said",
    [
        "Never call me before 10 in the morning.",
        "We decided on the blue one.",
        "The offer ends on 3 May.",
        "It may cost $1,200 and no more.",
        "My sister is called Ines Keller.",
        "Could you look for a flat with a garden?",
        "I am allergic to nuts, so avoid them.",
        "Mr. Smith from the No. 5 branch signs it.",
    ],
)
def test_what_people_settle_stands_whole_beside_a_model_s_many_words(said: str) -> None:
    model = "The Rhine Valley route has 40 stations, 12 castles and 3 ferries since 1845. "
    talk = [message(1, f"So nice to hear from you! {said} Have a great day!")]
    talk += [message(n, f"{model} Version {n}.") for n in (2, 4, 6)]
    text = summarised(talk, most=60)
    assert f"{said} [#1]" in text
    assert "great day" not in text


def test_rows_of_tables_footnote_marks_headings_and_bold_marks_are_no_words() -> None:
    said = (
        "# Plan 9\n| item | price |\n|---|---|\n| tent 4711 | 99 |\n\n"
        "- [ ] **Book** the tent for 5 May[^1].\n\n[^1]: Ann said so in 2024."
    )
    text = summarised([message(1, said), message(2, "Fine. " * 60)])
    assert "- User: Book the tent for 5 May. " in text
    assert "Ann said so in 2024. [#1]" in text
    for mark in ("|", "4711", "[^", "**", "Plan 9", "[ ]"):
        assert mark not in text


def test_sentences_of_one_message_share_a_bullet() -> None:
    talk = [
        message(1, "The train leaves at 14:30. It goes to Oslo on 3 May."),
        message(2, "Ok " * 99),
    ]
    text = summarised(talk)
    assert "- User: The train leaves at 14:30. It goes to Oslo on 3 May. [#1]" in text
    again = summarised([message(3, "And back? " * 40)], Summary("s", text, 1, 2, (), 60))
    assert "- User: The train leaves at 14:30. It goes to Oslo on 3 May. [#1]" in again


def test_each_thing_counts_once_so_others_find_room() -> None:
    often = [message(n, f"Anna Berg of Oslo said so on 3 May, part {n}.") for n in range(1, 40, 2)]
    rare = message(41, "Peter Falk has the key.")
    text = summarised([*often, rare], most=110)
    assert "Peter Falk has the key. [#41]" in text


def test_what_a_person_s_code_names_counts_in_the_model_s_words() -> None:
    code = f"{'x' * 120} = load_orders('north store')"
    talk = [message(1, f"It fails.\n```python\n{code}\n```\nWhat is wrong, Dr.")]
    talk += [
        message(2, "The function load_orders reads one folder. The function keep_rows reads none."),
        message(4, "All else is fine with it, as far as one can see from here. " * 6),
    ]
    text = summarised(talk, most=30)
    assert "The function load_orders reads one folder. [#2]" in text
    assert "keep_rows" not in text
    assert "north store" not in text


@pytest.mark.parametrize(
    "text",
    [
        "Totally agree, Mel.",
        "I 100% agree, Ana.",
        "No doubts, Caroline.",
        "Yeah, I know what you mean.",
        "Gina, good luck with that!",
        "Oof, sorry to hear that.",
        "Your kind words really mean a lot.",
        "Can't wait to see what happens!",
        "Sure, I am always there for you!",
        "Hope all is good.",
    ],
)
def test_courtesies_are_small_talk_although_they_name_a_person(text: str) -> None:
    assert is_small_talk(score_sentence(text, by_person=True))


@pytest.mark.parametrize(
    "text",
    [
        "I agree to the price of $40.",
        "I agree that we move to Berlin.",
        "No, the dog is called Rex.",
        "Your support contract ends in June.",
        "I can't wait for the concert on May 5.",
        "Sorry, the meeting moved to Friday.",
        "Keep the receipts in the red box.",
        "Sure, my number is 555-1234.",
        "I hope to study law.",
        "I always drink tea.",
    ],
)
def test_statements_that_resemble_courtesies_are_no_small_talk(text: str) -> None:
    assert not is_small_talk(score_sentence(text, by_person=True))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Wow, that must've been great!", "Facts"),
        ("It's a must-have in my life.", "Facts"),
        ("Don't worry, we have time.", "Facts"),
        ("I'm always here to support you.", "Facts"),
        ("You must not use port 80.", "Preferences"),
        ("Don't use semicolons.", "Preferences"),
        ("I always use tabs.", "Preferences"),
    ],
)
def test_only_rules_and_tastes_are_preferences(text: str, name: str) -> None:
    assert score_sentence(text, by_person=True).section == name


@pytest.mark.parametrize(
    ("text", "addressed"),
    [
        ("Who supports you, Mel?", {"mel": True}),
        ("Melanie, those bowls are amazing!", {"melanie": True}),
        ("Hey Sam, your photo came out well.", {"sam": True}),
        ("Thanks Ana!", {"ana": True}),
        ("Love the quote, Sam.", {"sam": False}),
        ("We moved to Austin, Texas.", {"texas": False}),
        ("Sam, you know that Sam is my brother's name.", {}),
        ("I met Anna and Tom.", {}),
    ],
)
def test_names_set_off_by_commas_are_found(text: str, addressed: dict[str, bool]) -> None:
    assert find_addressed_names(text) == addressed


def of_two(pairs: list[tuple[str, str]]) -> list[Message]:
    """Build a chat of a user and one other side, each message with a number before it."""
    return [
        message(2 * number + place, text)
        for number, pair in enumerate(pairs)
        for place, text in enumerate(pair, start=1)
    ]


FILLING = ("It rains here and it is quite cold.", "It is warm here and it is quite dry.")


def test_a_name_that_is_only_addressed_takes_no_room_from_a_statement() -> None:
    talk = of_two(
        [
            ("Who supports you, Mel?", "My family does that for me."),
            ("I bought a bicycle from Gunnar in the old town last week.", "That is a fine thing."),
            ("Love the quote, Mel.", "It is from an old book."),
            ("Have you seen the hills, Mel?", "I have seen them often."),
            *[FILLING] * 4,
        ]
    )
    text = summarised(talk, most=26)
    assert "Gunnar" in text
    assert "Mel" not in text


def test_a_place_after_a_comma_still_counts_as_a_fact() -> None:
    talk = of_two([("We moved to Austin, Texas.", "That is far from here."), *[FILLING] * 6])
    assert "Texas" in summarised(talk, most=30)


def test_an_answered_question_weighs_less_than_a_statement_with_the_same_kind_of_name() -> None:
    talk = of_two(
        [
            ("Did the man ever meet Olaf?", "He did not meet him."),
            ("The man once met the singer Gunnar at some station.", "That is a fine thing."),
            *[FILLING] * 6,
        ]
    )
    text = summarised(talk, most=24)
    assert "Gunnar" in text
    assert "Olaf" not in text


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("王小明，你喜欢哪一座山？", {"你喜欢哪一座山"}),
        ("你喜欢哪一座山，王小明？", {"你喜欢哪一座山"}),
        ("田中さん、昨日は山に登りました。", {"昨日は山に登りました"}),
        ("昨日は山に登りました、田中さん。", {"昨日は山に登りました"}),
        ("민수 씨, 어제 산에 갔어요.", {"어제 산에 갔어요"}),
        ("我们去了动物园，很高兴。", {"我们去了动物园", "很高兴"}),
    ],
)
def test_an_address_is_no_clause_in_scripts_without_capitals(text: str, clauses: set[str]) -> None:
    assert score_sentence(text, by_person=True).clauses == clauses


def test_facts_of_the_other_side_weigh_by_the_size_of_its_messages() -> None:
    user = [message(2 * number + 1, "word " * 20) for number in range(5)]

    def share(times: int, count: int = 5) -> float:
        replies = [message(2 * number + 2, "word " * times) for number in range(count)]
        return get_reply_share([*user, *replies])

    assert share(15) == share(20) == BY_PARTNER
    assert BY_MODEL < share(30) < BY_PARTNER
    assert share(200) == BY_MODEL
    assert share(15, count=4) == BY_MODEL


def test_a_second_person_is_quoted_but_not_a_model_that_explains() -> None:
    said = (
        "I once bought a bicycle from Gunnar in the old town last week.",
        "I grew up near Turku and Lund.",
    )
    assert "Turku" in summarised(of_two([said, *[FILLING] * 6]), most=24)
    explained = (FILLING[0], FILLING[1] * 9)
    assert "Turku" not in summarised(of_two([said, *[explained] * 6]), most=24)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Spotting pretty birds while hiking must be great.", "Facts"),
        ("Never say never!", "Facts"),
        ("I love your turtles so much!", "Facts"),
        ("The port must be closed.", "Preferences"),
        ("The title must be in Spanish.", "Preferences"),
        ("I love dark chocolate.", "Preferences"),
    ],
)
def test_guesses_and_compliments_are_no_preferences(text: str, name: str) -> None:
    assert classify_sentence(text, by_person=True)[0] == name


def test_an_offer_is_no_request() -> None:
    offer, request = (
        classify_sentence(text, by_person=True, is_answered=True)[1]
        for text in ("Would you like some tips?", "Would you send me some tips?")
    )
    assert offer < request


@pytest.mark.parametrize(
    "sentences",
    [
        ["Die Tour geht vom 12. bis 18. Mai.", "Oma kommt am 18. Mai an."],
        ["Der 2. Stock ist zu, d.h. wir gehen in den 3. Stock.", "Das kostet ca. 40 Euro."],
        ["Ich bin am 3. 4. 1985 in Ulm geboren.", "Ich habe 12.", "Die Katze heißt Tom."],
        ["Møte den 12. mai kl. 10.", "Schůzka je 5. května v Praze."],
        ["I work at U.S. Steel Corp. in Gary since 1998.", "It has approx. 5,000 people."],
        ["we leave at 5 p.m. and meet Dr. Lee at 6 a.m. on Tuesday.", "it is vol. 3 of St. Mary."],
        ["I am 12.", "My brother is 14.", "I was born in 1985.", "It was hot."],
        ["i like tea.", "it is hot."],
    ],
)
def test_full_stops_of_numbers_and_abbreviations_end_no_sentence(sentences: list[str]) -> None:
    assert [*split_sentences(" ".join(sentences))] == sentences


@pytest.mark.parametrize(
    ("text", "is_question"),
    [
        ("会場はどこがいいですか。", True),
        ("一緒に行きませんか", True),
        ("静か。", False),
        ("ほか。", False),
        ("你喜欢茶吗。", True),
        ("배로 보낼까요.", True),
        ("학교에 가요.", False),
        ("비싸니까요.", False),
        ("보증금은 괜찮은가요.", True),
    ],
)
def test_a_question_may_end_in_a_full_stop(text: str, *, is_question: bool) -> None:
    assert is_question_sentence(text) is is_question


def test_an_answered_japanese_question_is_no_open_item() -> None:
    talk = [
        message(1, "会場はどこがいいですか。式は六月十四日です。"),
        message(2, "平安神宮です。" * 20),
    ]
    assert cut_out_section(summarised(talk), "Open items").strip() == ""
    asked = classify_sentence("会場はどこがいいですか。", by_person=True)
    assert asked[0] == "Open items"


def test_a_mark_that_a_person_writes_names_no_source() -> None:
    said = [
        message(9, "As you said in [#12], Ben moved to Bergen in 2021 [#13]."),
        message(10, "Ok. " * 60),
    ]
    text = summarised(said)
    assert "As you said in (#12), Ben moved to Bergen in 2021 (#13). [#9]" in text
    again = build_extractive_summary(
        [message(11, "And back? " * 40)],
        Summary("s", text, 9, 10, (), 60),
        max_tokens=2_000,
        counter=COUNTER,
        cited=said,
    )
    assert "(#12), Ben moved to Bergen in 2021 (#13). [#9]" in again


def test_markers_of_a_team_are_not_quoted() -> None:
    text = summarised(
        [message(1, "[NEXT: Ann] Ann, the invoice of Miller is 4310 euros."),
         message(2, "[FROM: Ann] It is correct, and Ben pays on 4 May. [NEXT: Ben]\n"
                 + "Fine. " * 40)]
    )  # fmt: skip
    assert "Ann, the invoice of Miller is 4310 euros. [#1]" in text
    assert "It is correct, and Ben pays on 4 May. [#2]" in text
    assert "[NEXT" not in text
    assert "[FROM" not in text
