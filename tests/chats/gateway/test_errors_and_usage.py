"""Headers of errors that say whether to repeat a request, and token counts of replies."""

from typing import Any

import pytest

from chats.gateway.wire import LONGEST_WAIT
from chats.models import ProviderAccount, Turn
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import USAGE, GatewayClient, user
from tests.support.gateway_passthrough import POLICY_OFF, ScriptModel
from tests.support.gateway_responses import create_response, parse_events, parse_response

pytestmark = pytest.mark.django_db
SAID = [user("hi")]
REPLY = (TextDelta("Yes"), Finished("stop"))


@pytest.fixture
def passes(set_policy: SetPolicy) -> None:
    """Allow pass-through requests."""
    set_policy(unmanaged="asked")


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize(
    ("error", "header"),
    [
        (ProviderError("provider_auth", status=401), "false"),
        (ProviderError("too_many_tool_calls"), "false"),
        (ProviderError("provider_protocol"), None),
        (ProviderError("provider_timeout", retryable=False), None),
        (ProviderError("provider_rejected", status=400), None),
    ],
)
def test_an_error_says_whether_a_repeated_request_gets_it_again(
    program: GatewayClient, model: ScriptModel, error: ProviderError, header: str | None
) -> None:
    answer = program.ask(SAID, error)
    assert answer.headers.get("X-Should-Retry") == header
    ProviderAccount.objects.update(paused_until=None)
    model(error)
    passed = program.close(program.open({"model": "demo", "messages": SAID}, **POLICY_OFF))
    assert passed.status == answer.status
    assert passed.headers.get("X-Should-Retry") == header


def test_a_stopped_reply_is_not_requested_again(program: GatewayClient) -> None:
    opened = program.open({"model": "demo", "messages": SAID})
    Turn.objects.update(stop_requested_at="2026-01-01T00:00:00Z")
    program.work(opened["X-Context-Report-Id"], *REPLY)
    answer = program.close(opened)
    assert (answer.status, answer.json["error"]["code"]) == (500, "stopped")
    assert answer.headers["X-Should-Retry"] == "false"


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize(
    ("seconds", "header"), [(7.0, None), (60.0, None), (61.0, "false"), (300.0, "false")]
)
def test_the_wait_that_the_provider_states_is_passed_on(
    program: GatewayClient, model: ScriptModel, seconds: float, header: str | None
) -> None:
    error = ProviderError("provider_rate_limited", status=429, retry_after=seconds)
    model(error)
    passed = program.close(program.open({"model": "demo", "messages": SAID}, **POLICY_OFF))
    assert (passed.status, passed.headers["Retry-After"]) == (429, str(round(seconds)))
    assert passed.headers.get("X-Should-Retry") == header
    # A worker repeats a call itself after a short wait.
    if seconds > LONGEST_WAIT:
        ProviderAccount.objects.update(paused_until=None)
        answer = program.ask(SAID, error)
        assert (answer.status, answer.headers["Retry-After"]) == (429, str(round(seconds)))
        assert answer.headers["X-Should-Retry"] == header


def test_a_short_wait_may_be_repeated(program: GatewayClient) -> None:
    error = ProviderError("provider_rate_limited", status=429, retryable=False)
    answer = program.ask(SAID, error)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
    assert "X-Should-Retry" not in answer.headers


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("is_passed", [False, True])
def test_unknown_usage_is_zero_in_responses_and_named_in_a_header(
    program: GatewayClient, model: ScriptModel, is_passed: bool
) -> None:
    headers = POLICY_OFF if is_passed else {}
    for stream in (False, True):
        model(*REPLY)
        body = {"model": "demo", "input": "hi", "stream": stream}
        opened = program.open(body, path="responses", **headers)
        if not is_passed:
            program.work(opened["X-Context-Report-Id"], *REPLY)
        answer = program.close(opened)
        made = parse_events(answer.body)[-1].response if stream else parse_response(answer)
        assert made.usage
        assert (made.usage.input_tokens, made.usage.total_tokens) == (0, 0)
        assert stream or answer.headers["X-Context-Usage"] == "unknown"


def test_known_usage_has_no_header(program: GatewayClient) -> None:
    answer = program.ask(SAID, TextDelta("Yes"), USAGE, Finished("stop"))
    assert "X-Context-Usage" not in answer.headers
    assert "completion_tokens_details" not in answer.json["usage"]


def test_written_and_reasoning_tokens_are_passed_on(program: GatewayClient) -> None:
    usage = UsageReport(100, 40, 10, 20, 30)
    script: tuple[Any, ...] = (TextDelta("Yes"), usage, Finished("stop"))
    made = parse_response(create_response(program, "hi", *script))
    assert made.usage
    assert made.usage.output_tokens_details.reasoning_tokens == 30
    assert made.usage.to_dict()["input_tokens_details"] == {
        "cached_tokens": 10,
        "cache_write_tokens": 20,
    }
    answer = program.ask([user("And in chat?")], *script)
    assert answer.json["usage"]["completion_tokens_details"] == {"reasoning_tokens": 30}
    assert answer.turn.usage["reasoning"] == 30
