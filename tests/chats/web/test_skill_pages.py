"""Skill pages: owners of a group write its skills, members read them, others see nothing."""

import io
import re
import zipfile
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from contextpolicy.models import GroupOwner, Skill
from contextpolicy.roles import OWNER, POLICY_ADMIN
from tests.contextpolicy.pages import submitted
from tests.contextpolicy.people import person, signed_in
from tests.support.skill_bodies import NEW_SKILL

pytestmark = pytest.mark.django_db
PAGE = "/skill/refunds"


@pytest.fixture
def place(sales: Group) -> str:
    return f"group:{sales.pk}"


def list_offered_places(client: Client) -> list[str]:
    """Return the owners that the page offers for a new skill."""
    page = client.get("/skills/").content.decode()
    found = re.findall(r'<option value="((?:installation|group|team)[^"]*)"', page)
    return list(dict.fromkeys(found))


@pytest.mark.requirement("S4.9", by="user")
def test_an_owner_writes_a_skill_and_a_member_only_reads_it(
    alice: User, bob: User, charlie: User, place: str
) -> None:
    owner, member, other = (signed_in(user) for user in (alice, bob, charlie))
    made = owner.post("/skills/", {**NEW_SKILL, "place": place})
    assert made["Location"] == PAGE
    owner.post(PAGE, {**NEW_SKILL, "text": "Ask twice.", "enabled": "on"})
    assert Skill.objects.get().text == "Ask twice."
    assert "Ask twice." in member.get(PAGE).content.decode()
    assert list_offered_places(member) == []
    assert other.get(PAGE).status_code == 404
    assert other.get("/skills/").context["rows"] == []
    for client in (member, other):
        assert client.post(PAGE, NEW_SKILL).status_code == 404
        assert client.post(f"{PAGE}/delete").status_code == 404
        assert (
            client.post("/skills/", {**NEW_SKILL, "name": "B", "place": place}).status_code == 403
        )
    assert other.get(f"{PAGE}/export").status_code == 404
    owner.post(f"{PAGE}/delete")
    assert not Skill.objects.exists()


def test_a_refused_skill_stays_in_the_form(alice: User, place: str) -> None:
    owner = signed_in(alice)
    answer = owner.post("/skills/", {**NEW_SKILL, "description": "", "place": place})
    page = answer.content.decode()
    assert 'data-reason="skill_description_invalid"' in page
    assert NEW_SKILL["text"] in page
    owner.post("/skills/", {**NEW_SKILL, "place": place})
    answer = owner.post(PAGE, {**NEW_SKILL, "description": "", "enabled": "on"})
    assert 'data-reason="skill_description_invalid"' in answer.content.decode()
    assert Skill.objects.get().description == NEW_SKILL["description"]


@pytest.mark.parametrize("value", ["", "group:", "group:x", "group:²", "team:x", "installation"])
def test_other_places_are_refused(alice: User, place: str, value: str) -> None:
    answer = signed_in(alice).post("/skills/", {**NEW_SKILL, "place": value})
    assert answer.status_code == 403
    assert 'data-reason="skill_place_refused"' in answer.content.decode()
    del place


def test_an_export_is_imported_by_its_page(alice: User, place: str) -> None:
    owner = signed_in(alice)
    owner.post("/skills/", {**NEW_SKILL, "place": place})
    file = owner.get(f"{PAGE}/export")
    owner.post(f"{PAGE}/delete")
    archive = SimpleUploadedFile("refunds.zip", file.content)
    page = owner.post("/skills/import", {"archive": archive, "place": place})
    assert 'data-created="1"' in page.content.decode()
    skill = Skill.objects.get()
    assert {name: getattr(skill, name) for name in NEW_SKILL} == NEW_SKILL


def test_a_hostile_archive_is_refused_on_its_page(alice: User, place: str) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("../SKILL.md", "---\nname: a\ndescription: b\n---\nc")
    file = SimpleUploadedFile("a.zip", made.getvalue())
    owner = signed_in(alice)
    page = owner.post("/skills/import", {"archive": file, "place": place})
    assert 'data-reason="skill_archive_unsafe"' in page.content.decode()
    page = owner.post("/skills/import", {"place": place})
    assert 'data-reason="skill_archive_invalid"' in page.content.decode()
    assert not Skill.objects.exists()


def test_administrators_write_for_the_installation_and_choose_the_mode(place: str) -> None:
    admin = signed_in(person("ines", POLICY_ADMIN))
    assert list_offered_places(admin) == ["installation"]
    admin.post("/skills/", {**NEW_SKILL, "place": "installation"})
    admin.post(PAGE, {**NEW_SKILL, "mode": "always", "enabled": "on"})
    assert Skill.objects.get().mode == "always"
    assert admin.post(f"{PAGE}/delete").status_code == 409
    del place


def test_an_owner_of_the_installation_appoints_members_as_owners(
    sales: Group, bob: User, charlie: User
) -> None:
    olga: Client = signed_in(person("olga", OWNER))
    address = f"/admin/auth/group/{sales.pk}/change/"
    answer: Any = submitted(olga, address, name="Sales", owners=[str(bob.pk)])
    assert answer.status_code in {200, 302}
    assert list(GroupOwner.objects.values_list("user", flat=True)) == [bob.pk]
    # Charlie is not a member.
    submitted(olga, address, name="Sales", owners=[str(charlie.pk)])
    assert list(GroupOwner.objects.values_list("user", flat=True)) == [bob.pk]


def test_an_older_tab_does_not_replace_a_newer_version(alice: User, place: str) -> None:
    owner = signed_in(alice)
    owner.post("/skills/", {**NEW_SKILL, "place": place})
    found = re.findall(r'name="based_on" value="(\w+)"', owner.get(PAGE).content.decode())
    older = {**NEW_SKILL, "enabled": "on", "based_on": found[0]}
    assert owner.post(PAGE, {**older, "text": "Ask twice."}).status_code == 302
    refused = owner.post(PAGE, {**older, "text": "Never ask."})
    assert refused.status_code == 409
    html = refused.content.decode()
    assert 'data-reason="skill_changed_meanwhile"' in html
    # Both texts are shown.
    assert html.count("Ask twice.") == 1
    assert "Never ask.</textarea>" in html
    assert Skill.objects.get().text == "Ask twice."
    again = re.findall(r'name="based_on" value="(\w+)"', html)
    owner.post(PAGE, {**older, "text": "Never ask.", "based_on": again[0]})
    assert Skill.objects.get().text == "Never ask."
