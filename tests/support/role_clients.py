"""Browsers and API clients of a person with a role."""

from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.people import keys
from contextpolicy import roles
from tests.chats.api.programs import Program
from tests.contextpolicy.people import person, signed_in

SUPERUSER = "superuser"
WHO = [roles.USER, roles.POLICY_ADMIN, roles.OPERATOR, roles.AUDITOR, roles.OWNER, SUPERUSER]
PASSWORD = "correct horse battery"


def open_browser_as(who: str) -> Client:
    """The browser of a person with this role, who signed in just now."""
    if who == SUPERUSER:
        return signed_in(User.objects.create_superuser("root"))
    return signed_in(person("charles", who))


def create_client_of(user: User) -> Program:
    """An API client with a key that has all of its owner's permissions."""
    scopes = keys.SCOPES
    _, secret = keys.create_key(owner=user, name="p", scopes=scopes, now=timezone.now())
    return Program(secret)
