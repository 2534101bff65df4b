"""Discovery of local model servers and their models."""

import asyncio

import pytest

from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError
from chats.providers.discovery import (
    MAX_LIST,
    FoundServer,
    find_local_servers,
    list_models,
)
from tests.fakes.fake_server import FakeServer
from tests.fakes.http_server import send_json, stub_server


def test_server_on_this_host_is_found_with_its_models(openai_server: FakeServer) -> None:
    ports = {1: "Nobody", openai_server.port: "Ollama"}
    found = asyncio.run(find_local_servers(ports=ports))
    assert found == [FoundServer("Ollama", openai_server.base_url, ("fake-chat", "fake-small"))]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"data": [1]}',
        b'HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n{"data":[{"id":null}]}',
        b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
    ids=range(9),
)
def test_anything_else_on_the_port_is_no_server(answer: bytes) -> None:
    async def run() -> list[FoundServer]:
        async def write(writer: asyncio.StreamWriter) -> None:
            writer.write(answer)

        async with stub_server(write) as port:
            return await find_local_servers(ports={port: "vLLM"})

    assert asyncio.run(run()) == []


def test_silent_port_costs_no_more_than_the_timeout() -> None:
    async def run() -> list[FoundServer]:
        async def silent(writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(5)

        async with stub_server(silent) as port:
            found = find_local_servers(ports={port: "vLLM"}, timeout=0.1)
            return await asyncio.wait_for(found, 1)

    assert asyncio.run(run()) == []


def test_list_without_an_end_is_not_read_to_its_end() -> None:
    async def run() -> None:
        async def endless(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(MAX_LIST // 65536 + 2):
                writer.write(b"x" * 65536)
                await writer.drain()

        async with stub_server(endless) as port:
            with pytest.raises(ProviderError) as caught:
                await list_models(
                    f"http://127.0.0.1:{port}/v1", "", allowed_private=[f"127.0.0.1:{port}"]
                )
            assert caught.value.code == "provider_protocol"

    asyncio.run(run())


def test_list_is_cut_at_a_thousand_names() -> None:
    async def run() -> dict[str, int | None]:
        async def many(writer: asyncio.StreamWriter) -> None:
            await send_json(writer, {"data": [{"id": f"m{n}"} for n in range(2000)]})

        async with stub_server(many) as port:
            return await list_models(
                f"http://127.0.0.1:{port}/v1", "", allowed_private=[f"127.0.0.1:{port}"]
            )

    assert len(asyncio.run(run())) == 1000


def test_a_server_may_answer_with_the_list_itself() -> None:
    async def run() -> dict[str, int | None]:
        async def bare(writer: asyncio.StreamWriter) -> None:
            await send_json(writer, [{"id": "m", "context_length": 8192}, {"id": "n"}])

        async with stub_server(bare) as port:
            return await list_models(
                f"http://127.0.0.1:{port}/v1", "", allowed_private=[f"127.0.0.1:{port}"]
            )

    assert asyncio.run(run()) == {"m": 8192, "n": None}


@pytest.mark.parametrize(
    ("rows", "models"),
    [
        pytest.param(None, {}, id="ollama without models"),
        pytest.param([], {}, id="none"),
        pytest.param(
            [{"object": "model"}, {"id": 5}, {"id": ""}, None, {"id": "m"}],
            {"m": None},
            id="bad rows",
        ),
    ],
)
def test_rows_without_a_name_are_skipped(rows: object, models: dict[str, int | None]) -> None:
    async def run() -> dict[str, int | None]:
        async def answer(writer: asyncio.StreamWriter) -> None:
            await send_json(writer, {"object": "list", "data": rows})

        async with stub_server(answer) as port:
            return await list_models(
                f"http://127.0.0.1:{port}/v1", "", allowed_private=[f"127.0.0.1:{port}"]
            )

    assert asyncio.run(run()) == models


@pytest.mark.parametrize("rows", [[{"name": "m"}], {"a": 1}, 7])
def test_a_list_without_any_name_is_no_list_of_models(rows: object) -> None:
    async def run() -> None:
        async def answer(writer: asyncio.StreamWriter) -> None:
            await send_json(writer, {"object": "list", "data": rows})

        async with stub_server(answer) as port:
            with pytest.raises(ProviderError) as caught:
                await list_models(
                    f"http://127.0.0.1:{port}/v1", "", allowed_private=[f"127.0.0.1:{port}"]
                )
        assert caught.value.code == "provider_protocol"

    asyncio.run(run())


def test_S15_address_is_judged_before_any_call() -> None:
    with pytest.raises(AddressRefused):
        asyncio.run(list_models("http://169.254.169.254/v1", "sk-canary", allowed_private=()))


def test_S15_name_that_resolves_to_a_private_address_is_refused() -> None:
    async def private(host: str, port: int) -> list[str]:
        return ["10.0.0.1"]

    with pytest.raises(AddressRefused):
        asyncio.run(
            list_models("https://rebind.example/v1", "", allowed_private=(), resolve=private)
        )


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        (b"HTTP/1.1 401 No\r\ncontent-length: 12\r\n\r\nsecret-body!", "provider_auth", 401),
        (b"HTTP/1.1 500 No\r\ncontent-length: 12\r\n\r\nsecret-body!", "provider_unavailable", 500),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nsecret-body!", "provider_protocol", None),
        (
            b"HTTP/1.1 301 Go\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n",
            "provider_rejected",
            301,
        ),
        (b"", "provider_unavailable", None),
    ],
)
def test_S15_failed_call_shows_class_and_status_but_no_body(
    answer: bytes, code: str, status: int | None
) -> None:
    async def run() -> None:
        async def write(writer: asyncio.StreamWriter) -> None:
            writer.write(answer)

        async with stub_server(write) as port:
            with pytest.raises(ProviderError) as caught:
                await list_models(
                    f"http://127.0.0.1:{port}/v1",
                    "sk-canary",
                    allowed_private=[f"127.0.0.1:{port}"],
                )
        error = caught.value
        assert (error.code, error.status) == (code, status)
        assert "secret-body" not in repr(error) + error.sentence
        assert "canary" not in repr(error) + error.sentence

    asyncio.run(run())
