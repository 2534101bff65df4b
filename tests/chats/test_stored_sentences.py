"""Stored sentences with values: English in rows, the reader's language on pages and over REST."""

from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import pytest
from django.utils import translation
from django.utils.translation import gettext_lazy, gettext_noop, trans_real

from chats.ground.sentences import (
    Sentence,
    build_sentence_columns,
    localize_sentence,
    render_english,
)
from chats.models import Turn
from chats.providers.base import ProviderError
from chats.turns.model_calls import ASKED_SENTENCE, WAIT_SENTENCE, format_provider_error
from chats.turns.recover import LOST_SENTENCE
from chats.turns.step_results import build_failure_fields
from contextpolicy.wording import join_items

LANGUAGE = "zh-hans"
# Stand-ins, so that the tests do not depend on the wording of the catalogue.
WORDS_HERE: dict[str, str] = {
    "Not done: {reason}": "未完成：{reason}",
    "{count:,} of {names}": "{names}的 {count:,} 个",
    "the list": "列表",
    "{sentence} ({facts}.)": "{sentence}（{facts}。）",
    "status {status}": "状态 {status}",
    ASKED_SENTENCE: "问了 {calls} 次",
    LOST_SENTENCE: "丢失 {losses} 次",
    WAIT_SENTENCE: "等待 {seconds:.0f} 秒",
    ProviderError("provider_unavailable").sentence: "服务器不可用。",
}


@pytest.fixture(autouse=True)
def _words() -> Iterator[None]:
    """Put the words of this file before those of the catalogue."""
    catalogue = cast(Any, trans_real.translation(LANGUAGE))._catalog
    with (
        mock.patch.object(catalogue, "_catalogs", [WORDS_HERE, *catalogue._catalogs]),
        mock.patch.object(catalogue, "_plurals", [lambda _: 0, *catalogue._plurals]),
    ):
        yield


def joined(*items: str) -> str:
    """Return a list as the pages write it in the other language."""
    with translation.override(LANGUAGE):
        return join_items(items)


def shown(sentence: Sentence) -> tuple[str, str]:
    """Store a sentence under another language. Return the row and the text on a page."""
    with translation.override(LANGUAGE):
        text, values = build_sentence_columns(sentence, longest=500)
        return text, localize_sentence(text, values)


def test_values_are_translated_where_they_are_words_of_the_product() -> None:
    inner = Sentence(gettext_noop("{count:,} of {names}"), count=1234, names=["the list", "Ada"])
    sentence = Sentence(gettext_noop("Not done: {reason}"), reason=inner)

    assert shown(sentence) == (
        "Not done: 1,234 of the list, Ada",
        f"未完成：{joined('the list', 'Ada')}的 1,234 个",
    )


def test_a_value_of_a_person_stays_even_if_it_is_a_word_of_the_product() -> None:
    of_product = Sentence(gettext_noop("Not done: {reason}"), reason=gettext_lazy("the list"))
    of_person = Sentence(gettext_noop("Not done: {reason}"), reason="the list")

    assert shown(of_product) == ("Not done: the list", "未完成：列表")
    assert shown(of_person) == ("Not done: the list", "未完成：the list")


def test_a_sentence_without_values_and_an_empty_one() -> None:
    assert build_sentence_columns(gettext_lazy("the list"), longest=9) == ("the list", {})
    with translation.override(LANGUAGE):
        assert localize_sentence("the list", {}) == "列表"
        assert localize_sentence("the list", None) == "列表"
        assert localize_sentence("", {}) == ""


def test_a_text_that_is_cut_or_cannot_be_read_is_shown_as_stored() -> None:
    text, values = build_sentence_columns(
        Sentence(gettext_noop("Not done: {reason}"), reason="x" * 90), longest=20
    )

    assert (text, values) == ("Not done: xxxxxxxxxx", {})
    with translation.override(LANGUAGE):
        damaged: dict[str, Any]
        for damaged in (
            {"template": "Not done: {reason}"},
            {"template": "Not done: {reason}", "values": {}},
            {"template": "Not done: {reason}", "values": {"reason": {"values": 3}}},
            {"values": {}},
        ):
            assert localize_sentence("Not done: it", damaged) == "Not done: it"


def test_values_that_a_database_cannot_store_are_replaced() -> None:
    text, values = build_sentence_columns(
        Sentence("Not done: {reason}", reason="a\x00b\ud800"), longest=500
    )

    assert "\x00" not in text + str(values)
    text.encode()
    with translation.override(LANGUAGE):
        assert localize_sentence(text, values).encode()


def test_a_failed_turn_keeps_its_numbers_in_every_language() -> None:
    error = ProviderError("provider_unavailable", status=503)
    for sentence, chinese in (
        (
            format_provider_error(error, provider="Mistral EU", calls=3),
            f"服务器不可用。（{joined('Mistral EU', '状态 503', '问了 3 次')}。）",
        ),
        (Sentence(LOST_SENTENCE, losses=3), "丢失 3 次"),
        (Sentence(WAIT_SENTENCE, seconds=90.4), "等待 90 秒"),
    ):
        turn = Turn(**build_failure_fields(sentence))
        assert turn.error_sentence == render_english(sentence)
        with translation.override(LANGUAGE):
            assert turn.localized_error == chinese
        assert turn.localized_error == turn.error_sentence
