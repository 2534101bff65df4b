"""The order of what is found."""

from chats.memory.ranking import RankedText, rank


def order(question: str, *texts: str, total: int | None = None) -> list[int]:
    """Rank texts that stand at the seqs from 1."""
    asked = question.split()
    found = [RankedText.of(n, text, telling=asked) for n, text in enumerate(texts, start=1)]
    counts = {w: sum(w in text.counts for text in found) for w in asked}
    counts = {word: count for word, count in counts.items() if count}
    return rank(asked, found, found_in=counts, total=total or len(texts))


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    texts = ["lake"] * 8 + ["noise"] * 3 + ["heron noise noise"]
    assert order("lake heron", *texts)[0] == 12


def test_of_equal_texts_the_newer_comes_first() -> None:
    texts = ["noise", "heron", "noise", "noise", "noise", "heron", "noise"]
    assert order("heron", *texts)[:2] == [6, 2]


def test_a_neighbour_of_the_words_counts_too() -> None:
    found = order("heron lake", "noise", "heron", "there it stood", "lake", "noise", "noise noise")
    assert found.index(3) < found.index(5)
    assert 6 not in found


def test_a_word_that_stands_nowhere_changes_nothing() -> None:
    assert order("heron unknown", "heron", "noise", "noise") == order(
        "heron", "heron", "noise", "noise"
    )


def test_nothing_asked_finds_nothing() -> None:
    assert order("", "heron", "lake") == []


def test_many_words_are_counted_as_a_few_are() -> None:
    words = [f"word{n}" for n in range(40)]
    text = " ".join(["heron", "heron", "heron", "lake", "heron", "herons", *words[:3]])
    few = RankedText.of(1, text, telling={"heron": 1, "lake": 1, "owl": 1})
    many = RankedText.of(1, text, telling=dict.fromkeys(["heron", "lake", "owl", *words[20:]], 1))
    assert few == many
    assert few.counts == {"heron": 4, "lake": 1}
