"""Streamed replies under load, beside the bare floor of the same parts, in one run.

`python -m tests.load.streams --tools DIR [arguments of stream_load.py]`: DIR holds stream_load.py
and floor_stack/. Starts a whole instance (broker, worker, web) on a folder of its own, whose model
is the load driver's fake server, and hands both to the driver. Prints the driver's table.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.load.instance import instance

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


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True)
    parser.add_argument("--apart", action="store_true", help="send and follow in two requests")
    arguments, rest = parser.parse_known_args()
    with instance(model_host=f"127.0.0.1:{MODEL_PORT}") as ours:
        floor = start_floor(arguments.tools)
        try:
            profile = ours.folder / "profile.json"
            headers = {"authorization": f"Bearer {ours.run(PREPARE % MODEL_PORT).strip()}"}
            profile.write_text(
                json.dumps({**PROFILE, **(APART if arguments.apart else {}), "headers": headers})
            )
            target = f"ours=rest_sse,url={ours.url},profile={profile},pid={ours.pid}"
            driver = [sys.executable, str(arguments.tools / "stream_load.py"), "--target", target]
            subprocess.run([*driver, "--target", floor_target(floor), *rest], check=True)
        finally:
            floor.send_signal(signal.SIGTERM)
            floor.wait(60)


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
