"""Creates the initial data: roles, policies, the demo model, an administrator.

Idempotent: a second start adds nothing and keeps all changes made since.
"""

import os
import shlex
import sys
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import transaction

from chats.ground.refusals import Refusal
from chats.models import ProviderAccount
from chats.people.signin import create_link, ensure_admin
from chats.providers import accounts, small_account
from contextpolicy.models import ModelSpec
from contextpolicy.presets import seed_policies
from contextpolicy.roles import seed_roles
from project import env

ADMIN = "admin"
SMALL_MODEL_MISSED = (
    "The small model is connected but not running: make run MODEL=small starts it too.\n"
)


def seed_database(*, now: datetime, base_url: str, with_link: bool = False) -> str:
    """Create missing initial data.

    Returns the text for the console. The text contains a sign-in link only if the
    administrator was just created, or with `with_link`. Container logs are stored and read
    by others, so a link is not printed at each start.
    """
    with transaction.atomic():
        seed_roles()
        seed_policies(now=now)
        seed_demo_model()
        admin, is_new = ensure_admin(username=ADMIN, now=now)
        token = create_link(user=admin, now=now) if is_new or with_link else ""
    notice = connect_from_environment(now=now)
    if small_account.update_small_account(now=now):
        notice += SMALL_MODEL_MISSED
    address = settings.PUBLIC_URL or base_url
    name = admin.get_username()
    sign_in = f"Sign in as {name} (valid 1 hour, once): {address}/login/link/{token}/\n"
    return (
        f"\n{notice}Palimpsest runs at {address}\n"
        f"{sign_in if token else ''}"
        f"{'Another' if token else 'Sign-in'} link: {build_link_command()}\n"
    )


def build_link_command() -> str:
    """Return the shell command that prints another sign-in link, for the current folder."""
    manage = settings.BASE_DIR / "manage.py"
    words = [shorten_path(Path(sys.executable)), shorten_path(manage), "login_link"]
    data = os.environ.get("PALIMPSEST_DATA")
    return (f"PALIMPSEST_DATA={shlex.quote(data)} " if data else "") + shlex.join(words)


def shorten_path(path: Path) -> str:
    """Return a relative path if it is below the current folder, else the whole path."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def connect_from_environment(*, now: datetime) -> str:
    """Connect the provider of OPENAI_API_KEY or OPENAI_BASE_URL, once.

    Returns a message for the console if that failed, else an empty string. A provider that cannot
    be reached must not prevent the start.
    """
    asked = settings.OPENAI_API_KEY or env.read_string("OPENAI_BASE_URL")
    known = ProviderAccount.objects.filter(base_url=settings.OPENAI_BASE_URL.rstrip("/"))
    if not asked or known.exists():
        return ""
    try:
        accounts.connect_server(
            name="",
            base_url=settings.OPENAI_BASE_URL,
            api_key=settings.OPENAI_API_KEY,
            actor="system",
            now=now,
        )
    except Refusal as refusal:
        return (
            f"OPENAI_BASE_URL ({settings.OPENAI_BASE_URL}) is not connected yet: {refusal.sentence}"
            " The next start tries again.\n"
        )
    return ""


def seed_demo_model() -> None:
    """Create the demo model.

    It needs no provider, and its replies describe the context that it received.
    """
    ProviderAccount.objects.get_or_create(
        slug="demo", defaults={"name": "Demo", "kind": ProviderAccount.Kind.DEMO}
    )
    ModelSpec.objects.get_or_create(
        slug="demo",
        defaults={
            "provider": "demo",
            "name": "demo",
            "label": "Demo model",
            "context_window": 128_000,
            "max_output": 4_000,
            "supports_tools": False,
            "is_default": not ModelSpec.objects.filter(is_default=True).exists(),
        },
    )
