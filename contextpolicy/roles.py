"""The five roles: groups of fixed names whose rights the product defines, nobody else.

Deny by default: a role may do what stands here and nothing more. No role reads what people wrote,
and no role changes the ledger. An Owner grants roles. A superuser may do all of this; the groups
that policies are assigned to are ordinary groups without rights.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q

from contextpolicy import controls, two_persons
from contextpolicy.controls import person_of
from contextpolicy.holds import keep_members
from contextpolicy.ledger import record
from contextpolicy.models import LegalHold, PolicyAssignment

USER = "User"
POLICY_ADMIN = "Policy admin"
OPERATOR = "Operator"
AUDITOR = "Auditor"
OWNER = "Owner"

# The permissions of each role, as Django writes them.
ROLES: Mapping[str, frozenset[str]] = {
    USER: frozenset(),
    POLICY_ADMIN: frozenset(
        {
            "contextpolicy.add_contextpolicy",
            "contextpolicy.change_contextpolicy",
            "contextpolicy.view_contextpolicy",
            "contextpolicy.view_policyversion",
            "contextpolicy.view_blastradius",
            "contextpolicy.view_evaluation",
            "contextpolicy.add_policyassignment",
            "contextpolicy.delete_policyassignment",
            "contextpolicy.view_policyassignment",
            "contextpolicy.view_effectivepolicy",
            "contextpolicy.add_legalhold",
            "contextpolicy.change_legalhold",
            "contextpolicy.view_legalhold",
            "contextpolicy.add_skill",
            "contextpolicy.change_skill",
            "contextpolicy.view_skill",
            "chats.view_compaction",
            "chats.view_dailycount",
            "chats.view_team",
            "chats.add_retentionrun",
            "chats.view_retentionrun",
        }
    ),
    OPERATOR: frozenset(
        {
            "chats.add_provideraccount",
            "chats.change_provideraccount",
            "chats.delete_provideraccount",
            "chats.view_provideraccount",
            "chats.view_compaction",
            "chats.view_dailycount",
            "chats.view_turn",
            "contextpolicy.add_modelspec",
            "contextpolicy.change_modelspec",
            "contextpolicy.view_modelspec",
        }
    ),
    AUDITOR: frozenset(
        {
            "chats.view_compaction",
            "chats.view_receipt",
            "chats.view_retentionrun",
            "chats.view_team",
            "chats.view_turn",
            "contextpolicy.view_auditevent",
            "contextpolicy.view_blastradius",
            "contextpolicy.view_evaluation",
            "contextpolicy.view_contextpolicy",
            "contextpolicy.view_effectivepolicy",
            "contextpolicy.view_legalhold",
            "contextpolicy.view_policyassignment",
            "contextpolicy.view_policyversion",
            "contextpolicy.view_skill",
        }
    ),
    OWNER: frozenset(
        {
            "auth.add_group",
            "auth.change_group",
            "auth.delete_group",
            "auth.view_group",
            "auth.add_user",
            "auth.change_user",
            "auth.view_user",
        }
    ),
}


class UnknownPermission(Exception):
    """A role names a permission that the database does not know: migrate first."""


class GroupInUse(Exception):
    """A role, or a group that a policy or a legal hold applies to, cannot be taken away."""

    code = "group_in_use"

    def __init__(self) -> None:
        super().__init__(
            "This group is a role, has a policy or is under a legal hold. Remove the assignment, "
            "or release the hold first."
        )


class LastOwner(Exception):
    """The change would leave nobody who may grant roles."""

    code = "last_owner"

    def __init__(self) -> None:
        super().__init__(
            "Then nobody could grant roles any more. Make another active person Owner first."
        )


def seed_roles() -> None:
    """Make the role groups and give each exactly its rights; running it again changes nothing.

    Raises UnknownPermission.
    """
    with transaction.atomic():
        for name, rights in ROLES.items():
            group, _ = Group.objects.get_or_create(name=name)
            group.permissions.set(permissions_of(rights))


def permissions_of(rights: Collection[str]) -> list[Permission]:
    """Return the rows behind permission names. Raises UnknownPermission."""
    wanted = Q(pk__in=[])
    for right in rights:
        app, codename = right.split(".")
        wanted |= Q(content_type__app_label=app, codename=codename)
    found = list(Permission.objects.filter(wanted).select_related("content_type"))
    unknown = set(rights) - {f"{row.content_type.app_label}.{row.codename}" for row in found}
    if unknown:
        raise UnknownPermission(", ".join(sorted(unknown)))
    return found


def change_roles(*, person: User, groups: Collection[Group], actor: str, now: datetime) -> None:
    """Give a person exactly these groups; a role other than User lets them enter the admin.

    Raises LastOwner, and `SecondPersonNeeded` for who wrote the policy of a group and would change
    alone what is locked or erased for a member. Writes `role.changed` when something changed.
    """
    with transaction.atomic():
        check_membership(person=person, groups=groups, by=person_of(actor), now=now)
        before = sorted(person.groups.values_list("name", flat=True))
        after = sorted(group.name for group in groups)
        person.groups.set(groups)
        person.is_staff = person.is_superuser or bool(set(after) & (set(ROLES) - {USER}))
        person.save(update_fields=["is_staff"])
        _keep_an_owner()
        if before != after:
            changed = {"user": person.pk, "groups": {"from": before, "to": after}}
            record("role.changed", actor=actor, now=now, data=changed)


def check_membership(
    *, person: User, groups: Collection[Group], by: int | None, now: datetime
) -> None:
    """Let somebody move a person in and out of groups. Raises `SecondPersonNeeded`."""
    before = set(person.groups.values_list("pk", flat=True)) if person.pk else set()
    after = {group.pk for group in groups}
    moved = PolicyAssignment.objects.filter(group__in=before ^ after)
    for row in moved.select_related("policy__current", "group"):
        change = controls.placing_change(
            row.policy,
            level=PolicyAssignment.Level.USER,
            by=by,
            removed=row.group_id in before,
        )
        if controls.judge(change, now=now).waits:
            raise two_persons.membership_needed(str(row.group))


def save_person(*, person: User, changed: Collection[str], actor: str, now: datetime) -> None:
    """Store a person's account; `changed` names the fields, whose values stay out of the ledger.

    Only the two that decide about rights are written with their value. Raises LastOwner.
    """
    with transaction.atomic():
        person.save()
        _keep_an_owner()
        flags = {name: getattr(person, name) for name in ("is_active", "is_superuser")}
        data = {"user": person.pk, "fields": sorted(changed)}
        data |= {name: value for name, value in flags.items() if name in changed}
        record("user.changed", actor=actor, now=now, data=data)


def save_group(*, group: Group, actor: str, now: datetime) -> None:
    """Store a group that is no role, new or renamed."""
    with transaction.atomic():
        before = Group.objects.filter(pk=group.pk).values_list("name", flat=True).first()
        group.save()
        names = {"from": before, "to": group.name}
        record("role.changed", actor=actor, now=now, data={"group": group.pk, "name": names})


def delete_group(*, group: Group, actor: str, now: datetime) -> None:
    """Take away a group that is no role, has no policy and is not held. Raises GroupInUse.

    A hold that was released a short while ago applies to its members until it ends.
    """
    with transaction.atomic():
        is_held = LegalHold.objects.filter(group=group, released_at=None).exists()
        has_policy = PolicyAssignment.objects.filter(group=group).exists()
        if group.name in ROLES or has_policy or is_held:
            raise GroupInUse
        names = {"from": group.name, "to": None}
        data = {"group": group.pk, "name": names, "members": group.user_set.count()}
        keep_members(group, now=now)
        group.delete()
        record("role.changed", actor=actor, now=now, data=data)


def _keep_an_owner() -> None:
    grants = Q(is_superuser=True) | Q(groups__name=OWNER)
    if not User.objects.filter(grants, is_active=True).exists():
        raise LastOwner
