"""The versions of a chat's state: the changes of each, their message, and restoring one."""

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.actions import state_edits
from chats.models import Branch, Chat, ChatState
from chats.record import states
from contextpolicy.models import AuditEvent
from tests.chats.states import keep_a_state, lay


@pytest.fixture
def kept(chat: Chat, now: datetime) -> Chat:
    """A chat whose state has three versions."""
    keep_a_state(now=now)
    lay(chat, {"destination": "Oslo"}, now=now, seq=1)
    lay(chat, {"destination": "Lima", "people": 2}, now=now, seq=3)
    lay(chat, {"people": 2}, now=now, seq=5, kind="corrected")
    return chat


@pytest.mark.requirement("S2.5", by="user")
def test_the_history_says_what_changed_in_which_message(page: Client, kept: Chat) -> None:
    link = f"/chats/{kept.pk}/state/history"
    assert link in page.get(f"/chats/{kept.pk}/state").content.decode()

    body = page.get(link).content.decode()

    assert body.index("Version 3") < body.index("Version 2") < body.index("Version 1")
    second = body[body.index('id="version-2"') : body.index('id="version-1"')]
    assert "Oslo" in second
    assert "Lima" in second
    assert 'data-label="Message">3</td>' in second
    assert 'value="3"' not in body[body.index('id="version-3"') : body.index('id="version-2"')]


@pytest.mark.requirement("S2.5", by="user")
def test_an_older_version_is_restored_as_a_new_one(page: Client, kept: Chat) -> None:
    answer = page.post(f"/chats/{kept.pk}/state/history", {"version": "3", "to": "1"})

    assert answer.status_code == 302
    row = ChatState.objects.order_by("-version")[0]
    assert (row.version, row.kind, row.values) == (4, "restored", {"destination": "Oslo"})
    event = AuditEvent.objects.get(type="state.restored")
    assert event.data["fields"] == ["destination", "people"]
    assert "Restored by you" in page.get(f"/chats/{kept.pk}/state").content.decode()


def test_a_state_that_changed_meanwhile_is_not_replaced(page: Client, kept: Chat) -> None:
    answer = page.post(f"/chats/{kept.pk}/state/history", {"version": "2", "to": "1"})

    assert answer.status_code == 409
    assert ChatState.objects.count() == 3


def test_a_branch_shows_its_parents_versions_up_to_the_fork(kept: Chat, now: datetime) -> None:
    parent = kept.active_branch
    assert parent is not None
    branch = Branch.objects.create(
        chat=kept, parent=parent, fork_seq=3, last_seq=3, created_at=now + timedelta(hours=1)
    )

    found = states.list_state_versions(branch)

    assert [one.row.version for one in found] == [2, 1]
    first = states.find_newest_state(branch)
    assert first is not None
    assert first.version == 2


def test_values_that_no_longer_fit_are_not_restored(kept: Chat, alice: User, now: datetime) -> None:
    ChatState.objects.filter(version=1).update(values={"destination": 5})

    with pytest.raises(state_edits.StateInvalid):
        state_edits.restore_state(chat=kept, user=alice, version=3, to=1, now=now)


@pytest.mark.memory_case(19)
def test_charlie_sees_no_history(charlies_page: Client, kept: Chat) -> None:
    for method in ("get", "post"):
        answer = getattr(charlies_page, method)(f"/chats/{kept.pk}/state/history")
        assert answer.status_code == 404
