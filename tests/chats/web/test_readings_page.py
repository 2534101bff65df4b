"""Owners see who read what in their chats, unless the instance does not tell."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import lifecycle
from chats.models import Chat
from chats.record import audit_access
from tests.contextpolicy.people import signed_in

PAGE = "/settings/readings/"
REASON = "Complaint 2026-118 <b>"


@pytest.fixture
def read(chat: Chat, bob: User) -> Chat:
    """A chat of Alice that an auditor opened and read."""
    now = timezone.now()
    actor = f"user:{bob.pk}"
    audit_access.open_reading(chat_id=chat.pk, actor=actor, reason=REASON, now=now)
    call = {"receipt": str(chat.pk)}
    audit_access.note_read(chat_id=chat.pk, call=call, actor=actor, now=now)
    return chat


@pytest.mark.policy_case(26)
def test_the_owner_sees_who_read_what_when_and_why(read: Chat, alice: User, charlie: User) -> None:
    lifecycle.rename_chat(chat=read, title="My <i> order", actor="system", now=timezone.now())
    page = signed_in(alice)
    assert PAGE in page.get("/settings/").content.decode()
    html = page.get(PAGE).content.decode()
    assert html.index('data-event="content.read"') < html.index('data-event="content.opened"')
    for words in (
        "bob",
        "Complaint 2026-118 &lt;b&gt;",
        "My &lt;i&gt; order",
        f"/chats/{read.pk}/",
    ):
        assert words in html
    assert 'data-note="no-readings"' in signed_in(charlie).get(PAGE).content.decode()


def test_an_instance_may_not_tell(read: Chat, alice: User, settings: Any) -> None:
    settings.OWNERS_SEE_READINGS = False
    html = signed_in(alice).get(PAGE).content.decode()
    assert 'data-note="readings-not-shown"' in html
    assert "data-event=" not in html
