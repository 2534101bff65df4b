"""Search terms: folded and stemmed words, equal for a text and a question about it."""

import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.memory.search.irregular_forms import FIRST_FORMS
from chats.memory.search.words import (
    LONGEST_WORD,
    extract_question_stems,
    find_words,
    list_search_stems,
    load_stop_words,
    split_words,
)

PARTS = ["Straße", "ﬁnal", "ｶﾞ", "한국어", "cafe\u0301", "上海", "don't", "हिन्दी", "İx", "①", "㎏"]


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
        ("عمري ٣٠ عاما", "30"),
        ("l'été dernier", "ete"),
        ("Caroline’s shop", "caroline"),
        ("he don’t know", "don't"),
        ("The children BROKE it", "child break"),
        ("She has written to a woman", "women write"),
    ],
)
def test_a_question_shares_its_words_with_the_text(text: str, question: str) -> None:
    assert set(list_search_stems(question)) & set(list_search_stems(text))
    assert (
        set(list_search_stems(question)) <= set(list_search_stems(text))
        or len(list_search_stems(question)) > 1
    )


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("用Django做的", "Django"),
        ("重跑gen的脚本", "gen"),
        ("Python開発の話", "開発"),
        ("去海边", "海"),
        ("東京タワー", "東京"),
        ("회의는 오늘입니다", "회의"),
        ("ฉันรักภาษาไทย", "ภาษาไทย"),
        ("हिन्दी में लिखो", "हिन्दी"),
    ],
)
@pytest.mark.memory_case(34)
def test_every_script_is_found_where_scripts_meet(text: str, question: str) -> None:
    assert set(list_search_stems(question)) <= set(list_search_stems(text))


@pytest.mark.memory_case(34)
def test_marks_of_letters_stay_with_their_word() -> None:
    assert list_search_stems("हिन्दी") == ["हिन्दी"]
    assert "が" in list_search_stems("が")
    assert set(list_search_stems("か")).isdisjoint(list_search_stems("が"))


@pytest.mark.memory_case(35)
def test_half_width_kana_are_the_usual_ones() -> None:
    assert list_search_stems("ｶﾞｷﾞ") == list_search_stems("ガギ")
    assert [(word.start, word.end) for word in find_words("ｶﾞx") if word.stem == "ガ"] == [(0, 2)]


@pytest.mark.memory_case(42)
@pytest.mark.parametrize("part", ["user", "name", "get", "getusername"])
def test_the_parts_of_camel_case_are_found(part: str) -> None:
    assert set(list_search_stems(part)) <= set(list_search_stems("call getUserName() first"))


@pytest.mark.memory_case(33)
@pytest.mark.parametrize(
    "text",
    [
        "'; DROP",
        '"a" OR "b" NEAR(c)',
        "a* ^b {c} :d -e",
        "x\x00y",
        "\ud800",
        "error:timeout",
        "@o1 =a",
    ],
)
def test_nothing_typed_becomes_query_syntax(text: str) -> None:
    for word in (one for part in split_words(text) for one in part):
        assert all(char.isalnum() or unicodedata.category(char)[0] == "M" for char in word)


@pytest.mark.memory_case(33)
@pytest.mark.parametrize("text", ["error:timeout", "multi-agent", "a+b", "sess.opts", "foo/baz"])
def test_signs_part_words(text: str) -> None:
    found = list_search_stems(text)
    assert len(found) == len([part for part in found if part])
    assert len(found) > 1


def test_words_are_bounded() -> None:
    assert max(map(len, list_search_stems("ü" * 500 + " " + "a" * 500))) <= LONGEST_WORD


def test_a_question_loses_the_words_that_every_text_has() -> None:
    assert extract_question_stems(
        "When did she go to the museum? The museum!"
    ) == list_search_stems("museum")
    assert extract_question_stems("Who was it?") == list_search_stems("Who was it")


@given(st.text(st.characters(codec="utf-8"), max_size=80))
@pytest.mark.memory_case(40)
def test_the_places_of_words_are_in_the_text_as_it_is(text: str) -> None:
    for word in find_words(text):
        assert 0 <= word.start < word.end <= len(text)
        assert word.stem


@given(st.lists(st.sampled_from(PARTS)))
@pytest.mark.memory_case(40)
def test_words_and_their_places_are_of_one_pipeline(parts: list[str]) -> None:
    text = " ".join(parts)
    assert [word.stem for word in find_words(text)] == list_search_stems(text)
    for word in find_words(text):
        assert list_search_stems(text[word.start : word.end])


def test_two_threads_stem_alike() -> None:
    texts = [f"painting{n} housings walking{n} runners" for n in range(300)]
    found: list[list[list[str]]] = []
    threads = [
        threading.Thread(target=lambda: found.append([list_search_stems(text) for text in texts]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4


def test_an_irregular_form_leads_to_one_word_that_carries_meaning() -> None:
    assert not FIRST_FORMS.keys() & set(FIRST_FORMS.values())
    assert not {stem for word in FIRST_FORMS.values() for stem in list_search_stems(word)} & (
        load_stop_words()
    )
