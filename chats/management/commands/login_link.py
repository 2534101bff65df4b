"""Prints a new one-time sign-in link."""

import os
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse
from django.utils import timezone

from chats.people import signin
from contextpolicy.roles import find_person_by_name

FIRST_ADMIN = "admin"


class Command(BaseCommand):
    """`manage.py login_link [username]`. Default: the first administrator."""

    help = "Print a one-time link that signs a user in without a password. Valid for one hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "username", nargs="?", help="Default: the first administrator, created if missing."
        )

    def handle(self, *_args: Any, username: str | None = None, **_options: Any) -> None:
        """Print only the link, so that a script can use the line."""
        now = timezone.now()
        user = (
            self.person(username)
            if username
            else signin.ensure_admin(username=FIRST_ADMIN, now=now)[0]
        )
        token = signin.create_link(user=user, now=now)
        self.stdout.write(base_address() + reverse("login-link", args=[token]))

    def person(self, username: str) -> User:
        """Return the active user with the given name. Raises `CommandError`."""
        user = find_person_by_name(username)
        if user is None or not user.is_active:
            raise CommandError(f"There is no active user called {username!r}.")
        return user


def base_address() -> str:
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    try:
        # The launcher writes this file. Its port may differ from the one in this command's
        # settings.
        return (settings.DATA_DIR / "address").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return f"http://127.0.0.1:{os.environ.get('PALIMPSEST_PORT') or '8420'}"
