"""Lists and sentences are joined as the reader's language does."""

from django.utils import translation
from django.utils.translation import gettext_lazy

from contextpolicy.wording import join_items, join_sentences, join_sentences_lazy


def test_items_and_sentences_are_joined_as_in_english() -> None:
    assert join_items(["a", gettext_lazy("b")]) == "a, b"
    assert join_items([]) == ""
    assert join_sentences("One.", "", "Two.", "Three.") == "One. Two. Three."
    assert join_sentences() == ""


def test_chinese_has_no_space_between_sentences() -> None:
    later = join_sentences_lazy("一。", "二。")
    with translation.override("zh-hans"):
        assert join_items(["甲", "乙"]) == "甲、乙"
        assert join_sentences("一。", "二。") == "一。二。"
        assert str(later) == "一。二。"
    assert str(later) == "一。 二。"
