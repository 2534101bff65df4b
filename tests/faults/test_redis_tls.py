"""Redis with TLS, a private certificate authority and a password: broker, live bus and rates."""

import os
import shutil
from collections.abc import Iterator

import httpx2
import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.fakes.fake_server import FakeServer
from tests.faults.client import Client, Screen
from tests.faults.harness import Tree, new_folder
from tests.faults.impostor import own_certificate
from tests.faults.programs import Program, free_port, needed, until
from tests.faults.stores import SQLite

pytestmark = [pytest.mark.processes, pytest.mark.services]
# Characters that an address has to escape.
PASSWORD, ESCAPED = "p w@/#1", "p%20w%40%2F%231"


@pytest.fixture
def tree() -> Iterator[Tree]:
    """A tree without processes, whose broker accepts only TLS with a password."""
    folder = new_folder()
    with FakeServer() as fake:
        made = Tree(folder=folder, database=SQLite(folder), fake=fake)
        port = free_port()
        pem = str(own_certificate(folder))
        made.env["REDIS_URL"] = f"rediss://:{ESCAPED}@127.0.0.1:{port}/0?ssl_ca_certs={pem}"
        files = [f"--tls-{kind}-file" for kind in ("cert", "key", "ca-cert")]
        command = [
            *(needed("redis-server"), "--port", "0", "--tls-port", str(port)),
            *(word for option in files for word in (option, pem)),
            *("--tls-auth-clients", "no", "--requirepass", PASSWORD, "--dir", str(folder)),
            *("--save", "", "--maxmemory-policy", "noeviction"),
        ]
        server = Program("redis", command, env=os.environ, log=folder / "redis.log")
        try:
            until(lambda: answers(made.env["REDIS_URL"]), seconds=10, what="Redis")
            yield made
        finally:
            made.close()
            server.kill()
            shutil.rmtree(folder)


def answers(url: str) -> bool:
    """Return True if the server accepts the address."""
    try:
        with Redis.from_url(url) as client:
            return bool(client.ping())
    except (RedisError, OSError):
        return False


def test_a_reply_passes_through_it(tree: Tree) -> None:
    tree.prepare()
    tree.worker()
    tree.beat()
    tree.web()
    with Client(tree) as client:
        chat = client.new_chat()
        turn = client.send(chat, "Hello [[fake tokens=30]]")
        screen = Screen()
        with client.events(chat, turn) as events:
            screen.show_all(events)
        assert (screen.status, bool(screen.text)) == ("completed", True)
    with Redis.from_url(tree.env["REDIS_URL"]) as redis:
        # Rates are counted there, so that several web processes share them.
        assert any(b"rate" in key for key in redis.scan_iter())
    transport = httpx2.HTTPTransport(uds=tree.socket)
    with httpx2.Client(transport=transport, base_url="http://localhost") as http:
        assert http.get("/readyz").json()["faults"] == {}


@pytest.mark.parametrize("harm", ["without the certificate", "wrong password"])
def test_without_the_certificate_or_the_password_nothing_is_sent(tree: Tree, harm: str) -> None:
    if harm == "without the certificate":
        tree.env["REDIS_URL"] = tree.env["REDIS_URL"].partition("?")[0]
    else:
        tree.env["REDIS_URL"] = tree.env["REDIS_URL"].replace(ESCAPED, "wrong")
    tree.database.put_tables(tree.env)
    tree.web()
    transport = httpx2.HTTPTransport(uds=tree.socket)
    with httpx2.Client(transport=transport, base_url="http://localhost", timeout=30) as http:
        answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["faults"]["broker"]) == (503, "no connection")
