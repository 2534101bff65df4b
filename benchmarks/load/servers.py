"""Starts the servers under load: the fake model server, the floor, the product, and its peers."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from benchmarks.instance import ROOT, Instance, free_port, instance, wait_for
from benchmarks.load.model import ModelServer
from benchmarks.load.targets import (
    ApartTarget,
    ChainlitTarget,
    ChatTarget,
    OpenAITarget,
    Target,
)
from project import broker

SERVER = "PALIMPSEST_TEST_DATABASE_URL"
PREPARE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from benchmarks import bulk
from chats.actions import lifecycle
from chats.models import ProviderAccount
from chats.people.keys import create_key
from contextpolicy.models import ModelSpec
from contextpolicy.presets import replace_demo_policy
now = timezone.now()
replace_demo_policy(actor="system", now=now)
ProviderAccount.objects.update_or_create(
    slug="bench", defaults={{"name": "Bench", "base_url": "http://{host}/v1"}})
ModelSpec.objects.update(is_default=False)
model, _ = ModelSpec.objects.update_or_create(
    slug="bench", defaults={{"provider": "bench", "name": "mock-chat", "is_default": True}})
owner, _ = User.objects.get_or_create(username="bench")
scopes = ["chats:read", "chats:write", "gateway"]
_, secret = create_key(owner=owner, name="bench", scopes=scopes, lifetime_days=1, now=now)
bulk.chats(owner, {chats}, now=now)
ids = []
if {messages}:
    said = bulk.texts({messages}, words=bulk.vocabulary())
    for _ in range({people}):
        chat = lifecycle.create_chat(owner=owner, now=now, model=model)
        bulk.fill(chat, said, now=now)
        ids.append(str(chat.pk))
print(secret, *ids)
"""
CHAINLIT_APP = """
import os
import chainlit as cl
from openai import AsyncOpenAI
client = AsyncOpenAI(base_url=os.environ["MODEL"], api_key="sk-mock", max_retries=0)
@cl.on_message
async def on_message(message: cl.Message):
    reply = cl.Message(content="")
    stream = await client.chat.completions.create(
        model="mock-chat", messages=[{"role": "user", "content": message.content}], stream=True)
    async for part in stream:
        if part.choices and (token := part.choices[0].delta.content):
            await reply.stream_token(token)
    await reply.update()
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows of an instance before the load: other chats, and messages in each used chat."""

    chats: int = 0
    messages: int = 0
    people: int = 0


Start = Callable[[ModelServer, Stored], AbstractContextManager[Target]]


@contextmanager
def start_direct(model: ModelServer, _stored: Stored) -> Iterator[Target]:
    """The fake model server with nothing in front of it."""
    yield OpenAITarget("direct", model.port)


@contextmanager
def start_floor(model: ModelServer, _stored: Stored) -> Iterator[Target]:
    """The minimal stack: broker, one web process, one worker."""
    with tempfile.TemporaryDirectory() as folder:
        port, socket = free_port(), f"{folder}/broker.sock"
        env = {
            **os.environ,
            "FLOOR_FOLDER": folder,
            "FLOOR_BROKER": socket,
            "FLOOR_MODEL": f"http://{model.host}",
            "FLOOR_KEY": "floor",
            # Celery warns of the user root.
            "PYTHONWARNINGS": "ignore",
        }
        module = "benchmarks.load.floor"
        subprocess.run([sys.executable, "-m", module], env=env, cwd=ROOT, check=True)
        given = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
        celery = ["celery", "-A", f"{module}:celery", "worker", "--pool", "threads", "-c", "200"]
        celery += ["-l", "error", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        web = ["uvicorn", f"{module}:application", "--port", str(port), "--lifespan", "off"]
        web += ["--log-level", "error", "--no-access-log"]
        commands = [
            [broker.find_server_binary(), *given],
            [sys.executable, "-m", *celery],
            [sys.executable, "-m", *web],
        ]
        with running(commands, env=env) as pids:
            wait_for(f"http://127.0.0.1:{port}/ping")
            time.sleep(3)
            yield ChatTarget("floor", port, pids, key="floor", prefix="")


@contextmanager
def running(commands: list[list[str]], *, env: dict[str, str]) -> Iterator[list[int]]:
    """Run commands until the block ends; yield their process ids."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            quiet = subprocess.DEVNULL
            started.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=quiet))
        yield [process.pid for process in started]
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(60)


def prepare(ours: Instance, model: ModelServer, stored: Stored) -> tuple[str, list[str]]:
    """Connect an instance to the model and fill it; return the API key and the ids of chats."""
    program = PREPARE.format(
        host=model.host, chats=stored.chats, messages=stored.messages, people=stored.people
    )
    key, *chats = ours.run(program).split()
    return key, chats


@contextmanager
def start_instance(model: ModelServer) -> Iterator[tuple[Instance, list[int]]]:
    """The product on SQLite, with the id of its launcher."""
    with instance(model_host=model.host) as ours:
        yield ours, [ours.pid]


@contextmanager
def start_postgres_instance(model: ModelServer) -> Iterator[tuple[Instance, list[int]]]:
    """The product on a new PostgreSQL database, with the ids of its launcher and of the server."""
    url = os.environ[SERVER]
    name = f"bench_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            address = f"{url.rpartition('/')[0]}/{name}"
            with instance(model_host=model.host, database_url=address) as ours:
                yield ours, [ours.pid, find_postgres(urlsplit(url).port or 5432)]
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def start_sqlite(model: ModelServer, stored: Stored) -> Iterator[Target]:
    """The product on SQLite, through its REST API."""
    with start_instance(model) as (ours, pids):
        key, chats = prepare(ours, model, stored)
        yield ChatTarget("SQLite", ours.port, pids, key=key, given=chats)


@contextmanager
def start_apart(model: ModelServer, stored: Stored) -> Iterator[Target]:
    """The product on SQLite; a message and its reply are two requests."""
    with start_instance(model) as (ours, pids):
        key, chats = prepare(ours, model, stored)
        yield ApartTarget("two requests", ours.port, pids, key=key, given=chats)


@contextmanager
def start_gateway(model: ModelServer, stored: Stored) -> Iterator[Target]:
    """The product's gateway on SQLite."""
    with start_instance(model) as (ours, pids):
        key, _ = prepare(ours, model, stored)
        yield OpenAITarget("gateway", ours.port, pids, key=key, model="bench")


@contextmanager
def start_postgres(model: ModelServer, stored: Stored) -> Iterator[Target]:
    """The product on a new PostgreSQL database."""
    with start_postgres_instance(model) as (ours, pids):
        key, chats = prepare(ours, model, stored)
        yield ChatTarget("PostgreSQL", ours.port, pids, key=key, given=chats)


def find_postgres(port: int) -> int:
    """The process id of the PostgreSQL server on this port. Raises LookupError if there is none."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command and command[0].endswith("/postgres") and str(port) in command:
            return int(process.pid)
    raise LookupError(f"No PostgreSQL server listens on port {port}.")


@contextmanager
def start_litellm(model: ModelServer, _stored: Stored) -> Iterator[Target]:
    """LiteLLM's proxy with one process. It stores nothing."""
    parameters = {"model": "openai/mock-chat", "api_base": f"http://{model.host}/v1"}
    settings = {
        "model_list": [
            {"model_name": "mock-chat", "litellm_params": {**parameters, "api_key": "sk-mock"}}
        ],
        "litellm_settings": {"num_retries": 0, "request_timeout": 120, "telemetry": False},
        "general_settings": {"master_key": "sk-bench"},
    }
    quiet = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "DISABLE_ADMIN_UI": "True",
    }
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "litellm.json"
        file.write_text(json.dumps(settings), encoding="utf-8")
        command = [find_peer("litellm"), "--config", str(file), "--host", "127.0.0.1"]
        command += ["--port", str(port), "--num_workers", "1"]
        with running([command], env={**os.environ, **quiet}) as pids:
            wait_for(f"http://127.0.0.1:{port}/health/liveliness")
            yield OpenAITarget("LiteLLM", port, pids, key="sk-bench")


@contextmanager
def start_chainlit(model: ModelServer, _stored: Stored) -> Iterator[Target]:
    """Chainlit with an application that streams the model's reply. It stores nothing."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "app.py"
        app.write_text(CHAINLIT_APP, encoding="utf-8")
        env = {**os.environ, "MODEL": f"http://{model.host}/v1", "CHAINLIT_APP_ROOT": folder}
        command = [find_peer("chainlit"), "run", str(app), "--headless", "--host", "127.0.0.1"]
        with running([[*command, "--port", str(port)]], env=env) as pids:
            wait_for(f"http://127.0.0.1:{port}/project/translations?language=en-US")
            yield ChainlitTarget("Chainlit", port, pids)


def find_peer(name: str) -> str:
    """The program of a peer in its own environment. Raises FileNotFoundError if it is missing."""
    folder = Path(os.environ.get("BENCH_PEERS", ROOT / ".venv" / "peers"))
    program = folder / name / "bin" / name
    if not program.exists():
        raise FileNotFoundError(f"{program} is missing: run `make bench PEERS=1`.")
    return str(program)


# The targets by the name on the command line.
STARTS: dict[str, Start] = {
    "direct": start_direct,
    "floor": start_floor,
    "sqlite": start_sqlite,
    "apart": start_apart,
    "postgres": start_postgres,
    "gateway": start_gateway,
    "chainlit": start_chainlit,
    "litellm": start_litellm,
}
