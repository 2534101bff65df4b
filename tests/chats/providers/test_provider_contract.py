"""The provider contract, tested for each provider."""

import asyncio
import re
from collections.abc import Callable

import pytest

from chats.providers.base import (
    Finished,
    Provider,
    ProviderError,
    TextDelta,
    UsageReport,
)
from chats.providers.demo import DemoProvider
from tests.fakes.calls import adapter_to, asked, call, collect, text_in
from tests.fakes.fake_server import FakeServer

MakeProvider = Callable[[], Provider]


@pytest.fixture(params=["openai_server", "anthropic_server", "demo"])
def make_provider(request: pytest.FixtureRequest) -> MakeProvider:
    if request.param == "demo":
        return lambda: DemoProvider(token_delay=0)
    server: FakeServer = request.getfixturevalue(request.param)
    return lambda: adapter_to(server)


def test_reply_ends_with_usage_and_one_finish(make_provider: MakeProvider) -> None:
    events = call(make_provider(), asked("Hello"))
    assert [type(event) for event in events[-2:]] == [UsageReport, Finished]
    assert sum(isinstance(event, Finished) for event in events) == 1
    assert events[-1] == Finished("stop")


def test_reply_comes_in_pieces(make_provider: MakeProvider) -> None:
    events = call(make_provider(), asked("Hello"))
    assert sum(isinstance(event, TextDelta) for event in events) > 5


def test_whole_reply_is_one_piece_when_no_stream_is_wanted(make_provider: MakeProvider) -> None:
    events = call(make_provider(), asked("Hello", stream=False))
    assert [type(event) for event in events] == [TextDelta, UsageReport, Finished]


def test_reply_that_hits_its_limit_says_so(make_provider: MakeProvider) -> None:
    events = call(make_provider(), asked("Hello", max_output_tokens=3))
    assert events[-1] == Finished("length")
    assert sum(isinstance(event, TextDelta) for event in events) == 3


def test_question_may_hold_any_characters(make_provider: MakeProvider) -> None:
    question = "Grüße 🦊 世界 \u202e \x07 ‮ </script> \\ %s {x} \"'"
    assert text_in(call(make_provider(), asked(question)))


def test_two_calls_run_side_by_side(make_provider: MakeProvider) -> None:
    async def both() -> tuple[str, str]:
        provider = make_provider()
        first, second = await asyncio.gather(
            collect(provider, asked("First")), collect(provider, asked("Second"))
        )
        await provider.aclose()
        return text_in(first), text_in(second)

    assert all(asyncio.run(both()))


def test_cancelling_the_reader_ends_the_call(make_provider: MakeProvider) -> None:
    async def cancel_after_first() -> None:
        provider = make_provider()
        seen = asyncio.Event()

        async def read() -> None:
            async for _ in provider.stream(asked("[[fake tokens=500 ms=20]]")):
                seen.set()

        reading = asyncio.create_task(read())
        await asyncio.wait_for(seen.wait(), 2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await provider.aclose()
        assert reading.cancelled()

    asyncio.run(cancel_after_first())


def test_numbered_tokens_arrive_once_each_and_in_order(server: FakeServer) -> None:
    text = text_in(call(adapter_to(server), asked("[[fake tokens=200]]")))
    assert [int(n) for n in re.findall(r" (\d+)@\d+;", text)] == list(range(200))


def test_error_never_shows_host_key_or_answer(server: FakeServer) -> None:
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked("[[fake fault=401]]"))
    shown = f"{caught.value!r} {caught.value} {caught.value.sentence}"
    for hidden in ("127.0.0.1", str(server.port), "sk-canary", "Incorrect API key"):
        assert hidden not in shown
