"""People with roles, signed in."""

from datetime import datetime

from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from chats.people.sessions import begin_session
from contextpolicy.roles import OWNER, change_roles, seed_roles

PASSWORD = "correct horse battery staple"


def person(name: str, *roles: str) -> User:
    """A person with these roles; an Owner always exists as well."""
    seed_roles()
    groups = Group.objects.filter(name__in=roles)
    assert len(groups) == len(roles)
    someone, _ = User.objects.get_or_create(username="somebody-else", is_staff=True)
    someone.groups.add(Group.objects.get(name=OWNER))
    made = User.objects.create(username=name)
    change_roles(person=made, groups=list(groups), actor="system", now=timezone.now())
    return made


def signed_in(user: User, *, at: datetime | None = None) -> Client:
    """A browser in which this person has signed in, by default now."""
    client = Client()
    client.force_login(user)
    session = client.session
    begin_session(session=session, now=at or timezone.now())
    session.save()
    return client


def name_actor(user: User) -> str:
    """The actor of a person."""
    return f"user:{user.pk}"
