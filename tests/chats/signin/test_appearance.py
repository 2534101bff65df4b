"""Colours and time zone: selected by the user, stored with the account, used on all pages."""

import datetime as dt

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.models import AccountSettings

PAGE = "/settings/appearance/"


def scheme_of(client: Client, address: str = "/settings/") -> str:
    page = client.get(address).content.decode()
    return page.split('name="color-scheme" content="')[1].split('"')[0]


@pytest.mark.parametrize(
    ("appearance", "scheme"), [("system", "light dark"), ("light", "light"), ("dark", "dark")]
)
def test_pages_and_administration_use_the_chosen_colours(
    admin_client: Client, appearance: str, scheme: str
) -> None:
    saved = admin_client.post(PAGE, {"appearance": appearance, "time_zone": ""})
    assert saved.status_code == 302
    assert scheme_of(admin_client) == scheme
    assert scheme_of(admin_client, reverse("admin:index")) == scheme


def test_another_browser_of_the_person_follows(admin_user: User) -> None:
    here, there = Client(), Client()
    here.force_login(admin_user)
    there.force_login(admin_user)
    assert scheme_of(there) == "light dark"
    here.post(PAGE, {"appearance": "dark", "time_zone": ""})
    assert scheme_of(there) == "dark"


def test_signed_out_pages_follow_the_device(client: Client, db: None) -> None:
    assert scheme_of(client, "/login/") == "light dark"


def test_a_chosen_zone_is_kept_against_the_browsers(admin_client: Client, admin_user: User) -> None:
    admin_client.cookies["zone"] = "Europe/Berlin"
    admin_client.get("/settings/")
    assert AccountSettings.objects.get(owner=admin_user).time_zone == "Europe/Berlin"
    admin_client.post(PAGE, {"appearance": "system", "time_zone": "Asia/Shanghai"})
    admin_client.get("/settings/")
    account = AccountSettings.objects.get(owner=admin_user)
    assert (account.time_zone, account.time_zone_chosen) == ("Asia/Shanghai", True)
    assert offset_on(admin_client) == dt.timedelta(hours=8)

    admin_client.post(PAGE, {"appearance": "system", "time_zone": ""})
    admin_client.get("/settings/")
    account = AccountSettings.objects.get(owner=admin_user)
    assert (account.time_zone, account.time_zone_chosen) == ("Europe/Berlin", False)
    assert offset_on(admin_client) in (dt.timedelta(hours=1), dt.timedelta(hours=2))


def offset_on(client: Client) -> dt.timedelta | None:
    """Return the UTC offset of the time on the page."""
    page = client.get(PAGE).content.decode()
    return dt.datetime.fromisoformat(page.split('<time datetime="')[1].split('"')[0]).utcoffset()


@pytest.mark.parametrize(
    "values",
    [
        {"appearance": "pink", "time_zone": ""},
        {"appearance": "dark", "time_zone": "Mars/Olympus"},
        {"appearance": "dark", "time_zone": "../../etc/passwd"},
        {"time_zone": ""},
    ],
)
def test_an_unknown_value_is_refused_next_to_its_field(
    admin_client: Client, admin_user: User, values: dict[str, str]
) -> None:
    page = admin_client.post(PAGE, values)
    assert "field__error" in page.content.decode()
    assert not AccountSettings.objects.filter(owner=admin_user, appearance="dark").exists()
    assert scheme_of(admin_client) == "light dark"
