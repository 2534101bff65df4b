"""One provider class per account kind. Vendor packages are imported on first use."""

import asyncio
import subprocess
import sys

import pytest
from pytest_django.fixtures import Settings

from chats.providers import kinds
from chats.providers.base import ProviderError, Timeouts
from chats.providers.demo import DemoProvider
from chats.providers.kinds import Kind
from chats.providers.registry import ProviderAccountValue, aclose_all, get_provider, load_adapters
from tests.fakes.calls import asked, collect, text_in
from tests.fakes.fake_server import FakeServer
from tests.support.repository import ROOT

DEMO = ProviderAccountValue("demo", "demo", "", "")


def kind_of(server: FakeServer) -> Kind:
    """Return the account kind for a fake server."""
    return "anthropic" if server.kind == "anthropic" else "openai"


def test_equal_accounts_share_a_provider_until_all_are_closed() -> None:
    async def run() -> None:
        first = get_provider(DEMO, timeouts=Timeouts())
        assert isinstance(first, DemoProvider)
        again = ProviderAccountValue("demo", "demo", "", "")
        assert get_provider(again, timeouts=Timeouts()) is first
        assert get_provider(DEMO, timeouts=Timeouts(gap=1)) is not first
        await aclose_all()
        assert get_provider(DEMO, timeouts=Timeouts()) is not first

    asyncio.run(run())


def test_changed_key_gives_a_new_provider(server: FakeServer, settings: Settings) -> None:
    settings.ALLOWED_PRIVATE_PROVIDERS = [server.host]

    async def run() -> None:
        for key in ("sk-old-000000001111", "sk-new-000000002222"):
            account = ProviderAccountValue("main", kind_of(server), server.base_url, key)
            provider = get_provider(account, timeouts=Timeouts())
            assert text_in(await collect(provider, asked("Hello")))
        await aclose_all()

    asyncio.run(run())
    keys = [record["headers"]["authorization"] for record in server.requests()]
    assert keys == ["…1111", "…2222"]


def test_each_loop_has_its_own_provider() -> None:
    async def run() -> DemoProvider:
        provider = get_provider(DEMO, timeouts=Timeouts())
        assert isinstance(provider, DemoProvider)
        return provider

    assert asyncio.run(run()) is not asyncio.run(run())


def test_S14_key_is_absent_from_the_account_in_print() -> None:
    account = ProviderAccountValue("main", "openai", "https://x.org", "sk-canary")
    assert "canary" not in f"{account!r} {account}"


def test_registry_does_not_load_the_packages_of_vendors() -> None:
    script = (
        "import sys, chats.providers.registry, chats.providers.discovery;"
        "sys.exit(bool({'openai', 'anthropic'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False, timeout=30)
    assert finished.returncode == 0


@pytest.mark.parametrize("used", [{"demo"}, {"openai", "demo"}, {"anthropic"}])
def test_only_the_adapters_of_kinds_in_use_are_loaded(used: set[str]) -> None:
    script = (
        "import sys; from chats.providers.registry import load_adapters;"
        f"load_adapters({used!r});"
        "print(*sorted({'openai', 'anthropic'} & set(sys.modules)))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, timeout=30, capture_output=True
    )
    assert set(finished.stdout.decode().split()) == used - {"demo"}


def test_a_missing_package_is_an_error_of_the_call_and_of_nothing_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "find_spec", lambda name: None)
    load_adapters({"anthropic"})
    account = ProviderAccountValue("main", "anthropic", kinds.ANTHROPIC_URL, "sk-canary")

    async def run() -> None:
        try:
            await collect(get_provider(account, timeouts=Timeouts()), asked("Hello"))
        finally:
            await aclose_all()

    with pytest.raises(ProviderError, match="provider_rejected") as caught:
        asyncio.run(run())
    assert "make anthropic" in caught.value.sentence
    assert not caught.value.retryable
