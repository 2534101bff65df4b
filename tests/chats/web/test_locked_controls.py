"""Controls that the policy or the user's role forbids are locked, with the reason next to them."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils.html import escape

from chats.actions.marks import PinsFull, load_pin_room
from chats.compaction.people.controls import NoSummaries
from chats.compaction.people.summary_permissions import WORDS, Deed, NotAllowedByPolicy
from chats.compaction.people.undo import NothingToRedo
from chats.models import Chat, Compaction, Message, Turn
from tests.chats.web.markup import find_action, tight
from tests.support.chat_pages import HTMX, cut_out_chat, get_chat_url
from tests.support.compactions_on_pages import Policy, change_policy_values

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]


# Label of the policy in these tests.
SUPPORT = "Support v1"


def describe_lock(action: Deed) -> str:
    """Return the sentence next to a control that the policy forbids."""
    return escape(NotAllowedByPolicy(policy=SUPPORT, action=WORDS[action]).localized)


UNDO = describe_lock("undo")
EDIT = describe_lock("edit")
APPROVE = describe_lock("approve")


def both(page: Client, chat: Chat, row: Compaction) -> list[str]:
    """The chat with its marker, and the page of the compaction."""
    places = (get_chat_url(chat), get_chat_url(chat, f"compactions/{row.pk}/"))
    return [page.get(place).content.decode() for place in places]


def offers(html: str, chat: Chat, row: Compaction, action: str) -> bool:
    """Whether the page has a form for it."""
    return f'action="{get_chat_url(chat, f"compactions/{row.pk}/{action}")}"' in html


@pytest.mark.parametrize("right", ["nobody", "admins"])
def test_undo_is_locked_where_the_policy_forbids_it(
    page: Client, chat: Chat, folded: Compaction, policy: Policy, right: str
) -> None:
    policy()
    for html in both(page, chat, folded):
        assert offers(html, chat, folded, "undo")
        assert UNDO not in html

    change_policy_values(undo_right=right)

    for html in both(page, chat, folded):
        assert not offers(html, chat, folded, "undo")
        assert offers(html, chat, folded, "rerun")
        assert html.count(UNDO) == 1
    where = get_chat_url(chat, f"compactions/{folded.pk}/undo")
    assert page.post(where, headers=HTMX).status_code == 403


def test_redo_is_locked_like_undo(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy()
    page.post(get_chat_url(chat, f"compactions/{folded.pk}/undo"))
    assert all(offers(html, chat, folded, "redo") for html in both(page, chat, folded))

    change_policy_values(undo_right="nobody")

    for html in both(page, chat, folded):
        assert not offers(html, chat, folded, "redo")
        assert UNDO in html


def test_a_redo_that_no_longer_fits_is_not_offered(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy()
    page.post(get_chat_url(chat, f"compactions/{folded.pk}/undo"))
    row = Message.objects.get(seq=1)
    page.post(get_chat_url(chat, f"messages/{row.pk}/exclude"))
    Compaction.objects.filter(pk=folded.pk).update(status="undone")

    for html in both(page, chat, folded):
        assert not offers(html, chat, folded, "redo")
        assert escape(NothingToRedo().localized) in html


def test_editing_and_writing_again_are_locked_together(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy()
    address = get_chat_url(chat, f"compactions/{folded.pk}/")
    lost = {"kept": {}, "lost": {"name": ["question"]}}
    Compaction.objects.filter(pk=folded.pk).update(retention=lost)
    for html in both(page, chat, folded):
        assert offers(html, chat, folded, "rerun")
        assert f"{address}?edit=1" in html

    change_policy_values(edit_right="admins")

    for html in both(page, chat, folded):
        assert not offers(html, chat, folded, "rerun")
        assert "?edit=1" not in html
        assert html.count(EDIT) == 1
        assert offers(html, chat, folded, "undo")
    assert "<textarea" not in page.get(address, {"edit": "1"}).content.decode()
    assert page.post(f"{address}rerun", headers=HTMX).status_code == 403
    assert page.post(f"{address}revise", {"text": "- x"}).status_code == 403


def test_who_edits_policies_has_what_is_left_to_admins(
    page: Client, alice: User, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy(undo_right="admins", edit_right="admins")
    alice.user_permissions.add(Permission.objects.get(codename="change_contextpolicy"))

    for html in both(page, chat, folded):
        assert offers(html, chat, folded, "undo")
        assert offers(html, chat, folded, "rerun")
        assert 'class="locked"' not in html


def test_approval_is_locked_for_whom_it_is_not_left_to(
    page: Client, chat: Chat, draft: Compaction, policy: Policy
) -> None:
    policy(approval="owner")
    for html in both(page, chat, draft):
        assert offers(html, chat, draft, "approve")
        assert offers(html, chat, draft, "reject")

    change_policy_values(approval="admins")

    for html in both(page, chat, draft):
        assert not offers(html, chat, draft, "approve")
        assert not offers(html, chat, draft, "reject")
        assert APPROVE in html
    where = get_chat_url(chat, f"compactions/{draft.pk}/approve")
    assert page.post(where, headers=HTMX).status_code == 403


def test_nothing_is_tried_again_under_a_policy_without_summaries(
    page: Client, chat: Chat, talk: Talk, summary: Fold, policy: Policy
) -> None:
    policy()
    talk("hello")
    row = summary(2, status="rejected", reason="not_smaller", published_at=None)
    again = f"act-{row.pk.hex}"
    assert find_action(page.get(get_chat_url(chat)).content.decode(), again) == get_chat_url(
        chat, "compact"
    )

    change_policy_values(strategy="sliding_window")

    html = page.get(get_chat_url(chat)).content.decode()
    assert find_action(html, again) is None
    assert escape(NoSummaries(policy=SUPPORT).localized) in html


def test_a_policy_that_cannot_work_locks_everything_and_says_why(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy(allowed_models=[])
    for html in both(page, chat, folded):
        assert not offers(html, chat, folded, "undo")
        assert tight(html).count("Choose another model.</span></p>") == 1


def acts_of(html: str, row: Message) -> list[str]:
    """List the actions of a message on the page."""
    found = re.search(rf'id="message-{row.pk}"[^>]*\sdata-acts="([^"]*)"', html)
    assert found
    return found[1].split()


def test_a_pin_without_room_is_locked_and_an_unpin_is_not(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy()
    row = Message.objects.get(seq=3)
    assert "pin" in acts_of(page.get(get_chat_url(chat)).content.decode(), row)

    change_policy_values(pins_tokens=1)

    html = page.get(get_chat_url(chat)).content.decode()
    assert "pin" not in acts_of(html, row)
    locks = re.findall(rf'id="message-{row.pk}"[^>]*\sdata-lock="([^"]*)"', html)
    room = load_pin_room(chat=chat)
    with pytest.raises(PinsFull) as refused:
        room.check(row)
    assert locks == [escape(refused.value.localized)]
    originals = page.get(get_chat_url(chat, f"compactions/{folded.pk}/originals")).content.decode()
    assert "/pin" not in originals
    with pytest.raises(PinsFull) as refused:
        room.check(Message.objects.get(seq=1))
    assert escape(refused.value.localized) in originals
    Message.objects.filter(pk=row.pk).update(pinned_at=row.created_at)
    assert "unpin" in acts_of(page.get(get_chat_url(chat)).content.decode(), row)


def test_a_reply_without_a_turn_is_not_asked_for_again(
    page: Client, chat: Chat, talk: Talk
) -> None:
    talk("hello")
    row = Message.objects.get(seq=2)
    where = get_chat_url(chat, f"messages/{row.pk}/regenerate")
    assert "regenerate" in acts_of(page.get(get_chat_url(chat)).content.decode(), row)

    Turn.objects.update(reply=None)
    Message.objects.filter(pk=row.pk).update(turn=None)

    assert "regenerate" not in acts_of(page.get(get_chat_url(chat)).content.decode(), row)
    assert page.post(where, headers=HTMX).status_code == 409


def test_a_summary_that_the_policy_makes_no_use_of_is_shown_as_that(
    page: Client, chat: Chat, folded: Compaction, policy: Policy
) -> None:
    policy(strategy="simple", window_size=10)

    html = tight(cut_out_chat(page.get(get_chat_url(chat)).content.decode()))

    unused = f'id="compaction-{folded.pk}"'
    assert re.findall(rf'{unused}[^>]*\sdata-status="(\w+)"', html) == ["unused"]
    assert f"<bdi>{SUPPORT}</bdi>" in html
    assert "the first question" in html
    assert 'data-status="published"' not in html
    assert html.index("the first question") < html.index(unused)
    assert html.index(unused) < html.index("the second question")
    _, told = both(page, chat, folded)
    assert 'data-status="unused"' in told
    assert "chip--ok" not in told


def test_a_window_on_top_of_it_is_shown_as_that_too(
    page: Client, chat: Chat, folded: Compaction, summary: Fold, policy: Policy
) -> None:
    window = summary(4, kind="window", text="", reason="tokens", base=folded, from_seq=3)
    policy(strategy="simple", window_size=10)

    html = tight(cut_out_chat(page.get(get_chat_url(chat)).content.decode()))

    for row, messages in ((window, "messages 3 to 4"), (folded, "messages 1 to 2")):
        marker = html.split(f'id="compaction-{row.pk}"')[1].split("</section>")[0]
        assert 'data-status="unused"' in marker
        assert messages in marker
    assert "the second question" in html
    assert 'data-status="published"' not in html
