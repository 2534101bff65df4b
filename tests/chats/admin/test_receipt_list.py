"""Record lists in the administration name the user, the chat and the time zone."""

import pytest
from django.urls import reverse

from chats.models import Chat, Receipt
from contextpolicy.roles import AUDITOR
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import Work
from tests.support.sent_requests import reply_and_get_receipt

pytestmark = pytest.mark.django_db


@pytest.fixture
def receipt(chat: Chat, work: Work) -> Receipt:
    """A call in Alice's chat."""
    return reply_and_get_receipt(chat, work, "my secret canary")


def test_receipts_name_person_chat_and_zone_and_are_found_by_them(
    receipt: Receipt, chat: Chat
) -> None:
    auditor = signed_in(person("priya", AUDITOR))
    place = reverse("admin:chats_receipt_changelist")
    page = opened(auditor, place)
    for word in ("alice", str(chat.pk), "UTC", f"{receipt.created_at:%H:%M:%S} UTC"):
        assert word in page.words
    for search, count in (("alice", 1), (str(chat.pk), 1), ("bob", 0), ("canary", 0)):
        found = auditor.get(place, {"q": search}).context["cl"].result_list
        assert len(found) == count, search
    own = opened(auditor, reverse("admin:chats_receipt_change", args=[receipt.pk])).words
    for word in ("alice", str(chat.pk), f"{receipt.created_at:%H:%M:%S} UTC"):
        assert word in own


@pytest.mark.parametrize("name", ["chats_turn", "chats_compaction", "chats_receipt"])
def test_every_time_in_a_list_has_its_zone(name: str, receipt: Receipt) -> None:
    words = opened(signed_in(person("priya", AUDITOR)), reverse(f"admin:{name}_changelist")).words
    assert "a.m." not in words
    assert "p.m." not in words
    if name != "chats_compaction":
        assert " UTC" in words
