"""S12: failed sign-ins are counted, unknown names are not revealed, and locks expire."""

from datetime import datetime, timedelta
from unittest.mock import patch

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from chats.ground.refusals import Refusal
from chats.models import LoginFailure
from chats.people import signin
from contextpolicy.models import AuditEvent

HERE = "192.0.2.1"


def wrong(*, now: datetime, username: str = "alice", address: str = HERE) -> Refusal:
    """Return the refusal of a wrong password."""
    with pytest.raises((signin.WrongCredentials, signin.LoginThrottled)) as refused:
        signin.check_credentials(username=username, password="wrong", address=address, now=now)
    return refused.value


def test_S12_twelve_wrong_logins_end_in_429(alice: User, client: Client) -> None:
    answers = [
        client.post("/login/", {"username": "alice", "password": f"wrong {n}"}) for n in range(12)
    ]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 7
    assert 0 < int(answers[-1]["Retry-After"]) <= 300
    assert answers[0].context["refusal"].code == "wrong_credentials"
    assert answers[-1].context["refusal"].code == "login_throttled"


def test_S12_the_right_password_does_not_open_a_shut_door(
    alice: User, password: str, now: datetime
) -> None:
    for _ in range(5):
        wrong(now=now)
    with pytest.raises(signin.LoginThrottled):
        signin.check_credentials(username="alice", password=password, address=HERE, now=now)


def test_S12_account_is_guarded_against_many_addresses(alice: User, now: datetime) -> None:
    codes = [wrong(now=now, address=f"192.0.2.{n}").code for n in range(6)]
    assert codes == ["wrong_credentials"] * 5 + ["login_throttled"]
    assert wrong(now=now, username="ALICE", address="192.0.2.99").code == "login_throttled"


def test_S12_address_is_guarded_against_many_names(db: None, now: datetime) -> None:
    codes = [wrong(now=now, username=f"person {n}").code for n in range(11)]
    assert codes == ["wrong_credentials"] * 10 + ["login_throttled"]
    assert wrong(now=now, username="x", address="192.0.2.2").code == "wrong_credentials"


def test_S12_lock_ends_with_its_window_however_often_it_is_tried(
    alice: User, password: str, now: datetime
) -> None:
    for _ in range(5):
        wrong(now=now)
    for minute in range(1, 5):
        assert wrong(now=now + timedelta(minutes=minute)).code == "login_throttled"
    later = now + timedelta(minutes=5, seconds=1)
    found = signin.check_credentials(username="alice", password=password, address=HERE, now=later)
    assert found == alice


def test_S12_failures_from_the_future_lock_nobody(
    alice: User, password: str, now: datetime
) -> None:
    for _ in range(5):
        wrong(now=now + timedelta(hours=1))
    found = signin.check_credentials(username="alice", password=password, address=HERE, now=now)
    assert found == alice


def test_S12_tries_at_the_same_time_see_each_other(
    alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ten other attempts store their rows between the check and the insert of this attempt.
    others = [LoginFailure(address=f"login:{HERE}", account="", at=now) for _ in range(10)]
    look = signin.SignInAttempt.check

    def slowly(attempt: signin.SignInAttempt, *, already: int) -> None:
        look(attempt, already=already)
        if not already:
            LoginFailure.objects.bulk_create(others)

    monkeypatch.setattr(signin.SignInAttempt, "check", slowly)
    assert wrong(now=now).code == "login_throttled"
    assert LoginFailure.objects.count() == 10


def test_S12_success_counts_nothing(alice: User, password: str, now: datetime) -> None:
    for _ in range(12):
        signin.check_credentials(username="alice", password=password, address=HERE, now=now)
    assert not LoginFailure.objects.exists()


@pytest.mark.parametrize("name", ["alice", "nobody", "al\x00ice", "\ud800", "blocked"])
def test_S12_known_and_unknown_names_get_the_same_words_and_work(
    name: str, alice: User, now: datetime
) -> None:
    User.objects.create_user("blocked", password="right", is_active=False)
    with patch.object(MD5PasswordHasher, "encode", autospec=True, return_value="md5$a$b") as hashed:
        refusal = wrong(now=now, username=name)
    assert refusal.sentence == signin.WrongCredentials().sentence
    assert hashed.call_count == 1


def test_S12_password_of_a_megabyte_is_wrong_without_a_hash(alice: User, now: datetime) -> None:
    with pytest.raises(signin.WrongCredentials):
        signin.check_credentials(username="alice", password="x" * 10**6, address=HERE, now=now)


def test_S12_old_failures_are_removed(alice: User, now: datetime) -> None:
    wrong(now=now)
    wrong(now=now + timedelta(hours=1))
    assert LoginFailure.objects.count() == 1


def test_S24_neither_ledger_nor_failures_hold_names_passwords_or_addresses(
    alice: User, now: datetime
) -> None:
    for _ in range(7):
        wrong(now=now, username="alice@example.org")
    rows = [str(row) for row in LoginFailure.objects.values_list("account", flat=True)]
    events = [str(event.data) for event in AuditEvent.objects.all()]
    for text in rows + events:
        assert "alice" not in text
        assert "wrong" not in text
    assert not any(HERE in event for event in events)


def test_S12_shut_door_is_noted_once(alice: User, now: datetime) -> None:
    for _ in range(9):
        wrong(now=now)
    assert AuditEvent.objects.filter(type="login.failed").count() == 5
    assert AuditEvent.objects.filter(type="login.throttled").count() == 1


@pytest.mark.parametrize(
    ("remote", "forwarded", "trusted", "expected"),
    [
        ("192.0.2.7", "", False, "192.0.2.7"),
        ("192.0.2.7", "198.51.100.1", False, "192.0.2.7"),
        ("192.0.2.7", "203.0.113.9, 198.51.100.1", True, "198.51.100.1"),
        ("192.0.2.7", "", True, "192.0.2.7"),
        ("2001:db8:1:2:aaaa::1", "", False, "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "", False, "192.0.2.7"),
        ("", "", False, "unknown"),
        ("192.0.2.7", "not an address", True, "unknown"),
        ("192.0.2.7", "198.51.100.1:49152", True, "198.51.100.1"),
        ("192.0.2.7", "[2001:db8:1:2::9]:443", True, "2001:db8:1:2::/64"),
    ],
)
def test_S12_address_cannot_be_chosen_by_the_guesser(
    remote: str, forwarded: str, trusted: bool, expected: str, settings: Settings
) -> None:
    settings.TRUSTED_PROXY = trusted
    assert signin.resolve_client_address(remote_addr=remote, forwarded_for=forwarded) == expected


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (2, "198.51.100.9, 203.0.113.5, 10.0.0.1", "203.0.113.5"),
        (3, "198.51.100.9, 203.0.113.5, 10.0.0.1", "198.51.100.9"),
        (3, "203.0.113.5", "203.0.113.5"),
        (0, "203.0.113.5", "192.0.2.7"),
    ],
)
def test_S12_each_trusted_proxy_added_one_address(
    proxies: int, forwarded: str, expected: str, settings: Settings
) -> None:
    settings.TRUSTED_PROXY = proxies
    assert (
        signin.resolve_client_address(remote_addr="192.0.2.7", forwarded_for=forwarded) == expected
    )
