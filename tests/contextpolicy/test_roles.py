"""The roles have exactly the permissions defined in the code, and only Owners grant them."""

from datetime import datetime

import pytest
from django.contrib.auth.models import Group, User

from contextpolicy import roles
from contextpolicy.models import AuditEvent, ContextPolicy, PolicyAssignment
from tests.contextpolicy.people import person

pytestmark = pytest.mark.django_db


def rights_of(user: User) -> set[str]:
    """A person's permissions, without a cache."""
    return User.objects.get(pk=user.pk).get_all_permissions()


def test_seeding_twice_gives_each_role_exactly_its_rights() -> None:
    roles.seed_roles()
    group = Group.objects.get(name=roles.AUDITOR)
    group.permissions.set(roles.load_permissions(["auth.change_user"]))

    roles.seed_roles()

    assert {group.name for group in Group.objects.all()} == set(roles.ROLES)
    for name, rights in roles.ROLES.items():
        assert rights_of(person(f"one {name}", name)) == rights


def test_a_right_that_does_not_exist_is_named() -> None:
    with pytest.raises(roles.UnknownPermission, match=r"chats\.fly_turn"):
        roles.load_permissions(["chats.view_turn", "chats.fly_turn"])


def test_no_role_may_read_messages_change_the_ledger_or_delete_people() -> None:
    granted = set().union(*roles.ROLES.values())

    assert not {right for right in granted if right.endswith(("_message", "_chat", "_prompttext"))}
    assert {right for right in granted if "auditevent" in right} == {
        "contextpolicy.view_auditevent"
    }
    assert "auth.delete_user" not in granted
    assert not {right for right in granted if "permission" in right}


def test_keys_and_policies_and_roles_are_in_different_hands() -> None:
    def may(name: str, word: str) -> bool:
        return any(word in right for right in roles.ROLES[name])

    assert [name for name in roles.ROLES if may(name, "provideraccount")] == [roles.OPERATOR]
    assert [name for name in roles.ROLES if may(name, "change_contextpolicy")] == [
        roles.POLICY_ADMIN
    ]
    assert [name for name in roles.ROLES if may(name, "change_user")] == [roles.OWNER]


def test_a_role_opens_the_admin_and_its_loss_closes_it(now: datetime) -> None:
    alice = person("alice", roles.AUDITOR)
    assert alice.is_staff

    roles.change_roles(person=alice, groups=[], actor="user:1", now=now)

    alice.refresh_from_db()
    assert not alice.is_staff


def test_the_role_user_and_plain_groups_do_not_open_the_admin(now: datetime) -> None:
    plain = Group.objects.create(name="Support staff")
    alice = person("alice", roles.USER)

    roles.change_roles(person=alice, groups=[plain], actor="user:1", now=now)

    assert not alice.is_staff


@pytest.mark.policy_case(21)
def test_a_change_of_roles_is_recorded_and_no_change_is_not(now: datetime) -> None:
    alice = person("alice", roles.AUDITOR)
    auditors = Group.objects.get(name=roles.AUDITOR)
    operators = Group.objects.get(name=roles.OPERATOR)

    for _ in range(2):
        roles.change_roles(person=alice, groups=[auditors, operators], actor="user:1", now=now)

    event = AuditEvent.objects.filter(type="role.changed", actor="user:1").get()
    assert event.data == {
        "user": alice.pk,
        "groups": {"from": ["Auditor"], "to": ["Auditor", "Operator"]},
    }


def test_the_last_who_may_grant_roles_stays(now: datetime) -> None:
    roles.seed_roles()
    owners = Group.objects.get(name=roles.OWNER)
    only = User.objects.create(username="only")
    only.groups.add(owners)

    with pytest.raises(roles.LastOwner):
        roles.change_roles(person=only, groups=[], actor="user:1", now=now)
    only.is_active = False
    with pytest.raises(roles.LastOwner):
        roles.save_person(person=only, changed=["is_active"], actor="user:1", now=now)

    only.refresh_from_db()
    assert only.is_active
    assert list(only.groups.all()) == [owners]


def test_an_account_is_recorded_by_the_names_of_its_fields(now: datetime) -> None:
    alice = person("alice")
    alice.email, alice.is_active = "alice@example.org", False

    roles.save_person(person=alice, changed=["email", "is_active"], actor="user:1", now=now)

    event = AuditEvent.objects.get(type="user.changed")
    assert event.data == {"user": alice.pk, "fields": ["email", "is_active"], "is_active": False}


@pytest.mark.policy_case(20)
def test_a_group_with_a_policy_and_a_role_stay(now: datetime) -> None:
    roles.seed_roles()
    plain = Group.objects.create(name="Support staff")
    policy = ContextPolicy.objects.create(slug="support", name="Support")
    row = PolicyAssignment.objects.create(policy=policy, level="group", group=plain)

    for group in (plain, Group.objects.get(name=roles.AUDITOR)):
        with pytest.raises(roles.GroupInUse):
            roles.delete_group(group=group, actor="user:1", now=now)
    row.delete()
    roles.delete_group(group=plain, actor="user:1", now=now)

    assert not Group.objects.filter(name="Support staff").exists()
    assert AuditEvent.objects.get(type="role.changed").data["name"]["from"] == "Support staff"
