"""Owners grant roles in the administration without gaining permissions."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chats.people import keys
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyAssignment
from contextpolicy.roles import AUDITOR, OPERATOR, OWNER, seed_roles
from tests.contextpolicy.pages import message_codes, opened, submitted
from tests.contextpolicy.people import PASSWORD, person, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(db: None) -> User:
    """Bob, without a role."""
    return User.objects.create_user("bob", password=PASSWORD)


def page_of(user: User) -> str:
    """Return the page of the user."""
    return reverse("admin:auth_user_change", args=[user.pk])


def test_a_role_is_granted_and_taken_with_records(owner: Client, bob: User) -> None:
    auditors = Group.objects.get(name=AUDITOR)

    assert submitted(owner, page_of(bob), groups=[str(auditors.pk)]).status_code == 302
    bob.refresh_from_db()
    assert (bob.is_staff, list(bob.groups.all())) == (True, [auditors])
    submitted(owner, page_of(bob), groups=[])

    bob.refresh_from_db()
    assert (bob.is_staff, bob.groups.count()) == (False, 0)
    told = [
        event.data["groups"]
        for event in AuditEvent.objects.filter(type="role.changed").order_by("id")
        if event.data["user"] == bob.pk
    ]
    assert told == [{"from": [], "to": ["Auditor"]}, {"from": ["Auditor"], "to": []}]


@pytest.mark.parametrize("name", ["ÄNNE", "änne"])
def test_a_name_of_another_person_is_refused_in_any_case(
    owner: Client, bob: User, name: str
) -> None:
    User.objects.create_user("änne")
    submitted(owner, page_of(bob), username=name)
    bob.refresh_from_db()
    assert bob.username == "bob"
    # Only the case of the person's own name changes.
    assert submitted(owner, page_of(bob), username="Bob").status_code == 302


def test_an_account_is_switched_off_with_a_record(owner: Client, bob: User) -> None:
    submitted(owner, page_of(bob), is_active=None)

    bob.refresh_from_db()
    assert not bob.is_active
    event = AuditEvent.objects.get(type="user.changed")
    assert event.data == {"user": bob.pk, "fields": ["is_active"], "is_active": False}


def test_a_deactivated_account_loses_its_sessions_and_keys_for_good(
    owner: Client, bob: User
) -> None:
    theirs = signed_in(bob)
    key, secret = keys.create_key(owner=bob, name="k", scopes=["chats:read"], now=timezone.now())
    with_key = {"Authorization": f"Bearer {secret}"}
    assert Client().get("/api/v1/chats", headers=with_key).status_code == 200

    said = submitted(owner, page_of(bob), is_active=None)
    words = opened(owner, said.headers["Location"]).words
    assert "1 session ended and 1 API key revoked" in words
    said = submitted(owner, page_of(bob), is_active="on")
    assert "0 API keys revoked" in opened(owner, said.headers["Location"]).words

    assert theirs.get("/settings/").headers["Location"].startswith("/login/")
    assert Client().get("/api/v1/chats", headers=with_key).status_code == 401
    event = AuditEvent.objects.get(type="api_key.revoked")
    assert event.data["key"] == str(key.pk)
    assert event.actor != f"user:{bob.pk}"


def test_an_account_that_an_older_version_deactivated_regains_nothing(
    owner: Client, bob: User
) -> None:
    theirs = signed_in(bob)
    keys.create_key(owner=bob, name="k", scopes=["chats:read"], now=timezone.now())
    User.objects.filter(pk=bob.pk).update(is_active=False)

    said = submitted(owner, page_of(bob), is_active="on")

    assert "1 session ended and 1 API key revoked" in opened(owner, said.headers["Location"]).words
    assert theirs.get("/settings/").headers["Location"].startswith("/login/")
    assert keys.list_usable_keys(owner=bob, now=timezone.now()) == []


def test_nothing_is_recorded_when_nothing_changed(owner: Client, bob: User) -> None:
    before = AuditEvent.objects.count()

    assert submitted(owner, page_of(bob)).status_code == 302

    assert AuditEvent.objects.count() == before


def test_S02_an_owner_makes_nobody_superuser_and_gives_no_single_permission(
    owner: Client, bob: User
) -> None:
    permission = Permission.objects.get(codename="change_provideraccount")

    submitted(
        owner,
        page_of(bob),
        is_superuser="on",
        is_staff="on",
        user_permissions=[str(permission.pk)],
        last_name="B",
    )

    bob.refresh_from_db()
    assert (bob.is_superuser, bob.is_staff, bob.last_name) == (False, False, "B")
    assert bob.user_permissions.count() == 0
    assert "is_superuser" not in opened(owner, page_of(bob)).fields


def test_S02_an_owner_cannot_touch_a_superuser(owner: Client) -> None:
    root = User.objects.create_superuser("root", password=PASSWORD)

    for url in (page_of(root), reverse("admin:auth_user_password_change", args=[root.pk])):
        answer = owner.post(url, {"email": "mine@example.org", "password1": "x" * 20})
        assert answer.status_code == 403

    root.refresh_from_db()
    assert root.email == ""
    assert root.check_password(PASSWORD)


def test_a_superuser_can_make_another(db: None, bob: User) -> None:
    seed_roles()
    root = signed_in(User.objects.create_superuser("root"))

    submitted(root, page_of(bob), is_superuser="on")

    bob.refresh_from_db()
    assert (bob.is_superuser, bob.is_staff) == (True, True)
    assert AuditEvent.objects.get(type="user.changed").data["is_superuser"] is True


def test_the_last_owner_stays_and_the_page_says_why(owner: Client) -> None:
    User.objects.get(username="somebody-else").groups.clear()
    olga = User.objects.get(username="olga")

    answer = submitted(owner, page_of(olga), groups=[])

    assert message_codes(answer) == ["last_owner"]
    assert not answer.context["adminform"].form["groups"].value()
    assert olga.groups.filter(name=OWNER).exists()


def test_a_person_is_added(owner: Client) -> None:
    answer = submitted(
        owner,
        reverse("admin:auth_user_add"),
        username="carol",
        usable_password="true",
        password1=PASSWORD,
        password2=PASSWORD,
    )

    assert answer.status_code == 302
    carol = User.objects.get(username="carol")
    assert carol.check_password(PASSWORD)
    assert AuditEvent.objects.get(type="user.changed").data["user"] == carol.pk


def test_S11_a_password_set_for_someone_is_recorded_without_it_and_ends_their_sessions(
    owner: Client, bob: User
) -> None:
    url = reverse("admin:auth_user_password_change", args=[bob.pk])
    new = "another horse battery staple"
    theirs = signed_in(bob)
    assert theirs.get("/settings/").status_code == 200

    answer = submitted(owner, url, usable_password="true", password1=new, password2=new)

    assert answer.status_code == 302
    bob.refresh_from_db()
    assert bob.check_password(new)
    event = AuditEvent.objects.get(type="password.changed")
    assert event.data == {"user": bob.pk}
    assert theirs.get("/settings/").headers["Location"].startswith("/login/")
    assert owner.get("/settings/").status_code == 200


@pytest.mark.parametrize("revoked", [True, False])
def test_a_password_set_for_someone_offers_to_revoke_their_keys(
    revoked: bool, owner: Client, bob: User
) -> None:
    url = reverse("admin:auth_user_password_change", args=[bob.pk])
    assert "revoke_keys" not in owner.get(url).content.decode()
    now = timezone.now()
    keys.create_key(owner=bob, name="k", scopes=["chats:read"], now=now)
    assert 'name="revoke_keys"' in owner.get(url).content.decode()
    new = {
        "usable_password": "true",
        "password1": PASSWORD * 2,
        "password2": PASSWORD * 2,
    }

    submitted(owner, url, **new, revoke_keys="on" if revoked else None)

    assert (keys.list_usable_keys(owner=bob, now=now) == []) is revoked


def test_a_password_that_was_refused_is_not_recorded(owner: Client, bob: User) -> None:
    url = reverse("admin:auth_user_password_change", args=[bob.pk])

    submitted(owner, url, usable_password="true", password1="a", password2="b")

    assert not AuditEvent.objects.filter(type="password.changed").exists()


def test_S11_roles_ask_for_a_fresh_sign_in(bob: User) -> None:
    stale = signed_in(person("olga", OWNER), at=timezone.now() - timedelta(minutes=20))
    operators = Group.objects.get(name=OPERATOR)

    for url in (page_of(bob), reverse("admin:auth_user_password_change", args=[bob.pk])):
        answer = stale.post(url, {"username": "bob", "groups": [str(operators.pk)]})
        assert answer.headers["Location"] == f"/account/confirm/?next={url}"

    assert bob.groups.count() == 0


class TestGroups:
    ADD = "/admin/auth/group/add/"

    def test_a_group_without_rights_is_made_and_removed_with_records(self, owner: Client) -> None:
        submitted(owner, self.ADD, name="Support staff", permissions=["1"])
        group = Group.objects.get(name="Support staff")
        assert group.permissions.count() == 0

        owner.post(reverse("admin:auth_group_delete", args=[group.pk]), {"post": "yes"})

        assert not Group.objects.filter(name="Support staff").exists()
        events = AuditEvent.objects.filter(type="role.changed", data__group=group.pk)
        assert [event.data["name"] for event in events.order_by("id")] == [
            {"from": None, "to": "Support staff"},
            {"from": "Support staff", "to": None},
        ]

    def test_a_group_is_not_called_like_another_in_other_case(self, owner: Client) -> None:
        twins = [Group.objects.create(name=name) for name in ("Support", "support")]
        for name in ("SUPPORT", "owner"):
            submitted(owner, self.ADD, name=name)
            assert not Group.objects.filter(name=name).exists()
        # Existing groups whose names differ only in case stay unchanged.
        url = reverse("admin:auth_group_change", args=[twins[1].pk])
        assert submitted(owner, url, name="support").status_code == 302
        submitted(owner, url, name="Helpers")
        assert Group.objects.filter(name="Helpers").exists()

    @pytest.mark.parametrize("action", ["change", "delete"])
    def test_a_role_is_neither_renamed_nor_removed(self, action: str, owner: Client) -> None:
        auditors = Group.objects.get(name=AUDITOR)

        answer = owner.post(
            reverse(f"admin:auth_group_{action}", args=[auditors.pk]),
            {"name": "x", "post": "yes"},
        )

        assert answer.status_code == 403
        assert Group.objects.filter(name=AUDITOR).exists()

    def test_a_role_says_what_it_may(self, owner: Client) -> None:
        auditors = Group.objects.get(name=AUDITOR)

        words = opened(owner, reverse("admin:auth_group_change", args=[auditors.pk])).words

        assert "contextpolicy.view_auditevent" in words

    def test_a_group_that_a_policy_applies_to_stays(self, owner: Client) -> None:
        group = Group.objects.create(name="Support staff")
        policy = ContextPolicy.objects.create(slug="p", name="P")
        PolicyAssignment.objects.create(policy=policy, level="group", group=group)

        owner.post(reverse("admin:auth_group_delete", args=[group.pk]), {"post": "yes"})

        assert PolicyAssignment.objects.filter(group=group).exists()


def test_a_refused_group_keeps_its_name_in_the_form(owner: Client) -> None:
    Group.objects.create(name="Vertrieb")
    answer = owner.post("/admin/auth/group/add/", {"name": "VERTRIEB"})
    assert message_codes(answer) == ["group_name_taken"]
    page = answer.content.decode()
    assert 'value="VERTRIEB"' in page
    # The form can be sent again.
    assert owner.post("/admin/auth/group/add/", {"name": "Verkauf"}).status_code == 302
    assert set(Group.objects.values_list("name", flat=True)) >= {"Vertrieb", "Verkauf"}


def test_an_ordinary_group_has_no_sign_of_a_fault(owner: Client) -> None:
    Group.objects.create(name="Vertrieb")
    page = owner.get("/admin/auth/group/").content.decode()
    assert "icon-no" not in page
