"""An auditor finds events, reads one, and verifies the chains in the admin."""

import importlib
import uuid
from datetime import datetime, timedelta
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from contextpolicy.ledger import record
from contextpolicy.models import AuditEvent, EffectivePolicy
from contextpolicy.presets import seed_policies
from contextpolicy.resolution import resolve
from contextpolicy.roles import AUDITOR
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
LIST = "/admin/contextpolicy/auditevent/"
VERIFY = f"{LIST}verify/"
CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")
TURN = uuid.UUID("018f0000-0000-7000-8000-000000000002")


@pytest.fixture
def browser() -> Client:
    """The browser of Priya, who audits."""
    return signed_in(person("priya", AUDITOR))


@pytest.fixture
def events(now: datetime, alice: User, browser: Client) -> None:
    """Three events of different kinds, scopes and actors."""
    record("policy.version_created", actor=f"user:{alice.pk}", now=now, data={"version": 7})
    record("turn.failed", actor="worker", now=now, chat_id=CHAT, turn_id=TURN, data={"code": "x"})
    record("chat.created", actor=f"user:{alice.pk}", now=now - timedelta(days=40), chat_id=CHAT)


def listed(browser: Client, query: str) -> set[str]:
    """The types of the events on the filtered list."""
    answer = browser.get(f"{LIST}?{query}")
    assert answer.status_code == 200
    return {event.type for event in answer.context["cl"].result_list}


@pytest.mark.usefixtures("events")
class TestFinding:
    @pytest.mark.parametrize(
        ("query", "types"),
        [
            ("q=turn.failed", {"turn.failed"}),
            ("family=policy", {"policy.version_created"}),
            ("scope=chats", {"turn.failed", "chat.created"}),
            ("actor=worker", {"turn.failed"}),
            (f"q={CHAT}", {"turn.failed", "chat.created"}),
            (f"q={str(CHAT).upper()}", {"turn.failed", "chat.created"}),
            (f"q={TURN}", {"turn.failed"}),
            ("q=alice", {"policy.version_created", "chat.created"}),
            ("q=worker", {"turn.failed"}),
            ("q=nobody", set()),
            ("q=%22%2A%27%3B--", set()),
            ("family=policy&actor=worker", set()),
        ],
    )
    def test_events_are_found_by_type_scope_actor_chat_and_turn(
        self, query: str, types: set[str], browser: Client
    ) -> None:
        assert listed(browser, query) == types

    def test_events_are_found_by_date(self, browser: Client, now: datetime) -> None:
        query = urlencode({"at__gte": str(now - timedelta(days=7)), "at__lt": str(now + DAY)})

        found = listed(browser, query)

        assert "turn.failed" in found
        assert "chat.created" not in found

    def test_a_person_is_named_beside_the_id(self, browser: Client, alice: User) -> None:
        assert f"alice (user:{alice.pk})" in opened(browser, LIST).words

    def test_an_actor_that_is_gone_stays_an_id(self, browser: Client, now: datetime) -> None:
        record("chat.deleted", actor="user:987654", now=now, chat_id=CHAT)

        assert "user:987654" in opened(browser, LIST).words

    def test_a_change_is_told_as_old_and_new(self, browser: Client, now: datetime) -> None:
        data = {
            "note": "",
            "locks": {"from": [], "to": []},
            "changes": {"token_budget": {"from": 12_000, "to": 16_000}, "archive": {"to": False}},
        }
        record("policy.version_created", actor="system", now=now, data=data)

        words = opened(browser, LIST).words

        assert "token_budget 12000 → 16000, archive none → false" in words
        assert "note" not in words
        assert "locks" not in words

    def test_many_rows_take_no_more_queries_than_few(self, browser: Client, now: datetime) -> None:
        browser.get(LIST)
        with CaptureQueriesContext(connection) as few:
            browser.get(LIST)
        for number in range(30):
            made = User.objects.create(username=f"person {number}")
            record("policy.assigned", actor=f"user:{made.pk}", now=now)
        with CaptureQueriesContext(connection) as many:
            browser.get(LIST)

        assert len(many) == len(few)


def test_one_event_shows_its_data_its_hashes_and_that_they_fit(
    browser: Client, now: datetime
) -> None:
    event = record("policy.created", actor="system", now=now, data={"name": "<script>", "n": 1})

    url = reverse("admin:contextpolicy_auditevent_change", args=[event.pk])
    page = opened(browser, url)

    assert '"name": "<script>"' in page.words
    assert event.hash in page.words
    assert event.previous_hash in page.words
    assert page.inline == []
    assert 'alt="True"' in browser.get(url).content.decode()


class TestVerifying:
    def test_a_ledger_that_holds_says_so(self, browser: Client, now: datetime) -> None:
        record("chat.created", actor="user:1", now=now, chat_id=CHAT)

        words = opened(browser, VERIFY).words

        assert "2 chains hold" in words
        assert f"{AuditEvent.objects.count()} rows recomputed" in words

    def test_a_broken_chain_is_named_with_its_first_bad_row(
        self, browser: Client, now: datetime
    ) -> None:
        for _ in range(3):
            record("chat.created", actor="user:1", now=now, chat_id=CHAT)
        triggers = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
        with connection.cursor() as cursor:
            for statement in triggers.DROP[connection.vendor]:
                cursor.execute(statement)
            cursor.execute(
                "UPDATE contextpolicy_auditevent SET actor = 'user:9' WHERE seq = 2 AND scope = %s",
                [f"chat:{CHAT}"],
            )

        words = opened(browser, VERIFY).words

        assert "1 chain broken" in words
        assert f"chat:{CHAT} 2 its content was changed" in words
        assert "1 chain holds" in opened(browser, f"{VERIFY}?scope=instance").words

    def test_a_chain_that_does_not_exist_is_no_success(self, browser: Client) -> None:
        words = opened(browser, f"{VERIFY}?scope=%3Cb%3Enowhere").words

        assert "There is no chain of this name" in words

    def test_the_list_leads_to_it(self, browser: Client) -> None:
        assert VERIFY in opened(browser, LIST).urls


def test_an_effective_policy_names_the_source_of_each_value(browser: Client, now: datetime) -> None:
    seed_policies(now=now)
    row = resolve(user_id=1, group_ids=[], chat_id=None, model_window=None, defaults={})

    url = reverse("admin:contextpolicy_effectivepolicy_change", args=[row.pk])
    words = opened(browser, url).words

    assert "strategy dynamic_summary instance demo v1" in words
    assert "token_budget 2600 instance demo v1" in words
    assert "Lowered to fit: nothing" in words
    assert EffectivePolicy.objects.count() == 1
