"""Policy errors appear in the reader's language; the engine itself returns English."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.utils import translation

from contextpolicy.engine.policy.policy import PolicyValues, find_value_problems
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.roles import POLICY_ADMIN
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db

# Values, and a part of the Chinese sentence.
CASES: list[tuple[Mapping[str, Any], str]] = [
    ({"token_budget": 0}, "token_budget 是 0。请填写 1 到 100,000,000 之间的整数。"),
    ({"token_budget": 500, "reserve_tokens": 100}, "必须至少为 1,000"),
    ({"token_budget": "many"}, "策略字段 token_budget 不能是 'many'。请填写整数。"),
    ({"tool_output_rules": 1}, "把工具名称映射到对象"),
    ({"strategy": "entity_state"}, "entity_state 需要架构"),
    ({"state_schema": {"type": "array"}}, "架构必须描述一个对象"),
    ({"state_schema": {"type": "object", "pattern": "a"}}, "不支持 the schema 中的 'pattern'"),
    ({"summary_sections": ["One", "one"]}, "重复的标题"),
]


@pytest.mark.parametrize(("values", "sentence"), CASES)
def test_an_error_is_in_the_readers_language(values: Mapping[str, Any], sentence: str) -> None:
    with translation.override("zh-hans"):
        assert sentence in " ".join(error.sentence for error in find_policy_errors(values))
    with translation.override("en"):
        assert sentence not in " ".join(error.sentence for error in find_policy_errors(values))


@pytest.mark.parametrize("language", ["zh-hans", "en"])
def test_rest_follows_the_accepted_language(language: str) -> None:
    answer = signed_in(person("ines", POLICY_ADMIN)).post(
        "/api/v1/policies/lint",
        {"values": {"token_budget": 0}, "locks": []},
        "application/json",
        HTTP_ACCEPT_LANGUAGE=language,
    )
    [english] = find_value_problems(PolicyValues(token_budget=0), model_window=None)
    assert (english.sentence in str(answer.json())) == (language == "en")
    assert ("请填写" in str(answer.json())) == (language == "zh-hans")


def test_the_engine_answers_in_english() -> None:
    with translation.override("zh-hans"):
        problems = find_value_problems(PolicyValues(token_budget=0), model_window=None)
    assert [problem.sentence for problem in problems] == [
        "token_budget is 0. Enter a whole number from 1 to 100,000,000."
    ]


def test_a_place_in_a_schema_keeps_the_case_of_its_names() -> None:
    schema = {"type": "object", "properties": {"Departure": {"type": "date"}}}
    [error] = find_policy_errors({"state_schema": schema})
    assert error.sentence.startswith("state_schema: 'Departure' of the schema has an invalid")
