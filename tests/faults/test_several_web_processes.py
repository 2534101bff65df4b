"""Two web processes behind nginx, and two workers: streams, stops, limits and the gateway."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.fakes.fake_server import FakeServer
from tests.faults.client import Client, Screen
from tests.faults.harness import Tree, is_listening, new_folder
from tests.faults.programs import MANAGE, Program, free_port, needed, python, until
from tests.faults.promises import assert_promises, reply_of, text_of
from tests.faults.stores import Cluster, Postgres
from tests.support.repository import ROOT

NGINX = shutil.which("nginx")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.services,
    pytest.mark.skipif(NGINX is None, reason="nginx is missing"),
]
LIMIT = 30
# The server block that operators copy, without what TLS and a public name need.
GUIDE = ROOT / "docs" / "deployment.md"
LEFT_OUT = re.compile(r"^\s*(listen|server_name|ssl_\w+) .*\n", re.MULTILINE)
CONFIGURATION = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
events {{ worker_connections 512; }}
http {{
  log_format upstream "$upstream_addr"; access_log {folder}/upstream.log upstream;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream palimpsest {{ {servers} keepalive 32; }}
  {block}
}}
"""


@pytest.fixture
def tree(cluster: Cluster, fake: FakeServer) -> Iterator[Tree]:
    """A tree on PostgreSQL, whose socket is that of nginx in front of the web processes."""
    folder = new_folder()
    made = Tree(folder=folder, database=Postgres(cluster, "several"), fake=fake)
    port = free_port()
    command = [needed("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--dir", str(folder), "--maxmemory-policy", "noeviction"]
    redis = Program("redis", command, env=os.environ, log=folder / "redis.log")
    made.env |= {"REDIS_URL": f"redis://127.0.0.1:{port}/0", "TRUSTED_PROXY": "1"}
    try:
        made.prepare()
        made.beat()
        for _ in range(2):
            made.replies()
        made.background()
        yield made
        assert_promises(made)
        # Both processes took requests, as the test intends.
        used = (folder / "upstream.log").read_text("utf-8").splitlines()
        assert {f"unix:{folder}/web-{number}.sock" for number in range(2)} <= set(used)
    finally:
        made.close()
        redis.kill()
        shutil.rmtree(folder)


def start_web(tree: Tree, **env: str) -> list[Program]:
    """Start two web processes and nginx."""
    sockets = [str(tree.folder / f"web-{number}.sock") for number in range(2)]
    started = [tree.start("web", python(MANAGE, "web", "--uds", path), **env) for path in sockets]
    for place, program in zip(sockets, started, strict=True):
        wait_for_socket(place, program)
    found = re.search(r"```nginx\n(server \{.*?\n\})\n```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert found
    block = LEFT_OUT.sub("", found[1]).replace("http://127.0.0.1:8420", "http://palimpsest")
    block = block.replace("server {", f"server {{ listen unix:{tree.socket};", 1)
    text = CONFIGURATION.format(
        folder=tree.folder, block=block, servers=" ".join(f"server unix:{p};" for p in sockets)
    )
    path = tree.folder / "nginx.conf"
    path.write_text(text)
    wait_for_socket(tree.socket, tree.start("nginx", [NGINX or "", "-c", str(path)]))
    return started


def wait_for_socket(path: str, program: Program) -> None:
    """Wait until the program accepts connections."""
    until(lambda: program.must_live() and is_listening(path), seconds=30, what=program.name)


def follow(tree: Tree, chat: str, turn: str, *, after: str = "") -> Screen:
    """Follow a turn on a new connection, which nginx gives to one of the processes."""
    screen = Screen()
    with Client(tree) as client, client.events(chat, turn, after=after) as events:
        screen.show_all(events)
    return screen


def test_each_reply_can_be_followed_and_stopped_through_any_process(tree: Tree) -> None:
    start_web(tree)
    with Client(tree) as client:
        turns = [
            (chat, client.send(chat, f"Number {number} [[fake tokens=40 ms=20]]"))
            for number, chat in enumerate(client.new_chat() for _ in range(10))
        ]
        with ThreadPoolExecutor(30) as threads:
            screens = list(threads.map(lambda each: follow(tree, *each), turns * 3))
        for screen, (_, turn) in zip(screens, turns * 3, strict=True):
            assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
        for _ in range(4):
            chat = client.new_chat()
            turn = client.send(chat, "Long [[fake tokens=400 ms=20]]")
            with client.events(chat, turn) as events:
                screen = Screen()
                while not screen.text:
                    screen.show(next(events))
                with Client(tree) as other:
                    assert other.stop(chat, turn).status_code == 202
                screen.show_all(events)
            assert screen.status == "stopped"


def test_no_text_is_lost_with_a_killed_process(tree: Tree) -> None:
    programs = start_web(tree)
    with Client(tree) as client:
        chat = client.new_chat()
        turn = client.send(chat, "Watched [[fake tokens=100 ms=30]]")
        screens = [Screen() for _ in range(4)]
        for screen in screens:
            with Client(tree) as each, each.events(chat, turn) as events:
                while not screen.text:
                    screen.show(next(events))
        programs[0].kill()
        for screen in screens:
            with Client(tree) as each, each.events(chat, turn, after=screen.place) as events:
                screen.show_all(events)
            assert (screen.status, screen.text) == ("completed", text_of(reply_of(tree, turn)))
            assert screen.restarted == 0


def test_rates_and_repeated_requests_are_shared(tree: Tree) -> None:
    start_web(tree, API_REQUESTS_PER_MINUTE=str(LIMIT), MESSAGES_PER_MINUTE=str(LIMIT))
    with Client(tree) as client:
        chat = client.new_chat()
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: client.post(chat, "Once", key="same"), range(8)))
        assert len({answer.json()["turn"]["id"] for answer in answers}) == 1
        statuses = [client.http.get("/folders").status_code for _ in range(2 * LIMIT)]
    allowed = statuses.count(200)
    # Nine requests are taken; some tokens return while the others are sent.
    assert statuses.count(429) == len(statuses) - allowed
    assert LIMIT - 9 <= allowed <= LIMIT


def test_a_client_of_the_gateway_streams_through_any_process(tree: Tree) -> None:
    start_web(tree)
    key = tree.keys["alice"]
    transport = httpx2.HTTPTransport(uds=tree.socket)
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(transport=transport, base_url="http://localhost", headers=headers) as http:
        said = [{"role": "user", "content": "Hello [[fake tokens=20]]"}]
        for _ in range(4):
            body = {"model": "fake", "messages": said, "stream": True}
            text = ""
            with http.stream("POST", "/v1/chat/completions", json=body, timeout=40) as answer:
                assert answer.status_code == 200
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        choices = json.loads(line[6:])["choices"]
                        text += choices[0]["delta"].get("content") or "" if choices else ""
            assert text
            said += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": "Go on [[fake tokens=20]]"},
            ]
