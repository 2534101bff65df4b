"""Streamed replies under load, beside the bare floor of the same parts, in one run.

`python -m tests.load.streams --tools DIR [arguments of stream_load.py]`: DIR holds stream_load.py
and floor_stack/. Starts a whole instance (broker, worker, web) on a folder of its own, whose model
is the load driver's fake server, and hands both to the driver. Prints the driver's table.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL_PORT = 8199
PREPARE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from chats.people.keys import create_key
from chats.models import ProviderAccount
from contextpolicy.models import ModelSpec
from contextpolicy.presets import leave_demo
now = timezone.now()
leave_demo(actor="system", now=now)
ProviderAccount.objects.update_or_create(
    slug="bench", defaults={"name": "Bench", "base_url": "http://127.0.0.1:%d/v1"})
ModelSpec.objects.update(is_default=False)
ModelSpec.objects.update_or_create(
    slug="bench", defaults={"provider": "bench", "name": "mock-chat", "is_default": True})
owner, _ = User.objects.get_or_create(username="bench")
_, secret = create_key(
    owner=owner, name="bench", scopes=["chats:read", "chats:write"], lifetime_days=1, now=now)
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
# As a program that sends first and follows then, in two requests.
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


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(folder: str, port: int) -> dict[str, str]:
    """Limits raised so that only the machine is measured."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "PALIMPSEST_DATA": folder,
        "PALIMPSEST_PORT": str(port),
        "ALLOWED_PRIVATE_PROVIDERS": f"127.0.0.1:{MODEL_PORT}",
        "TURNS_PER_USER": "10000",
        "TURNS_PER_KEY": "10000",
        "REPLIES_PER_WORKER": "400",
        "STREAMS_PER_USER": "2000",
        "MESSAGES_PER_MINUTE": "1000000",
        "API_REQUESTS_PER_MINUTE": "1000000",
        "LOG_LEVEL": "WARNING",
        "TITLES_BY_MODEL": "0",
    }


def wait_for(url: str, *, seconds: float = 120) -> None:
    """Until the address answers."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310  # loopback
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {url}")


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--apart", action="store_true", help="send and follow in two requests")
    arguments, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        env = environment(folder, port)
        command = [sys.executable, "manage.py", "serve", "--port", str(port)]
        ours = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        floor = start_floor(arguments.tools)
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            prepared = [sys.executable, "-c", PREPARE % MODEL_PORT]
            done = subprocess.run(prepared, cwd=ROOT, env=env, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            profile = Path(folder) / "profile.json"
            headers = {"authorization": f"Bearer {done.stdout.strip()}"}
            profile.write_text(
                json.dumps({**PROFILE, **(APART if arguments.apart else {}), "headers": headers})
            )
            target = f"ours=rest_sse,url=http://127.0.0.1:{port},profile={profile},pid={ours.pid}"
            driver = [sys.executable, str(arguments.tools / "stream_load.py"), "--target", target]
            subprocess.run([*driver, "--target", floor_target(floor), *rest], check=True)
        finally:
            for process in (ours, floor):
                process.send_signal(signal.SIGTERM)
            for process in (ours, floor):
                process.wait(60)


def start_floor(tools: Path) -> "subprocess.Popen[str]":
    """The bare stack of the same parts (Celery threads)."""
    command = [sys.executable, str(tools / "floor_stack" / "run_floor.py"), "--pool", "threads"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def floor_target(floor: "subprocess.Popen[str]") -> str:
    """What the floor prints once it is ready."""
    for line in floor.stdout or ():
        found = re.search(r'"target": "([^"]+)"', line)
        if found:
            return found[1]
    sys.exit("the floor stack did not start")


if __name__ == "__main__":
    main()
