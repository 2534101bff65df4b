"""Models that refuse a reply limit above their own get their limit."""

import asyncio

import pytest

from chats.providers.base import Finished, ProviderError
from chats.providers.output_limits import find_output_limit
from tests.fakes.calls import adapter_to, asked, call, collect
from tests.fakes.fake_server import FakeServer


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (
            "max_tokens is too large: 32768. This model supports at most 16384 completion tokens, "
            "whereas you provided 32768.",
            16384,
        ),
        (
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` "
            "is less than the `context_window` for this model",
            8192,
        ),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        ("<400> InternalError: Range of max_tokens should be [1, 8,192]", 8192),
        (
            "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for m",
            8192,
        ),
        ("The maximum tokens you requested exceeds the model limit of 4096. Try again.", 4096),
        (
            "Unable to submit request because it has a maxOutputTokens value of 70000 but the "
            "supported range is from 1 (inclusive) to 65537 (exclusive).",
            65536,
        ),
        ("max_tokens is too large: 200000", None),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", None),
        ("This model's maximum context length is 8192 tokens.", None),
        ("The valid range of max_tokens is [1, 99999999999]", None),
    ],
)
def test_errors_of_servers(error: str, limit: int | None) -> None:
    assert find_output_limit(error) == limit


def list_limits(server: FakeServer) -> list[int]:
    return [record["body"]["max_tokens"] for record in server.requests()]


def test_a_model_gets_its_own_limit_at_once_after_one_refusal(server: FakeServer) -> None:
    server.configure(reject="long_replies")

    async def ask_twice() -> None:
        provider = adapter_to(server)
        for _ in range(2):
            request = asked("Hello", max_output_tokens=32_000)
            assert (await collect(provider, request))[-1] == Finished("stop")
            assert request.sent.sha256 == server.requests()[-1]["body_sha256"]
        await collect(provider, asked("Hello", max_output_tokens=100))
        await provider.aclose()

    asyncio.run(ask_twice())
    assert list_limits(server) == [32_000, 8192, 8192, 100]


def test_a_refusal_that_stays_is_not_repeated_for_ever(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.configure(reject="long_replies")
    for kind in ("openai", "anthropic"):
        # The server names a limit that it does not accept.
        monkeypatch.setattr(f"chats.providers.{kind}.find_output_limit", lambda _error: 9000)
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked("Hello", max_output_tokens=32_000))
    assert caught.value.code == "provider_rejected"
    assert list_limits(server) == [32_000, 9000]
