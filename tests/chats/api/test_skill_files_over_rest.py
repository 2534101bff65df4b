"""Files of skills over REST: write and remove, import and export, hostile folders."""

import base64
import hashlib
import io
import zipfile
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from chats.exchange import skill_folders
from contextpolicy.models import AuditEvent, GroupOwner, Skill, SkillFile
from tests.chats.api.programs import MakeProgram, Program
from tests.support.error_codes import read_status_and_code
from tests.support.skill_bodies import NEW_SKILL, POLICY_SCOPES

pytestmark = pytest.mark.django_db
SKILL_MD = "---\nname: Refunds\ndescription: Answer.\n---\n\nAsk.\n"


@pytest.fixture
def owner(alice: User, program: MakeProgram, sales: Group) -> Program:
    """A client of Alice, who owns the group."""
    del sales
    return program(alice, scopes=POLICY_SCOPES)


@pytest.fixture
def slug(owner: Program, sales: Group) -> str:
    """The slug of a skill of the group with two files."""
    files = [{"name": "reference.md", "text": "# All"}, {"name": "forms/refund.csv", "text": "a,b"}]
    return str(
        owner.post("skills", {**NEW_SKILL, "group": sales.pk, "files": files}).json()["slug"]
    )


def packed(*files: tuple[str, str | bytes]) -> str:
    """Return a ZIP archive of files as base64."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files:
            archive.writestr(name, text)
    return base64.b64encode(made.getvalue()).decode()


def texts_of(client: Program, slug: str) -> dict[str, str]:
    rows = client.get(f"skills/{slug}/files").json()["data"]
    assert all(hashlib.sha256(r["text"].encode()).hexdigest() == r["sha256"] for r in rows)
    return {row["name"]: row["text"] for row in rows}


@pytest.mark.requirement("S4.9", by="integrator")
def test_files_are_written_replaced_and_removed(owner: Program, slug: str) -> None:
    assert texts_of(owner, slug) == {"forms/refund.csv": "a,b", "reference.md": "# All"}
    changes = [{"name": "reference.md", "text": "# New\r\n"}, {"name": "notes", "text": ""}]
    answer = owner.call("PATCH", f"skills/{slug}", {"files": changes})
    assert [row["name"] for row in answer.json()["files"]] == [
        "forms/refund.csv",
        "notes",
        "reference.md",
    ]
    removed = [{"name": "forms/refund.csv", "text": None}]
    owner.call("PATCH", f"skills/{slug}", {"files": removed})
    assert texts_of(owner, slug) == {"notes": "", "reference.md": "# New\n"}
    # Other values do not change the files.
    owner.call("PATCH", f"skills/{slug}", {"text": "Ask twice."})
    assert len(texts_of(owner, slug)) == 2
    rows = AuditEvent.objects.filter(type__startswith="skill.").order_by("seq")
    events = [event.data for event in rows]
    assert [data.get("files") for data in events] == [
        {"written": ["forms/refund.csv", "reference.md"]},
        {"written": ["notes", "reference.md"]},
        {"removed": ["forms/refund.csv"]},
        None,
    ]
    assert "# New" not in str(events)


@pytest.mark.requirement("S4.9", by="integrator")
def test_who_may_not_edit_a_skill_may_not_edit_its_files(
    slug: str, bob: User, charlie: User, program: MakeProgram
) -> None:
    for user, seen in ((bob, 200), (charlie, 404)):
        client = program(user, scopes=POLICY_SCOPES)
        assert client.get(f"skills/{slug}/files").status_code == seen
        change = {"files": [{"name": "reference.md", "text": "Stolen."}]}
        assert client.call("PATCH", f"skills/{slug}", change).status_code == 404
    reader = program(bob, scopes=("policy:read",))
    assert reader.call("PATCH", f"skills/{slug}", {"files": []}).status_code == 403
    assert SkillFile.objects.get(name="reference.md").text == "# All"


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        *(
            ([{"name": name, "text": "x"}], "skill_file_name_invalid")
            for name in ("../a", "/a", "a/../b", ".env", "a/.git/b", "a b", "a//b", "a/", "ä", "")
        ),
        ([{"name": "x" * 201, "text": "x"}], "skill_file_name_invalid"),
        ([{"name": "skill.MD", "text": "x"}], "skill_file_name_invalid"),
        ([{"name": "a\\b", "text": "x"}], "skill_file_name_invalid"),
        ([{"name": "Reference.md", "text": "x"}], "skill_file_name_taken"),
        ([{"name": "forms", "text": "x"}], "skill_file_name_taken"),
        ([{"name": "reference.md/x", "text": "x"}], "skill_file_name_taken"),
        ([{"name": "a", "text": "x"}, {"name": "a", "text": "y"}], "skill_file_name_taken"),
        ([{"name": "a", "text": "x" * 100_001}], "skill_file_too_long"),
        ([{"name": f"a{n}", "text": "x" * 100_000} for n in range(5)], "skill_file_too_long"),
        ([{"name": f"a{n}", "text": "x"} for n in range(19)], "too_many_skill_files"),
        ([{"name": f"a{n}", "text": "x"} for n in range(41)], "invalid_value"),
        ([{"name": "gone", "text": None}], "skill_file_missing"),
        ([{"name": "a", "text": "a\x00b"}], "invalid_character"),
        ([{"name": "a"}], "missing_field"),
        ([{"name": "a", "text": "x", "mode": 7}], "unknown_field"),
        ("a", "invalid_value"),
    ],
)
def test_each_limit_of_files_refuses_the_change(
    owner: Program, slug: str, files: Any, refusal: str
) -> None:
    answer = owner.call("PATCH", f"skills/{slug}", {"text": "Changed.", "files": files})
    assert answer.status_code in {400, 422}
    assert answer.json()["error"]["code"] == refusal
    assert Skill.objects.get().text == NEW_SKILL["text"]
    assert SkillFile.objects.count() == 2


@pytest.mark.requirement("S4.9", by="integrator")
def test_an_exported_folder_is_imported_with_its_files(
    owner: Program, slug: str, sales: Group, alice: User
) -> None:
    file = owner.get(f"skills/{slug}/export")
    with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
        assert archive.namelist() == [
            f"{slug}/SKILL.md",
            f"{slug}/forms/refund.csv",
            f"{slug}/reference.md",
        ]
    other = Group.objects.create(name="Other")
    alice.groups.add(other)
    GroupOwner.objects.create(group=other, user=alice)
    body = {"archive": base64.b64encode(file.content).decode(), "group": other.pk}
    (made,) = owner.post("skills/import", body).json()["created"]
    assert texts_of(owner, made["slug"]) == texts_of(owner, slug)
    # A file that the folder does not have is removed.
    extra = {"files": [{"name": "extra.md", "text": "x"}, {"name": "reference.md", "text": "y"}]}
    owner.call("PATCH", f"skills/{made['slug']}", extra)
    (changed,) = owner.post("skills/import", body).json()["changed"]
    assert texts_of(owner, changed["slug"]) == texts_of(owner, slug)
    del sales


def test_files_that_cannot_be_imported_are_listed_with_a_reason(
    owner: Program, sales: Group
) -> None:
    archive = packed(
        ("a/SKILL.md", SKILL_MD),
        ("a/good/one.md", "ü"),
        ("a/empty", ""),
        ("a/.DS_Store", "x"),
        ("a/photo.png", b"\x89PNG\r\n\x1a\n\xff"),
        ("a/utf16.txt", "text".encode("utf-16")),
        ("a/nul.txt", "a\x00b"),
        ("a/with space.md", "x"),
        ("README.md", "x"),
        ("a/b/SKILL.md", SKILL_MD.replace("Refunds", "Inner")),
        ("a/b/two.md", "two"),
    )
    done = owner.post("skills/import", {"archive": archive, "group": sales.pk}).json()
    assert [(row["name"], row["code"]) for row in done["left_out_files"]] == [
        ("README.md", "no_skill"),
        ("a/.DS_Store", "name"),
        ("a/nul.txt", "not_text"),
        ("a/photo.png", "not_text"),
        ("a/utf16.txt", "not_text"),
        ("a/with space.md", "name"),
    ]
    assert all(row["reason"].endswith(".") for row in done["left_out_files"])
    assert done["left_out"] == [row["name"] for row in done["left_out_files"]]
    outer, inner = done["created"]
    assert texts_of(owner, outer["slug"]) == {"empty": "", "good/one.md": "ü"}
    assert texts_of(owner, inner["slug"]) == {"two.md": "two"}


def noise(length: int) -> str:
    """Return a text that does not compress well."""
    digests = (hashlib.sha256(b"%d" % number).digest() for number in range(length // 32 + 1))
    return base64.b64encode(b"".join(digests)).decode()[:length]


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        ([("a/../../etc/x", "x")], "skill_archive_unsafe"),
        ([("a/..", "x")], "skill_archive_unsafe"),
        ([("/etc/x", "x")], "skill_archive_unsafe"),
        ([("a\\..\\x", "x")], "skill_archive_unsafe"),
        ([("a/x", "x"), ("a/X", "y")], "skill_file_name_taken"),
        ([("a/y", "x"), ("a/y/z", "y")], "skill_file_name_taken"),
        ([("a/bomb.txt", "0" * 50_000_000)], "skill_file_too_long"),
        ([("a/long.txt", "x" * 100_001)], "skill_file_too_long"),
        ([(f"a/{n}", "0" * 100_000) for n in range(6)], "skill_file_too_long"),
        ([(f"a/{n}", "x") for n in range(21)], "too_many_skill_files"),
        ([(f"a/{n}.bin", b"\xff" * 399_999) for n in range(60)], "skill_archive_too_large"),
        ([(f"a/{n}", "") for n in range(10_000)], "skill_archive_too_large"),
        ([("a/noise", noise(1_600_000))], "skill_archive_too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0][0],
)
def test_a_hostile_folder_is_refused_and_stores_nothing(
    owner: Program, sales: Group, files: list[tuple[str, str | bytes]], refusal: str
) -> None:
    archive = packed(("a/SKILL.md", SKILL_MD), *files)
    answer = owner.post("skills/import", {"archive": archive, "group": sales.pk})
    assert answer.status_code in {413, 422}
    assert answer.json()["error"]["code"] == refusal
    assert not Skill.objects.exists()
    assert not SkillFile.objects.exists()


def test_one_name_twice_in_an_archive_is_refused(owner: Program, sales: Group) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        archive = packed(("a/SKILL.md", SKILL_MD), ("a/x.md", "one"), ("a/x.md", "two"))
    answer = owner.post("skills/import", {"archive": archive, "group": sales.pk})
    assert read_status_and_code(answer) == (422, "skill_file_name_taken")


def test_the_largest_skill_is_exported_and_imported(owner: Program, sales: Group) -> None:
    files = [{"name": f"f{n}", "text": noise(100_000)} for n in range(5)]
    slug = owner.post("skills", {**NEW_SKILL, "group": sales.pk, "files": files}).json()["slug"]
    file = owner.get(f"skills/{slug}/export")
    assert len(file.content) < skill_folders.MOST_BYTES
    body = {"archive": base64.b64encode(file.content).decode(), "group": sales.pk}
    (changed,) = owner.post("skills/import", body).json()["changed"]
    assert sum(row["characters"] for row in changed["files"]) == 500_000
