"""Policy administrators write skills and enable parts of prompts."""

import re
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from chats.models import Chat, PromptText, Team
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent, ContextPolicy, ModelSpec, Skill
from contextpolicy.models.skills import LONGEST_SKILL
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.chats.web.markup import tight
from tests.contextpolicy.pages import opened, submitted
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db
ADD = "/admin/contextpolicy/skill/add/"
SKILL = {
    "name": "Mail",
    "slug": "mail",
    "mode": "always",
    "text": "Write short mails.",
    "enabled": "on",
}


CHANGE = {"text": "Be long.", "mode": "always", "enabled": "on"}


@pytest.fixture
def browser() -> Client:
    """The browser of Ines, a policy administrator."""
    return signed_in(person("ines", POLICY_ADMIN))


@pytest.mark.requirement("S4.9", by="admin")
def test_a_skill_and_the_other_parts_reach_the_prompt(
    browser: Client, alice: User, chat: Chat, work: Callable[..., Any], now: datetime
) -> None:
    browser.post(ADD, SKILL)
    submitted(
        browser,
        "/admin/contextpolicy/contextpolicy/add/",
        name="Parts",
        slug="parts",
        skills=["mail"],
        runtime_note="yes",
        budget_note="yes",
    )
    policy = ContextPolicy.objects.get(slug="parts")
    assign_policy(policy=policy, level="instance", actor="system", now=now)

    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    work(turn)

    segments = [part for part in turn.receipts.get().segments if part[0] == "system"]
    assert [part[1] for part in segments] == ["runtime", "skills", "budget"]
    assert PromptText.objects.get(pk=segments[1][5]).text == "Skill: Mail\nWrite short mails."


@pytest.mark.parametrize(
    "taken", [{"name": "MAIL"}, {"name": "mail"}, {"slug": "Mail"}], ids=["upper", "lower", "slug"]
)
def test_names_and_slugs_of_skills_ignore_case(browser: Client, taken: dict[str, str]) -> None:
    browser.post(ADD, SKILL)
    other = {**SKILL, "name": "Letters", "slug": "letters", "text": "Write letters.", **taken}
    page = browser.post(ADD, other)
    errors = page.context["adminform"].form.errors.as_data()
    assert {field: error.code for field, (error,) in errors.items()} == dict.fromkeys(
        taken, "skill_name_taken"
    )
    assert "Write letters." in page.content.decode()
    assert Skill.objects.count() == 1


def test_older_duplicates_of_skills_can_still_be_edited(browser: Client, now: datetime) -> None:
    for name in ("Mail", "MAIL"):
        Skill.objects.create(name=name, slug=name, text="Be short.", mode="always", updated_at=now)
    skill = Skill.objects.get(slug="MAIL")
    address = f"/admin/contextpolicy/skill/{skill.pk}/change/"
    browser.post(address, {**CHANGE, "name": "MAIL"})
    skill.refresh_from_db()
    assert skill.text == "Be long."
    browser.post(address, {**CHANGE, "name": "mail"})
    skill.refresh_from_db()
    assert skill.name == "MAIL"


def test_each_change_is_in_the_ledger_without_its_words(browser: Client) -> None:
    browser.post(ADD, SKILL)
    skill = Skill.objects.get()
    browser.post(
        f"/admin/contextpolicy/skill/{skill.pk}/change/",
        {"name": "Mail", "text": "Be long.", "mode": "always"},
    )

    created, changed = AuditEvent.objects.filter(type__startswith="skill.").order_by("seq")
    assert (created.type, changed.type) == ("skill.created", "skill.changed")
    assert changed.data["fields"] == ["text", "enabled"]
    assert "long" not in str(changed.data)


def test_a_skill_that_is_too_long_is_refused(browser: Client) -> None:
    answer = browser.post(ADD, {**SKILL, "text": "x" * (LONGEST_SKILL + 1)}, follow=True)

    assert f"{LONGEST_SKILL:,}" in answer.content.decode()
    assert not Skill.objects.exists()


def test_a_policy_cannot_name_a_skill_and_none(browser: Client) -> None:
    browser.post(ADD, SKILL)
    answer = submitted(
        browser,
        "/admin/contextpolicy/contextpolicy/add/",
        name="Parts",
        slug="parts",
        skills=["mail", "none"],
    )

    assert answer.context["adminform"].form.has_error("skills", "none_with_others")


def test_an_auditor_reads_skills_and_changes_none(browser: Client) -> None:
    browser.post(ADD, SKILL)
    skill = Skill.objects.get()
    auditor = signed_in(person("priya", AUDITOR))

    page = f"/admin/contextpolicy/skill/{skill.pk}/change/"
    assert auditor.get(page).status_code == 200
    assert auditor.post(page, {"name": "x", "text": "y"}).status_code == 403


@pytest.mark.requirement("S4.9", by="admin")
def test_a_skill_on_demand_of_a_group_reaches_its_members(
    browser: Client, alice: User, chat: Chat, work: Callable[..., Any], now: datetime
) -> None:
    ModelSpec.objects.update(supports_tools=True)
    group = Group.objects.create(name="Sales")
    alice.groups.add(group)
    new = {**SKILL, "mode": "on_demand", "group": str(group.pk)}
    page = browser.post(ADD, new)
    assert page.context["adminform"].form.has_error("description", "skill_description_invalid")
    browser.post(ADD, {**new, "description": "Write mails."})
    skill = Skill.objects.get()
    assert (skill.mode, skill.group) == ("on_demand", group)
    assert browser.get(f"/admin/contextpolicy/skill/{skill.pk}/change/").status_code == 200
    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    worker = work(turn)
    system = worker.scripted.requests[0].messages[0].content
    assert "- mail: Write mails." in system
    assert SKILL["text"] not in system


def test_a_skill_belongs_to_a_group_or_a_team(browser: Client, now: datetime) -> None:
    group = Group.objects.create(name="Sales")
    team = Team.objects.create(created_at=now)
    page = browser.post(ADD, {**SKILL, "group": str(group.pk), "team": str(team.pk)})
    assert page.context["adminform"].form.has_error("team", "two_places")
    browser.post(ADD, {**SKILL, "team": str(team.pk)})
    assert Skill.objects.get().team_id == team.pk
    # The owner of a personal team writes its skills; no page of the administration shows them.
    Team.objects.update(owner=User.objects.create(username="dora"))
    skill = Skill.objects.get()
    assert browser.get(f"/admin/contextpolicy/skill/{skill.pk}/change/").status_code == 302


@pytest.mark.requirement("S4.9", by="admin")
def test_files_are_added_replaced_and_removed(browser: Client) -> None:
    upload = SimpleUploadedFile("refund.csv", b"order,amount\n")
    browser.post(ADD, {**SKILL, "file_name": "forms/refund.csv", "file_upload": upload})
    skill = Skill.objects.get()
    address = f"/admin/contextpolicy/skill/{skill.pk}/change/"
    change = {**CHANGE, "name": "Mail"}
    browser.post(address, {**change, "file_name": "a.md", "file_text": "one"})
    page = browser.get(address).content.decode()
    assert "<summary><bdi>forms/refund.csv</bdi> · " in page
    assert '<pre dir="auto">order,amount' in page
    browser.post(
        address,
        {
            **change,
            "file_name": "a.md",
            "file_text": "two",
            "removed_files": ["forms/refund.csv"],
        },
    )
    assert list(skill.stored_files.values_list("name", "text")) == [("a.md", "two")]
    events = AuditEvent.objects.filter(type__startswith="skill.").order_by("seq")
    assert [event.data["files"] for event in events] == [
        {"written": ["forms/refund.csv"]},
        {"written": ["a.md"]},
        {"written": ["a.md"], "removed": ["forms/refund.csv"]},
    ]


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        ({"file_name": "../a", "file_text": "Typed"}, "skill_file_name_invalid"),
        ({"file_text": "Typed"}, "skill_file_name_invalid"),
        ({"file_name": "a", "file_text": "Typed" + "x" * 100_000}, "skill_file_too_long"),
        ({"file_upload": SimpleUploadedFile("a", b"\xff")}, "skill_file_not_text"),
    ],
    ids=["path", "no-name", "long", "not-text"],
)
def test_a_refused_file_stores_nothing_and_stays_in_the_form(
    browser: Client, values: dict[str, Any], refusal: str
) -> None:
    page = browser.post(ADD, {**SKILL, **values})
    form = page.context["adminform"].form
    assert form.errors.as_data()["file_name"][0].code == refusal
    assert ("Typed" in page.content.decode()) is ("file_text" in values)
    assert not Skill.objects.exists()


def test_an_auditor_reads_files(browser: Client) -> None:
    browser.post(ADD, {**SKILL, "file_name": "a.md", "file_text": "one"})
    page = f"/admin/contextpolicy/skill/{Skill.objects.get().pk}/change/"
    auditor = signed_in(person("priya", AUDITOR))
    assert '<pre dir="auto">one</pre>' in auditor.get(page).content.decode()
    assert auditor.post(page, {"file_name": "a.md", "file_text": "two"}).status_code == 403


def test_an_older_tab_does_not_replace_a_newer_version(browser: Client) -> None:
    browser.post(ADD, SKILL)
    page = f"/admin/contextpolicy/skill/{Skill.objects.get().pk}/change/"
    older = opened(browser, page).fields
    submitted(browser, page, text="Be brief.")
    refused = browser.post(page, {**older, "text": "Be long."})
    html = refused.content.decode()
    assert "Current text: Be brief." in html
    assert "Be long.</textarea>" in html
    assert Skill.objects.get().text == "Be brief."
    again = re.findall(r'name="based_on" value="(\w+)"', html)
    browser.post(page, {**older, "text": "Be long.", "based_on": again[0]})
    assert Skill.objects.get().text == "Be long."


def test_counts_of_one_are_singular(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Other", "Mail"):
        browser.post(ADD, {**SKILL, "name": name, "slug": name.lower()})
    list_page = "/admin/contextpolicy/skill/"
    assert ">1 result (<a" in tight(browser.get(f"{list_page}?q=mail").content.decode())
    assert "0 results (<a" in browser.get(f"{list_page}?q=none").content.decode()
    for module in ("chats.admin.policies.skills", "chats.web.account.skills"):
        counter = SimpleNamespace(count=lambda text: 1)
        monkeypatch.setattr(f"{module}.get_page_counter", lambda made=counter: made)
    for mode in ("always", "on_demand"):
        Skill.objects.update(mode=mode)
        page = f"{list_page}{Skill.objects.get(slug='mail').pk}/change/"
        for path in (page, "/skill/mail"):
            html = browser.get(path).content.decode()
            assert "1 token in each prompt" in html
