"""One fake model server for all provider tests; each test finds it unconfigured."""

from collections.abc import Iterator

import pytest

from tests.fakes.fake_server import FakeServer
from tests.fakes.scripting import Script


@pytest.fixture(scope="session")
def running_server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def server(running_server: FakeServer) -> FakeServer:
    running_server.configure(**Script(len).settings())
    running_server.forget_requests()
    return running_server
