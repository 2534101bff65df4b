"""One instance of real processes with people in every role, browsers and API clients."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from contextpolicy import roles
from tests.faults.harness import Tree

SECRET = "sk-canary-provider-0123456789abcdef"
EMAIL = "canary-person@canary.example"
PASSWORD = "canary-password-5b2f"
ROOT = "root"
PEOPLE = {
    "alice": roles.USER,
    "charlie": roles.USER,
    "eve": roles.USER,
    "policies": roles.POLICY_ADMIN,
    "operator": roles.OPERATOR,
    "auditor": roles.AUDITOR,
    "owner": roles.OWNER,
}
# People with a password, one with an address, and a provider that needs a key.
SETUP = f"""
import django; django.setup()
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.utils import timezone
from chats.people import signin
from chats.providers import accounts
from chats.models import ProviderAccount
from contextpolicy import roles
now = timezone.now()
root = User.objects.create_superuser("{ROOT}", "{EMAIL}")
roles.seed_roles()
for name, role in {PEOPLE}.items():
    person, _ = User.objects.get_or_create(username=name)
    groups = list(Group.objects.filter(name=role))
    roles.change_roles(person=person, groups=groups, actor="system", now=now)
Group.objects.create(name="plain")
User.objects.update(password=make_password("{PASSWORD}"))
account = ProviderAccount.objects.get(slug="fake")
accounts.save_provider_account(
    account=account, values={{}}, api_key="{SECRET}", actor="system", now=now
)
print(repr(account), account, vars(account))
print("link", signin.create_link(user=root, now=now))
"""


class Instance(Tree):
    """A tree, and the output of its first administrator's setup."""

    said_at_setup = ""


def new_client(instance: Instance, **options: Any) -> httpx2.Client:
    """A client without a session that does not follow redirects."""
    transport = httpx2.HTTPTransport(uds=instance.socket)
    return httpx2.Client(transport=transport, base_url="http://localhost", timeout=30, **options)


@contextmanager
def browser(instance: Instance, name: str = "") -> Iterator[httpx2.Client]:
    """A browser. With a name, that person has just signed in."""
    with new_client(instance) as client:
        client.get("/login/")
        if name:
            sign_in(client, name)
        yield client


@contextmanager
def program(instance: Instance, name: str) -> Iterator[httpx2.Client]:
    """An API client with a key of Alice's or Charlie's."""
    key = {"Authorization": f"Bearer {instance.keys[name]}"}
    with new_client(instance, headers=key) as client:
        yield client


def sign_in(http: httpx2.Client, name: str = ROOT, password: str = PASSWORD) -> httpx2.Response:
    """Sign in with a password that must be right."""
    http.get("/login/")
    form = {"username": name, "password": password, **token_of(http)}
    answer = http.post("/login/", data=form)
    assert answer.status_code == 302
    return answer


def token_of(http: httpx2.Client) -> dict[str, str]:
    """The CSRF token for this browser's forms."""
    return {"csrfmiddlewaretoken": http.cookies["csrftoken"]}


def logs(instance: Instance) -> str:
    """The output of every process of the product."""
    return "\n".join(path.read_text("utf-8", "replace") for path in instance.folder.glob("*.log"))
