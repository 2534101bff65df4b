"""Skills over REST: owners of groups and teams, import and export, hostile archives."""

import base64
import io
import stat
import zipfile
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from chats.exchange import skill_folders
from chats.models import Team
from contextpolicy.models import AuditEvent, GroupOwner, Skill
from contextpolicy.models.skills import LONGEST_SKILL
from contextpolicy.roles import POLICY_ADMIN
from tests.chats.api.programs import MakeProgram, Program
from tests.contextpolicy.people import person
from tests.support.error_codes import read_status_and_code
from tests.support.skill_bodies import NEW_SKILL, POLICY_SCOPES

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(alice: User, program: MakeProgram, sales: Group) -> Program:
    """A client of Alice, who owns the group."""
    del sales
    return program(alice, scopes=POLICY_SCOPES)


def packed(*files: tuple[str, str], **options: Any) -> str:
    """Return a ZIP archive of files as base64."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = options.get("mode", 0o644) << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return base64.b64encode(made.getvalue()).decode()


def folder(name: str = "Refunds", text: str = "Ask.") -> str:
    return f"---\nname: {name}\ndescription: Answer.\n---\n\n{text}\n"


@pytest.mark.requirement("S4.9", by="integrator")
def test_an_owner_creates_changes_and_deletes_skills_of_the_group(
    owner: Program, sales: Group
) -> None:
    made = owner.post("skills", {**NEW_SKILL, "group": sales.pk})
    assert made.status_code == 201
    assert made.json()["mode"] == "on_demand"
    slug = made.json()["slug"]
    changed = owner.call("PATCH", f"skills/{slug}", {"text": "Ask twice."})
    assert changed.json()["text"] == "Ask twice."
    assert [row["slug"] for row in owner.get("skills").json()["data"]] == [slug]
    assert owner.call("DELETE", f"skills/{slug}").status_code == 204
    events = AuditEvent.objects.filter(type__startswith="skill.").order_by("seq")
    assert [event.type for event in events] == ["skill.created", "skill.changed", "skill.deleted"]
    assert all(event.data["group"] == sales.pk for event in events)
    assert "Ask" not in str([event.data for event in events])


@pytest.mark.requirement("S4.9", by="integrator")
def test_members_read_and_others_see_nothing(
    owner: Program, sales: Group, bob: User, charlie: User, program: MakeProgram
) -> None:
    slug = owner.post("skills", {**NEW_SKILL, "group": sales.pk}).json()["slug"]
    support = Group.objects.create(name="Support")
    charlie.groups.add(support)
    GroupOwner.objects.create(group=support, user=charlie)
    # Bob is a member, Charlie owns another group.
    for user, seen in ((bob, 200), (charlie, 404)):
        client = program(user, scopes=POLICY_SCOPES)
        assert client.get(f"skills/{slug}").status_code == seen
        assert client.get(f"skills/{slug}/export").status_code == seen
        assert len(client.get("skills").json()["data"]) == (seen == 200)
        for method, body in (("PATCH", {"text": "Stolen."}), ("DELETE", None)):
            assert client.call(method, f"skills/{slug}", body).status_code == 404
        stolen = {**NEW_SKILL, "group": sales.pk}
        assert read_status_and_code(client.post("skills", stolen)) == (403, "skill_place_refused")
        taken = {"archive": packed(("a/SKILL.md", folder())), "group": sales.pk}
        assert read_status_and_code(client.post("skills/import", taken)) == (
            403,
            "skill_place_refused",
        )
    assert Skill.objects.get().text == NEW_SKILL["text"]


def test_an_owner_who_left_the_group_edits_nothing(
    owner: Program, sales: Group, alice: User
) -> None:
    slug = owner.post("skills", {**NEW_SKILL, "group": sales.pk}).json()["slug"]
    alice.groups.remove(sales)
    assert owner.call("PATCH", f"skills/{slug}", {"text": "Late."}).status_code == 404


def test_only_administrators_write_for_everyone_or_into_each_prompt(
    owner: Program, sales: Group, program: MakeProgram
) -> None:
    assert read_status_and_code(owner.post("skills", NEW_SKILL)) == (403, "skill_place_refused")
    always = {**NEW_SKILL, "group": sales.pk, "mode": "always"}
    assert read_status_and_code(owner.post("skills", always)) == (403, "skill_mode_refused")
    ines = program(person("ines", POLICY_ADMIN), scopes=POLICY_SCOPES)
    made = ines.post("skills", {**NEW_SKILL, "mode": "always"})
    assert (made.status_code, made.json()["mode"]) == (201, "always")
    slug = made.json()["slug"]
    assert read_status_and_code(ines.call("DELETE", f"skills/{slug}")) == (
        409,
        "skill_of_installation",
    )


def test_a_team_has_skills_of_its_owner(
    alice: User, bob: User, program: MakeProgram, now: datetime, chat: Any
) -> None:
    del chat
    client, other = (program(user, scopes=(*POLICY_SCOPES, "chats:write")) for user in (alice, bob))
    crew = client.post("teams", {"name": "Crew", "agents": [{"name": "Writer"}]}).json()
    made = client.post("skills", {**NEW_SKILL, "team": crew["id"]})
    assert (made.status_code, made.json()["team"]) == (201, crew["id"])
    assert other.get(f"skills/{made.json()['slug']}").status_code == 404
    assert read_status_and_code(other.post("skills", {**NEW_SKILL, "team": crew["id"]})) == (
        403,
        "skill_place_refused",
    )
    # The owner's team is personal: an administrator reads none of its texts.
    ines = program(person("ines", POLICY_ADMIN), scopes=POLICY_SCOPES)
    assert ines.get(f"skills/{made.json()['slug']}").status_code == 404
    assert Team.objects.get().owner == alice


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"name": " "}, "skill_name_invalid"),
        ({"name": "x" * 101}, "skill_name_invalid"),
        ({"text": " \n"}, "skill_text_missing"),
        ({"text": "x" * (LONGEST_SKILL + 1)}, "too_long"),
        ({"description": ""}, "skill_description_invalid"),
        ({"description": "x" * 1_025}, "skill_description_invalid"),
        ({"name": "REFUNDS"}, "skill_name_taken"),
        ({"text": "a\x00b"}, "invalid_character"),
    ],
)
def test_each_field_has_its_limit(
    owner: Program, sales: Group, values: dict[str, Any], refusal: str
) -> None:
    owner.post("skills", {**NEW_SKILL, "group": sales.pk})
    answer = owner.post("skills", {**NEW_SKILL, "name": "Other", "group": sales.pk, **values})
    assert answer.status_code in {400, 422}
    assert answer.json()["error"]["code"] == refusal
    assert Skill.objects.count() == 1


def test_two_places_may_use_one_name(owner: Program, sales: Group, alice: User) -> None:
    other = Group.objects.create(name="Other")
    alice.groups.add(other)
    GroupOwner.objects.create(group=other, user=alice)
    slugs = [
        owner.post("skills", {**NEW_SKILL, "group": group.pk}).json()["slug"]
        for group in (sales, other)
    ]
    assert slugs == ["refunds", "refunds-2"]


@pytest.mark.requirement("S4.9", by="integrator")
def test_an_exported_skill_can_be_imported_unchanged(
    owner: Program, sales: Group, alice: User
) -> None:
    text = "# Steps\n\n1. Ask „why“.\n---\n2. Answer: 好的"
    values = {"name": 'A "b": c', "description": "Say: yes, 'no' # maybe.", "text": text}
    made = owner.post("skills", {**values, "group": sales.pk}).json()
    file = owner.get(f"skills/{made['slug']}/export")
    assert file["Content-Type"] == "application/zip"
    other = Group.objects.create(name="Other")
    alice.groups.add(other)
    GroupOwner.objects.create(group=other, user=alice)
    body = {"archive": base64.b64encode(file.content).decode(), "group": other.pk}
    for field in ("created", "changed"):
        done = owner.post("skills/import", body)
        assert done.status_code == 200
        (row,) = done.json()[field]
        assert {name: row[name] for name in values} == values
    assert Skill.objects.filter(group=other).count() == 1


@pytest.mark.parametrize(
    ("mode", "described"), [("on_demand", "Answer."), ("always", "Answer."), ("always", "")]
)
def test_an_import_elsewhere_keeps_slug_and_mode(
    mode: str, described: str, program: MakeProgram
) -> None:
    ines = program(person("ines", POLICY_ADMIN), scopes=POLICY_SCOPES)
    # Its slug does not follow from its name.
    values = {"name": "退款 – Money back", "description": described, "text": "Ask.", "mode": mode}
    Skill.objects.create(slug="refunds_eu", updated_at=timezone.now(), **values)
    exported = ines.get("skills/refunds_eu/export").content
    archive = base64.b64encode(exported).decode()
    # Readers of the format accept only these keys, and the name of the folder as the name.
    with zipfile.ZipFile(io.BytesIO(exported)) as files:
        front = files.read("refunds_eu/SKILL.md").decode().split("---\n")[1].splitlines()
    keys = [line.partition(":")[0] for line in front if not line.startswith(" ")]
    assert keys == ["name", "description", "metadata"]
    assert front[0] == "name: refunds_eu"
    Skill.objects.all().delete()
    (made,) = ines.post("skills/import", {"archive": archive}).json()["created"]
    assert made["slug"] == "refunds_eu"
    assert {name: made[name] for name in values} == values


def test_an_owner_imports_a_skill_of_mode_always_on_demand(owner: Program, sales: Group) -> None:
    text = folder().replace("description", "mode: always\ndescription")
    body = {"archive": packed(("a/SKILL.md", text)), "group": sales.pk}
    (made,) = owner.post("skills/import", body).json()["created"]
    assert (made["slug"], made["mode"]) == ("a", "on_demand")


def test_metadata_of_other_tools_changes_nothing(owner: Program, sales: Group) -> None:
    text = folder().replace(
        "---\n\n", "metadata:\n  author: me\n  mode: fast\nlicense: MIT\n---\n\n"
    )
    body = {"archive": packed(("a/SKILL.md", text)), "group": sales.pk}
    (made,) = owner.post("skills/import", body).json()["created"]
    assert (made["name"], made["mode"], made["text"]) == ("Refunds", "on_demand", "Ask.")


@pytest.mark.parametrize(
    ("above", "slug"),
    [
        ("skills-main/pdf-forms/", "pdf-forms"),
        ("My Folder/", "refunds"),
        ("", "refunds"),
        (f"{'a' * 57}/", "a" * 57),
        (f"{'a' * 60}/", "a" * 60),
        (f"{'a' * 61}/", "refunds"),
        ("taken/", "taken-2"),
        (f"{'b' * 60}/", f"{'b' * 56}-2"),
    ],
)
def test_the_slug_is_the_name_of_the_folder(
    above: str, slug: str, owner: Program, sales: Group
) -> None:
    for name in ("taken", "b" * 60):
        Skill.objects.create(slug=name, name=name, text="x", updated_at=timezone.now())
    body = {"archive": packed((f"{above}SKILL.md", folder())), "group": sales.pk}
    (made,) = owner.post("skills/import", body).json()["created"]
    assert (made["slug"], made["name"]) == (slug, "Refunds")


def test_other_files_of_a_folder_are_named_and_left_out(owner: Program, sales: Group) -> None:
    archive = packed(
        ("a/SKILL.md", folder()), ("a/run me.sh", "rm"), ("b/SKILL.md", folder("B")), ("a/", "")
    )
    done = owner.post("skills/import", {"archive": archive, "group": sales.pk})
    assert [row["name"] for row in done.json()["created"]] == ["Refunds", "B"]
    assert done.json()["left_out"] == ["a/run me.sh"]


@pytest.mark.parametrize(
    ("archive", "refusal"),
    [
        ("!", "skill_archive_invalid"),
        (base64.b64encode(b"PK\x03\x04 not a ZIP").decode(), "skill_archive_invalid"),
        (packed(("a/README.md", "x")), "skill_archive_invalid"),
        (packed(("../SKILL.md", folder())), "skill_archive_unsafe"),
        (packed(("a/../../SKILL.md", folder())), "skill_archive_unsafe"),
        (packed(("/etc/SKILL.md", folder())), "skill_archive_unsafe"),
        (packed(("c:/SKILL.md", folder())), "skill_archive_unsafe"),
        (packed(("a\\..\\SKILL.md", folder())), "skill_archive_unsafe"),
        (
            packed(("a/SKILL.md", "/etc/passwd"), mode=stat.S_IFLNK | 0o777),
            "skill_archive_unsafe",
        ),
        (packed(("a/SKILL.md", folder(text="0" * 50_000_000))), "skill_archive_too_large"),
        (
            packed(*((f"{n}/SKILL.md", folder(str(n))) for n in range(201))),
            "skill_archive_too_large",
        ),
        (packed(("a/SKILL.md", "no front matter")), "skill_file_invalid"),
        (packed(("a/SKILL.md", "---\nname: x\n---\ny")), "skill_file_invalid"),
        (packed(("a/SKILL.md", folder(text="x" * (LONGEST_SKILL + 1)))), "too_long"),
        (packed(("a/SKILL.md", folder()), ("b/SKILL.md", "broken")), "skill_file_invalid"),
        (packed(*((f"{n}/SKILL.md", folder(str(n))) for n in range(51))), "too_many_skills"),
    ],
)
def test_a_hostile_archive_is_refused_and_stores_nothing(
    owner: Program, sales: Group, archive: str, refusal: str
) -> None:
    answer = owner.post("skills/import", {"archive": archive, "group": sales.pk})
    assert answer.status_code in {413, 422}
    assert answer.json()["error"]["code"] == refusal
    assert not Skill.objects.exists()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damaged_bytes_are_refused(method: int) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("a/SKILL.md", folder(text="A long text of a skill. " * 40))
    data = bytearray(made.getvalue())
    # After the header and name of the only entry, up to the directory.
    begin, end = 30 + len("a/SKILL.md") + 9, data.rfind(b"PK\x01\x02")
    data[begin:end] = b"\xff" * (end - begin)
    with pytest.raises(skill_folders.SkillArchiveInvalid):
        skill_folders.read_skill_archive(bytes(data))


def test_a_header_cannot_hide_the_size_of_an_entry() -> None:
    data = bytearray(base64.b64decode(packed(("a/SKILL.md", folder(text="0" * 1_000_000)))))
    at = data.rfind(b"PK\x01\x02")
    # The declared size of the entry in the central directory.
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    with pytest.raises((skill_folders.SkillArchiveInvalid, skill_folders.SkillFileInvalid)):
        skill_folders.read_skill_archive(bytes(data))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["name: 'It''s'", "license: x", "description: >", "  one", "  two"], ("It's", "one two")),
        (['name: "a\\"b"', "description: one", "  two", "other:", "  name: z"], ('a"b', "one two")),
        (['name: "a\\q"', "description:"], ("a\\q", "")),
    ],
)
def test_front_matter_of_other_tools_is_read(lines: list[str], found: tuple[str, str]) -> None:
    fields = dict(skill_folders.parse_front_matter(lines))
    assert (fields["name"], fields["description"]) == found
