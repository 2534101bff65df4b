"""Ranking of texts: words, rarity, neighbouring messages, and the person meant."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from chats.memory.search import ranking
from chats.memory.search.question import parse_question
from chats.memory.search.ranking import (
    RankedText,
    SearchTerms,
    calculate_word_weight,
    rank_texts,
    select_best_texts,
)
from chats.memory.search.words import split_words

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def text(
    place: int,
    said: str,
    *,
    wanted: SearchTerms,
    speaker: str = "",
    session: int = 1,
    is_own: bool = False,
) -> RankedText:
    """Return a text at a position."""
    stems, full = split_words(said)
    return RankedText.of(
        place,
        words=" ".join(stems),
        full=" ".join(full),
        wanted=wanted,
        session=(1, session),
        speaker=speaker,
        is_own=is_own,
        written_at=NOW + timedelta(minutes=place),
    )


def wanted_in(question: str, *said: str, **more: object) -> SearchTerms:
    """Return the weighted terms of a question for these texts."""
    stems, full = split_words(question)
    texts = [set(split_words(each)[0]) for each in said]
    number = {stem: sum(stem in each for each in texts) for stem in stems}
    return SearchTerms(
        stems={
            stem: calculate_word_weight(number[stem], total=len(said))
            for stem in stems
            if number[stem]
        },
        full=dict.fromkeys(full, 0.1),
        pairs=dict.fromkeys(pairwise(stems), 1.0),
        **more,  # type: ignore[arg-type]  # names and days
    )


def order(question: str, *said: str, **more: object) -> list[int]:
    """Return the positions of the texts, counted from 1, best first."""
    wanted = wanted_in(question, *said, **more)
    texts = [text(place, each, wanted=wanted) for place, each in enumerate(said, start=1)]
    return [place for place, _ in rank_texts(texts, wanted=wanted)]


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    common = ["lake"] * 8
    assert order("heron lake", "heron", *common)[0] == 1


def test_a_neighbour_of_the_words_counts_too() -> None:
    found = order("heron", "noise", "noise", "noise", "the heron", "an answer", "noise", "noise")
    assert found[0] == 4
    assert set(found[1:3]) == {3, 5}
    assert 1 not in found


@pytest.mark.parametrize(("words", "share"), [(5, 1.0), (ranking.WINDOW_WORDS, 1 / 3)])
def test_what_stands_around_long_texts_counts_less(words: int, share: float) -> None:
    rest = " ".join(["noise"] * (words - 1))
    wanted = wanted_in("heron", "heron", "noise", "noise")
    texts = [text(place, f"{word} {rest}", wanted=wanted) for place, word in enumerate("xyz")]
    texts[1] = text(1, f"heron {rest}", wanted=wanted)
    assert ranking.score_text_windows(texts, wanted=wanted)[0] == pytest.approx(share)


def test_a_short_text_tells_less() -> None:
    wanted = wanted_in("heron", "heron")
    rest = " ".join(f"w{each}" for each in range(ranking.WORDS_THAT_TELL))
    texts = [
        text(place, said, wanted=wanted)
        for place, said in ((1, "noise"), (2, "heron"), (3, f"noise {rest}"))
    ]
    marks = dict(rank_texts(texts, wanted=wanted))
    assert marks[3] > marks[1] + ranking.LENGTH / 2


def test_of_equal_texts_the_newer_comes_first() -> None:
    wanted = wanted_in("heron", "heron", "heron")
    texts = [text(place, "heron", wanted=wanted) for place in (10, 30, 20)]
    assert [place for place, _ in rank_texts(texts, wanted=wanted)] == [30, 20, 10]


def test_a_word_that_stands_nowhere_changes_nothing() -> None:
    assert order("heron unknown", "heron", "noise", "x", "y") == order(
        "heron", "heron", "noise", "x", "y"
    )


def test_nothing_asked_finds_nothing() -> None:
    assert order("", "heron", "lake") == []
    assert rank_texts([], wanted=wanted_in("heron")) == []


def test_words_that_stand_together_count_more_than_apart() -> None:
    far = ["noise"] * 6
    found = order("red heron", "red and then a heron", *far, "see a red heron there")
    assert found[0] == 8


def test_the_form_that_was_asked_counts_more_than_another_of_its_stem() -> None:
    far = ["noise"] * 6
    found = order("painting", *far, "painted", *far, "painting", *far, "paints", *far)
    assert found[0] == 14


@pytest.mark.parametrize("named", [True, False])
def test_a_speaker_who_is_named_counts(named: bool) -> None:
    names = frozenset({"ann", "heron"} if named else {"heron"})
    wanted = wanted_in("heron", "heron", names=names)
    texts = [
        text(place, "heron", wanted=wanted, speaker="ann" if place == 1 else "bob")
        for place in (1, 10, 20)
    ]
    assert next(place for place, _ in rank_texts(texts, wanted=wanted)) == (1 if named else 20)


@pytest.mark.parametrize("own", [True, False])
def test_what_somebody_said_counts_where_they_ask_about_themselves(own: bool) -> None:
    wanted = wanted_in("heron", "heron", own=own)
    texts = [text(place, "heron", wanted=wanted, is_own=place == 1) for place in (1, 10, 20)]
    assert next(place for place, _ in rank_texts(texts, wanted=wanted)) == (1 if own else 20)


@pytest.mark.parametrize(
    ("question", "own"),
    [
        ("Which ring did my heron wear?", True),
        ("What have I paid?", True),
        ("Was habe ich bezahlt?", True),
        ("Сколько я заплатил?", True),
        ("我付了多少钱?", True),
        ("私はいくら払いましたか", True),
        ("ฉันจ่ายไปเท่าไหร่", True),
        ("मैंने कितना भुगतान किया?", True),
        ("मेरी नाव कहाँ है?", True),
        ("내가 얼마를 냈지?", True),
        ("Which ring did the heron wear?", False),
        ("Who painted the Icarus?", False),
        ("", False),
    ],
)
def test_a_question_about_oneself_is_known_by_its_words(question: str, own: bool) -> None:
    assert parse_question(question, at=NOW).is_of_oneself is own


def test_a_day_that_is_named_counts() -> None:
    first = NOW + timedelta(minutes=1)
    wanted = wanted_in("heron", "heron", days=[(first, first + timedelta(minutes=1))])
    texts = [text(place, "heron", wanted=wanted) for place in (1, 10, 20)]
    assert next(place for place, _ in rank_texts(texts, wanted=wanted)) == 1


def test_a_talk_about_it_counts() -> None:
    wanted = wanted_in("heron", "heron")
    texts = [text(place, "heron", wanted=wanted, session=1) for place in (1, 10, 20)]
    texts.append(text(30, "heron", wanted=wanted, session=2))
    assert rank_texts(texts, wanted=wanted)[-1][0] == 30


def test_bm25_is_as_it_stands_in_the_books() -> None:
    weights = {"heron": 2.0, "lake": 0.5}
    found = ranking.calculate_bm25_scores([({"heron": 2}, 10), ({"lake": 1}, 30)], weights)
    first = 2.0 * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 10 / 20))
    second = 0.5 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 30 / 20))
    norm = pytest.approx(second / first)
    assert found == [1.0, norm]


def test_the_best_alone_are_the_newest_of_equals() -> None:
    wanted = wanted_in("heron", "heron")
    texts = [text(place, "heron", wanted=wanted) for place in range(9)]
    assert [each.place for each in select_best_texts(texts, wanted=wanted, most=3)] == [8, 7, 6]
