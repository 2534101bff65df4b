"""Files of skills on their page: owners add, replace and remove them, members read them."""

import io
import re
import zipfile
from datetime import datetime

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile

from chats.prompt.tokenizer import get_page_counter
from contextpolicy.models import GroupOwner, Skill, SkillFile
from contextpolicy.models.skills import LONGEST_SKILL_FILE
from tests.contextpolicy.people import signed_in

pytestmark = pytest.mark.django_db
PAGE = "/skill/refunds"
CSV = "order,amount\n4711,20\n"


@pytest.fixture
def skill(alice: User, bob: User, now: datetime) -> Skill:
    """A skill of a group that Alice owns and in which Bob is a member."""
    group = Group.objects.create(name="Sales")
    for user in (alice, bob):
        user.groups.add(group)
    GroupOwner.objects.create(group=group, user=alice)
    return Skill.objects.create(
        slug="refunds",
        name="Refunds",
        description="Answer refunds.",
        text="Ask.",
        group=group,
        updated_at=now,
    )


def texts() -> dict[str, str]:
    return dict(SkillFile.objects.values_list("name", "text"))


@pytest.mark.requirement("S4.9", by="user")
@pytest.mark.usefixtures("skill")
def test_an_owner_adds_replaces_and_removes_files(alice: User) -> None:
    owner = signed_in(alice)
    assert 'data-note="no-files"' in owner.get(PAGE).content.decode()
    answer = owner.post(f"{PAGE}/file", {"name": "reference.md", "text": "# All\r\n"})
    assert answer["Location"] == f"{PAGE}#files"
    upload = SimpleUploadedFile("refund.csv", CSV.encode())
    owner.post(f"{PAGE}/file", {"name": "forms/refund.csv", "file": upload, "text": ""})
    owner.post(f"{PAGE}/file", {"name": "", "file": SimpleUploadedFile("a.txt", b"a")})
    assert texts() == {"reference.md": "# All\n", "forms/refund.csv": CSV, "a.txt": "a"}
    owner.post(f"{PAGE}/file", {"name": "a.txt", "text": "b"})
    page = owner.get(PAGE).content.decode()
    tokens = get_page_counter().count(CSV)
    assert f'data-file="forms/refund.csv" data-tokens="{tokens}"' in page
    assert "4711,20" in page
    # The list of files is part of the text that the model loads.
    with_files = re.search(r'data-text="(\d+)"', page)
    owner.post(f"{PAGE}/file/delete", {"name": "a.txt"})
    without = re.search(r'data-text="(\d+)"', owner.get(PAGE).content.decode())
    assert with_files
    assert without
    assert int(with_files[1]) > int(without[1])
    assert texts() == {"reference.md": "# All\n", "forms/refund.csv": CSV}


@pytest.mark.requirement("S4.9", by="user")
@pytest.mark.usefixtures("skill")
def test_members_read_files_and_others_see_none(alice: User, bob: User, charlie: User) -> None:
    signed_in(alice).post(f"{PAGE}/file", {"name": "reference.md", "text": "# All"})
    member, other = signed_in(bob), signed_in(charlie)
    page = member.get(PAGE).content.decode()
    assert "# All" in page
    assert f'action="{PAGE}/file"' in page
    assert 'id="new-file"' not in page
    for client in (member, other):
        for address in (f"{PAGE}/file", f"{PAGE}/file/delete"):
            answer = client.post(address, {"name": "reference.md", "text": "Stolen."})
            assert answer.status_code == 404
    assert texts() == {"reference.md": "# All"}


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"name": "../a", "text": "Typed text"}, "skill_file_name_invalid"),
        ({"name": "", "text": "Typed text"}, "skill_file_name_invalid"),
        (
            {"name": "a", "text": "Typed text" + "x" * LONGEST_SKILL_FILE},
            "skill_file_too_long",
        ),
        ({"name": "a", "file": SimpleUploadedFile("a.png", b"\x89PNG\xff")}, "skill_file_not_text"),
        ({"name": "a", "file": SimpleUploadedFile("a", b"a\x00b")}, "skill_file_not_text"),
        ({"name": "a", "file": SimpleUploadedFile("a", b"x" * 400_001)}, "skill_file_too_long"),
    ],
    ids=["path", "no-name", "long", "image", "nul", "bytes"],
)
@pytest.mark.usefixtures("skill")
def test_a_refused_file_stays_in_the_form(
    alice: User, values: dict[str, object], refusal: str
) -> None:
    answer = signed_in(alice).post(f"{PAGE}/file", values)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert f'data-reason="{refusal}"' in page
    assert ("Typed text" in page) is ("text" in values)
    assert not values["name"] or f'value="{values["name"]}"' in page
    assert texts() == {}


@pytest.mark.usefixtures("skill")
def test_a_file_that_is_gone_is_not_removed_again(alice: User) -> None:
    answer = signed_in(alice).post(f"{PAGE}/file/delete", {"name": "gone"})
    assert 'data-reason="skill_file_missing"' in answer.content.decode()


def test_an_import_shows_why_files_were_left_out(alice: User, skill: Skill) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a/SKILL.md", "---\nname: New\ndescription: b\n---\nc")
        archive.writestr("a/kept.md", "kept")
        archive.writestr("a/photo.png", b"\x89PNG\xff")
    answer = signed_in(alice).post(
        "/skills/import",
        {
            "archive": SimpleUploadedFile("a.zip", made.getvalue()),
            "place": f"group:{skill.group_id}",
        },
    )
    page = answer.content.decode()
    assert '<li data-code="not_text"><code>a/photo.png</code>' in page
    assert texts() == {"kept.md": "kept"}


@pytest.mark.usefixtures("skill")
def test_a_refused_text_stays_in_the_form_of_its_file(alice: User) -> None:
    owner = signed_in(alice)
    owner.post(f"{PAGE}/file", {"name": "reference.md", "text": "# All"})
    too_long = "a" * (LONGEST_SKILL_FILE + 1)
    answer = owner.post(f"{PAGE}/file", {"name": "reference.md", "text": too_long})
    assert answer.status_code == 422
    page = answer.content.decode()
    file, new = page.split('id="new-file"')
    assert re.search(r'data-file="reference.md"[^>]*\bopen\b', file)
    assert too_long in file
    assert too_long not in new
    # A file that the skill does not have stays in the form of new files.
    answer = owner.post(f"{PAGE}/file", {"name": "other.md", "text": too_long})
    file, new = answer.content.decode().split('id="new-file"')
    assert too_long in new
    assert too_long not in file
    assert 'value="other.md"' in new


@pytest.mark.usefixtures("skill")
def test_the_heading_has_the_stored_name_after_a_refused_save(alice: User) -> None:
    values = {"name": " ", "description": "New words", "text": "Ask."}
    answer = signed_in(alice).post(PAGE, values)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert re.search(r"<h1><bdi>Refunds</bdi></h1>", page)
    assert "<title>Refunds" in page
    assert "New words" in page


@pytest.mark.usefixtures("skill")
def test_large_token_counts_are_grouped(alice: User) -> None:
    owner = signed_in(alice)
    owner.post(f"{PAGE}/file", {"name": "words.md", "text": "word " * 2000})
    page = owner.get(PAGE).content.decode()
    tokens = re.search(r'data-tokens="(\d{4,})"', page)
    assert tokens
    assert f"{int(tokens[1]):,} tokens" in page
