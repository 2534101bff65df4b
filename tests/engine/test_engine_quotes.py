"""The extractive summary over several rounds: authors, days, roles, questions and scripts."""

import re
from dataclasses import replace

import pytest

from contextpolicy.engine.messages.messages import Message, Summary, extract_message_text
from contextpolicy.engine.summaries.extractive import build_extractive_summary
from contextpolicy.engine.text.claims import split_bullet_claims
from tests.engine.engine_builders import COUNTER, message
from tests.support.summary_validation import cut_out_section

FILLER = "It is good to hear that, and we go on from there with what comes next. " * 6


def dated(seq: int, text: str, day: str, speaker: str = "") -> Message:
    return replace(message(seq, text), day=day, speaker=speaker)


def fold(messages: list[Message], *, rounds: int, most: int) -> str:
    """Summarise in equal parts, each summary with the messages that its marks name."""
    previous: Summary | None = None
    size = -(-len(messages) // rounds)
    for start in range(0, len(messages), size):
        part = messages[start : start + size]
        text = build_extractive_summary(
            part, previous, max_tokens=most, counter=COUNTER, cited=messages[:start]
        )
        previous = Summary("s", text, 1, part[-1].seq, (), COUNTER.count(text))
    return previous.text if previous else ""


def claims_of(text: str) -> list[tuple[str, str, tuple[int, ...]]]:
    bullets = [line[2:] for line in text.splitlines() if line.startswith("- ")]
    return [claim for bullet in bullets for claim in split_bullet_claims(bullet)]


def long_chat(turns: int) -> list[Message]:
    """A person's facts between many sentences of a model about the same subjects."""
    made = []
    for turn in range(turns):
        day = f"2024-{turn // 28 + 1:02}-{turn % 28 + 1:02}"
        said = (
            f"My order {4000 + turn} goes to Berta Holm{turn} in Oslo, and it costs {turn}5 euros."
        )
        told = f"Order {4000 + turn} can be sent by train {turn}. " * 2 + (
            f"The station of Lund{turn} has {turn + 7} tracks since 18{turn + 10}. " * 3
        )
        made += [dated(2 * turn + 1, said, day), dated(2 * turn + 2, told, day)]
    return made


def model_share(text: str) -> float:
    """The share of the model's words in a summary of `message`s, which have even numbers."""
    words = [(len(text), seqs[0] % 2) for _, text, seqs in claims_of(text)]
    return sum(n for n, odd in words if not odd) / sum(n for n, _ in words)


def test_over_ten_rounds_the_model_s_words_take_no_room_from_people_s() -> None:
    messages = long_chat(60)
    once, often = (fold(messages, rounds=rounds, most=700) for rounds in (1, 10))
    assert model_share(often) <= model_share(once) + 0.05


def test_each_claim_names_its_author_its_day_and_only_its_own_source() -> None:
    messages = long_chat(30)
    by_seq = {one.seq: one for one in messages}
    for rounds in (1, 4):
        found = claims_of(fold(messages, rounds=rounds, most=500))
        assert found
        for label, text, (seq,) in found:
            source = by_seq[seq]
            assert label == f"{source.role.capitalize()}, {source.day}: "
            assert text in extract_message_text(source)


def test_a_speaker_stands_in_the_place_of_the_role() -> None:
    talk = [
        dated(1, "The code of the door is 4711.", "2023-05-08", speaker="Ann: [Berg]"),
        dated(3, "It is 4712 since Monday.", "2024-01-02", speaker="Ann: [Berg]"),
        message(4, FILLER),
    ]
    text = build_extractive_summary(talk, None, max_tokens=900, counter=COUNTER)
    assert (
        "- Ann Berg, 2023-05-08: The code of the door is 4711. [#1] "
        "2024-01-02: It is 4712 since Monday. [#3]"
    ) in text


def test_a_summary_of_an_earlier_form_gets_authors_and_days_when_it_is_carried_over() -> None:
    cited = [
        dated(1, "I moved to **Oslo** with Ines Keller.", "2023-05-08"),
        dated(2, "Oslo has 700,000 people.", "2023-05-09"),
        dated(4, "See you on 4 June 2023.", "2023-05-09"),
        dated(5, "Bring ```\nkeys = 40\n``` with you.", "2023-05-10"),
    ]
    written = (
        "## Facts\n- I moved to Oslo with Ines Keller. [#1]\n- Oslo has 700,000 people. [#2]\n"
        "- They meet in June 2023 in the old town. [#4]\n- Both agreed on 12 May. [#1, #4]\n"
        "- `keys = 40` [#5]\n- Nobody knows the PIN 4711.\n- Ann: pays 30 euros\n"
    )
    previous = Summary("s", written, 1, 5, (), COUNTER.count(written))
    talk = [dated(6, FILLER, "2023-05-11")]
    text = build_extractive_summary(talk, previous, max_tokens=900, counter=COUNTER, cited=cited)
    assert "- User, 2023-05-08: I moved to Oslo with Ines Keller. [#1]" in text
    assert "- Assistant, 2023-05-09: Oslo has 700,000 people. [#2]" in text
    # A sentence without an author: it has the day of its source only.
    assert "- 2023-05-09: They meet in June 2023 in the old town. [#4]" in text
    assert "- Both agreed on 12 May. [#1, #4]" in text
    assert "- User, 2023-05-10: `keys = 40` [#5]" in text
    assert "Nobody knows the PIN 4711." in text
    assert "- Ann: pays 30 euros" in text


def test_without_the_cited_messages_a_label_is_read_from_the_text() -> None:
    written = "- User, 2023-05-08: My PIN is 4711. [#1]\n- Assistant: Lund has 40 tracks. [#2]"
    previous = Summary("s", written, 1, 2, (), 40)
    text = build_extractive_summary([message(3, FILLER)], previous, max_tokens=900, counter=COUNTER)
    assert "- User, 2023-05-08: My PIN is 4711. [#1]" in text
    assert "- Assistant: Lund has 40 tracks. [#2]" in text


OPEN = ["Which hotel near the station is the best for 3 nights?", "日本語の本は三冊ありますか？"]


@pytest.mark.parametrize("question", OPEN)
def test_an_answered_question_is_no_open_item(question: str) -> None:
    talk = [message(1, question), message(2, "The Adler. " + FILLER * 2)]
    waiting = [message(1, f"I need to pack the blue bag. {FILLER}"), message(3, question)]
    text = build_extractive_summary(waiting, None, max_tokens=900, counter=COUNTER)
    assert question in cut_out_section(text, "Open items")
    answered = build_extractive_summary(talk, None, max_tokens=900, counter=COUNTER)
    assert question not in cut_out_section(answered, "Open items")
    # An open question is answered by the next reply.
    previous = Summary("s", text, 1, 3, (), COUNTER.count(text))
    later = build_extractive_summary(
        [message(4, "The Adler. " + FILLER)],
        previous,
        max_tokens=900,
        counter=COUNTER,
        cited=waiting,
    )
    assert question not in cut_out_section(later, "Open items")
    assert "blue bag" in cut_out_section(later, "Open items")


@pytest.mark.parametrize(
    "marker",
    [
        "[… 1,312 characters cut …]",
        "[... 84 characters removed ...]",
        "[output truncated]",
        "[12 lines omitted]",
    ],
)
def test_the_marker_of_a_cut_is_never_quoted(marker: str) -> None:
    said = f"The parcel 4711 leaves Oslo\n{marker}\nof May at 14:30. Pay 40 euros to Ann Berg."
    talk = [message(1, said), message(2, FILLER)]
    text = build_extractive_summary(talk, None, max_tokens=900, counter=COUNTER)
    assert "4711" in text
    assert "Pay 40 euros to Ann Berg. [#1]" in text
    for words in ("characters", "truncated", "omitted", "…]"):
        assert words not in text
    previous = Summary("s", f"## Facts\n- {said}", 1, 1, (), 60)
    again = build_extractive_summary(
        [message(3, FILLER)], previous, max_tokens=900, counter=COUNTER
    )
    assert "characters" not in again


def test_fragments_of_a_model_are_not_quoted_and_those_of_people_stand_alone() -> None:
    told = (
        "Here is the plan for 12 May:\n- Mutual Exclusivity\n**Steps for Oslo:**\n1. Berlin Tower"
        "\n\\[\nP(A) = 50!\n\\]\nSo \\(5! = 120\\) ways in 1999. Lund has 40 tracks.\n"
        "$$\nx = 7!\n$$\n"
    )
    said = "I need for 3 May:\nflat 4711 near Lund\nKeys are with Ann Berg. So \\(5! is 120.\\)"
    talk = [message(1, said), message(2, told + "Well. " * 90)]
    text = build_extractive_summary(talk, None, max_tokens=900, counter=COUNTER)
    assert "- User: flat 4711 near Lund [#1]" in text
    assert "Keys are with Ann Berg. [#1]" in text
    assert "Lund has 40 tracks. [#2]" in text
    for fragment in ("for 3 May", "Mutual", "Steps", "Berlin", "50!", "5!", "7!"):
        assert fragment not in text


def test_a_bullet_of_many_messages_has_a_readable_length() -> None:
    talk = [message(2 * n + 1, f"The crate {n}0 goes to Oslo with Berta{n}.") for n in range(40)]
    text = build_extractive_summary(talk, None, max_tokens=900, counter=COUNTER)
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(lines) > 2
    assert max(map(len, lines)) < 500


# A statement with three placeholders, a courtesy, and words for the placeholders.
CHATS = {
    "zh": (
        "我住在{}旁边，爱吃{}，周末常去{}。",
        "很高兴和你聊天，听起来真不错。",
        [
            "上海",
            "北京",
            "广州",
            "成都",
            "杭州",
            "南京",
            "苏州",
            "武汉",
            "西安",
            "青岛",
            "厦门",
            "昆明",
        ],
        [
            "火锅",
            "饺子",
            "米线",
            "烤鸭",
            "汤圆",
            "凉皮",
            "馄饨",
            "春卷",
            "豆腐",
            "年糕",
            "烧麦",
            "粽子",
        ],
        [
            "登山",
            "游泳",
            "滑雪",
            "钓鱼",
            "骑车",
            "划船",
            "跳舞",
            "唱歌",
            "画画",
            "下棋",
            "摄影",
            "射箭",
        ],
    ),
    "ja": (
        "私は{}の近くに住み、{}が好物で、週末は{}に行きます。",
        "お話しできて嬉しいです。とても良いですね。",
        [
            "京都",
            "大阪",
            "神戸",
            "奈良",
            "札幌",
            "仙台",
            "金沢",
            "広島",
            "福岡",
            "長崎",
            "熊本",
            "松山",
        ],
        [
            "寿司",
            "蕎麦",
            "天丼",
            "餃子",
            "鰻丼",
            "豚汁",
            "親子丼",
            "焼鳥",
            "湯葉",
            "牡蠣",
            "納豆",
            "団子",
        ],
        [
            "登山",
            "水泳",
            "釣り",
            "写真展",
            "美術館",
            "図書館",
            "温泉",
            "茶道",
            "書道",
            "将棋",
            "弓道",
            "剣道",
        ],
    ),
    "ko": (
        "저는 {} 근처에 살고, {} 요리를 먹고, 주말에는 {} 모임에 갑니다. ",
        "이야기해서 정말 반가워요. 참 좋네요. ",
        [
            "서울",
            "부산",
            "대구",
            "인천",
            "광주",
            "대전",
            "울산",
            "수원",
            "전주",
            "제주",
            "강릉",
            "춘천",
        ],
        [
            "냉면",
            "만두",
            "김밥",
            "불고기",
            "떡국",
            "순대",
            "갈비",
            "잡채",
            "파전",
            "수제비",
            "칼국수",
            "비빔밥",
        ],
        [
            "등산",
            "수영",
            "낚시",
            "사진",
            "미술",
            "독서",
            "온천",
            "바둑",
            "서예",
            "양궁",
            "검도",
            "무용",
        ],
    ),
}


def clauses(text: str) -> set[str]:
    """The runs between punctuation, each of which may answer a later question."""
    return set(re.findall(r"[\w ]{3,}", re.sub(r"\[#[^\]]*\]|^- \w+(?:, [\d-]+)?: ", ",", text)))


@pytest.mark.parametrize("language", CHATS)
@pytest.mark.parametrize("day", ["", "2024-03-05"])
def test_in_scripts_without_capitals_a_summary_keeps_as_much_as_a_cut_of_its_length(
    language: str, day: str
) -> None:
    said, nice, places, meals, tours = CHATS[language]
    talk = []
    for number in range(60):
        words = [items[number * step % 12] for items, step in ((places, 1), (meals, 5), (tours, 7))]
        own = (nice if number % 2 else "") + said.format(*words)
        talk += [dated(2 * number + 1, own, day), dated(2 * number + 2, nice * 2, day)]
    people = [extract_message_text(one) for one in talk if one.role == "user"]
    total = sum(one.tokens for one in talk)
    text = build_extractive_summary(talk, None, max_tokens=total // 28, counter=COUNTER)
    wanted = clauses(",".join(people)) - clauses(nice)
    cut = ""
    for own in reversed(people):
        cut += own
        if COUNTER.count(cut) >= COUNTER.count(text):
            break
    while COUNTER.count(cut) > COUNTER.count(text):
        cut = cut[:-1]
    assert len(wanted & clauses(text)) >= len(wanted & clauses(cut)), (text, cut)
    assert "#" in text


def test_in_a_dense_script_a_tiny_summary_has_no_days_and_a_larger_one_has_them() -> None:
    said, _, *words = CHATS["zh"]
    talk = [
        dated(
            2 * n + 1,
            said.format(*(items[n % 12] for items in words)) + f"这是{n}号。",
            f"2024-03-{n + 1:02}",
        )
        for n in range(30)
    ]
    tiny, larger = (
        build_extractive_summary(talk, None, max_tokens=most, counter=COUNTER) for most in (60, 600)
    )
    assert "2024" not in tiny
    assert "- User: " in tiny
    assert "- User, 2024-03-" in larger
