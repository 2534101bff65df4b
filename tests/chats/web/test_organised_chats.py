"""Chats in order: pinned, archived, in folders, renamed; deleted, brought back, erased."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats import tasks
from chats.actions import deletion, erasure, lifecycle, organising
from chats.actions.expiry import select_expired_chats
from chats.actions.listing import LISTED
from chats.background import due_jobs
from chats.ground import queue
from chats.models import Chat, Folder, Message, Turn
from contextpolicy import ledger
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.chat_lists import explain_list_query, find_next_page, list_chat_ids
from tests.support.chat_pages import HTMX, get_chat_url
from tests.support.chat_sizes import MOST_QUERIES

Sent = list[tuple[str, dict[str, str]]]


@pytest.fixture
def others(alice: User, now: datetime) -> list[Chat]:
    """Four more chats of Alice's, the newest first."""
    return [
        lifecycle.create_chat(owner=alice, now=now - timedelta(hours=n), title=f"Number {n}")
        for n in range(1, 5)
    ]


@pytest.fixture
def folder(alice: User) -> Folder:
    """A folder of Alice's."""
    return organising.create_folder(owner=alice, name="Warranty cases")


def sidebar(page: Client, current: str = "/chats/new") -> str:
    """Return the chat list of a page."""
    html = page.get(current).content.decode()
    return html.partition('id="chat-list"')[2].partition('<div class="sidebar__foot"')[0]


def types_of(chat: Chat) -> list[str]:
    """The chat's audit events."""
    events = AuditEvent.objects.filter(scope=f"chat:{chat.pk}").order_by("seq")
    return list(events.values_list("type", flat=True))


# --- In order ------------------------------------------------------------------------------------


def test_a_pinned_chat_stands_first_wherever_it_lies(
    page: Client, chat: Chat, others: list[Chat], folder: Folder, alice: User
) -> None:
    oldest = organising.organise_chat(chat=others[-1], user=alice, folder=folder.pk)
    answer = page.post(get_chat_url(oldest, "organise"), {"pinned": "yes"})
    assert answer.headers["Location"] == get_chat_url(oldest)
    assert list_chat_ids(sidebar(page))[0] == str(oldest.pk)
    assert list_chat_ids(sidebar(page)).count(str(oldest.pk)) == 1
    page.post(get_chat_url(oldest, "organise"), {"pinned": "no"})
    assert str(oldest.pk) not in list_chat_ids(sidebar(page))
    assert types_of(oldest) == ["chat.created"]


def test_an_archived_chat_stands_behind_a_link(
    page: Client, chat: Chat, others: list[Chat]
) -> None:
    page.post(get_chat_url(others[0], "organise"), {"archived": "yes"})
    html = sidebar(page)
    assert str(others[0].pk) not in list_chat_ids(html)
    assert 'href="/chats/archive"' in html
    assert "Current chat</h2>" in sidebar(page, get_chat_url(others[0]))
    shelf = page.get("/chats/archive").content.decode()
    assert listed_rows(shelf) == [str(others[0].pk)]
    back = page.post(get_chat_url(others[0], "organise"), {"archived": "no", "archive": "1"})
    assert back.headers["Location"] == "/chats/archive"
    assert str(others[0].pk) in list_chat_ids(sidebar(page))


def listed_rows(html: str) -> list[str]:
    """The ids of the chats of the archive's page."""
    return re.findall(r'<li class="shelf__row" id="chat-([0-9a-f-]{36})"', html)


def test_folders_are_headings_and_the_open_chats_folder_is_open(
    page: Client, chat: Chat, others: list[Chat], folder: Folder
) -> None:
    for each in others[:2]:
        page.post(get_chat_url(each, "folder"), {"folder": str(folder.pk)})
    closed = sidebar(page)
    assert "Warranty cases" in closed
    assert f'hx-get="/folders/{folder.pk}/"' in closed
    assert not {str(each.pk) for each in others[:2]} & set(list_chat_ids(closed))
    part = page.get(f"/folders/{folder.pk}/", headers=HTMX).content.decode()
    assert list_chat_ids(part) == [str(each.pk) for each in others[:2]]
    assert "<html" not in part
    shown = sidebar(page, get_chat_url(others[0]))
    assert "Current chat" not in shown
    assert set(list_chat_ids(shown)) == {str(each.pk) for each in [chat, *others]}
    assert shown.count('aria-current="page"') == 1


def test_a_new_folder_is_made_where_a_chat_is_put_into_it(page: Client, chat: Chat) -> None:
    asked = page.get(get_chat_url(chat, "folder")).content.decode()
    assert f'action="{get_chat_url(chat, "folder")}"' in asked
    for _ in range(2):
        page.post(get_chat_url(chat, "folder"), {"name": "  Billing  ", "folder": ""})
    chat.refresh_from_db()
    assert chat.folder == Folder.objects.get(name="Billing")
    page.post(get_chat_url(chat, "folder"), {"name": "", "folder": ""})
    assert Chat.objects.get(pk=chat.pk).folder is None
    refused = page.post(get_chat_url(chat, "folder"), {"name": "x" * 101})
    assert refused.status_code == 422
    assert "has 101 characters. The limit is 100" in refused.content.decode()


@pytest.mark.parametrize("chosen", ["x", "00000000-0000-4000-8000-000000000000"])
def test_a_folder_that_is_none_is_refused(page: Client, chat: Chat, chosen: str) -> None:
    refused = page.post(get_chat_url(chat, "folder"), {"folder": chosen})
    assert refused.status_code == 422
    assert 'data-reason="unknown_folder"' in refused.content.decode()


def test_a_folder_is_renamed_and_deleted_and_its_chats_stay(
    page: Client, chat: Chat, folder: Folder, alice: User
) -> None:
    organising.organise_chat(chat=chat, user=alice, folder=folder.pk)
    organising.create_folder(owner=alice, name="Taken")
    where = f"/folders/{folder.pk}/"
    taken = page.post(where + "rename", {"name": "Taken"})
    assert taken.status_code == 409
    assert "You already have a folder named “Taken”" in taken.content.decode()
    page.post(where + "rename", {"name": "Cases"})
    assert "Cases</h1>" in page.get(where).content.decode()
    page.post(where + "delete")
    assert page.get(where).status_code == 404
    chat.refresh_from_db()
    assert chat.folder is None
    assert str(chat.pk) in list_chat_ids(sidebar(page))


def test_charlie_has_none_of_alices_folders(
    charlies_page: Client, charlie: User, chat: Chat, folder: Folder, now: datetime
) -> None:
    where = f"/folders/{folder.pk}/"
    assert charlies_page.get(where).status_code == 404
    for action in ("rename", "delete"):
        assert charlies_page.post(where + action, {"name": "Mine"}).status_code == 404
    own = lifecycle.create_chat(owner=charlie, now=now)
    refused = charlies_page.post(get_chat_url(own, "folder"), {"folder": str(folder.pk)})
    assert refused.status_code == 422
    assert "Warranty" not in sidebar(charlies_page)


def test_a_folder_that_is_opened_in_the_sidebar_leads_to_its_page(
    page: Client, chat: Chat, folder: Folder, alice: User
) -> None:
    where = f"/folders/{folder.pk}/"
    empty = page.get(where, headers=HTMX).content.decode()
    assert 'data-note="empty-folder"' in empty
    assert f'class="navitem navitem--quiet" href="{where}"' in empty
    organising.organise_chat(chat=chat, user=alice, folder=folder.pk)
    part = page.get(where, headers=HTMX).content.decode()
    assert list_chat_ids(part) == [str(chat.pk)]
    assert part.count('data-act="manage-folder"') == 1
    assert 'data-note="empty-folder"' not in part


def test_a_long_folder_is_paged(page: Client, alice: User, folder: Folder, now: datetime) -> None:
    Chat.objects.bulk_create(
        Chat(
            owner=alice,
            folder=folder,
            title=f"Number {n}",
            created_at=now,
            updated_at=now - timedelta(minutes=n),
        )
        for n in range(120)
    )
    html = page.get(f"/folders/{folder.pk}/").content.decode()
    seen = list_chat_ids(html)
    while address := find_next_page(html):
        html = page.get(address, headers=HTMX).content.decode()
        assert 'data-act="manage-folder"' not in html
        assert 'id="more-chats"' not in html
        seen += list_chat_ids(html)
    assert len(seen) == len(set(seen)) == 120


@pytest.mark.parametrize("place", ["folder", "archive"])
def test_every_list_is_read_in_the_order_of_an_index(
    page: Client, alice: User, folder: Folder, now: datetime, place: str
) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_bitmapscan = off")
    rows = [
        Chat(
            owner=alice, folder=folder, archived=place == "archive", created_at=now, updated_at=now
        )
        for _ in range(60)
    ]
    Chat.objects.bulk_create(rows)
    first = f"/folders/{folder.pk}/" if place == "folder" else "/chats/archive"
    index = "chat_in_folder" if place == "folder" else "chat_archived"
    html = page.get(first).content.decode()
    more = re.search(r'href="([^"]+after=[^"]+)"', html)
    assert more is not None
    for address in (first, more[1].replace("&amp;", "&")):
        # Of the deleted chats the archive's page reads too.
        with CaptureQueriesContext(connection) as heard:
            page.get(address)
        lists = [q["sql"] for q in heard if 'ORDER BY "chats_chat"."updated_at"' in q["sql"]]
        (sql,) = [sql for sql in lists if "erase_at" not in sql.partition("ORDER BY")[2]]
        with connection.cursor() as cursor:
            explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "
            cursor.execute(explain + sql.replace("%", "%%"))
            plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
        assert index in plan, plan
        assert "TEMP B-TREE" not in plan
        assert "Sort" not in plan


def test_a_chat_in_a_folder_opens_with_few_statements(
    page: Client, chat: Chat, talk: Callable[..., Turn], folder: Folder, alice: User
) -> None:
    talk("hello")
    for n in range(20):
        organising.create_folder(owner=alice, name=f"Folder {n}")
    organising.organise_chat(chat=chat, user=alice, folder=folder.pk)
    page.get(get_chat_url(chat))
    with CaptureQueriesContext(connection) as heard:
        page.get(get_chat_url(chat))
    # One more than a chat without: the others of its folder.
    assert len(heard) <= MOST_QUERIES + 1, "\n".join(query["sql"][:150] for query in heard)


def test_the_list_keeps_its_index_beside_folders(
    page: Client, alice: User, folder: Folder, now: datetime
) -> None:
    Chat.objects.bulk_create(
        Chat(owner=alice, folder=folder if n % 2 else None, created_at=now, updated_at=now)
        for n in range(120)
    )
    if connection.vendor == "sqlite":
        plan = explain_list_query(page, find_next_page(page.get("/chats/new").content.decode()))
        assert "chat_sidebar" in plan
        assert "TEMP B-TREE" not in plan


# --- Deleted and brought back --------------------------------------------------------------------


def test_a_deleted_chat_is_hidden_at_once_and_can_be_brought_back(
    page: Client, chat: Chat, talk: Callable[..., Turn], alice: User
) -> None:
    talk("hello")
    answer = page.post(get_chat_url(chat, "delete"))
    assert answer.headers["Location"] == get_chat_url(chat, "deleted")
    assert "Chat deleted" in page.get(get_chat_url(chat, "deleted")).content.decode()
    for path in (
        get_chat_url(chat),
        get_chat_url(chat, "meter"),
        get_chat_url(chat, "changes"),
        get_chat_url(chat, "folder"),
    ):
        assert page.get(path).status_code == 404
    assert page.post(get_chat_url(chat, "messages"), {"text": "more"}).status_code == 404
    assert str(chat.pk) not in sidebar(page)
    assert listed_rows(page.get("/chats/archive").content.decode()) == [str(chat.pk)]
    assert page.post(get_chat_url(chat, "restore")).headers["Location"] == get_chat_url(chat)
    assert "hello" in page.get(get_chat_url(chat)).content.decode()
    assert page.get(get_chat_url(chat, "deleted")).status_code == 404
    assert types_of(chat)[-2:] == ["chat.deleted", "chat.restored"]
    event = AuditEvent.objects.get(type="chat.deleted")
    assert event.data["messages"] == 2
    assert not list(ledger.find_ledger_breaks())


def test_a_reply_is_stopped_when_its_chat_is_deleted(
    page: Client, chat: Chat, say: Callable[[str], Turn]
) -> None:
    turn = say("hello")
    page.post(get_chat_url(chat, "delete"))
    turn.refresh_from_db()
    assert turn.status == Turn.Status.STOPPED


def test_charlie_neither_deletes_nor_brings_back(
    page: Client, charlies_page: Client, chat: Chat
) -> None:
    assert charlies_page.post(get_chat_url(chat, "delete")).status_code == 404
    page.post(get_chat_url(chat, "delete"))
    for action in ("restore", "erase"):
        assert charlies_page.post(get_chat_url(chat, action)).status_code == 404
    assert charlies_page.get(get_chat_url(chat, "deleted")).status_code == 404
    assert listed_rows(charlies_page.get("/chats/archive").content.decode()) == []


def test_every_deleted_chat_is_found_on_a_page(
    page: Client, charlies_page: Client, alice: User, now: datetime
) -> None:
    kept = lifecycle.create_chat(owner=alice, now=now, title="Kept in the archive")
    organising.organise_chat(chat=kept, user=alice, archived=True)
    Chat.objects.bulk_create(
        Chat(
            owner=alice,
            created_at=now,
            updated_at=now,
            deleted_at=now,
            # Several at one time, which a page may divide.
            erase_at=now + timedelta(hours=n // 30),
        )
        for n in range(2 * LISTED + 5)
    )
    html = page.get("/chats/archive").content.decode()
    assert "Kept in the archive" in html
    seen = [key for key in listed_rows(html) if key != str(kept.pk)]
    assert len(seen) == LISTED
    while found := re.search(r'href="([^"]+deleted=[^"]+)"', html):
        assert listed_rows(charlies_page.get(found[1]).content.decode()) == []
        html = page.get(found[1]).content.decode()
        assert "Archived</h2>" not in html
        seen += listed_rows(html)
    last = Chat.objects.filter(deleted_at__isnull=False).order_by("-erase_at", "-pk")
    assert seen == [str(row.pk) for row in last]


@pytest.mark.parametrize(
    "place", ["x", "1_2", "2026-01-01_x", f"0001-01-01T00:00+14:00_{'0' * 32}"]
)
def test_a_place_that_is_none_is_the_beginning_of_the_deleted_chats(
    page: Client, chat: Chat, place: str
) -> None:
    page.post(get_chat_url(chat, "delete"))
    html = page.get("/chats/archive", {"deleted": place}).content.decode()
    assert listed_rows(html) == [str(chat.pk)]
    assert "Archived</h2>" in html


def test_more_archived_chats_are_no_word_on_the_deleted_ones(
    page: Client, chat: Chat, alice: User, now: datetime
) -> None:
    assert 'data-note="no-deleted-chats"' in page.get("/chats/archive").content.decode()
    page.post(get_chat_url(chat, "delete"))
    Chat.objects.bulk_create(
        Chat(owner=alice, archived=True, created_at=now, updated_at=now) for _ in range(LISTED + 1)
    )
    more = re.search(r'href="([^"]+after=[^"]+)"', page.get("/chats/archive").content.decode())
    assert more is not None
    html = page.get(more[1]).content.decode()
    assert len(listed_rows(html)) == 1
    assert 'data-note="no-deleted-chats"' not in html


def test_after_its_days_the_sweep_erases_a_deleted_chat(
    chat: Chat,
    talk: Callable[..., Turn],
    sent: Sent,
    now: datetime,
    settings: Settings,
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    settings.DELETED_CHAT_DAYS = 3
    talk("hello")
    deletion.delete_chat(chat=chat, actor="system", now=now)
    early, late = now + timedelta(days=2, hours=23), now + timedelta(days=3)
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        due_jobs.run_all_due_jobs(now=early)
    assert not [task for task, _ in sent if task == queue.ERASE_CHAT]
    assert not erasure.erase_expired(chat_id=chat.pk, now=early)
    with django_capture_on_commit_callbacks(execute=True):
        due_jobs.run_all_due_jobs(now=late)
    assert (queue.ERASE_CHAT, {"chat_id": str(chat.pk)}) in sent
    assert erasure.erase_expired(chat_id=chat.pk, now=late)
    assert not Chat.objects.exists()
    assert not Message.objects.exists()
    event = AuditEvent.objects.get(type="chat.erased")
    assert (event.actor, event.data["reason"]) == ("system", "deleted")
    assert not list(ledger.find_ledger_breaks())
    assert not erasure.erase_expired(chat_id=chat.pk, now=late)


def test_the_sweep_reads_no_chat_that_is_not_due(now: datetime, db: None) -> None:
    if connection.vendor == "sqlite":
        plan = select_expired_chats(now=now).values_list("pk").explain()
        assert "chat_to_erase" in plan, plan
        assert "chat_temporary" in plan, plan
        assert "SCAN" not in plan, plan


def test_a_chat_that_was_brought_back_is_not_erased(chat: Chat, now: datetime) -> None:
    deletion.delete_chat(chat=chat, actor="system", now=now)
    deletion.restore_chat(chat=chat, actor="system", now=now)
    assert not erasure.erase_expired(chat_id=chat.pk, now=now + timedelta(days=99))
    assert Chat.objects.filter(pk=chat.pk).exists()


# --- Temporary chats -----------------------------------------------------------------------------


def begin_temporary(page: Client) -> Chat:
    """A temporary chat, begun on the page."""
    page.post("/chats/new", {"text": "just for now", "temporary": "on"})
    return Chat.objects.get(temporary=True)


def test_a_temporary_chat_is_erased_by_its_button(
    page: Client, demo_model: object, sent: Sent, alice: User
) -> None:
    assert 'name="temporary"' in page.get("/chats/new").content.decode()
    chat = begin_temporary(page)
    html = page.get(get_chat_url(chat)).content.decode()
    assert 'data-act="erase-temporary-chat"' in html
    assert page.post(get_chat_url(chat, "delete")).headers["Location"] == "/chats/new"
    assert page.get(get_chat_url(chat)).status_code == 404
    assert page.post(get_chat_url(chat, "restore")).status_code == 409
    assert listed_rows(page.get("/chats/archive").content.decode()) == []
    tasks.erase_chat(chat_id=str(chat.pk))
    assert not Chat.objects.exists()
    event = AuditEvent.objects.get(type="chat.erased")
    assert event.data["reason"] == "temporary"
    assert event.data["copies"]["messages"] == 1


def test_signing_out_ends_temporary_chats_alone(
    page: Client, chat: Chat, charlie: User, now: datetime
) -> None:
    temporary = begin_temporary(page)
    theirs = lifecycle.create_chat(owner=charlie, now=timezone.now(), temporary=True)
    page.post("/logout/")
    assert erasure.erase_expired(chat_id=temporary.pk, now=timezone.now())
    assert set(Chat.objects.filter(deleted_at=None)) == {chat, theirs}
    assert not erasure.erase_expired(chat_id=theirs.pk, now=timezone.now())


def test_an_unused_temporary_chat_is_erased_after_its_hours(
    alice: User, demo_model: object, now: datetime, settings: Settings
) -> None:
    settings.TEMPORARY_CHAT_HOURS = 24
    chat = lifecycle.create_chat(owner=alice, now=now, temporary=True)
    assert not erasure.erase_expired(chat_id=chat.pk, now=now + timedelta(hours=23))
    Chat.objects.filter(pk=chat.pk).update(updated_at=now + timedelta(hours=20))
    assert not erasure.erase_expired(chat_id=chat.pk, now=now + timedelta(hours=43))
    assert erasure.erase_expired(chat_id=chat.pk, now=now + timedelta(hours=44))


def test_a_running_reply_delays_the_erasure(
    page: Client, demo_model: object, now: datetime
) -> None:
    chat = begin_temporary(page)
    Turn.objects.update(status="running", lease_token="t", lease_until=timezone.now())
    page.post(get_chat_url(chat, "delete"))
    assert not erasure.erase_expired(chat_id=chat.pk, now=timezone.now())
    Turn.objects.update(
        status="stopped", finished_at=timezone.now(), lease_token="", lease_until=None
    )
    assert erasure.erase_expired(chat_id=chat.pk, now=timezone.now())


def test_a_policy_may_forbid_temporary_chats(
    page: Client, demo_model: object, now: datetime
) -> None:
    values = {"temporary_chats": False}
    policy = create_policy(slug="kept", name="Kept", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    assert 'name="temporary"' not in page.get("/chats/new").content.decode()
    refused = page.post("/chats/new", {"text": "just for now", "temporary": "on"})
    assert refused.status_code == 403
    assert 'data-reason="temporary_not_allowed"' in refused.content.decode()
    assert not Chat.objects.exists()
