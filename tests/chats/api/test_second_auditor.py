"""Four-eyes reading: a second auditor grants the request of the first one."""

import uuid
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.utils import timezone

from chats.actions import erasure
from chats.models import Chat, Receipt
from chats.people.accounts import save_user_account
from chats.record import audit_access
from contextpolicy.roles import AUDITOR, OWNER, POLICY_ADMIN, change_roles
from tests.chats.api.programs import MakeProgram, Program
from tests.contextpolicy.pages import message_codes
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import Work
from tests.support.error_codes import read_status_and_code
from tests.support.sent_requests import REASON, list_read_events, reply_and_get_receipt

CANARY = "my secret canary"


@pytest.fixture(autouse=True)
def two_persons(settings: Any) -> None:
    """Require two auditors."""
    settings.TWO_PERSONS = True


@pytest.fixture
def receipt(chat: Chat, work: Work) -> Receipt:
    """A call whose prompt is requested."""
    return reply_and_get_receipt(chat, work, CANARY)


@pytest.fixture
def priya(db: None, program: MakeProgram) -> Program:
    """The auditor who requests access."""
    return program(person("priya", AUDITOR))


@pytest.fixture
def otto(db: None, program: MakeProgram) -> Program:
    """The auditor who grants access."""
    return program(person("otto", AUDITOR))


def ask(client: Program, chat: Chat) -> dict[str, Any]:
    """Request to read a chat and return the response."""
    answer = client.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    assert answer.status_code == 202
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.policy_case(26)
def test_who_asks_reads_once_another_one_granted_it_and_the_ledger_has_both(
    priya: Program, otto: Program, chat: Chat, receipt: Receipt
) -> None:
    request = f"audit/receipts/{receipt.pk}/request"
    asked = ask(priya, chat)
    pk = User.objects.get(username="priya").pk
    assert (asked["chat"], asked["reason"], asked["user"]) == (str(chat.pk), REASON, pk)
    assert read_status_and_code(priya.get(request)) == (403, "reading_not_open")
    assert priya.get("audit/readings").json()["data"] == []
    grant = f"audit/readings/asked/{asked['id']}/grant"
    assert read_status_and_code(priya.post(grant)) == (409, "second_auditor_needed")
    assert otto.get("audit/readings/asked").json()["data"] == [asked]

    # The half hour starts with the grant.
    with time_machine.travel(timezone.now() + timedelta(hours=5)):
        assert otto.post(grant).json() == asked
        assert CANARY in priya.get(request).content.decode()
        assert read_status_and_code(otto.get(request)) == (403, "reading_not_open")
        assert otto.get("audit/readings/asked").json()["data"] == []
        assert otto.post(grant).status_code == 404
        (told,) = priya.get("audit/readings").json()["data"]
        assert (told["chat"], told["reason"]) == (str(chat.pk), REASON)
    with time_machine.travel(timezone.now() + timedelta(hours=5, minutes=31)):
        assert read_status_and_code(priya.get(request)) == (403, "reading_not_open")
    assert [row["reason"] for row in list_read_events("content.asked", chat)] == [REASON]
    (granted,) = list_read_events("content.granted", chat)
    assert (granted["user"], granted["reason"]) == (pk, REASON)
    assert list_read_events("content.opened", chat) == []


def test_what_was_granted_can_be_ended_and_asked_for_anew(
    priya: Program, otto: Program, chat: Chat, receipt: Receipt
) -> None:
    request = f"audit/receipts/{receipt.pk}/request"
    otto.post(f"audit/readings/asked/{ask(priya, chat)['id']}/grant")
    assert priya.call("DELETE", f"audit/readings/{chat.pk}").status_code == 204
    assert read_status_and_code(priya.get(request)) == (403, "reading_not_open")
    # Only the newest request of an auditor for a chat is pending.
    first, second = ask(priya, chat), ask(priya, chat)
    assert otto.post(f"audit/readings/asked/{first['id']}/grant").status_code == 404
    assert otto.post(f"audit/readings/asked/{second['id']}/grant").status_code == 200
    assert priya.get(request).status_code == 200


def test_what_is_refused_forgotten_or_of_an_erased_chat_opens_nothing(
    priya: Program, otto: Program, chat: Chat, receipt: Receipt
) -> None:
    request = f"audit/receipts/{receipt.pk}/request"
    asked = ask(priya, chat)
    assert otto.post(f"audit/readings/asked/{asked['id']}/refuse").json() == asked
    assert otto.post(f"audit/readings/asked/{asked['id']}/grant").status_code == 404
    assert read_status_and_code(priya.get(request)) == (403, "reading_not_open")
    assert len(list_read_events("content.refused", chat)) == 1

    late = ask(priya, chat)
    with time_machine.travel(timezone.now() + timedelta(hours=25)):
        assert otto.get("audit/readings/asked").json()["data"] == []
        assert otto.post(f"audit/readings/asked/{late['id']}/grant").status_code == 404
    for wrong in (chat.pk, uuid.uuid4()):
        assert otto.post(f"audit/readings/asked/{wrong}/grant").status_code == 404
    erasure.erase_chat(user=chat.owner, chat=chat, now=timezone.now())
    assert otto.get("audit/readings/asked").json()["data"] == []
    assert otto.post(f"audit/readings/asked/{late['id']}/grant").status_code == 404


def test_a_reading_ends_with_the_role_and_does_not_return_with_it(
    priya: Program, otto: Program, chat: Chat, receipt: Receipt
) -> None:
    asked = ask(priya, chat)
    otto.post(f"audit/readings/asked/{asked['id']}/grant")
    user, auditors = User.objects.get(username="priya"), Group.objects.get(name=AUDITOR)
    path = f"audit/receipts/{receipt.pk}/request"
    assert priya.get(path).status_code == 200
    friends = Group.objects.create(name="friends")

    def give(*groups: Group) -> None:
        change_roles(person=user, groups=groups, actor="system", now=timezone.now())

    give(auditors, friends)
    give(auditors)
    assert priya.get(path).status_code == 200
    give()
    give(auditors)
    assert read_status_and_code(priya.get(path)) == (403, "reading_not_open")


def test_a_reading_ends_when_its_account_is_deactivated(
    chat: Chat, bob: User, settings: Any
) -> None:
    settings.TWO_PERSONS = False
    now = timezone.now()
    open_reading = partial(
        audit_access.get_reading_expiry, chat_id=chat.pk, actor=f"user:{bob.pk}", now=now
    )
    audit_access.open_reading(chat_id=chat.pk, actor=f"user:{bob.pk}", reason=REASON, now=now)
    assert open_reading() is not None
    person("olga", OWNER)
    for active in (False, True):
        bob.is_active = active
        save_user_account(person=bob, changed={"is_active"}, actor="system", now=now)
    assert open_reading() is None


def test_nobody_but_auditors_hears_or_answers(
    priya: Program, of_charlie: Program, program: MakeProgram, chat: Chat, receipt: Receipt
) -> None:
    asked = ask(priya, chat)
    for client, status in ((of_charlie, 404), (program(person("petra", POLICY_ADMIN)), 403)):
        assert client.get("audit/readings/asked").status_code == status
        for verb in ("grant", "refuse"):
            answer = client.post(f"audit/readings/asked/{asked['id']}/{verb}")
            assert answer.status_code == status
    assert list_read_events("content.granted", chat) == []


def test_pages_ask_and_answer_too(chat: Chat, receipt: Receipt) -> None:
    asking, other = (signed_in(person(name, AUDITOR)) for name in ("priya", "otto"))
    words, answers = (
        f"/admin/chats/receipt/words/?receipt={receipt.pk}",
        "/admin/chats/receipt/words/",
    )
    assert 'data-note="second-auditor-needed"' in asking.get(words).content.decode()
    waits = asking.post(words, {"reason": REASON}, follow=True).content.decode()
    assert 'data-note="access-requested"' in waits
    assert CANARY not in waits
    assert "1 request to read" not in asking.get("/admin/chats/receipt/").content.decode()
    assert "1 request to read" in other.get("/admin/chats/receipt/").content.decode()
    assert 'data-note="own-request"' in asking.get(answers).content.decode()
    assert REASON in other.get(answers).content.decode()
    (asked,) = audit_access.list_reading_requests(now=timezone.now())
    alone = asking.post(answers, {"grant": asked.id}, follow=True)
    assert message_codes(alone) == ["second_auditor_needed"]
    for wrong in ("", "x", "9" * 400, chat.pk):
        said = other.post(answers, {"grant": wrong}, follow=True)
        assert message_codes(said) == ["already_answered"]
    granted = other.post(answers, {"grant": asked.id}, follow=True)
    assert message_codes(granted) == ["access_granted"]
    assert CANARY in asking.get(words).content.decode()
    assert CANARY not in other.get(words).content.decode()

    asking.post(words, {"end": "1"})
    asking.post(words, {"reason": REASON})
    (asked,) = audit_access.list_reading_requests(now=timezone.now())
    other.post(answers, {"refuse": asked.id})
    assert CANARY not in asking.get(words).content.decode()


def test_without_the_setting_nothing_waits(
    priya: Program, otto: Program, chat: Chat, settings: Any
) -> None:
    ask(priya, chat)
    settings.TWO_PERSONS = False
    assert otto.get("audit/readings/asked").json()["data"] == []
    answer = priya.post("audit/readings", {"chat": str(chat.pk), "reason": REASON})
    assert answer.status_code == 201
