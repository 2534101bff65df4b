"""Settings, Memory: instructions, consent, preferences, and the line under the reply."""

import json
import re
from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import escape

from chats.memory.preferences import preferences
from chats.memory.preferences.memory_settings import InstructionsTooLong
from chats.memory.preferences.preference_texts import PreferenceInvalid
from chats.models import (
    Branch,
    Chat,
    Folder,
    ForgottenPreference,
    MemorySettings,
    Message,
    Preference,
    PreferenceEvidence,
    Turn,
)

Talk = Callable[..., Turn]
PAGE = "/settings/memory/"


def words(page: Client) -> str:
    """The page as text."""
    return page.get(PAGE).content.decode()


@pytest.fixture
def agreed(page: Client) -> Client:
    """Alice's browser, after she turned her memory on."""
    page.post(PAGE + "switch", {"to": "on"})
    return page


@pytest.mark.requirement("S1.2", by="user")
def test_the_person_agrees_on_a_page_that_shows_an_example(page: Client) -> None:
    before = words(page)
    assert 'data-note="memory-off"' in before
    assert 'data-note="memory-example"' in before
    assert not MemorySettings.objects.exists()

    page.post(PAGE + "switch", {"to": "on"})

    assert MemorySettings.objects.get().consented_at is not None
    assert 'data-note="memory-off"' not in words(page)


@pytest.mark.requirement("S4.9", by="user")
def test_instructions_are_written_and_sent_in_every_chat(
    page: Client, chat: Chat, talk: Talk
) -> None:
    page.post(PAGE, {"instructions": "Be brief.\r\nAnswer in German."})

    turn = talk("Hello")

    assert "Be brief.\nAnswer in German." in words(page)
    receipt = page.get(f"/chats/{chat.pk}/turns/{turn.pk}/receipt").content.decode()
    assert "Your profile" in receipt
    assert "Answer in German." in receipt


def test_instructions_over_their_limit_come_back_with_a_sentence(page: Client) -> None:
    refused = page.post(PAGE, {"instructions": "x" * 2_001})

    assert refused.status_code == 422
    refusal = InstructionsTooLong(length=2_001, limit=2_000, over=1)
    assert f'id="refusal" data-reason="{refusal.code}"' in refused.content.decode()
    assert refusal.localized in refused.content.decode()
    assert "x" * 2_001 in refused.content.decode()


@pytest.mark.requirement("S1.2", by="user")
def test_what_was_noted_stands_under_the_reply_and_can_be_undone(
    agreed: Client, chat: Chat, talk: Talk
) -> None:
    talk("Remember that I like tea.")
    address = f"/chats/{chat.pk}/"
    thread = agreed.get(address).content.decode()
    assert "Saved:" in thread
    assert "I like tea</bdi>" in thread
    row = Preference.objects.get()
    assert "I like tea" in words(agreed)

    answer = agreed.post(
        f"{PAGE}preferences/{row.pk}", {"act": "undo", "next": address}, follow=True
    )

    assert answer.redirect_chain == [(address, 302)]
    assert "Saved:" not in answer.content.decode()
    assert not Preference.objects.exists()


def test_preferences_are_added_changed_and_deleted(agreed: Client) -> None:
    agreed.post(PAGE + "preferences", {"slot": "name", "text": "Bob"})
    row = Preference.objects.get()

    agreed.post(f"{PAGE}preferences/{row.pk}", {"act": "save", "text": "Robert"})
    assert [r.text for r in Preference.objects.filter(status="current")] == ["Robert"]
    assert "Previous preferences (1)" in words(agreed)
    for old in Preference.objects.all():
        agreed.post(f"{PAGE}preferences/{old.pk}", {"act": "delete"})

    assert not Preference.objects.exists()


def test_what_cannot_be_kept_comes_back_with_a_sentence(agreed: Client) -> None:
    refused = agreed.post(PAGE + "preferences", {"slot": "note", "text": "x" * 201})

    assert refused.status_code == 422
    refusal = PreferenceInvalid(limit=200)
    assert f'id="refusal" data-reason="{refusal.code}"' in refused.content.decode()
    assert refusal.localized in refused.content.decode()


def test_a_refused_change_keeps_the_typed_text(agreed: Client) -> None:
    agreed.post(PAGE + "preferences", {"slot": "note", "text": "I like tea."})
    row = Preference.objects.get()
    typed = "I like <coffee>. " * 13
    refused = agreed.post(f"{PAGE}preferences/{row.pk}", {"act": "save", "text": typed})
    assert refused.status_code == 422
    found = re.search(rf'<input[^>]* id="text-{row.pk}"[^>]*>', refused.content.decode())
    assert found is not None
    assert f'value="{escape(typed)}"' in found[0]
    assert 'aria-invalid="true"' in found[0]
    assert Preference.objects.get().text == "I like tea."


def test_without_consent_nothing_is_added(page: Client) -> None:
    refused = page.post(PAGE + "preferences", {"slot": "note", "text": "I like tea"})

    assert refused.status_code == 409
    assert not Preference.objects.exists()


def test_a_pause_and_its_end(agreed: Client) -> None:
    agreed.post(PAGE + "switch", {"to": "pause"})
    assert 'data-note="memory-paused"' in words(agreed)

    agreed.post(PAGE + "switch", {"to": "resume"})
    assert 'data-note="memory-paused"' not in words(agreed)


@pytest.mark.memory_case(30)
@pytest.mark.requirement("S1.2", by="user")
def test_proposals_are_switched_on_apart_accepted_and_rejected(
    agreed: Client, alice: User, now: datetime
) -> None:
    assert 'name="to" value="propose"' in words(agreed)
    agreed.post(PAGE + "switch", {"to": "propose"})
    assert MemorySettings.objects.get().inferring_since is not None
    assert 'name="to" value="only_told"' in words(agreed)
    rows = [
        Preference.objects.create(
            owner=alice,
            slot="note",
            text=text,
            kind="inferred",
            status="proposed",
            valid_from=now,
            learned_at=now,
        )
        for text in ("I like tea", "I like war")
    ]
    said = Message.objects.create(
        branch=Branch.objects.create(
            chat=Chat.objects.create(owner=alice, created_at=now, updated_at=now), created_at=now
        ),
        seq=1,
        accepted=1,
        role="user",
        parts=[{"type": "text", "text": "I like tea, I like war"}],
        created_at=now,
    )
    for row in rows:
        PreferenceEvidence.objects.create(preference=row, message=said, start=0, end=10)
    page = words(agreed)
    assert 'data-note="suggestions-unused"' in page
    assert f'data-reason="inferred">{Preference.Kind.INFERRED.label}</span>' in page

    agreed.post(f"{PAGE}preferences/{rows[0].pk}", {"act": "accept"})
    agreed.post(f"{PAGE}preferences/{rows[1].pk}", {"act": "delete"})

    assert [(row.text, row.status) for row in Preference.objects.all()] == [
        ("I like tea", "current")
    ]
    assert ForgottenPreference.objects.count() == 1
    agreed.post(PAGE + "switch", {"to": "only_told"})
    assert MemorySettings.objects.get().inferring_since is None


def test_proposals_need_the_memory(page: Client) -> None:
    refused = page.post(PAGE + "switch", {"to": "propose"})
    assert refused.status_code == 409
    assert 'data-reason="memory_off"' in refused.content.decode()


def test_all_of_it_is_a_file(agreed: Client) -> None:
    agreed.post(PAGE + "preferences", {"slot": "name", "text": "Bob"})

    answer = agreed.get(PAGE + "export")

    assert answer["Content-Disposition"].startswith("attachment")
    assert json.loads(answer.content)["preferences"][0]["text"] == "Bob"


@pytest.mark.memory_case(19)
def test_charlie_reaches_nothing_of_alices(
    agreed: Client, charlies_page: Client, alice: User
) -> None:
    agreed.post(PAGE + "preferences", {"slot": "name", "text": "Zanzibar"})
    row = Preference.objects.get()

    for act in ("save", "accept", "delete", "undo"):
        answer = charlies_page.post(f"{PAGE}preferences/{row.pk}", {"act": act, "text": "x"})
        assert answer.status_code == 404
    assert "Zanzibar" not in words(charlies_page)
    assert preferences.list_preferences(alice.pk) == [row]


def test_a_chat_and_a_folder_are_left_without_memory(page: Client, chat: Chat, alice: User) -> None:
    folder = Folder.objects.create(owner=alice, name="Work")

    def list_offers() -> list[str]:
        return [
            found
            for address in (f"/chats/{chat.pk}/", f"/folders/{folder.pk}/")
            for form in page.get(address).content.decode().split(f'action="{address}memory"')[1:]
            for found in re.findall(r'name="remembers" value="(\w+)"', form.split("</form>")[0])
        ]

    assert list_offers() == ["no", "no"]
    page.post(f"/chats/{chat.pk}/memory", {"remembers": "no"})
    page.post(f"/folders/{folder.pk}/memory", {"remembers": "no"})

    assert list_offers() == ["yes", "yes"]
    page.post(f"/chats/{chat.pk}/memory", {"remembers": "yes"})
    page.post(f"/folders/{folder.pk}/memory", {"remembers": "yes"})
    chat.refresh_from_db()
    folder.refresh_from_db()
    assert not chat.without_memory
    assert not folder.without_memory


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example/", "javascript:1"])
def test_the_way_back_stays_on_this_server(agreed: Client, back: str) -> None:
    agreed.post(PAGE + "preferences", {"slot": "name", "text": "Bob"})
    row = Preference.objects.get()

    answer = agreed.post(f"{PAGE}preferences/{row.pk}", {"act": "delete", "next": back})

    assert answer["Location"] == PAGE
