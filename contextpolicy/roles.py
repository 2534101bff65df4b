"""The five roles: groups with fixed names and permissions.

Deny by default: a role has exactly the permissions listed here. Auditors, and policy administrators
who approve summaries, can read other users' text only with a reason that the ledger records. No
role can change the ledger. An Owner grants roles. A superuser has all these permissions. The groups
that policies are assigned to are ordinary groups without permissions.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext

from contextpolicy import controls, two_persons
from contextpolicy.controls import parse_actor_user
from contextpolicy.engine.text import names
from contextpolicy.holds import keep_members
from contextpolicy.ledger import record_event
from contextpolicy.models import GroupOwner, LegalHold, PolicyAssignment, Skill

USER = "User"
POLICY_ADMIN = "Policy admin"
OPERATOR = "Operator"
AUDITOR = "Auditor"
OWNER = "Owner"

# The permissions of each role, in Django's notation.
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
            "contextpolicy.view_toolserver",
            "contextpolicy.view_tooldefinition",
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
            "contextpolicy.add_toolserver",
            "contextpolicy.change_toolserver",
            "contextpolicy.view_toolserver",
            "contextpolicy.change_tooldefinition",
            "contextpolicy.view_tooldefinition",
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
            "contextpolicy.view_toolserver",
            "contextpolicy.view_tooldefinition",
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
    """A role names a permission that is not in the database. Run `manage.py migrate` first."""


class GroupInUse(Exception):
    """The group is a role, or has a policy, skills or a legal hold, so it cannot be deleted."""

    code = "group_in_use"

    def __init__(self) -> None:
        super().__init__(
            gettext(
                "This group is a role, has a policy or skills, or is under a legal hold. Remove "
                "the assignment, delete or move the skills, or release the hold first."
            )
        )


class GroupNameTaken(Exception):
    """Another group has the same name, ignoring case."""

    code = "group_name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext(
                "A group named “{name}” already exists (ignoring case). Choose another name."
            ).format(name=name)
        )


class UsernameTaken(Exception):
    """Another user has the same name, ignoring case."""

    code = "username_taken"

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext("The name “{taken}” is taken (case is ignored). Choose another name.").format(
                taken=name
            )
        )
        self.name = name


class NameInvisible(Exception):
    """The name has no visible character."""

    code = "name_invisible"

    def __init__(self) -> None:
        super().__init__(gettext("The name has no visible character. Choose another one."))


class LastOwner(Exception):
    """The change would leave no Owner, and only an Owner can grant roles."""

    code = "last_owner"

    def __init__(self) -> None:
        super().__init__(
            gettext(
                "This change would leave no active Owner, and only Owners can grant roles. Make "
                "another active user an Owner first."
            )
        )


def seed_roles() -> None:
    """Create the role groups and set their permissions. Idempotent.

    Raises UnknownPermission.
    """
    with transaction.atomic():
        for role, names in ROLES.items():
            group, _ = Group.objects.get_or_create(name=role)
            group.permissions.set(load_permissions(names))


def load_permissions(names: Collection[str]) -> list[Permission]:
    """Return the permission rows with these names. Raises UnknownPermission."""
    wanted = Q(pk__in=[])
    for name in names:
        app, codename = name.split(".")
        wanted |= Q(content_type__app_label=app, codename=codename)
    found = list(Permission.objects.filter(wanted).select_related("content_type"))
    unknown = set(names) - {f"{row.content_type.app_label}.{row.codename}" for row in found}
    if unknown:
        raise UnknownPermission(", ".join(sorted(unknown)))
    return found


def change_roles(*, person: User, groups: Collection[Group], actor: str, now: datetime) -> None:
    """Set a user's groups. Every role except User gives access to the admin.

    Records `role.changed` if the groups change. Raises LastOwner and `BlastRadiusNeeded`, and
    `SecondPersonNeeded` if the actor wrote a group's policy and joining or leaving the group
    changes locks or retention for a member.
    """
    with transaction.atomic():
        check_membership(person=person, groups=groups, by=parse_actor_user(actor), now=now)
        before = sorted(person.groups.values_list("name", flat=True))
        after = sorted(group.name for group in groups)
        person.groups.set(groups)
        person.is_staff = person.is_superuser or bool(set(after) & (set(ROLES) - {USER}))
        person.save(update_fields=["is_staff"])
        if before != after:
            changed = {"user": person.pk, "groups": {"from": before, "to": after}}
            record_event("role.changed", actor=actor, now=now, data=changed)
            _keep_an_owner()


def check_membership(
    *, person: User, groups: Collection[Group], by: int | None, now: datetime
) -> None:
    """Check that `by` may add a user to groups and remove them from others.

    Raises `SecondPersonNeeded`. Raises `BlastRadiusNeeded` if a group's policy would begin or cease
    to apply to a person who owns many of the active chats.
    """
    before = set(person.groups.values_list("pk", flat=True)) if person.pk else set()
    after = {group.pk for group in groups}
    moved = PolicyAssignment.objects.filter(group__in=before ^ after)
    for row in moved.select_related("policy__current", "group"):
        change = controls.build_assignment_change(
            row.policy,
            level=PolicyAssignment.Level.USER,
            by=by,
            user=person if person.pk else None,
            removed=row.group_id in before,
        )
        verdict = controls.check_change(change, now=now)
        if verdict.waits:
            raise two_persons.build_membership_refusal(str(row.group))
        if verdict.needs_count is not None:
            raise verdict.needs_count


def check_username_free(username: str, *, but: int | None = None) -> None:
    """Raise UsernameTaken if another user has this name, ignoring case.

    Raises NameInvisible if no character of the name is visible. The names are compared in Python,
    because SQLite ignores the case of ASCII letters only.
    """
    check_name_visible(username)
    others = User.objects.exclude(pk=but) if but is not None else User.objects.all()
    for other in others.values_list("username", flat=True):
        if names.casefold_name(other) == names.casefold_name(username):
            raise UsernameTaken(other)


def check_name_visible(name: str) -> None:
    """Raise NameInvisible if no character of a name is visible.

    An empty name has its own error.
    """
    if name and not any(map(names.is_visible_character, name)):
        raise NameInvisible


def find_person_by_name(username: str) -> User | None:
    """Return the user with this name, or None.

    Without an exact match, return the person whose name alone differs only in case.
    """
    exact = User.objects.filter(username=username).first()
    if exact is not None or not username:
        return exact
    wanted = names.casefold_name(username)
    # SQLite ignores only the case of ASCII letters.
    rows = (
        User.objects.filter(username__iexact=username) if wanted.isascii() else User.objects.all()
    )
    known = rows.values_list("pk", "username")
    found = [pk for pk, name in known if names.casefold_name(name) == wanted]
    return User.objects.get(pk=found[0]) if len(found) == 1 else None


def save_person(*, person: User, changed: Collection[str], actor: str, now: datetime) -> None:
    """Save a user's account. `changed`: the names of the changed fields.

    The ledger records values only of the two permission fields. Raises LastOwner, NameInvisible and
    UsernameTaken.
    """
    with transaction.atomic():
        if "username" in changed:
            check_username_free(person.username, but=person.pk)
        person.save()
        flags = {name: getattr(person, name) for name in ("is_active", "is_superuser")}
        data = {"user": person.pk, "fields": sorted(changed)}
        data |= {name: value for name, value in flags.items() if name in changed}
        record_event("user.changed", actor=actor, now=now, data=data)
        _keep_an_owner()


def save_group(*, group: Group, actor: str, now: datetime) -> None:
    """Save a new or renamed group that is not a role. Raises GroupNameTaken, NameInvisible."""
    check_name_visible(group.name)
    with transaction.atomic():
        before = Group.objects.filter(pk=group.pk).values_list("name", flat=True).first()
        others = Group.objects.exclude(pk=group.pk) if group.name != before else ()
        for other in others:
            if names.casefold_name(other.name) == names.casefold_name(group.name):
                raise GroupNameTaken(other.name)
        group.save()
        named = {"from": before, "to": group.name}
        record_event("role.changed", actor=actor, now=now, data={"group": group.pk, "name": named})


def set_group_owners(*, group: Group, owners: Collection[User], actor: str, now: datetime) -> None:
    """Appoint the members who edit the skills of a group. Recorded if they change."""
    with transaction.atomic():
        rows = GroupOwner.objects.filter(group=group)
        before = sorted(rows.values_list("user", flat=True))
        after = sorted(user.pk for user in owners)
        if before == after:
            return
        rows.exclude(user__in=after).delete()
        GroupOwner.objects.bulk_create(
            GroupOwner(group=group, user_id=pk) for pk in after if pk not in before
        )
        data = {"group": group.pk, "owners": {"from": before, "to": after}}
        record_event("role.changed", actor=actor, now=now, data=data)


def delete_group(*, group: Group, actor: str, now: datetime) -> None:
    """Delete a group that is not a role and has no policy, skill or hold. Raises GroupInUse.

    A recently released hold applies to its members until it ends.
    """
    with transaction.atomic():
        is_held = LegalHold.objects.filter(group=group, released_at=None).exists()
        has_policy = PolicyAssignment.objects.filter(group=group).exists()
        has_skills = Skill.objects.filter(group=group).exists()
        if group.name in ROLES or has_policy or has_skills or is_held:
            raise GroupInUse
        named = {"from": group.name, "to": None}
        data = {"group": group.pk, "name": named, "members": group.user_set.count()}
        keep_members(group, now=now)
        group.delete()
        record_event("role.changed", actor=actor, now=now, data=data)


def _keep_an_owner() -> None:
    """Raise `LastOwner` if no active Owner is left. Call it after the change was recorded.

    The ledger's head then serialises concurrent changes, so each sees all earlier changes.
    """
    grants = Q(is_superuser=True) | Q(groups__name=OWNER)
    if not User.objects.filter(grants, is_active=True).exists():
        raise LastOwner
