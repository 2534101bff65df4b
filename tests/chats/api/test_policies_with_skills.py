"""Skills in exported policies: an import creates missing ones, under the rules of skills."""

import base64
import json
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from contextpolicy import policy_skills
from contextpolicy.import_json import LONGEST_IMPORT
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyVersion, Skill
from contextpolicy.publish import create_policy
from contextpolicy.roles import POLICY_ADMIN
from contextpolicy.skills import save_skill
from tests.chats.api.programs import MakeProgram, Program
from tests.contextpolicy.people import person, signed_in
from tests.support.error_codes import read_status_and_code
from tests.support.skill_bodies import POLICY_SCOPES

pytestmark = pytest.mark.django_db
FILES = {"a.md": "One", "forms/b.csv": "x,y"}


@pytest.fixture
def ines(program: MakeProgram, demo_model: object) -> Program:
    """A client of Ines, who administers policies and skills."""
    del demo_model
    return program(person("ines", POLICY_ADMIN), scopes=POLICY_SCOPES)


@pytest.fixture
def dora(program: MakeProgram) -> Program:
    """A client of Dora, who administers policies but not skills."""
    user = User.objects.create(username="dora", is_staff=True)
    allowed = ("view_contextpolicy", "add_contextpolicy", "change_contextpolicy")
    user.user_permissions.set(Permission.objects.filter(codename__in=allowed))
    return program(user, scopes=POLICY_SCOPES)


@pytest.fixture
def house(ines: Program, now: datetime) -> ContextPolicy:
    """A policy that selects two skills."""
    del ines
    for name, mode in (("Mail", "always"), ("Refunds", "on_demand")):
        skill = Skill(slug=name.lower(), name=name, description="Do it.", text="Steps.", mode=mode)
        save_skill(skill=skill, actor="system", now=now, files=FILES if mode == "always" else {})
    values = {"skills": ["refunds", "mail"]}
    return create_policy(slug="house", name="House", values=values, actor="system", now=now)


def clear() -> None:
    """Delete all policies and skills, as on another installation."""
    ContextPolicy.objects.update(current=None)
    PolicyVersion.objects.all().delete()
    ContextPolicy.objects.all().delete()
    Skill.objects.all().delete()


@pytest.mark.requirement("S4.9", by="integrator")
@pytest.mark.usefixtures("house")
def test_an_exported_policy_brings_its_skills(ines: Program) -> None:
    form = ines.get("policies/house/export").json()
    assert [skill["slug"] for skill in form["skills"]] == ["refunds", "mail"]
    assert not {"skills_left_out", "skills_left_out_help"} & form.keys()
    clear()
    assert ines.post("policies/import", {"form": form}).status_code == 201
    mail = Skill.objects.get(slug="mail")
    assert (mail.mode, mail.text, mail.group_id) == ("always", "Steps.", None)
    assert dict(mail.stored_files.values_list("name", "text")) == FILES
    created = AuditEvent.objects.filter(type="skill.created").order_by("seq")
    assert [event.data["skill"] for event in created][-2:] == ["refunds", "mail"]
    assert {**ines.get("policies/house/export").json(), "description": ""} == form


@pytest.mark.usefixtures("house")
def test_a_skill_that_exists_does_not_change(ines: Program) -> None:
    form = ines.get("policies/house/export").json()
    Skill.objects.filter(slug="mail").update(text="Other steps.")
    answer = ines.post("policies/import", {"form": form, "name": "Second"})
    assert answer.status_code == 201
    assert Skill.objects.get(slug="mail").text == "Other steps."
    assert Skill.objects.count() == 2


@pytest.mark.requirement("S4.9", by="integrator")
@pytest.mark.usefixtures("house")
def test_only_administrators_of_skills_create_them(ines: Program, dora: Program) -> None:
    form = ines.get("policies/house/export").json()
    # Dora may not read skills, so her export has none of their texts.
    hers = dora.get("policies/house/export").json()
    assert hers["skills_left_out"] == ["refunds", "mail"]
    assert hers["skills_left_out_help"] == policy_skills.NOT_READABLE
    assert "Steps." not in json.dumps(hers)
    # Without missing skills, nothing is created.
    assert dora.post("policies/import", {"form": form, "name": "Second"}).status_code == 201
    clear()
    assert read_status_and_code(dora.post("policies/import", {"form": form})) == (
        403,
        "policy_skills_refused",
    )
    assert not Skill.objects.exists()
    assert not ContextPolicy.objects.exists()


@pytest.mark.usefixtures("house")
def test_an_export_without_skills_is_read(ines: Program) -> None:
    form = ines.get("policies/house/export").json()
    del form["skills"]
    assert ines.post("policies/import", {"form": form, "name": "Old"}).status_code == 201
    clear()
    answer = ines.post("policies/import", {"form": form})
    assert read_status_and_code(answer) == (422, "policy_impossible")
    assert answer.json()["error"]["details"][0]["code"] == "unknown_skill"


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"slug": "a b"}, "malformed_strategy_import"),
        ({"name": " "}, "malformed_strategy_import"),
        ({"mode": "never"}, "malformed_strategy_import"),
        ({"text": ""}, "malformed_strategy_import"),
        ({"text": "x" * 10_001}, "malformed_strategy_import"),
        ({"enabled": 1}, "malformed_strategy_import"),
        ({"group": 1}, "malformed_strategy_import"),
        ({"files": {"../a": "x"}}, "malformed_strategy_import"),
        ({"files": {"a": None}}, "malformed_strategy_import"),
        ({"files": {"a": "x" * 100_001}}, "malformed_strategy_import"),
        ({"name": "MAIL"}, "malformed_strategy_import"),
        ({"slug": "other"}, "policy_impossible"),
    ],
)
def test_a_forged_export_creates_nothing(
    ines: Program, change: dict[str, Any], refusal: str
) -> None:
    form = ines.get("policies/house/export").json()
    clear()
    form["skills"][0] |= change
    assert read_status_and_code(ines.post("policies/import", {"form": form})) == (422, refusal)
    assert not Skill.objects.exists()
    assert not ContextPolicy.objects.exists()


@pytest.mark.parametrize("skills", ["mail", [7], [{}]])
def test_other_types_are_refused(ines: Program, skills: Any) -> None:
    form = {"palimpsest_policy": 1, "name": "New", "values": {}, "skills": skills}
    assert ines.post("policies/import", {"form": form}).status_code == 422


def test_a_skill_of_a_group_keeps_its_slug(ines: Program, house: ContextPolicy) -> None:
    del house
    form = ines.get("policies/house/export").json()
    clear()
    group = Group.objects.create(name="Sales")
    taken = {"name": "Mail", "description": "d", "text": "t", "group": group.pk}
    assert ines.post("skills", taken).json()["slug"] == "mail"
    assert ines.post("policies/import", {"form": form}).status_code == 422
    assert Skill.objects.get().text == "t"


@pytest.fixture
def large(house: ContextPolicy, now: datetime) -> ContextPolicy:
    """A policy whose two skills together are too large for its export."""
    for slug in ("mail", "refunds"):
        skill = Skill.objects.get(slug=slug)
        files: dict[str, str | None] = {f"f{n}": "ä" * 99_000 for n in range(3)}
        save_skill(skill=skill, actor="system", now=now, files=files)
    return house


@pytest.mark.usefixtures("large")
def test_skills_that_are_too_large_are_named(ines: Program) -> None:
    form = ines.get("policies/house/export").json()
    assert [skill["slug"] for skill in form["skills"]] == ["refunds"]
    assert form["skills_left_out"] == ["mail"]
    assert form["skills_left_out_help"] == policy_skills.TOO_LARGE
    assert len(json.dumps(form["skills"])) <= policy_skills.MOST_BYTES < LONGEST_IMPORT


@pytest.mark.usefixtures("large")
def test_an_import_names_the_skills_that_the_export_left_out(ines: Program) -> None:
    form = ines.get("policies/house/export").json()
    archive = ines.client.get("/api/v1/skills/mail/export").content
    clear()
    answer = ines.post("policies/import", {"form": form})
    assert read_status_and_code(answer) == (422, "policy_impossible")
    (problem,) = answer.json()["error"]["details"]
    assert problem["code"] == "skill_left_out"
    assert "mail" in problem["message"]
    assert not ContextPolicy.objects.exists()
    # The way that the export and the refusal describe.
    sent = {"archive": base64.b64encode(archive).decode()}
    assert ines.post("skills/import", sent).status_code < 300
    assert ines.post("policies/import", {"form": form}).status_code == 201
    assert set(Skill.objects.values_list("slug", flat=True)) == {"mail", "refunds"}


@pytest.mark.parametrize(
    ("key", "value", "refusal"),
    [
        ("skills_left_out", "mail", "policy_impossible"),
        ("skills_left_out", [7, "mail"], ""),
        ("skills_left_out_help", 7, "policy_impossible"),
    ],
)
@pytest.mark.usefixtures("house")
def test_forged_lists_of_left_out_skills(ines: Program, key: str, value: Any, refusal: str) -> None:
    form = {**ines.get("policies/house/export").json(), key: value}
    answer = ines.post("policies/import", {"form": form, "name": "Second"})
    assert answer.status_code == (422 if refusal else 201)


@pytest.mark.requirement("S4.9", by="admin")
def test_the_administration_exports_and_imports_skills(ines: Program, house: ContextPolicy) -> None:
    del ines
    browser = signed_in(User.objects.get(username="ines"))
    at = f"/admin/contextpolicy/contextpolicy/{house.pk}/change/?export=1"
    form = browser.get(at).content.decode()
    clear()
    browser.post("/admin/contextpolicy/contextpolicy/import/", {"pasted": form})
    assert set(Skill.objects.values_list("slug", flat=True)) == {"mail", "refunds"}
    assert ContextPolicy.objects.get().slug == "house"


@pytest.mark.requirement("S4.9", by="admin")
def test_the_administration_warns_of_skills_that_the_export_leaves_out(
    ines: Program, large: ContextPolicy
) -> None:
    del ines
    browser = signed_in(User.objects.get(username="ines"))
    at = f"/admin/contextpolicy/contextpolicy/{large.pk}/change/"
    form = json.loads(browser.get(at, {"export": "1"}).content)
    assert form["skills_left_out"] == ["mail"]
    assert "skills_left_out" in browser.get(at).content.decode()
    # Shown once, and not after a complete export.
    Skill.objects.get(slug="mail").stored_files.all().delete()
    browser.get(at, {"export": "1"})
    assert "skills_left_out" not in browser.get(at).content.decode()
