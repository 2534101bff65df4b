"""A person is found by a name in any case, if no other person has that name."""

import io
from datetime import datetime

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from chats.admin.policies.effective import find_users_by_name
from chats.people import signin
from contextpolicy.audit.search import parse_search_line
from contextpolicy.audit.search_values import SearchNotUnderstood
from contextpolicy.roles import find_person_by_name

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery staple"
SPELLINGS = ["Änne-Straße", "ÄNNE-STRASSE", "a\u0308nne-straße"]


@pytest.fixture
def anne() -> User:
    """A person whose name has letters that SQLite compares exactly."""
    return User.objects.create_user("Änne-Straße", password=PASSWORD)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_person_is_found_by_each_spelling(anne: User, name: str, now: datetime) -> None:
    assert find_person_by_name(name) == anne
    signed_in = signin.check_credentials(username=name, password=PASSWORD, address="", now=now)
    assert signed_in == anne
    call_command("login_link", name, stdout=io.StringIO())
    assert parse_search_line(f"actor:{name}").condition
    assert find_users_by_name(name) == [anne]


def test_all_spellings_of_a_name_are_throttled_together(anne: User, now: datetime) -> None:
    for number in range(settings.LOGIN_FAILURES_PER_ACCOUNT):
        spelling, address = SPELLINGS[number % len(SPELLINGS)], f"192.0.2.{number}"
        with pytest.raises(signin.WrongCredentials):
            signin.check_credentials(username=spelling, password="no", address=address, now=now)
    for spelling in SPELLINGS:
        with pytest.raises(signin.LoginThrottled):
            signin.check_credentials(
                username=spelling, password=PASSWORD, address="192.0.2.200", now=now
            )


def test_an_exact_name_comes_first_and_two_that_differ_in_case_are_ambiguous(db: None) -> None:
    # Older versions allowed such names.
    first, second = (User.objects.create_user(name) for name in ("ann", "ANN"))
    assert (find_person_by_name("ann"), find_person_by_name("ANN")) == (first, second)
    assert find_person_by_name("Ann") is None
    assert find_person_by_name("") is None


def test_another_name_is_no_person(anne: User, now: datetime) -> None:
    with pytest.raises(signin.WrongCredentials):
        signin.check_credentials(username="Anne", password=PASSWORD, address="", now=now)
    with pytest.raises(CommandError):
        call_command("login_link", "Anne", stdout=io.StringIO())
    with pytest.raises(SearchNotUnderstood):
        parse_search_line("actor:Anne")


def test_the_first_administrator_takes_no_name_in_another_case(anne: User, now: datetime) -> None:
    with pytest.raises(signin.NameTaken):
        signin.ensure_admin(username="ÄNNE-Straße", now=now)
