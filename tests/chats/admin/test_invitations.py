"""Invitations: permission, link, password and renewal."""

import re
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from chats.models import LoginLink
from chats.people import accounts, invitations, signin
from chats.people.sessions import SIGNED_IN_AT
from contextpolicy.models import AuditEvent
from contextpolicy.roles import AUDITOR, OPERATOR, OWNER, POLICY_ADMIN
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db
PAGE = "/admin/auth/user/invite/"
NEW = "correct horse battery staple"


def link_in(response: object) -> str:
    found = re.search(r"https?://testserver(/login/link/[\w-]+/)", response.content.decode())  # type: ignore[attr-defined]
    assert found is not None
    return found[1]


def test_an_invitation_leads_to_an_account_with_role_group_and_password(owner: Client) -> None:
    sales = Group.objects.create(name="Sales")
    made = owner.post(PAGE, {"username": "nina", "role": AUDITOR, "groups": [str(sales.pk)]})
    assert "no-store" in made.headers["Cache-Control"]
    nina = User.objects.get(username="nina")
    assert {group.name for group in nina.groups.all()} == {AUDITOR, "Sales"}
    assert (nina.is_staff, nina.has_usable_password()) == (True, False)

    browser = Client()
    link = link_in(made)
    assert browser.get(link).status_code == 200
    assert browser.post(link).headers["Location"] == "/account/password/"
    browser.post("/account/password/", {"new_password1": NEW, "new_password2": NEW})
    nina.refresh_from_db()
    assert nina.check_password(NEW)
    assert Client().post(link).headers.get("Location") is None
    assert 'data-note="no-invitations"' in owner.get(PAGE).content.decode()
    row = AuditEvent.objects.filter(type="login.link_created").latest("pk")
    olga = User.objects.get(username="olga")
    assert (row.actor, row.data["invitation"]) == (f"user:{olga.pk}", True)


def test_a_pending_invitation_is_listed_and_renewed(owner: Client) -> None:
    first = link_in(owner.post(PAGE, {"username": "nina", "role": OPERATOR}))
    assert "nina Pending" in opened(owner, PAGE).words
    LoginLink.objects.update(expires_at=timezone.now() - timedelta(days=1))
    assert "nina Expired" in opened(owner, PAGE).words
    nina = User.objects.get(username="nina")
    second = link_in(owner.post(PAGE, {"renew": str(nina.pk)}))
    assert first != second
    assert Client().post(first).headers.get("Location") is None
    assert Client().post(second).headers["Location"] == "/account/password/"
    # A user who signed in without setting a password gets another link.
    assert "nina Used" in opened(owner, PAGE).words
    third = link_in(owner.post(PAGE, {"renew": str(nina.pk)}))
    assert Client().post(third).headers["Location"] == "/account/password/"


@pytest.mark.parametrize("name", ["olga", "", "a b", "x" * 151, "a\u202eb", "\u3164\uffa0"])
def test_a_name_that_cannot_be_used_is_refused_beside_its_field(owner: Client, name: str) -> None:
    before = User.objects.count()
    page = owner.post(PAGE, {"username": name, "role": AUDITOR}).content.decode()
    assert 'class="errornote"' in page
    assert 'id="id_username_error"' in page
    assert "invitation-link" not in page
    assert User.objects.count() == before


@pytest.mark.parametrize("target", ["0", "999999", "x", "olga"])
def test_only_an_invited_person_without_a_password_gets_a_new_link(
    owner: Client, target: str
) -> None:
    known = User.objects.get(username="olga").pk
    answer = owner.post(PAGE, {"renew": str(known) if target == "olga" else target}, follow=True)
    assert "invitation-link" not in answer.content.decode()
    assert not LoginLink.objects.exists()


@pytest.mark.parametrize("role", [POLICY_ADMIN, AUDITOR, OPERATOR])
def test_others_invite_nobody(role: str) -> None:
    other = signed_in(person("otto", role))
    assert other.get(PAGE).status_code == 403
    assert other.post(PAGE, {"username": "nina", "role": OWNER}).status_code == 403
    assert not User.objects.filter(username="nina").exists()


def test_an_old_sign_in_confirms_first(owner: Client) -> None:
    session = owner.session
    session[SIGNED_IN_AT] = (timezone.now() - timedelta(minutes=16)).isoformat()
    session.save()
    answer = owner.post(PAGE, {"username": "nina", "role": AUDITOR})
    assert answer.headers["Location"].startswith("/account/confirm/")
    assert not User.objects.filter(username="nina").exists()


def test_the_list_of_people_leads_to_the_page(owner: Client) -> None:
    assert f'href="{PAGE}"' in owner.get("/admin/auth/user/").content.decode()


@pytest.mark.parametrize(("taken", "name"), [("Berta", "berta"), ("Änne", "änne")])
def test_a_name_is_taken_whatever_its_case(owner: Client, taken: str, name: str) -> None:
    User.objects.create_user(taken)
    answer = owner.post(PAGE, {"username": name, "role": "User"})
    assert answer.context["form"].has_error("username", "invitation_refused")
    assert 'id="id_username_error"' in answer.content.decode()
    assert not User.objects.filter(username=name).exists()


def test_a_name_with_combining_marks_is_taken_and_stored_composed(owner: Client) -> None:
    page = owner.post(PAGE, {"username": "Jose\u0301", "role": AUDITOR})
    assert link_in(page)
    assert User.objects.filter(username="Jos\u00e9").exists()


@pytest.mark.parametrize("end", ["expired", "used", "replaced", "deactivated"])
def test_an_invitation_that_is_over_says_whom_to_ask(owner: Client, end: str) -> None:
    link = link_in(owner.post(PAGE, {"username": "nina", "role": OPERATOR}))
    nina = User.objects.get(username="nina")
    if end == "expired":
        LoginLink.objects.update(expires_at=timezone.now() - timedelta(days=1))
        token = link.rstrip("/").rpartition("/")[2]
        assert not invitations.is_invitation(token, now=timezone.now())
    elif end == "used":
        Client().post(link)
    elif end == "replaced":
        owner.post(PAGE, {"renew": str(nina.pk)})
    else:
        User.objects.filter(pk=nina.pk).update(is_active=False)
    page = Client().post(link).content.decode()
    assert invitations.InvitationOver().sentence in page


def test_another_link_that_is_over_says_nothing_about_invitations(alice: User) -> None:
    token = signin.create_link(user=alice, now=timezone.now() - timedelta(days=9), actor="system")
    for wrong in (token, "unknown"):
        page = Client().post(f"/login/link/{wrong}/").content.decode()
        assert signin.LinkInvalid().sentence in page
        assert "invitation" not in page


def test_an_owner_gets_no_link_of_a_superuser(owner: Client, now: datetime) -> None:
    first = link_in(owner.post(PAGE, {"username": "nina", "role": OPERATOR}))
    nina = User.objects.get(username="nina")
    nina.is_superuser = True
    accounts.save_user_account(person=nina, changed={"is_superuser"}, actor="user:1", now=now)
    assert "nina" not in opened(owner, PAGE).words
    links = LoginLink.objects.count()
    owner.post(PAGE, {"renew": str(nina.pk)})
    assert LoginLink.objects.count() == links
    # The owner saw the first link.
    assert Client().post(first).headers.get("Location") is None
