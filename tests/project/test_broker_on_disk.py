"""The broker stores nothing on disk; a broker that does is reported."""

import asyncio
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django.fixtures import Settings
from redis import Redis

from chats.ground import broker_facts, live
from chats.providers import accounts
from project import broker

pytestmark = pytest.mark.services
WORD = "heronmark7731quay"
Started = Callable[..., str]


@contextmanager
def running(command: list[str], socket: Path) -> Iterator[str]:
    """Run a broker until it has ended after SIGTERM; yield its address."""
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # our own broker
    try:
        assert broker.wait_until_ready(f"unix://{socket}", seconds=10)
        yield f"unix://{socket}"
    finally:
        program.terminate()
        program.wait(10)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="plm-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def started(folder: Path) -> Iterator[Started]:
    """Start a server with other options: `started(appendonly="yes")`."""
    with ExitStack() as stack:

        def starting(**options: str) -> str:
            socket = folder / "s.sock"
            given = {
                "port": "0",
                "unixsocket": str(socket),
                "dir": str(folder),
                "save": "",
                "loglevel": "warning",
                **{name.replace("_", "-"): value for name, value in options.items()},
            }
            refused = given.pop("refused", "").split()
            command = [broker.find_server_binary()]
            command += [part for name, value in given.items() for part in (f"--{name}", value)]
            command += [part for name in refused for part in ("--rename-command", name, "")]
            return stack.enter_context(running(command, socket))

        yield starting


def everything_in(folder: Path) -> bytes:
    """Every byte of every file."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def say(url: str, *kinds: str) -> uuid.UUID:
    """Send frames of one turn that contain a word; the last ones are of these kinds."""
    turn = uuid.uuid4()

    async def saying() -> None:
        client = live.connect_to_bus(url)
        writer = live.FrameWriter(client, coalesce=0.001)
        writer.put(turn, live.Frame(kind="step", attempt=1, step=1))
        writer.put(turn, live.Frame(kind="text", attempt=1, step=1, text=WORD))
        for kind in kinds:
            writer.put(turn, live.Frame(kind=kind, attempt=1, step=1))
        await writer.close()
        await client.aclose()

    asyncio.run(saying())
    return turn


def test_the_embedded_broker_writes_no_file_and_deletes_those_of_before(folder: Path) -> None:
    kept = folder / "broker"
    (kept / "appendonlydir").mkdir(parents=True)
    for name in ("appendonlydir/appendonly.aof.1.incr.aof", "appendonly.aof", "dump.rdb"):
        (kept / name).write_text(WORD)
    command = broker.build_broker_command(folder)
    assert WORD.encode() not in everything_in(folder)
    with running(command, folder / "run" / "broker.sock") as url:
        say(url, "end")
        assert WORD.encode() not in everything_in(folder)
    assert WORD.encode() not in everything_in(folder)
    assert {path.name for path in kept.iterdir()} <= {"broker.log"}


@pytest.mark.parametrize(
    ("options", "writes"),
    [
        ({}, False),
        ({"appendonly": "yes"}, True),
        ({"save": "3600 1"}, True),
        ({"refused": "CONFIG"}, False),
        ({"refused": "CONFIG", "appendonly": "yes"}, True),
        ({"refused": "CONFIG INFO", "appendonly": "yes"}, False),
    ],
    ids=["memory", "append", "snapshots", "silent", "append, silent", "says nothing"],
)
def test_a_server_that_writes_to_disk_is_named_also_where_it_refuses_config(
    options: dict[str, str], writes: bool, started: Started
) -> None:
    url = started(maxmemory_policy="noeviction", **options)
    assert broker_facts.has_disk_persistence(url) == writes
    told = "" if "INFO" in options.get("refused", "") else "noeviction"
    assert broker_facts.read_eviction_policy(url) == told


def test_a_server_without_config_is_told_by_the_snapshots_it_made(started: Started) -> None:
    url = started(refused="CONFIG")
    with Redis.from_url(url) as client:
        client.save()
        is_counted = "rdb_saves" in client.info("persistence")
    assert broker_facts.has_disk_persistence(url) == is_counted


def test_ready_and_setup_warn_of_a_broker_on_disk(
    db: None,
    alice: User,
    client: Client,
    started: Started,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "find_unconnected_servers", list)
    settings.REDIS_URL = started(appendonly="yes", maxmemory_policy="noeviction")
    told = client.get("/readyz")
    assert told.status_code == 200
    assert told.json()["status"] == "degraded"
    assert broker_facts.DISK in told.json()["warnings"]

    client.force_login(alice)
    assert 'data-note="broker-on-disk"' not in client.get("/setup/").content.decode()
    alice.user_permissions.add(Permission.objects.get(codename="change_provideraccount"))
    assert 'data-note="broker-on-disk"' in client.get("/setup/").content.decode()

    with Redis.from_url(settings.REDIS_URL) as server:
        server.config_set("appendonly", "no")
    assert broker_facts.DISK not in client.get("/readyz").json()["warnings"]
    assert 'data-note="broker-on-disk"' not in client.get("/setup/").content.decode()


def test_a_server_that_refuses_config_is_ready(
    db: None, client: Client, started: Started, settings: Settings
) -> None:
    settings.REDIS_URL = started(refused="CONFIG", maxmemory_policy="noeviction")
    assert client.get("/readyz").json()["faults"] == {}
    settings.REDIS_URL = settings.REDIS_URL.replace("s.sock", "gone.sock")
    assert client.get("/readyz").json()["faults"] == {"broker": "no connection"}


def ttl(url: str, turn: uuid.UUID) -> Any:
    """The remaining seconds of a turn's stream."""
    with Redis.from_url(url) as client:
        return client.ttl(live.build_turn_key(turn))


@pytest.mark.parametrize("last", ["end", "state"])
def test_a_stream_ends_a_minute_after_its_turn_or_its_worker(started: Started, last: str) -> None:
    url = started()
    assert 0 < ttl(url, say(url, last)) <= 60


def test_heartbeats_keep_the_streams_of_silent_turns(started: Started) -> None:
    url = started()
    silent, killed, gone = say(url, "state"), say(url, "state"), uuid.uuid4()
    with Redis.from_url(url) as client:
        for turn in (silent, killed):
            client.expire(live.build_turn_key(turn), 5)

    async def beat() -> None:
        bus = live.connect_to_bus(url)
        await live.FrameWriter(bus, coalesce=0.01).renew_streams([silent, gone])
        await bus.aclose()

    asyncio.run(beat())
    assert 5 < ttl(url, silent) <= 60
    assert ttl(url, killed) <= 5
    assert ttl(url, gone) == -2, "a stream that does not exist is not created"
