"""Legal holds in the administration: placed and released with reasons in the ledger."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from chats.models import Chat
from contextpolicy import holds, roles
from contextpolicy.models import AuditEvent, LegalHold
from contextpolicy.roles import AUDITOR, OPERATOR, POLICY_ADMIN
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db
LIST = "/admin/contextpolicy/legalhold/"
ADD = f"{LIST}add/"
HOLD = {"place": "user", "person": "alice", "case": "2026-17", "reason": "Dispute with Berg AS"}


@pytest.fixture
def browser() -> Client:
    """The browser of Ines, a policy administrator."""
    return signed_in(person("ines", POLICY_ADMIN))


def change(hold: LegalHold) -> str:
    """Return the URL of a hold's page."""
    return f"{LIST}{hold.pk}/change/"


@pytest.mark.policy_case(27)
def test_a_hold_is_placed_released_and_never_deleted(browser: Client, alice: User) -> None:
    placed = browser.post(ADD, {**HOLD, "review_on": "2027-01-15"}, follow=True)
    assert "2026-17: person alice" in placed.content.decode()
    hold = LegalHold.objects.get()
    event = AuditEvent.objects.get(type="hold.placed")
    assert event.scope == "instance"
    assert event.data == {
        "hold": str(hold.pk),
        "level": "user",
        "user": alice.pk,
        "case": "2026-17",
        "reason": "Dispute with Berg AS",
        "review_on": "2027-01-15",
    }

    page = browser.get(change(hold)).content.decode()
    assert "Dispute with Berg AS" in page
    assert 'data-state="in_force"' in page
    assert browser.get(f"{LIST}{hold.pk}/delete/").status_code == 403
    browser.post(change(hold), {"release_reason": " ", "case": "Another"})
    hold.refresh_from_db()
    assert (hold.released_at, hold.case) == (None, "2026-17")

    browser.post(change(hold), {"release_reason": "Settled"})

    hold.refresh_from_db()
    assert hold.released_by == event.actor
    assert hold.ends_at is not None
    assert hold.ends_at - timezone.now() > timedelta(days=6, hours=23)
    assert AuditEvent.objects.get(type="hold.released").data["reason"] == "Settled"
    assert 'data-state="released"' in browser.get(change(hold)).content.decode()
    # A released hold is read-only.
    assert "<textarea" not in browser.get(change(hold)).content.decode()
    assert browser.post(change(hold), {"release_reason": "Again"}).status_code == 403


def test_a_hold_needs_exactly_the_target_of_its_place(browser: Client, alice: User) -> None:
    chat = "0e8b8a4c-0c56-4d55-9d5b-6a8f0e0f6c11"
    for wrong in (
        {"place": ""},
        {"person": ""},
        {"person": "nobody"},
        {"chat": chat},
        {"place": "instance"},
        {"place": "chat"},
        {"case": ""},
        {"reason": " "},
        {"reason": "x" * 501},
    ):
        assert browser.post(ADD, {**HOLD, **wrong}).status_code == 200
    assert not LegalHold.objects.exists()
    assert (
        browser.post(ADD, {**HOLD, "place": "chat", "person": "", "chat": chat}).status_code == 302
    )
    assert browser.post(ADD, {**HOLD, "place": "instance", "person": ""}).status_code == 302
    held = holds.load_held_targets(now=timezone.now())
    assert held.everything
    assert [str(pk) for pk in held.chats] == [chat]


def test_a_group_under_hold_cannot_be_deleted(browser: Client, alice: User) -> None:
    team = Group.objects.create(name="Sales")
    alice.groups.add(team)
    browser.post(ADD, {**HOLD, "place": "group", "person": "", "members_of": str(team.pk)})
    hold = LegalHold.objects.get()
    assert hold.people == [alice.pk]
    with pytest.raises(roles.GroupInUse):
        roles.delete_group(group=team, actor="user:1", now=timezone.now())
    browser.post(change(hold), {"release_reason": "Settled"})
    roles.delete_group(group=team, actor="user:1", now=timezone.now())
    # The members at the time of the hold stay held until the hold ends.
    assert holds.load_held_targets(now=timezone.now()).covers(owner_id=alice.pk)
    assert "a group that is gone" in browser.get(LIST).content.decode()


def test_auditors_read_holds_and_others_see_none(alice: User, chat: Chat) -> None:
    hold = holds.place_hold(
        level="chat", chat_id=chat.pk, case="7", reason="Why", actor="user:1", now=timezone.now()
    )
    auditor = signed_in(person("axel", AUDITOR))
    assert "Why" in auditor.get(change(hold)).content.decode()
    assert auditor.get(ADD).status_code == 403
    assert auditor.post(change(hold), {"release_reason": "No"}).status_code == 403
    operator = signed_in(person("olga", OPERATOR))
    assert operator.get(LIST).status_code == 403
    hold.refresh_from_db()
    assert hold.released_at is None
    # No chat chain mentions the hold, so the affected people do not learn of the case.
    assert not AuditEvent.objects.filter(chat_id=chat.pk, type__startswith="hold.").exists()
