"""What search compares: folded, stemmed words, the same for a text and a question about it."""

import threading

import pytest

from chats.memory.words import LONGEST_WORD, asked, words


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("She was PAINTING sunrises", "painted sunrise"),
        ("le café est fermé", "cafe ferme"),
        ("Привезли новые книги", "новая книга"),
        ("我们明天在上海开会", "上海"),
        ("اجتمعنا في المكتبة", "المكتبة"),
        ("order_id 4711-A", "ORDER 4711"),
        ("ﬁnal ２０２６", "final 2026"),
    ],
)
def test_a_question_shares_its_words_with_the_text(text: str, question: str) -> None:
    assert set(words(question)) & set(words(text))
    assert set(words(question)) <= set(words(text)) or len(words(question)) > 1


@pytest.mark.parametrize(
    "text", ["'; DROP", '"a" OR "b" NEAR(c)', "a* ^b {c} :d -e", "x\x00y", "\ud800"]
)
def test_nothing_typed_becomes_query_syntax(text: str) -> None:
    for word in words(text):
        assert word.isascii()
        assert word.isalnum()


def test_words_are_bounded() -> None:
    assert max(map(len, words("ü" * 500 + " " + "a" * 500))) <= LONGEST_WORD


def test_a_question_loses_the_words_that_every_text_has() -> None:
    assert asked("When did she go to the museum? The museum!") == words("museum")
    assert asked("Who was it?") == words("Who was it")


def test_two_threads_stem_alike() -> None:
    texts = [f"painting{n} housings walking{n} runners" for n in range(300)]
    found: list[list[list[str]]] = []
    threads = [
        threading.Thread(target=lambda: found.append([words(text) for text in texts]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4
