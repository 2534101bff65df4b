"""Replaced texts under a legal hold are kept, for auditors who give a reason."""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django import Settings

from chats.actions import erasure, lifecycle, organising
from chats.admin.site import site
from chats.background import due_jobs
from chats.models import Chat, Folder, KeptText
from chats.people import keys
from chats.record import audit_access
from chats.teams import conversation
from contextpolicy import holds
from contextpolicy.models import AuditEvent, LegalHold
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.chats.api.programs import Program
from tests.contextpolicy.pages import message_codes
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db
LIST = "/admin/chats/kepttext/"
REASON = "Case 2026-17, Berg AS"


def hold(level: str = "user", **target: Any) -> LegalHold:
    """Place a hold."""
    why: dict[str, Any] = {"case": "2026-17", "reason": "Dispute", "actor": "user:1"}
    return holds.place_hold(level=level, now=timezone.now(), **why, **target)


def kept() -> list[tuple[str, str]]:
    """Return the kind and the text of all kept texts, oldest first."""
    return list(KeptText.objects.order_by("replaced_at").values_list("kind", "text"))


@pytest.fixture
def page(alice: User) -> Client:
    """Alice's browser."""
    return signed_in(alice)


@pytest.fixture
def program(alice: User) -> Program:
    """Alice's API client."""
    now = timezone.now()
    _, secret = keys.create_key(owner=alice, name="a program", scopes=keys.SCOPES, now=now)
    return Program(secret)


@pytest.fixture
def renamed(alice: User, chat: Chat) -> KeptText:
    """The first title of Alice's chat, which she replaced under a hold."""
    now, actor = timezone.now(), f"user:{alice.pk}"
    lifecycle.rename_chat(chat=chat, title="Bribes", actor=actor, now=now)
    hold(user=alice)
    lifecycle.rename_chat(chat=chat, title="Recipes", actor=actor, now=now)
    return KeptText.objects.get()


@pytest.fixture
def auditor() -> User:
    """Aud, an auditor."""
    return person("aud", AUDITOR)


def test_pages_keep_what_they_replace(page: Client, alice: User, chat: Chat) -> None:
    page.post("/settings/memory/", {"instructions": "Hide it."})
    folder = organising.create_folder(owner=alice, name="Berg")
    page.post(f"/chats/{chat.pk}/rename", {"title": "Bribes"})
    assert kept() == []

    hold(user=alice)
    page.post("/settings/memory/", {"instructions": ""})
    page.post(f"/folders/{folder.pk}/rename", {"name": "Cakes"})
    page.post(f"/folders/{folder.pk}/delete")
    page.post(f"/chats/{chat.pk}/rename", {"title": "Recipes"})

    assert not Folder.objects.exists()
    assert kept() == [
        ("instructions", "Hide it."),
        ("folder_name", "Berg"),
        ("folder_name", "Cakes"),
        ("chat_title", "Bribes"),
    ]
    row = KeptText.objects.get(kind="chat_title")
    assert (row.owner, row.chat, row.replaced_by) == (alice, chat, f"user:{alice.pk}")


def test_the_api_keeps_what_it_replaces(program: Program, alice: User, chat: Chat) -> None:
    folder = organising.create_folder(owner=alice, name="Berg")
    steps = [
        (f"chats/{chat.pk}", "title", ("Bribes", "Recipes"), "chat_title"),
        (f"chats/{chat.pk}", "system_text", ("Say nothing.", ""), "system_text"),
        ("memory", "instructions", ("Hide it.", "Bake."), "instructions"),
        (f"folders/{folder.pk}", "name", ("Bergs", "Cakes"), "folder_name"),
    ]
    for address, field, (old, _), _ in steps:
        assert program.call("PATCH", address, {field: old}).status_code == 200
    assert kept() == []
    hold(user=alice)
    for address, field, (_, new), _ in steps:
        assert program.call("PATCH", address, {field: new}).status_code == 200
    assert program.call("DELETE", f"folders/{folder.pk}").status_code == 204
    assert kept() == [*((kind, old) for *_, (old, _), kind in steps), ("folder_name", "Cakes")]


def test_a_hold_on_one_chat_keeps_only_its_texts(alice: User, chat: Chat, now: datetime) -> None:
    other = lifecycle.create_chat(owner=alice, now=now, title="Other")
    marks: dict[str, Any] = {"actor": f"user:{alice.pk}", "now": timezone.now()}
    folder = organising.create_folder(owner=alice, name="Berg")
    hold("chat", chat_id=chat.pk)
    lifecycle.rename_chat(chat=other, title="Another", **marks)
    organising.rename_folder(folder=folder, name="Cakes", now=marks["now"])
    assert kept() == []

    organising.organise_chat(chat=chat, user=alice, folder=folder.pk)
    organising.rename_folder(folder=folder, name="Bread", now=marks["now"])
    conversation.set_task(chat=chat, task="Plan it", **marks)
    conversation.set_task(chat=chat, task="Plan it", **marks)
    conversation.set_task(chat=chat, task="Forget it", **marks)
    assert kept() == [("folder_name", "Cakes"), ("team_task", "Plan it")]
    assert set(KeptText.objects.values_list("chat", flat=True)) == {chat.pk}


def test_a_group_hold_covers_its_members(alice: User, chat: Chat) -> None:
    group = Group.objects.create(name="Sales")
    alice.groups.add(group)
    marks: dict[str, Any] = {"actor": f"user:{alice.pk}", "now": timezone.now()}
    lifecycle.rename_chat(chat=chat, title="Bribes", **marks)
    hold("group", group=group)
    lifecycle.rename_chat(chat=chat, title="Bribes", **marks)
    assert kept() == []
    lifecycle.rename_chat(chat=chat, title="Recipes", **marks)
    assert kept() == [("chat_title", "Bribes")]


def test_an_auditor_reads_it_after_a_recorded_reason(
    auditor: User, renamed: KeptText, alice: User
) -> None:
    browser = signed_in(auditor)
    assert LIST in browser.get("/admin/").content.decode()
    listed = browser.get(LIST, {"q": "alice"}).content.decode()
    assert "Chat title" in listed
    assert "Bribes" not in listed
    address = f"{LIST}{renamed.pk}/change/"
    assert "Bribes" not in browser.get(address).content.decode()
    refused = browser.post(address, {"reason": "." * 20})
    assert "Bribes" not in refused.content.decode()
    assert message_codes(refused) == ["reason_needed"]
    assert f'value="{"." * 20}"' in refused.content.decode()
    assert not AuditEvent.objects.filter(type="kept_text.read").exists()

    shown = browser.post(address, {"reason": REASON})

    assert "Bribes" in shown.content.decode()
    assert "no-store" in shown["Cache-Control"]
    event = AuditEvent.objects.get(type="kept_text.read")
    assert (event.actor, event.chat_id) == (f"user:{auditor.pk}", renamed.chat_id)
    assert event.data == {
        "user": alice.pk,
        "kind": "chat_title",
        "text": str(renamed.pk),
        "reason": REASON,
    }


def test_no_spelling_of_the_address_avoids_the_reason(auditor: User, renamed: KeptText) -> None:
    browser, key = signed_in(auditor), str(renamed.pk)
    for spelled in (key.upper(), key.replace("-", ""), f"{{{key}}}", f"urn:uuid:{key}"):
        address = f"{LIST}{spelled}/change/"
        asked, refused = browser.get(address), browser.post(address, {"reason": ""})
        assert asked.status_code == refused.status_code == 200
        assert 'name="reason"' in asked.content.decode()
        assert "Bribes" not in asked.content.decode() + refused.content.decode()
        assert message_codes(refused) == ["reason_needed"]
    for spelled in (f"%20{key}", f"{key}%20", f"{key}/x", f"0{key}", "x", "_5F"):
        assert browser.get(f"{LIST}{spelled}/change/").status_code == 404
    assert not AuditEvent.objects.filter(type="kept_text.read").exists()

    shown = browser.post(f"{LIST}{key.upper()}/change/", {"reason": REASON})

    assert "Bribes" in shown.content.decode()
    assert AuditEvent.objects.filter(type="kept_text.read").count() == 1


def test_no_other_page_of_a_text_shows_it(auditor: User, renamed: KeptText) -> None:
    browser, key = signed_in(auditor), str(renamed.pk)
    for spelled in (key, key.upper(), key.replace("-", "")):
        for page in ("", "history/", "delete/", "change/"):
            answer = browser.get(f"{LIST}{spelled}/{page}", follow=True)
            assert answer.status_code == (403 if page == "delete/" else 200)
            assert "Bribes" not in answer.content.decode()


def test_the_form_of_the_model_has_no_text(auditor: User, rf: RequestFactory) -> None:
    request = rf.get(LIST)
    request.user = auditor
    assert "text" not in site._registry[KeptText].get_fields(request)


def test_others_do_not_read_it(
    renamed: KeptText, alice: User, charlie: User, auditor: User
) -> None:
    address = f"{LIST}{renamed.pk}/change/"
    for someone in (person("ines", POLICY_ADMIN), alice, charlie):
        browser = signed_in(someone)
        for where in (LIST, address):
            assert browser.get(where).status_code in {302, 403}
        answer = browser.post(address, {"reason": REASON})
        assert "Bribes" not in answer.content.decode()
    assert not AuditEvent.objects.filter(type="kept_text.read").exists()


def test_two_persons_have_to_agree_first(
    renamed: KeptText, auditor: User, settings: Settings
) -> None:
    settings.TWO_PERSONS = True
    actor, now = f"user:{auditor.pk}", timezone.now()
    address, browser = f"{LIST}{renamed.pk}/change/", signed_in(auditor)
    assert "Bribes" not in browser.post(address, {"reason": REASON}).content.decode()

    audit_access.open_reading(
        chat_id=renamed.chat_id or uuid4(), actor=actor, reason=REASON, now=now
    )
    [asked] = audit_access.list_reading_requests(now=now)
    other = person("ben", AUDITOR)
    audit_access.decide_reading_request(
        asked.id, is_granted=True, actor=f"user:{other.pk}", now=now
    )
    assert "Bribes" in browser.post(address, {"reason": REASON}).content.decode()


def test_kept_texts_are_erased_when_the_hold_ends(
    renamed: KeptText, alice: User, chat: Chat
) -> None:
    row = LegalHold.objects.get()
    now = timezone.now()
    holds.release_hold(hold=row, reason="Settled", actor="user:1", now=now)
    # A released hold stays effective for 7 more days.
    assert due_jobs.erase_kept_texts(now=now + timedelta(days=6)) == 0
    assert kept() == [("chat_title", "Bribes")]

    assert due_jobs.DUE_JOBS["kept_texts"](now + timedelta(days=8)) == 1

    assert kept() == []
    event = AuditEvent.objects.get(type="kept_text.erased")
    assert event.data == {"user": alice.pk, "texts": 1}
    assert "Bribes" not in str(list(AuditEvent.objects.values_list("data", flat=True)))


def test_another_hold_keeps_them_and_an_erased_chat_takes_them(
    renamed: KeptText, alice: User, chat: Chat
) -> None:
    long_ago = timezone.now() - timedelta(days=8)
    second = hold("chat", chat_id=chat.pk)
    first = LegalHold.objects.get(level="user")
    holds.release_hold(hold=first, reason="Settled", actor="user:1", now=long_ago)
    assert due_jobs.erase_kept_texts(now=timezone.now()) == 0
    holds.release_hold(hold=second, reason="Settled", actor="user:1", now=long_ago)
    erasure.erase_chat(user=alice, chat=chat, now=timezone.now())
    assert kept() == []
    assert AuditEvent.objects.get(type="chat.erased").data["copies"]["kept_texts"] == 1
