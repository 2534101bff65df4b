"""Error bodies of the API are in the language of `Accept-Language`; codes and fields stay."""

import pytest
from django.utils.translation import gettext_lazy

from chats.actions.lifecycle import TitleTooLong
from chats.api.core.errors import InvalidField
from chats.api.core.inputs import FIELD_UNKNOWN
from chats.api.core.strict_json import KEY_TWICE, InvalidJSON
from chats.ground.refusals import Refusal
from tests.chats.api.programs import Program
from tests.chats.marked_language import LANGUAGE, render_marked

pytestmark = pytest.mark.usefixtures("marked_catalogue")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"a": 1, "a": 2}', InvalidJSON(problem=KEY_TWICE)),
        (
            '{"colour": "red"}',
            InvalidField(code="unknown_field", param="colour", problem=gettext_lazy(FIELD_UNKNOWN)),
        ),
        ('{"title": "' + "x" * 201 + '"}', TitleTooLong(limit=200, length=201)),
    ],
    ids=["invalid_json", "unknown_field", "too_long"],
)
def test_an_error_is_in_the_language_of_the_client(
    of_alice: Program, body: str, expected: Refusal
) -> None:
    said = {
        language: of_alice.post("chats", body.encode(), headers={"Accept-Language": language})
        for language in ("en", LANGUAGE)
    }

    errors = {language: answer.json()["error"] for language, answer in said.items()}
    assert errors[LANGUAGE]["message"] == render_marked(expected.full)
    assert errors["en"]["message"] == expected.sentence
    assert errors["en"]["message"].isascii()
    assert errors["en"]["code"] == errors[LANGUAGE]["code"] == expected.code
    assert said[LANGUAGE]["Content-Language"] == LANGUAGE
