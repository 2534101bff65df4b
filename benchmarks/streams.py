"""Streamed replies under load, compared with a minimal stack of the same components in one run.

`python -m benchmarks.streams --tools DIR [arguments of stream_load.py]`: DIR holds stream_load.py
and floor_stack/. It starts a whole instance (broker, worker, web) in a new folder, whose model is
the load driver's fake server, and passes both to the driver. It prints the driver's table. With
`--gateway` the driver uses the instance as an OpenAI client does. With `--litellm PROGRAM` it
alternates with LiteLLM's proxy, which has one process and stores nothing.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.instance import free_port, instance, wait_for

MODEL_PORT = 8199
PREPARE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from chats.people.keys import create_key
from chats.models import ProviderAccount
from contextpolicy.models import ModelSpec
from contextpolicy.presets import replace_demo_policy
now = timezone.now()
replace_demo_policy(actor="system", now=now)
ProviderAccount.objects.update_or_create(
    slug="bench", defaults={"name": "Bench", "base_url": "http://127.0.0.1:%d/v1"})
ModelSpec.objects.update(is_default=False)
ModelSpec.objects.update_or_create(
    slug="bench", defaults={"provider": "bench", "name": "mock-chat", "is_default": True})
owner, _ = User.objects.get_or_create(username="bench")
_, secret = create_key(
    owner=owner, name="bench", scopes=["chats:read", "chats:write", "gateway"], lifetime_days=1,
    now=now)
print(secret)
"""
PROFILE: dict[str, Any] = {
    "create": {"method": "POST", "path": "/api/v1/chats", "body": {}, "save": {"cid": "id"}},
    "send": {
        "method": "POST",
        "path": "/api/v1/chats/{cid}/messages",
        "body": {"text": "{text}", "stream": True},
    },
    "stream": {"when": "is_send"},
    "stream_closes": True,
    "done": "event: done",
    "error": "event: error",
}
# A client that sends a message and then follows the reply, in two requests.
APART: dict[str, Any] = {
    "send": {
        "method": "POST",
        "path": "/api/v1/chats/{cid}/messages",
        "body": {"text": "{text}"},
        "save": {"tid": "turn.id"},
    },
    "stream": {
        "method": "GET",
        "path": "/api/v1/chats/{cid}/turns/{tid}/events",
        "when": "after_send",
    },
}

LITELLM: dict[str, Any] = {
    "model_list": [
        {
            "model_name": "mock-chat",
            "litellm_params": {
                "model": "openai/mock-chat",
                "api_base": f"http://127.0.0.1:{MODEL_PORT}/v1",
                "api_key": "sk-mock",
            },
        }
    ],
    "litellm_settings": {"num_retries": 0, "request_timeout": 120, "telemetry": False},
    "general_settings": {"master_key": "sk-bench"},
}
LITELLM_ENVIRONMENT = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "DISABLE_ADMIN_UI": "True",
}


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--apart", action="store_true", help="send and follow in two requests")
    parser.add_argument("--gateway", action="store_true", help="ask as an OpenAI client does")
    parser.add_argument("--litellm", type=Path, help="its program, to be asked beside the gateway")
    arguments, rest = parser.parse_known_args()
    with instance(model_host=f"127.0.0.1:{MODEL_PORT}") as ours:
        if arguments.gateway:
            key = ours.run(PREPARE % MODEL_PORT).strip()
            target = f"gateway=openai,url={ours.url},key={key},model=bench,pid={ours.pid}"
            with proxy(arguments.litellm, folder=ours.folder) as beside:
                drive(arguments.tools, [target, *beside], rest)
            return
        floor = start_floor(arguments.tools)
        try:
            profile = ours.folder / "profile.json"
            headers = {"authorization": f"Bearer {ours.run(PREPARE % MODEL_PORT).strip()}"}
            profile.write_text(
                json.dumps({**PROFILE, **(APART if arguments.apart else {}), "headers": headers})
            )
            target = f"ours=rest_sse,url={ours.url},profile={profile},pid={ours.pid}"
            drive(arguments.tools, [target, floor_target(floor)], rest)
        finally:
            floor.send_signal(signal.SIGTERM)
            floor.wait(60)


def drive(tools: Path, targets: list[str], rest: list[str]) -> None:
    """Let the driver load each target in turn."""
    named = [word for target in targets for word in ("--target", target)]
    subprocess.run([sys.executable, str(tools / "stream_load.py"), *named, *rest], check=True)


@contextmanager
def proxy(program: Path | None, *, folder: Path) -> Iterator[list[str]]:
    """LiteLLM's proxy for the driver's model, with one process; None without a program."""
    if program is None:
        yield []
        return
    port = free_port()
    config = folder / "litellm.json"
    config.write_text(json.dumps(LITELLM))
    given = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, **LITELLM_ENVIRONMENT}
    started = subprocess.Popen(
        [str(program), *given, "--num_workers", "1"], env=env, stdout=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/health/liveliness")
        yield [f"litellm=openai,url={url},key=sk-bench,pid={started.pid}"]
    finally:
        started.terminate()
        started.wait(60)


def start_floor(tools: Path) -> "subprocess.Popen[str]":
    """The minimal stack of the same components (Celery threads)."""
    command = [sys.executable, str(tools / "floor_stack" / "run_floor.py"), "--pool", "threads"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def floor_target(floor: "subprocess.Popen[str]") -> str:
    """The target that the minimal stack prints when it is ready."""
    for line in floor.stdout or ():
        found = re.search(r'"target": "([^"]+)"', line)
        if found:
            return found[1]
    sys.exit("the floor stack did not start")


if __name__ == "__main__":
    main()
