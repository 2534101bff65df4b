"""Fake model servers for all provider tests. Each test starts with default behaviour.

A test that takes `server` runs against both, with the adapter of each. Tests of one format take
`openai_server` or `anthropic_server`.
"""

from collections.abc import Iterator

import pytest

from tests.fakes.fake_server import FakeServer
from tests.fakes.scripting import Script


@pytest.fixture(scope="session")
def running_openai() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture(scope="session")
def running_anthropic() -> Iterator[FakeServer]:
    with FakeServer(kind="anthropic") as server:
        yield server


@pytest.fixture
def openai_server(running_openai: FakeServer) -> FakeServer:
    return fresh(running_openai)


@pytest.fixture
def anthropic_server(running_anthropic: FakeServer) -> FakeServer:
    return fresh(running_anthropic)


@pytest.fixture(params=["openai", "anthropic"])
def server(request: pytest.FixtureRequest) -> FakeServer:
    running: FakeServer = request.getfixturevalue(f"running_{request.param}")
    return fresh(running)


def fresh(server: FakeServer) -> FakeServer:
    """Reset the settings and recorded requests of the server."""
    server.configure(**Script(len).settings())
    server.forget_requests()
    return server
