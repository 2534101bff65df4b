"""S11: a session starts with a new id, expires on time, and can be ended from another device."""

import re
from datetime import datetime, timedelta

import pytest
import time_machine
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from chats.background.due_jobs import run_due_job
from chats.people import sessions, signin
from contextpolicy.models import AuditEvent

NEW = "a much longer new phrase"


def signed_in(password: str) -> Client:
    """A browser in which Alice has just signed in."""
    browser = Client()
    answer = browser.post("/login/", {"username": "alice", "password": password})
    assert answer.status_code == 302
    return browser


def test_S11_login_gives_a_new_session_id(alice: User, password: str, client: Client) -> None:
    planted = SessionStore()
    planted["x"] = 1
    planted.create()
    client.cookies["sessionid"] = str(planted.session_key)
    client.post("/login/", {"username": "alice", "password": password})
    assert client.cookies["sessionid"].value != planted.session_key
    assert not Session.objects.filter(session_key=planted.session_key).exists()


def test_S11_cookie_is_out_of_reach_for_scripts(alice: User, password: str) -> None:
    cookie = signed_in(password).cookies["sessionid"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_S11_session_cannot_be_used_after_logout(alice: User, password: str) -> None:
    browser = signed_in(password)
    kept = browser.cookies["sessionid"].value
    browser.post("/logout/")
    thief = Client()
    thief.cookies["sessionid"] = kept
    assert thief.get("/who").content == b""


def test_S11_logout_and_links_do_nothing_by_get(alice: User, password: str) -> None:
    browser = signed_in(password)
    assert browser.get("/logout/").status_code == 405
    assert browser.get("/who").content == b"alice"


def test_S11_new_password_ends_the_other_sessions_and_keeps_this_one(
    alice: User, password: str
) -> None:
    here, elsewhere = signed_in(password), signed_in(password)
    changed = {"old_password": password, "new_password1": NEW, "new_password2": NEW}
    assert here.post("/account/password/", changed).status_code == 302
    assert here.get("/who").content == b"alice"
    assert elsewhere.get("/who").content == b""
    assert Session.objects.count() == 1


def test_S11_a_password_that_an_administrator_sets_ends_all_sessions(
    alice: User, password: str
) -> None:
    signed_in(password)
    signed_in(password)
    User.objects.create_superuser("root", password=NEW)
    root = Client()
    root.post("/login/", {"username": "root", "password": NEW})
    changed = {"usable_password": "true", "password1": NEW, "password2": NEW}
    answer = root.post(f"/admin/auth/user/{alice.pk}/password/", changed)
    assert answer.status_code == 302
    assert sessions.list_sessions(user=alice, now=timezone.now()) == []
    assert Session.objects.count() == 1


def test_S11_expired_sessions_are_deleted(alice: User, password: str, now: datetime) -> None:
    with time_machine.travel(now, tick=False):
        signed_in(password)
        signed_in(password)
        run_due_job("old_requests", now=timezone.now())
        assert Session.objects.count() == 2
    run_due_job("old_requests", now=now + timedelta(days=15))
    assert not Session.objects.exists()


def test_S11_new_password_needs_the_present_one(alice: User, password: str) -> None:
    browser = signed_in(password)
    changed = {"old_password": "not it", "new_password1": NEW, "new_password2": NEW}
    for _ in range(5):
        answer = browser.post("/account/password/", changed)
        assert answer.context["refusal"].code == "wrong_password"
    assert browser.post("/account/password/", changed).status_code == 429
    alice.refresh_from_db()
    assert alice.check_password(password)


@pytest.mark.parametrize("new", ["short", "123456789012", "x" * 5000, "different"])
def test_new_password_has_to_be_worth_it(new: str, alice: User, password: str) -> None:
    browser = signed_in(password)
    again = new if new != "different" else "from this one, too"
    changed = {"old_password": password, "new_password1": new, "new_password2": again}
    answer = browser.post("/account/password/", changed)
    assert answer.status_code == 200
    assert answer.context["form"].errors


def test_who_came_by_link_sets_a_first_password_without_an_old_one(
    alice: User, client: Client
) -> None:
    alice.set_unusable_password()
    alice.save()
    token = signin.create_link(user=alice, now=timezone.now())
    client.post(f"/login/link/{token}/")
    changed = {"new_password1": NEW, "new_password2": NEW}
    with time_machine.travel(timezone.now() + timedelta(minutes=16)):
        # An old sign-in is accepted here, because the user has no password to confirm with.
        assert client.post("/account/password/", changed).status_code == 302
    alice.refresh_from_db()
    assert alice.check_password(NEW)


def test_S11_staff_session_ends_after_a_day_without_use(alice: User, password: str) -> None:
    alice.is_staff = True
    alice.save()
    browser = signed_in(password)
    start = timezone.now()
    with time_machine.travel(start + timedelta(hours=23)):
        assert browser.get("/who").content == b"alice"
    with time_machine.travel(start + timedelta(hours=46)):
        assert browser.get("/who").content == b"alice"
    with time_machine.travel(start + timedelta(hours=71)):
        assert browser.get("/who").content == b""


def test_S11_session_ends_after_two_weeks_however_often_it_is_used(
    alice: User, password: str
) -> None:
    browser = signed_in(password)
    start = timezone.now()
    for day in range(14):
        with time_machine.travel(start + timedelta(days=day)):
            assert browser.get("/who").content == b"alice"
    with time_machine.travel(start + timedelta(days=14, seconds=5)):
        assert browser.get("/who").content == b""


def test_S11_sessions_are_listed_and_ended_by_their_person_only(
    alice: User, bob: User, password: str
) -> None:
    here, elsewhere = signed_in(password), signed_in(password)
    now = timezone.now()
    entries = sessions.list_sessions(user=alice, now=now)
    assert len(entries) == 2
    other = sessions.derive_session_id(elsewhere.cookies["sessionid"].value)
    assert not sessions.revoke_session(user=bob, session=other, now=now)
    assert sessions.revoke_session(user=alice, session=other, now=now)
    assert elsewhere.get("/who").content == b""
    assert here.get("/who").content == b"alice"
    assert sessions.list_sessions(user=bob, now=now) == []


def test_S11_the_settings_page_lists_sessions_and_ends_them(alice: User, password: str) -> None:
    here, elsewhere = signed_in(password), signed_in(password)
    page = here.get("/settings/").content.decode()
    assert (page.count("This browser"), page.count("Another browser")) == (1, 1)
    assert elsewhere.cookies["sessionid"].value not in page
    (address,) = re.findall(r'action="(/settings/sessions/[^"]+)"', page)
    assert here.get(address).status_code == 405
    assert elsewhere.get("/who").content == b"alice"
    assert here.post(address).headers["Location"] == "/settings/"
    assert elsewhere.get("/who").content == b""
    assert here.get("/who").content == b"alice"
    assert here.post(address).status_code == 404
    assert "Another browser" not in here.get("/settings/").content.decode()
    assert AuditEvent.objects.filter(type="logout.succeeded").count() == 1


def test_S11_ending_ones_own_session_is_signing_out(alice: User, password: str) -> None:
    browser = signed_in(password)
    own = sessions.derive_session_id(browser.cookies["sessionid"].value)
    assert browser.post(f"/settings/sessions/{own}/end").headers["Location"] == "/login/"
    assert browser.get("/who").content == b""
    assert not Session.objects.exists()


def test_S11_nobody_ends_a_session_of_somebody_else(alice: User, bob: User, password: str) -> None:
    theirs = signed_in(password)
    key = sessions.derive_session_id(theirs.cookies["sessionid"].value)
    stranger = Client()
    stranger.force_login(bob)
    foreign = stranger.post(f"/settings/sessions/{key}/end")
    absent = stranger.post("/settings/sessions/absent/end")
    assert (foreign.status_code, absent.status_code) == (404, 404)
    assert "Another browser" not in stranger.get("/settings/").content.decode()
    assert theirs.get("/who").content == b"alice"


def test_reauthentication_counts_for_a_quarter_of_an_hour(now: datetime) -> None:
    session = SessionStore()
    assert not sessions.has_recent_reauthentication(session=session, now=now)
    sessions.begin_session(session=session, now=now)
    assert sessions.has_recent_reauthentication(session=session, now=now + timedelta(minutes=15))
    assert not sessions.has_recent_reauthentication(
        session=session, now=now + timedelta(minutes=16)
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("/chats/1/", "/chats/1/"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_login_goes_on_to_addresses_of_this_host_only(
    wanted: str, expected: str, alice: User, password: str, client: Client
) -> None:
    form = {"username": "alice", "password": password, "next": wanted}
    assert client.post("/login/", form)["Location"] == expected


def test_S09_login_link_logout_and_password_need_the_token(alice: User, password: str) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice)
    token = signin.create_link(user=alice, now=timezone.now())
    for path in ("/login/", f"/login/link/{token}/", "/logout/", "/account/password/"):
        assert browser.post(path, {"username": "alice", "password": password}).status_code == 403
