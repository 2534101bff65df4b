"""Error bodies of the API are in the language of `Accept-Language`; codes and fields stay."""

from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import pytest
from django.utils.translation import trans_real

from tests.chats.api.programs import Program

WORDS = {
    "Invalid JSON: {problem}.": "JSON 无效：{problem}。",
    "an object has the same key twice": "键重复",
    "This field does not exist or cannot be set.": "没有此字段。",
    "A title has at most {limit} characters; this one has {length}.": "标题最多 {limit} 个字符。",
}


@pytest.fixture(autouse=True)
def _words() -> Iterator[None]:
    """Put the words of this file before those of the catalogue."""
    catalogue = cast(Any, trans_real.translation("zh-hans"))._catalog
    with (
        mock.patch.object(catalogue, "_catalogs", [WORDS, *catalogue._catalogs]),
        mock.patch.object(catalogue, "_plurals", [lambda _: 0, *catalogue._plurals]),
    ):
        yield


@pytest.mark.parametrize(
    ("body", "code", "chinese"),
    [
        ('{"a": 1, "a": 2}', "invalid_json", "JSON 无效：键重复。"),
        ('{"colour": "red"}', "unknown_field", "colour: 没有此字段。"),
        ('{"title": "' + "x" * 201 + '"}', "too_long", "标题最多 200 个字符。"),
    ],
)
def test_an_error_is_in_the_language_of_the_client(
    of_alice: Program, body: str, code: str, chinese: str
) -> None:
    said = {
        language: of_alice.post("chats", body.encode(), headers={"Accept-Language": language})
        for language in ("en", "zh-hans")
    }

    errors = {language: answer.json()["error"] for language, answer in said.items()}
    assert errors["zh-hans"]["message"] == chinese
    assert errors["en"]["message"].isascii()
    assert errors["en"]["code"] == errors["zh-hans"]["code"] == code
    assert said["zh-hans"]["Content-Language"] == "zh-hans"
