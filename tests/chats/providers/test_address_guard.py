"""Row S15: allowed provider addresses, checked by name and after resolving."""

import asyncio

import httpx2
import pytest

from chats.providers.address import (
    AddressRefused,
    check_addresses,
    check_base_url,
    is_private,
)
from chats.providers.base import ProviderError
from chats.providers.transport import MAX_ERROR_BODY, GuardedTransport, build_guarded_client
from tests.fakes.calls import ADAPTERS, ROOMY, adapter_to, asked, call, text_in
from tests.fakes.fake_server import FakeServer
from tests.fakes.http_server import stub_server

EMBEDDED = ("localhost:11434", "127.0.0.1:11434", "127.0.0.1:8000", "ollama:11434", "[::1]:8080")

ALLOWED = [
    "https://api.openai.com/v1",
    "https://api.openai.com/v1/",
    "https://openrouter.ai/api/v1",
    "https://API.Example.ORG:8443/v1",
    "https://xn--bcher-kva.example/v1",
    "https://under_score.example/v1",
    "https://8.8.8.8/v1",
    "https://[2606:4700:4700::1111]/v1",
    "http://localhost:11434/v1",
    "http://LOCALHOST:11434/v1",
    "http://127.0.0.1:11434/v1",
    "http://127.0.0.1:8000",
    "http://ollama:11434/v1",
    "http://[::1]:8080/v1",
    "http://[0:0:0:0:0:0:0:1]:8080/v1",
    "https://localhost:11434/v1",
]

REFUSED = [
    # Not exactly one HTTP URL.
    "",
    "api.openai.com",
    "ftp://api.openai.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "javascript:alert(1)",
    "//api.openai.com/v1",
    "https://",
    "https:///v1",
    "https://user:pass@api.openai.com/v1",
    "https://api.openai.com@127.0.0.1/",
    "https://api.openai.com\\@127.0.0.1/",
    "https://api.openai.com/v1?key=1",
    "https://api.openai.com/v1#top",
    "https://api.openai.com/v1?",
    "https://api.openai.com:0/v1",
    "https://api.openai.com:/v1",
    "https://api.openai.com:99999/v1",
    "https://api.openai.com:x/v1",
    "https://api.openai.com/ v1",
    "https://api.openai\n.com/v1",
    "https://api.openai\t.com/v1",
    "https://api.openai.com\x00.evil.org/",
    "https://api.openai.com./v1",
    "https://api..openai.com/v1",
    "https://-api.openai.com/v1",
    "https://api%2eopenai.com/v1",
    "https://" + "a" * 64 + ".org/",
    "https://x.org/" + "a" * 5000,
    # Plain HTTP to a public host.
    "http://api.openai.com/v1",
    "http://8.8.8.8/v1",
    # Local and private hosts that are not listed.
    "https://localhost/v1",
    "http://localhost:6379/v1",
    "https://sub.localhost/v1",
    "https://printer.local/v1",
    "https://intranet/v1",
    "https://db.internal/v1",
    "http://127.0.0.1:6379/",
    "https://127.0.0.1/v1",
    "https://127.8.8.8/v1",
    "https://10.0.0.5/v1",
    "https://172.16.0.1/v1",
    "https://192.168.1.1/v1",
    "https://100.64.0.1/v1",
    "https://[::1]/v1",
    "https://[fd12:3456::1]/v1",
    # Never allowed.
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.1.1/",
    "https://100.100.100.200/",
    "https://168.63.129.16/",
    "https://metadata.google.internal/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://0.0.0.0/",
    "https://0.1.2.3/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://240.0.0.1/",
    "https://192.0.2.1/",
    "https://198.18.0.1/",
    "https://[::]/",
    "https://[ff02::1]/",
    "https://[2001:db8::1]/",
    # Unusual spellings of an address.
    "http://2852039166/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.0.1.:11434/",
    "https://8.8.8.08/",
    "https://1.2.3.4.5/",
    "https://127.0.0.1.0x1/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[64:ff9b:1::1]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:7f00:1::]/",
    "https://[::1/",
    "https://[1:2]/",
    "https://[v1.fe80]/",
    "https://127.0.0.1:11434:80/",
    "https://１２７.0.0.1/",
    "https://①②⑦.0.0.1/",
    "https://api。openai。com/",
    "https://bücher.example/",
]


@pytest.mark.parametrize("url", ALLOWED)
def test_S15_address_is_allowed(url: str) -> None:
    checked = check_base_url(url, allowed_private=EMBEDDED)
    assert checked.url == url.rstrip("/")
    assert checked.host == checked.host.lower()
    assert checked.port > 0


@pytest.mark.parametrize("url", REFUSED, ids=range(len(REFUSED)))
def test_S15_address_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        check_base_url(url, allowed_private=EMBEDDED)
    assert caught.value.code == "base_url_refused"
    assert caught.value.sentence.endswith(".")


def test_S15_listing_a_metadata_address_does_not_open_it() -> None:
    with pytest.raises(AddressRefused):
        check_base_url("http://169.254.169.254/", allowed_private=["169.254.169.254:80"])


def test_S15_listing_one_port_opens_no_other() -> None:
    assert check_base_url("http://127.0.0.1:8000", allowed_private=EMBEDDED).port == 8000
    with pytest.raises(AddressRefused):
        check_base_url("http://127.0.0.1:8001", allowed_private=EMBEDDED)


def test_S15_sentence_keeps_braces_of_the_host_out_of_formatting() -> None:
    with pytest.raises(AddressRefused) as caught:
        check_base_url("https://{0.__class__}/", allowed_private=())
    assert "not valid" in caught.value.sentence


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["8.8.8.8", "169.254.169.254"],
        ["8.8.8.8", "::ffff:10.0.0.1"],
        ["64:ff9b::10.0.0.1"],
        ["fe80::1"],
        ["2002:a00:1::"],
        [],
    ],
)
def test_S15_one_bad_address_refuses_the_name(addresses: list[str]) -> None:
    with pytest.raises(AddressRefused):
        check_addresses(host="good.org", port=443, addresses=addresses, allowed_private=EMBEDDED)


def test_S15_good_addresses_keep_their_order() -> None:
    addresses = ["2606:4700:4700::1111", "1.1.1.1", "64:ff9b::101:101"]
    checked = check_addresses(host="good.org", port=443, addresses=addresses, allowed_private=())
    assert list(checked) == addresses


def test_S15_listed_name_may_be_private_but_not_metadata() -> None:
    def check(address: str) -> tuple[str, ...]:
        return check_addresses(
            host="ollama", port=11434, addresses=[address], allowed_private=EMBEDDED
        )

    assert check("172.18.0.3") == ("172.18.0.3",)
    with pytest.raises(AddressRefused):
        check("169.254.169.254")


class _Rebinding:
    """A name that resolves to a public address first and to a local one later."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        del host, port
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_S15_name_that_rebinds_after_the_check_is_not_called(server: FakeServer) -> None:
    check_base_url("https://rebind.example/v1", allowed_private=())
    provider = ADAPTERS[server.kind](
        base_url=f"https://rebind.example:{server.port}/v1",
        api_key="sk-canary",
        timeouts=ROOMY,
        allowed_private=(),
        resolve=_Rebinding(["127.0.0.1"]),
    )
    before = server.stats()["connections"]
    with pytest.raises(ProviderError) as caught:
        call(provider, asked("Hello"))
    assert not caught.value.retryable
    assert "not allowed" in caught.value.sentence
    assert server.stats()["connections"] - before == 1  # the request for the counts


def test_S15_every_request_is_judged_anew(server: FakeServer) -> None:
    """A kept-alive connection must not skip the check of its name."""
    resolver = _Rebinding(["127.0.0.1"], ["169.254.169.254"])
    host = f"rebind.example:{server.port}"

    async def run() -> list[int]:
        transport = GuardedTransport(allowed_private=[host], resolve=resolver)
        async with httpx2.AsyncClient(transport=transport) as client:
            first = await client.get(f"http://{host}/v1/models")
            with pytest.raises(AddressRefused):
                await client.get(f"http://{host}/v1/models")
        return [first.status_code]

    assert asyncio.run(run()) == [200]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "10.0.0.1", "[::ffff:10.0.0.1]"])
def test_S15_address_in_place_of_a_name_is_judged_at_the_call_too(host: str) -> None:
    """The HTTP library does not call the resolver for a literal address."""

    async def run() -> None:
        async with build_guarded_client(allowed_private=(), connect_seconds=1) as client:
            with pytest.raises(AddressRefused):
                await client.get(f"https://{host}/v1/models")

    asyncio.run(run())


@pytest.mark.parametrize("name", ["rebind.example", "xn--bcher-kva.example"])
def test_S15_connection_goes_to_the_judged_address_under_the_name(
    server: FakeServer, name: str
) -> None:
    host = f"{name}:{server.port}"
    provider = ADAPTERS[server.kind](
        base_url=f"http://{host}/v1",
        api_key="",
        timeouts=ROOMY,
        allowed_private=[host],
        resolve=_Rebinding(["127.0.0.1"]),
    )
    assert text_in(call(provider, asked("Hello")))
    assert server.requests()[-1]["headers"]["host"] == host


def test_S15_next_address_is_tried_when_one_does_not_connect(server: FakeServer) -> None:
    host = f"two.example:{server.port}"
    provider = ADAPTERS[server.kind](
        base_url=f"http://{host}/v1",
        api_key="",
        timeouts=ROOMY,
        allowed_private=[host],
        resolve=_Rebinding(["::1", "127.0.0.1"]),
    )
    assert text_in(call(provider, asked("Hello")))


def test_S15_redirect_is_not_followed(server: FakeServer) -> None:
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked("[[fake fault=redirect]]"))
    assert (caught.value.code, caught.value.status) == ("provider_rejected", 307)
    assert len(server.requests()) == 1


def test_S15_proxy_of_the_environment_is_not_used(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert text_in(call(adapter_to(server), asked("Hello")))


def test_S15_endless_error_answer_is_read_no_further_than_needed() -> None:
    async def endless() -> None:
        async def answer(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 500 No\r\ncontent-type: text/plain\r\n\r\n")
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()

        async with stub_server(answer) as port:
            transport = GuardedTransport(allowed_private=[f"127.0.0.1:{port}"])
            async with httpx2.AsyncClient(transport=transport) as client:
                response = await asyncio.wait_for(client.get(f"http://127.0.0.1:{port}/"), 2)
                assert len(response.content) == MAX_ERROR_BODY

    asyncio.run(endless())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost:11434/v1", True),
        ("http://[::1]:8080/v1", True),
        # A listed name is not resolved.
        ("http://ollama:11434/v1", True),
        # Not allowed at all.
        ("http://10.0.0.9:8000/v1", False),
        ("nonsense", False),
        ("https://8.8.8.8/v1", False),
        ("https://api.openai.com/v1", False),
    ],
)
def test_an_address_is_private_on_this_host_and_in_networks_of_ones_own(
    url: str, expected: bool
) -> None:
    assert is_private(url, allowed_private=EMBEDDED) is expected
