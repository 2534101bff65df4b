"""The sentences of a long text that are chosen for a question."""

import time

import pytest

from chats.memory.search.sentences import (
    extend_to_sentences,
    list_sentence_ranges,
    select_best_sentences,
)

WEIGHTS = {"lake": 1.0, "heron": 3.0, "ring": 2.0}
FILLER = "Bread is good and so is cheese on it. "


def choose(text: str, *, most: int = 120) -> str:
    start, end = select_best_sentences(text, weights=WEIGHTS, most=most)
    return text[start:end]


def test_a_short_text_is_chosen_whole() -> None:
    assert choose("The heron left.") == "The heron left."


def test_rare_words_weigh_more_than_frequent_ones() -> None:
    often = "The lake, a lake, this lake and that lake. "

    found = choose(often * 3 + FILLER * 5 + "The heron has a ring on its left leg. " + FILLER * 5)

    assert "The heron has a ring on its left leg." in found


def test_a_sentence_is_never_begun_in_its_middle() -> None:
    found = choose(FILLER * 4 + "A heron sat there. " + FILLER * 4, most=100)

    assert found.strip().endswith(".")
    assert found.startswith(("Bread", "A heron"))


@pytest.mark.parametrize(
    "text",
    [
        "面包很好吃。" * 30 + "环志上写着heron和ring。" + "奶酪也很好吃。" * 30,
        "- bread\n" * 40 + "- the heron wears a ring\n" + "- cheese\n" * 40,
        "bread " * 80 + "heron with a ring " + "cheese " * 80,
        "x" * 500 + " heron ring " + "y" * 500,
        "रोटी अच्छी है।" * 30 + "अंगूठी heron ring पर है।" + "पनीर अच्छा है।" * 30,
        "ขนมปังอร่อยมาก " * 30 + "แหวน heron ring " + "ชีสก็อร่อย " * 30,
    ],
    ids=["chinese", "lines", "no full stop", "no spaces", "hindi", "thai"],
)
def test_the_matching_part_is_found_in_any_form(text: str) -> None:
    found = choose(text)

    assert "heron" in found
    assert "ring" in found
    assert len(found) <= 120


def test_without_a_match_the_beginning_is_chosen() -> None:
    assert FILLER.startswith(choose(FILLER * 20)[:30])


@pytest.mark.parametrize("text", ["", "a\n", "Heron. ", "。", " ", "heron\n" * 50 + "é" * 300])
def test_the_sentences_cover_the_text(text: str) -> None:
    ranges = list_sentence_ranges(text * 7, most=100)

    assert "".join((text * 7)[start:end] for start, end in ranges) == text * 7
    assert all(0 < end - start <= 100 for start, end in ranges)


def test_a_text_of_many_matches_takes_little_time() -> None:
    text = "heron\n" * 3_300

    began = time.process_time()
    select_best_sentences(text, weights=WEIGHTS, most=1_000)

    # Comparing every pair of lines would take several seconds.
    assert time.process_time() - began < 1


def test_the_hidden_part_keeps_whole_sentences() -> None:
    text = "One is here. Two is there, and 三は ここ。 Four is last. Five."
    start, end = text.index("is there"), text.index("last")
    assert text[slice(*extend_to_sentences(text, start, end))] == (
        "Two is there, and 三は ここ。 Four is last. "
    )


@pytest.mark.parametrize("end", "।॥۔؟։。？")
def test_a_sentence_ends_with_the_marks_of_its_script(end: str) -> None:
    text = f"{'a' * 50}{end}{'b' * 50}{end} {'c' * 50}"
    assert len(list_sentence_ranges(text, most=1_000)) == 3


def test_a_text_without_marks_is_split_at_clauses() -> None:
    assert len(list_sentence_ranges("ขนมปังอร่อยมากจริงๆ " * 9, most=1_000)) > 2
    assert len(list_sentence_ranges("we went home, then " * 30, most=1_000)) > 2
