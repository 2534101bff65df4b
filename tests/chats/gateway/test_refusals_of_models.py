"""Replies in which a model declines, which do not have the requested format."""

import pytest

from chats.models import Turn
from chats.providers.base import Finished, TextDelta
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import GatewayClient, user
from tests.support.gateway_passthrough import POLICY_OFF, ScriptModel
from tests.support.gateway_responses import create_response, parse_response

pytestmark = pytest.mark.django_db
DECLINED = (TextDelta("I cannot help."), Finished("refusal"))
SAID = [user("Hi")]


@pytest.mark.parametrize("is_passed", [False, True])
def test_a_refusal_is_no_content(
    program: GatewayClient, model: ScriptModel, set_policy: SetPolicy, is_passed: bool
) -> None:
    set_policy(unmanaged="asked")
    headers = POLICY_OFF if is_passed else {}
    for path, said in (("chat/completions", {"messages": SAID}), ("responses", {"input": "Hi"})):
        model(*DECLINED)
        opened = program.open({"model": "demo", **said}, path=path, **headers)
        if not is_passed:
            program.work(opened["X-Context-Report-Id"], *DECLINED)
        answer = program.close(opened)
        assert answer.status == 200
        if path == "responses":
            content = parse_response(answer).output[0].to_dict()["content"]
            assert content == [{"type": "refusal", "refusal": "I cannot help."}]
        else:
            message = answer.json["choices"][0]["message"]
            assert (message["content"], message["refusal"]) == (None, "I cannot help.")


def test_a_refusal_that_is_sent_back_continues_the_conversation(program: GatewayClient) -> None:
    first = program.ask(SAID, *DECLINED)
    second = program.ask([*SAID, first.json["choices"][0]["message"], user("Why?")])
    assert (second.chat, second.headers["X-Context-Decision"]) == (first.chat, "continue")
    assert program.prompt[-2:] == [("assistant", "I cannot help."), ("user", "Why?")]


def test_a_refusal_in_responses_continues_the_conversation(program: GatewayClient) -> None:
    first = create_response(program, SAID, *DECLINED)
    second = create_response(program, [*SAID, *first.json["output"], user("Why?")])
    assert (second.chat, second.headers["X-Context-Decision"]) == (first.chat, "continue")


def test_other_replies_have_no_refusal(program: GatewayClient) -> None:
    answer = program.ask(SAID)
    assert answer.json["choices"][0]["message"]["refusal"] is None
    assert Turn.objects.get().client == {}


def test_a_stream_has_the_refusal_as_text(program: GatewayClient) -> None:
    answer = program.ask(SAID, *DECLINED, stream=True)
    assert (answer.status, answer.text) == (200, "I cannot help.")
