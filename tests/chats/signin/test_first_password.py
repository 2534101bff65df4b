"""First password: offered after sign-in by link, set without confirmation, confirmed later."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.people import keys, signin
from chats.people.sessions import SIGNED_IN_AT
from tests.chats.web.markup import described

NEW = "correct horse battery staple"
BOTH = {"new_password1": NEW, "new_password2": NEW}


@pytest.fixture
def by_link(alice: User) -> Client:
    """The browser of Alice, signed in by link and without a password."""
    alice.set_unusable_password()
    alice.save()
    browser = Client()
    token = signin.create_link(user=alice, now=timezone.now())
    assert browser.post(f"/login/link/{token}/").headers["Location"] == "/"
    return browser


def grow_old(browser: Client) -> None:
    """Move the sign-in 15 minutes into the past."""
    session = browser.session
    session[SIGNED_IN_AT] = (timezone.now() - timedelta(minutes=16)).isoformat()
    session.save()


def test_a_password_is_offered_and_explained_to_who_came_by_a_link(by_link: Client) -> None:
    html = by_link.get("/chats/new").content.decode()
    assert 'id="no-password"' in html
    assert 'href="/account/password/?next=/chats/new"' in html
    settings_link = 'href="/account/password/?next=/settings/"'
    assert settings_link in by_link.get("/settings/").content.decode()
    page = by_link.get("/account/password/").content.decode()
    assert "Set password</h1>" in page
    assert 'data-note="one-time-link"' in page
    done = by_link.post("/account/password/", {**BOTH, "next": "/chats/new"})
    assert done.headers["Location"] == "/chats/new"
    html = by_link.get("/chats/new").content.decode()
    assert 'id="no-password"' not in html
    assert 'href="/account/password/' not in html
    assert "Change password</h1>" in by_link.get("/account/password/").content.decode()


def test_a_first_password_needs_no_console_however_old_the_sign_in_is(
    by_link: Client, alice: User
) -> None:
    grow_old(by_link)
    page = by_link.get("/account/password/").content.decode()
    assert "confirm_link" not in page
    by_link.post("/account/password/", BOTH)
    alice.refresh_from_db()
    assert alice.check_password(NEW)
    # Setting the password counts as a sign-in. The next change asks for the password.
    assert by_link.get("/account/confirm/").status_code == 200
    again = by_link.post("/account/password/", {**BOTH, "old_password": "wrong"})
    assert again.context["refusal"].code == "wrong_password"


def test_the_page_that_asks_leads_to_a_first_password(by_link: Client) -> None:
    grow_old(by_link)
    page = by_link.get("/account/confirm/", {"next": "/settings/"}).content.decode()
    assert 'href="/account/password/?next=' in page
    assert "manage.py" not in page


def test_a_wrong_link_promises_nothing_about_what_was_typed(by_link: Client) -> None:
    grow_old(by_link)
    refused = by_link.post("/account/confirm/", {"confirm_link": "no-link"})
    assert refused.context["refusal"].code == "not_confirmed"
    assert "is still here" not in refused.content.decode()


def test_errors_of_a_new_password_are_tied_to_its_field(by_link: Client) -> None:
    body = by_link.post("/account/password/", {**BOTH, "new_password2": "other"}).content.decode()
    assert "id_new_password2_error" in described(body)["new_password2"]


@pytest.mark.parametrize("target", ["/settings/", "https://evil.example/", "//evil.example"])
def test_the_page_that_asks_leads_back_and_nowhere_else(
    by_link: Client, alice: User, target: str
) -> None:
    alice.set_password(NEW)
    alice.save()
    by_link.force_login(alice)
    grow_old(by_link)
    asked = by_link.get("/account/confirm/", {"next": target})
    assert "Your password" in asked.content.decode()
    wrong = by_link.post("/account/confirm/", {"confirm_password": "x", "next": target})
    assert wrong.status_code == 422
    assert 'data-reason="not_confirmed"' in wrong.content.decode()
    right = by_link.post("/account/confirm/", {"confirm_password": NEW, "next": target})
    assert right.headers["Location"] == (target if target == "/settings/" else "/")


def test_guesses_are_throttled_like_a_sign_in(by_link: Client, alice: User) -> None:
    alice.set_password(NEW)
    alice.save()
    by_link.force_login(alice)
    grow_old(by_link)
    codes = [
        by_link.post("/account/confirm/", {"confirm_password": "x"}).status_code for _ in range(7)
    ]
    assert codes[0] == 422
    assert codes[-1] == 429


def test_a_stranger_is_asked_to_sign_in_first(client: Client) -> None:
    answer = client.get("/account/confirm/")
    assert answer.headers["Location"] == "/login/?next=/account/confirm/"


@pytest.mark.parametrize("revoked", [True, False])
def test_a_change_of_the_password_offers_to_revoke_api_keys(
    revoked: bool, by_link: Client, alice: User
) -> None:
    assert "API key" not in by_link.get("/account/password/").content.decode()
    now = timezone.now()
    for name in ("first", "second"):
        keys.create_key(owner=alice, name=name, scopes=["chats:read"], now=now)
    assert "Revoke my 2 API keys" in by_link.get("/account/password/").content.decode()
    wrong = {"new_password1": NEW, "new_password2": "other", "revoke_keys": "on"}
    by_link.post("/account/password/", wrong)
    assert len(keys.list_usable_keys(owner=alice, now=now)) == 2
    by_link.post("/account/password/", {**BOTH, **({"revoke_keys": "on"} if revoked else {})})
    assert len(keys.list_usable_keys(owner=alice, now=now)) == (0 if revoked else 2)
