"""An upgrade from the tables before retrieved context, dates and prompt forms."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.faults.programs import MANAGE, apart, python

# An older version: without byte limits of teams, prompt forms of agents and zones of branches.
BEFORE = """
from datetime import UTC, datetime
import uuid
import django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
old = [("chats", "0050_outline_of_imports")]
executor = MigrationExecutor(connection)
executor.migrate(old + [("auth", "0012_alter_user_first_name_max_length")])
apps = MigrationExecutor(connection).loader.project_state(old).apps
model = lambda name, app="chats": apps.get_model(app, name)
now = datetime(2026, 11, 24, 9, 30, tzinfo=UTC)
alice = apps.get_model("auth", "User").objects.create(username="alice")
account = model("ProviderAccount").objects.create(slug="demo", kind="demo")
demo = model("ModelSpec", "contextpolicy").objects.create(
    slug="demo", provider="demo", name="demo", context_window=16_000, is_default=True, enabled=True
)
policy = model("ContextPolicy", "contextpolicy").objects.create(slug="old", name="Old")
policy.current = model("PolicyVersion", "contextpolicy").objects.create(
    policy=policy, number=1, created_at=now,
    values={"strategy": "simple", "window_size": 2, "references": True, "system_text": "Be brief."},
)
policy.save()
model("PolicyAssignment", "contextpolicy").objects.create(policy=policy, level="instance")

def said(*texts):
    chat = model("Chat").objects.create(owner=alice, created_at=now, updated_at=now)
    branch = model("Branch").objects.create(chat=chat, created_at=now, last_seq=len(texts))
    chat.active_branch = branch
    chat.save()
    rows = [
        model("Message").objects.create(
            branch=branch, seq=n, accepted=n, created_at=now,
            role="user" if n % 2 else "assistant", finish="" if n % 2 else "stop",
            parts=[{"type": "text", "text": text}],
        )
        for n, text in enumerate(texts, start=1)
    ]
    return branch, rows

_, (heron,) = said("The heron of Lake Vogt wears the ring B-417.")
branch, rows = said("Hello", "Hi.", "Bread?", "With a crust.", "Which ring does the heron wear?")
turn = model("Turn").objects.create(
    branch=branch, accepted=6, trigger=rows[-1], model=demo, queued_at=now, tail={"references": ""}
)
model("TurnReference").objects.create(
    turn=turn, place=1, message=heron, start=0, end=44, score=1.0
)
team = model("Team").objects.create(owner=alice, created_at=now)
version = model("TeamVersion").objects.create(team=team, number=1, name="Crew", created_at=now)
model("Agent").objects.create(
    version=version, place=0, role_id="a", name="Ann", instruction="Plan.", window_size=12
)
"""
AFTER = """
import json
import django
django.setup()
from chats.models import Agent, TeamVersion, Turn
from chats.prompt import composition
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ContextPolicy
turn = Turn.objects.select_related("branch__chat", "model", "trigger", "continues").get()
prompt = composition.compose_prompt(turn=turn, counter=ApproximateCounter())
print(json.dumps({
    "agents": list(Agent.objects.values("window_size", "prompt_form")),
    "teams": list(TeamVersion.objects.values("max_bytes")),
    "policy": ContextPolicy.objects.get(slug="old").current.values,
    "messages": [[wire.role, wire.content] for wire in prompt.request.messages],
    "zone": prompt.zone,
}))
"""


def run(folder: Path, *command: str) -> str:
    """Run a command on the database of a folder; return its output."""
    ended = subprocess.run(
        python(*command),
        env={**apart(folder), "DJANGO_SETTINGS_MODULE": "project.settings"},
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The rows of an older version after all migrations, and the next prompt of a chat."""
    folder = tmp_path_factory.mktemp("upgrade")
    run(folder, "-c", BEFORE)
    run(folder, MANAGE, "migrate", "--verbosity", "0")
    return json.loads(run(folder, "-c", AFTER).splitlines()[-1])


def test_existing_teams_keep_their_window_their_messages_and_no_byte_limit(upgraded: Any) -> None:
    assert upgraded["agents"] == [{"window_size": 12, "prompt_form": "messages"}]
    assert upgraded["teams"] == [{"max_bytes": 0}]


def test_the_prompt_of_an_existing_policy_keeps_its_bytes(upgraded: Any) -> None:
    assert upgraded["messages"] == [
        ["system", "Be brief."],
        ["user", "Bread?"],
        ["assistant", "With a crust."],
        [
            "user",
            "Relevant reference (semantic):\n"
            "User: (2026-11-24) The heron of Lake Vogt wears the ring B-417.",
        ],
        ["user", "Which ring does the heron wear?"],
    ]
    assert upgraded["zone"] == ""
    assert upgraded["policy"] == {
        "strategy": "simple",
        "window_size": 2,
        "references": True,
        "system_text": "Be brief.",
    }
