"""An edit with `If-Match` applies only to the version that the client read."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chats.models import Chat
from tests.chats.api.programs import MakeProgram, Program
from tests.support.api_bodies import WINDOW_POLICY
from tests.support.api_schema import describe_api
from tests.support.error_codes import read_status_and_code


def edit(program: Program, method: str, path: str, body: Any, tag: str) -> Any:
    """Send an edit with this tag."""
    return program.call(method, path, body, headers={"If-Match": tag})


@pytest.fixture
def of_ines(program: MakeProgram, db: None) -> Program:
    """The client of an administrator with all permissions needed here."""
    ines = User.objects.create_superuser("ines")
    return program(
        ines, scopes=("chats:read", "chats:write", "policy:read", "policy:write", "webhooks")
    )


def things(program: Program) -> dict[str, tuple[str, Any, Any]]:
    """Each editable object: its path, an edit, and an edit by another user."""
    chat = program.post("chats", {}).json()["id"]
    folder = program.post("folders", {"name": "Cases"}).json()["id"]
    team = {"name": "Desk", "agents": [{"name": "Writer", "role_id": "", "model": ""}]}
    made = program.post("teams", team)
    assert made.status_code == 201, made.json()
    policy = program.post("policies", {"slug": "house", "name": "House", "values": WINDOW_POLICY})
    assert policy.status_code == 201, policy.json()
    hook = program.post("webhooks", {"url": "https://example.org/x", "events": ["turn.finished"]})
    assert hook.status_code == 201, hook.json()
    return {
        "chats": (f"chats/{chat}", {"title": "Mine"}, {"title": "Theirs"}),
        "folders": (f"folders/{folder}", {"name": "Mine"}, {"name": "Theirs"}),
        "teams": (f"teams/{made.json()['id']}", {**team, "name": "A"}, {**team, "name": "B"}),
        "webhooks": (
            f"webhooks/{hook.json()['id']}",
            {"is_on": False},
            {"events": ["task.changed"]},
        ),
        "memory": ("memory", {"instructions": "Short."}, {"instructions": "Long."}),
        "policies": ("policies/house", {"description": "A"}, {"description": "B"}),
        "task": (f"chats/{chat}/team", {"teamTask": "A"}, {"teamTask": "B"}),
    }


@pytest.mark.parametrize(
    "thing", ["chats", "folders", "teams", "webhooks", "memory", "policies", "task"]
)
def test_an_edit_of_what_changed_meanwhile_does_nothing(of_ines: Program, thing: str) -> None:
    path, mine, theirs = things(of_ines)[thing]
    method = "PUT" if thing == "teams" else "PATCH"
    read = of_ines.get(path)
    tag = read["ETag"]
    assert of_ines.get(path)["ETag"] == tag  # stable between reads
    assert of_ines.call(method, path, theirs).status_code == 200
    answer = edit(of_ines, method, path, mine, tag)
    assert read_status_and_code(answer) == (412, "changed_meanwhile")
    now = of_ines.get(path)
    assert now["ETag"] != tag
    # A tag weakened by compression still matches, and `*` matches any version.
    weak = edit(of_ines, method, path, mine, f'"other", W/{now["ETag"]}')
    assert weak.status_code == 200, weak.json()
    assert weak["ETag"] == of_ines.get(path)["ETag"] != now["ETag"]
    assert edit(of_ines, method, path, theirs, "*").status_code == 200
    assert read_status_and_code(edit(of_ines, method, path, mine, "no tag")) == (
        412,
        "changed_meanwhile",
    )


def test_what_changed_meanwhile_is_not_deleted(of_ines: Program) -> None:
    for thing, (path, _mine, theirs) in things(of_ines).items():
        if thing not in {"chats", "folders", "teams", "webhooks"}:
            continue
        tag = of_ines.get(path)["ETag"]
        of_ines.call("PUT" if thing == "teams" else "PATCH", path, theirs)
        assert read_status_and_code(edit(of_ines, "DELETE", path, None, tag)) == (
            412,
            "changed_meanwhile",
        )
        assert of_ines.get(path).status_code == 200
        gone = edit(of_ines, "DELETE", path, None, of_ines.get(path)["ETag"])
        assert gone.status_code == 204


def test_a_read_of_what_the_client_has_is_304(of_alice: Program, chat: Chat) -> None:
    path = f"chats/{chat.pk}"
    tag = of_alice.get(path)["ETag"]
    again = of_alice.call("GET", path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag)
    assert of_alice.call("GET", path, headers={"If-None-Match": '"x"'}).status_code == 200
    assert of_alice.call("HEAD", path)["ETag"] == tag


def test_of_another_persons_thing_no_tag_tells(
    of_alice: Program, of_charlie: Program, chat: Chat
) -> None:
    path = f"chats/{chat.pk}"
    tag = of_alice.get(path)["ETag"]
    for given in (tag, "*", '"x"'):
        answer = edit(of_charlie, "PATCH", path, {"title": "X"}, given)
        assert read_status_and_code(answer) == (404, "not_found")


def test_the_schema_tells_of_the_tags() -> None:
    schema = describe_api()
    guarded = {
        operation["operationId"]
        for methods in schema["paths"].values()
        for operation in methods.values()
        if any(each["name"] == "If-Match" for each in operation.get("parameters", ()))
    }
    answered = {
        operation["operationId"]
        for methods in schema["paths"].values()
        for operation in methods.values()
        if "412" in operation["responses"]
    }
    assert (
        guarded == answered >= {"chats_change", "chats_delete", "policies_change", "teams_change"}
    )


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
def test_the_thing_is_locked_before_it_is_compared(of_alice: Program, chat: Chat) -> None:
    path = f"chats/{chat.pk}"
    tag = of_alice.get(path)["ETag"]
    with CaptureQueriesContext(connection) as asked:
        assert edit(of_alice, "PATCH", path, {"pinned": True}, tag).status_code == 200
    said = [row["sql"] for row in asked.captured_queries if '"chats_chat"' in row["sql"]]
    locks = [at for at, sql in enumerate(said) if "FOR NO KEY UPDATE" in sql]
    edits = [at for at, sql in enumerate(said) if sql.startswith("UPDATE")]
    # Order: authorise, lock, read again, change.
    assert 0 < locks[0] < edits[0] - 1
