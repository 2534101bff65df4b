"""One-time sign-in links."""

import re
from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django.fixtures import Settings

from chats.models import LoginLink
from chats.people import accounts, signin
from contextpolicy import roles
from contextpolicy.models import AuditEvent
from project import trouble


def test_S30_link_signs_its_person_in_once(alice: User, now: datetime) -> None:
    token = signin.create_link(user=alice, now=now - timedelta(minutes=59))
    assert signin.use_link(token=token, address="192.0.2.1", now=now) == alice
    with pytest.raises(signin.LinkInvalid):
        signin.use_link(token=token, address="192.0.2.1", now=now)
    assert list(AuditEvent.objects.order_by("pk").values_list("type", flat=True)) == [
        "login.link_created",
        "login.succeeded",
        "login.failed",
    ]


def test_S30_only_the_hash_of_a_link_is_stored(alice: User, now: datetime) -> None:
    token = signin.create_link(user=alice, now=now)
    row = LoginLink.objects.get()
    assert token not in row.token_hash
    assert len(token) >= 43


def test_S30_expired_unknown_and_inactive_links_get_the_same_sentence(
    alice: User, bob: User, now: datetime
) -> None:
    old = signin.create_link(user=alice, now=now - timedelta(hours=1))
    bob.is_active = False
    bob.save()
    blocked = signin.create_link(user=bob, now=now)
    sentences = set()
    for token in (old, blocked, "unknown"):
        with pytest.raises(signin.LinkInvalid) as refused:
            signin.use_link(token=token, address="192.0.2.1", now=now)
        sentences.add((refused.value.code, refused.value.sentence))
    assert len(sentences) == 1
    assert sentences.pop()[0] == "login_link_invalid"


def test_a_new_password_and_a_deactivation_end_earlier_links(
    alice: User, bob: User, now: datetime
) -> None:
    alice.is_superuser = True
    alice.save()
    first = signin.create_link(user=bob, now=now)
    accounts.note_password(user=bob, revoke_keys=False, actor="user:1", now=now)
    second = signin.create_link(user=bob, now=now)
    for is_active in (False, True):
        bob.is_active = is_active
        accounts.save_user_account(person=bob, changed={"is_active"}, actor="user:1", now=now)
    for token in (first, second):
        with pytest.raises(signin.LinkInvalid):
            signin.use_link(token=token, address="192.0.2.1", now=now)
    third = signin.create_link(user=bob, now=now)
    accounts.save_user_account(person=bob, changed={"email"}, actor="user:1", now=now)
    assert signin.use_link(token=third, address="192.0.2.1", now=now) == bob


def test_opening_a_link_uses_nothing_and_its_button_signs_in(alice: User, client: Client) -> None:
    address = printed_link(alice.username)
    assert client.get(address).status_code == 200
    assert client.get("/who").content == b""
    assert client.post(address).status_code == 302
    assert client.get("/who").content == b"alice"
    refused = Client().post(address)
    assert refused.context["refusal"].code == "login_link_invalid"


def test_command_makes_the_first_administrator_once(db: None) -> None:
    assert printed_link()
    assert printed_link()
    admin = User.objects.get()
    assert (admin.username, admin.is_superuser, admin.is_staff) == ("admin", True, True)
    assert not admin.has_usable_password()


def test_first_administrator_is_an_owner_where_roles_exist(db: None, now: datetime) -> None:
    roles.seed_roles()
    admin, made = signin.ensure_admin(username="admin", now=now)
    assert made
    assert [group.name for group in admin.groups.all()] == [roles.OWNER]
    assert AuditEvent.objects.filter(type="role.changed").exists()


def test_link_names_the_public_address(alice: User, settings: Settings) -> None:
    settings.PUBLIC_URL = "https://chat.example.org"
    out = StringIO()
    call_command("login_link", "alice", stdout=out)
    assert out.getvalue().startswith("https://chat.example.org/login/link/")


def test_command_refuses_an_unknown_name(db: None) -> None:
    with pytest.raises(CommandError, match="nobody"):
        call_command("login_link", "nobody")


def test_first_administrator_does_not_take_another_persons_name(alice: User, now: datetime) -> None:
    with pytest.raises(signin.NameTaken):
        signin.ensure_admin(username=alice.username, now=now)


def test_a_start_without_an_administrator_ends_in_a_sentence(alice: User, now: datetime) -> None:
    with pytest.raises(signin.NameTaken) as refused:
        signin.ensure_admin(username=alice.username, now=now)
    said = trouble.describe_command_error(refused.value)
    assert "createsuperuser" in said


def printed_link(*names: str) -> str:
    """Return the path of the link that the command prints."""
    out = StringIO()
    call_command("login_link", *names, stdout=out)
    found = re.fullmatch(r"http://127\.0\.0\.1:\d+(/login/link/[\w-]+/)\n", out.getvalue())
    assert found
    return found[1]
