"""Policies over the API: the same permissions and functions as in the administration."""

import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from chats.ground import rates
from chats.models import Chat
from chats.people import keys
from contextpolicy.imports import RESERVED
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyAssignment, PolicyVersion
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.chats.api.programs import MakeProgram, Program
from tests.contextpolicy.people import person
from tests.support.api_bodies import WINDOW_POLICY
from tests.support.api_schema import describe_api
from tests.support.error_codes import read_status_and_code


@pytest.fixture
def ines(program: MakeProgram, demo_model: object) -> Program:
    """The client of a policy administrator."""
    return program(person("ines", POLICY_ADMIN))


@pytest.fixture
def audrey(program: MakeProgram, demo_model: object) -> Program:
    """The client of an auditor: may view policies, cannot change them."""
    return program(person("audrey", AUDITOR))


def made(ines: Program, **fields: Any) -> dict[str, Any]:
    """Send a new policy *Support*."""
    answer = ines.post(
        "policies", {"slug": "support", "name": "Support", "values": WINDOW_POLICY, **fields}
    )
    assert answer.status_code == 201, answer.json()
    found: dict[str, Any] = answer.json()
    return found


def next_version(ines: Program, based_on: int, **fields: Any) -> Any:
    """Send a version of *Support* with another window."""
    body = {"values": {**WINDOW_POLICY, "window_size": 12}, "based_on": based_on, **fields}
    return ines.post("policies/support/versions", body)


def events() -> list[str]:
    """Return the types of the ledger events about policies, in order."""
    rows = AuditEvent.objects.filter(type__startswith="policy.").order_by("pk")
    return list(rows.values_list("type", flat=True))


def test_a_policy_is_made_read_and_changed_by_versions(ines: Program) -> None:
    first = made(ines, locks=["window_size"], note="As agreed", description="For the desk")
    assert (first["version"], first["draft"], first["places"]) == (1, None, 0)
    assert (first["current"]["values"], first["current"]["locks"]) == (
        WINDOW_POLICY,
        ["window_size"],
    )
    assert [each["code"] for each in first["current"]["findings"]] == ["window_slides_each_turn"]
    assert first["current"]["findings"][0]["mend"] == {"strategy": "sliding_window"}
    assert ines.get("policies/support").json() == first

    second = next_version(ines, 1, note="Less").json()
    assert (second["number"], second["state"], second["created_by"]) == (2, "active", "ines")
    assert second["changes"] == [
        {
            "field": "window_size",
            "before": {"value": 20, "locked": True},
            "after": {"value": 12, "locked": False},
        }
    ]
    assert ines.get("policies/support/versions/2").json() == second
    draft = next_version(ines, 2, values={"strategy": "simple"}, draft=True).json()
    assert (draft["number"], draft["state"], draft["activated_at"]) == (3, "draft", None)
    assert {"field": "window_size", "before": {"value": 12, "locked": False}, "after": None} in (
        draft["changes"]
    )
    told = ines.get("policies/support").json()
    assert (told["version"], told["draft"], told["current"]["number"]) == (2, 3, 2)

    assert ines.post("policies/support/versions/3/activate").json()["state"] == "active"
    assert read_status_and_code(ines.post("policies/support/versions/1/activate")) == (
        409,
        "policy_changed_meanwhile",
    )
    back = ines.post("policies/support/versions/1/restore")
    assert (back.status_code, back.json()["number"], back.json()["values"]) == (
        201,
        4,
        WINDOW_POLICY,
    )
    assert back.json()["locks"] == ["window_size"]
    for path in ("versions/9", "versions/9/activate", "versions/9/restore"):
        answer = ines.call("GET" if path.endswith("9") else "POST", f"policies/support/{path}")
        assert read_status_and_code(answer) == (404, "no_such_version")
    page = ines.get("policies/support/versions", limit=3).json()
    assert [row["number"] for row in page["data"]] == [4, 3, 2]
    rest = ines.get("policies/support/versions", cursor=page["next_cursor"]).json()
    assert [(row["number"], row["note"]) for row in rest["data"]] == [(1, "As agreed")]
    assert events() == [
        "policy.created",
        "policy.version_created",
        "policy.version_created",
        "policy.version_created",
        "policy.version_activated",
        "policy.version_created",
    ]


def test_somebody_elses_version_is_shown_field_by_field_and_nothing_is_lost(ines: Program) -> None:
    made(ines)
    assert next_version(ines, 1).status_code == 201
    mine = {**WINDOW_POLICY, "window_size": 30, "token_budget": 9_000}
    answer = next_version(ines, 1, values=mine, locks=["token_budget"])
    assert read_status_and_code(answer) == (409, "policy_changed_meanwhile")
    assert answer.json()["error"]["details"] == [
        {
            "field": "token_budget",
            "before": {"value": 8_000, "locked": False},
            "theirs": {"value": 8_000, "locked": False},
            "mine": {"value": 9_000, "locked": True},
            "clash": False,
        },
        {
            "field": "window_size",
            "before": {"value": 20, "locked": False},
            "theirs": {"value": 12, "locked": False},
            "mine": {"value": 30, "locked": False},
            "clash": True,
        },
    ]
    assert PolicyVersion.objects.count() == 2
    assert read_status_and_code(next_version(ines, 7)) == (404, "no_such_version")
    without = ines.post("policies/support/versions", {"values": WINDOW_POLICY})
    assert read_status_and_code(without) == (400, "missing_field")
    assert next_version(ines, 2, values=mine).status_code == 201


def test_all_that_cannot_work_is_told_at_once_and_nothing_is_written(ines: Program) -> None:
    made(ines)
    bad = {"colour": 1, "reference_count": 400}
    codes = {"malformed_policy", "too_many_references"}
    bodies = {
        "policies": {"slug": "other", "name": "Other", "values": bad},
        "policies/support/versions": {"values": bad, "based_on": 1},
        "policies/import": {"form": {"palimpsest_policy": 1, "name": "Other", "values": bad}},
    }
    for path, body in bodies.items():
        answer = ines.post(path, body)
        assert read_status_and_code(answer) == (422, "policy_impossible"), path
        details = answer.json()["error"]["details"]
        assert {each["code"] for each in details} == codes
        assert all(each["fields"] and each["message"] for each in details)
    found = ines.post("policies/lint", {"values": bad}).json()["findings"]
    assert {each["code"] for each in found if each["level"] == "error"} == codes
    unlocked = ines.post("policies/lint", {"values": WINDOW_POLICY, "locks": ["layout"]}).json()
    assert unlocked["findings"][0]["code"] == "lock_without_value"
    assert (ContextPolicy.objects.count(), PolicyVersion.objects.count()) == (1, 1)
    assert len(events()) == 2


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "a name that is taken": ({}, 409, "policy_exists"),
    "a slug that is taken": ({"slug": "SUPPORT", "name": "Help"}, 409, "policy_exists"),
    "a name in another case": ({"slug": "b", "name": "SUPPORT"}, 409, "policy_name_taken"),
    "an address in another case": ({"slug": "LINT"}, 422, "reserved_name"),
    "the name of an address": ({"slug": "lint"}, 422, "reserved_name"),
    "a slug with a slash": ({"slug": "a/b"}, 400, "invalid_value"),
    "a slug that is too long": ({"slug": "a" * 61}, 400, "invalid_value"),
    "no name": ({"slug": "b", "name": " "}, 400, "invalid_value"),
    "a long name": ({"slug": "b", "name": "x" * 201}, 400, "invalid_value"),
    "a long note": ({"slug": "b", "note": "x" * 501}, 400, "invalid_value"),
    "a long description": ({"slug": "b", "description": "x" * 2001}, 400, "invalid_value"),
    "a NUL in the name": ({"slug": "b", "name": "a\0b"}, 422, "invalid_character"),
    "a NUL in a value": ({"slug": "b", "values": {"system_text": "\0"}}, 422, "invalid_character"),
    "a number of 400 digits": (
        {"slug": "b", "name": "B", "values": {"compact_at": 10**400}},
        422,
        "policy_impossible",
    ),
    "values as a list": ({"slug": "b", "values": []}, 400, "invalid_value"),
    "too many locks": ({"slug": "b", "locks": ["layout"] * 101}, 400, "invalid_value"),
    "an id": ({"slug": "b", "id": 1}, 400, "unknown_field"),
}


def test_a_policy_is_not_renamed_to_another_ones_name(ines: Program) -> None:
    made(ines)
    made(ines, slug="help", name="Help")
    taken = ines.call("PATCH", "policies/help", {"name": "sUPPORT"})
    assert read_status_and_code(taken) == (409, "policy_name_taken")
    own = ines.call("PATCH", "policies/help", {"name": "HELP"})
    assert (own.status_code, own.json()["name"]) == (200, "HELP")


def test_policies_of_one_name_from_older_versions_stay_editable(ines: Program) -> None:
    for slug in ("support", "help"):
        made(ines, slug=slug, name=slug)
    # Stored in the format of an older version.
    ContextPolicy.objects.filter(slug="help").update(slug="SUPPORT", name="SUPPORT")
    for slug in ("support", "SUPPORT"):
        answer = ines.call("PATCH", f"policies/{slug}", {"description": "Both stay."})
        assert answer.status_code == 200
        answer = ines.post(f"policies/{slug}/versions", {"values": WINDOW_POLICY, "based_on": 1})
        assert answer.status_code == 201


def test_a_bad_policy_is_refused(ines: Program) -> None:
    made(ines)
    for name, (change, status, code) in REFUSED.items():
        body = {"slug": "support", "name": "Support", "values": WINDOW_POLICY, **change}
        assert read_status_and_code(ines.post("policies", body)) == (status, code), name
    assert ContextPolicy.objects.count() == 1


def test_no_policy_gets_the_name_of_an_address() -> None:
    schema = describe_api()
    below = {path.split("/")[4] for path in schema["paths"] if "/v1/policies/" in path}
    assert below - {"{slug}"} == RESERVED


def test_a_policy_is_renamed_retired_and_listed(ines: Program) -> None:
    for slug in ("b", "a", "c"):
        made(ines, slug=slug, name=slug.upper())
    changed = ines.call("PATCH", "policies/b", {"retired": True, "description": "Old"}).json()
    assert (changed["name"], changed["retired"], changed["description"]) == ("B", True, "Old")
    page = ines.get("policies", limit=2).json()
    assert [row["slug"] for row in page["data"]] == ["a", "b"]
    rest = ines.get("policies", cursor=page["next_cursor"]).json()
    assert [row["slug"] for row in rest["data"]] == ["c"]
    assert [row["slug"] for row in ines.get("policies", retired="true").json()["data"]] == ["b"]
    assert ines.get("policies", retired="true", cursor=page["next_cursor"]).status_code == 400
    refused = ines.post("policies/assignments", {"policy": "b", "level": "instance"})
    assert read_status_and_code(refused) == (409, "policy_not_in_use")
    form = {"palimpsest_policy": 1, "values": WINDOW_POLICY}
    assert read_status_and_code(ines.post("policies/import", {"form": form, "into": "b"})) == (
        409,
        "policy_not_in_use",
    )
    assert ines.call("PATCH", "policies/b", {"retired": False}).json()["retired"] is False


def test_a_policy_is_assigned_everywhere_and_taken_back(
    ines: Program, alice: User, chat: Chat
) -> None:
    made(ines)
    made(ines, slug="other", name="Other")
    Group.objects.create(name="Desk")
    targets = [
        {"level": "instance"},
        {"level": "group", "group": "Desk"},
        {"level": "user", "user": alice.username},
        {"level": "chat", "chat": str(chat.pk)},
    ]
    for target in targets:
        answer = ines.post("policies/assignments", {"policy": "support", **target})
        assert answer.status_code == 201, answer.json()
        assert answer.json().items() >= target.items()
    told = ines.get("policies/support").json()
    assert (told["places"], len(told["assignments"])) == (4, 4)
    assert read_status_and_code(ines.call("PATCH", "policies/support", {"retired": True})) == (
        409,
        "policy_in_use",
    )
    # The second policy at a level replaces the first one.
    ines.post("policies/assignments", {"policy": "other", "level": "instance"})
    rows = ines.get("policies/assignments").json()["data"]
    assert (rows[0]["policy"], rows[0]["level"]) == ("other", "instance")
    of_other = ines.get("policies/assignments", policy="other").json()["data"]
    assert [row["id"] for row in of_other] == [rows[0]["id"]]
    assert ines.call("DELETE", f"policies/assignments/{rows[0]['id']}").status_code == 204
    assert ines.call("DELETE", f"policies/assignments/{rows[0]['id']}").status_code == 404
    assert PolicyAssignment.objects.count() == 3
    assert events()[-6:] == ["policy.assigned"] * 5 + ["policy.unassigned"]
    for target in (
        {"level": "group"},
        {"level": "group", "group": "Nobody"},
        {"level": "user", "user": "nobody"},
        {"level": "instance", "user": alice.username},
        {"level": "team"},
        {"level": "instance", "policy": "absent"},
        {"level": "chat", "chat": str(uuid.uuid4())},
    ):
        answer = ines.post("policies/assignments", {"policy": "support", **target})
        assert read_status_and_code(answer) == (400, "invalid_value"), target
    assert PolicyAssignment.objects.count() == 3


def test_a_policy_is_exported_and_imported(ines: Program) -> None:
    # The maximum length. With escaped characters the body would exceed the size limit.
    wide = {
        **WINDOW_POLICY,
        "window_size": 40,
        "token_budget": 90_000,
        "system_text": "漢" * 19_000,
    }
    made(ines, values=wide, locks=["strategy"])
    form = ines.get("policies/support/export").json()
    assert (form["slug"], form["values"], form["locks"]) == ("support", wide, ["strategy"])
    copy = ines.post("policies/import", {"form": form, "name": "Copy"})
    assert (copy.status_code, copy.json()["slug"]) == (201, "copy")
    assert copy.json()["current"]["values"] == wide
    assert read_status_and_code(ines.post("policies/import", {"form": form})) == (
        409,
        "policy_exists",
    )
    history = {"context.history.keepLastMessages": 6, "context": {"history": {}}}
    into = ines.post("policies/import", {"form": history, "into": "support"}).json()
    assert (into["version"], into["current"]["values"]["keep_last_messages"]) == (2, 6)
    assert into["current"]["values"]["strategy"] == "dynamic_summary"
    for form, code in (
        ({"context.history.colour": 1}, "malformed_strategy_import"),
        ({"palimpsest_policy": 1, "name": "Import"}, "reserved_name"),
        ({"palimpsest_policy": 1, "name": "a\0"}, "malformed_strategy_import"),
        ({"palimpsest_policy": 9, "name": "New", "more": 1}, "policy_impossible"),
    ):
        assert read_status_and_code(ines.post("policies/import", {"form": form})) == (422, code), (
            form
        )
    assert ines.post("policies/import", {"form": {}, "into": "absent"}).status_code == 404
    assert ContextPolicy.objects.count() == 2


def test_who_may_only_look_changes_nothing_and_others_see_nothing(
    ines: Program, audrey: Program, of_alice: Program, program: MakeProgram
) -> None:
    made(ines)
    ines.post("policies/assignments", {"policy": "support", "level": "instance"})
    assignment = PolicyAssignment.objects.get()
    one = "policies/support"
    reads = ["policies", one, f"{one}/versions", f"{one}/versions/1", f"{one}/export"]
    reads.append("policies/assignments")
    writes = {
        ("POST", "policies"): {"slug": "mine", "name": "Mine"},
        ("PATCH", one): {"name": "Mine"},
        ("POST", f"{one}/versions"): {"values": {}, "based_on": 1},
        ("POST", f"{one}/versions/1/activate"): {},
        ("POST", f"{one}/versions/1/restore"): {},
        ("POST", "policies/lint"): {},
        ("POST", "policies/import"): {"form": {"palimpsest_policy": 1, "name": "Mine"}},
        ("POST", "policies/assignments"): {"policy": "support", "level": "instance"},
        ("DELETE", f"policies/assignments/{assignment.pk}"): {},
    }
    before = events()
    left = User.objects.get(username="ines")
    for client, reading, writing in ((audrey, 200, 403), (of_alice, 404, 404)):
        for path in reads:
            assert client.get(path).status_code == reading, path
        for (method, path), body in writes.items():
            answer = client.call(method, path, body)
            assert answer.status_code == writing, (method, path)
    assert audrey.post("policies/lint", {}).json()["error"]["code"] == "permission_denied"
    for scope in keys.SCOPES:
        narrow = program(left, scopes=(scope,))
        assert (narrow.get("policies").status_code == 200) == (scope == "policy:read")
        patched = narrow.call("PATCH", one, {})
        assert (patched.status_code == 200) == (scope == "policy:write")
    rates.REQUESTS.clear()
    # Permissions without a role do not open the administration either.
    User.objects.filter(pk=left.pk).update(is_staff=False)
    assert ines.get("policies").status_code == 404
    assert events() == before
    assert ContextPolicy.objects.get().name == "Support"


def test_a_repeated_request_makes_one_policy(ines: Program) -> None:
    body = {"slug": "support", "name": "Support", "values": WINDOW_POLICY}
    answers = [ines.post("policies", body, HTTP_IDEMPOTENCY_KEY="once") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1]["Idempotent-Replayed"] == "true"
    assert answers[0].json() == answers[1].json()
    taken = ines.post("policies", body, HTTP_IDEMPOTENCY_KEY="another")
    assert read_status_and_code(taken) == (409, "policy_exists")
    assert ContextPolicy.objects.count() == 1
