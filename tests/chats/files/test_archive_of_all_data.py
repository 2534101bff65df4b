"""The archive of a person's data has deleted chats, memory, skills, uploads and settings."""

import io
import json
import zipfile
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.actions import deletion, lifecycle, memory
from chats.actions.skills import SkillPlace, create_own_skill
from chats.memory.preferences import exported_memory, memory_settings, preferences
from chats.models import (
    AccountSettings,
    Chat,
    Folder,
    Message,
    Preference,
    PreferenceEvidence,
    StoredFile,
    Webhook,
)
from chats.record.holds import UnderHold
from chats.teams import rosters
from chats.turns.start import start_turn
from contextpolicy.holds import place_hold
from contextpolicy.models import ModelSpec, Skill
from tests.chats.api.bringing import bring
from tests.chats.api.programs import MakeProgram, Program
from tests.support.chat_messages import fill_with_every_kind
from tests.support.exchange_files import (
    build_ui_message,
    export_account,
    join_json_lines,
    read_body,
    replace_entries,
)
from tests.support.file_uploads import Read
from tests.support.team_rounds import draft_team

pytestmark = pytest.mark.usefixtures("streams")
Work = Callable[..., Any]


def read_json(archive: bytes, name: str) -> Any:
    """Return the JSON value of an archive entry."""
    with zipfile.ZipFile(io.BytesIO(archive)) as held:
        return json.loads(held.read(name))


@pytest.fixture
def deleted(alice: User, chat: Chat, now: datetime, work: Work) -> Chat:
    """A deleted chat of Alice with the only source of a preference."""
    memory_settings.set_consent(owner_id=alice.pk, agrees=True, now=now)
    memory_settings.write_instructions(owner_id=alice.pk, text="Reply in verse.", now=now)
    work(start_turn(user=alice, chat=chat, text="Call me Captain.", now=now).turn)
    Chat.objects.filter(pk=chat.pk).update(title="Gone")
    chat.refresh_from_db()
    return deletion.delete_chat(chat=chat, actor=f"user:{alice.pk}", now=now)


@pytest.mark.parametrize("form", ["ui", "markdown", "html", "json"])
def test_a_deleted_chat_is_in_a_folder_of_its_own(
    deleted: Chat, alice: User, of_alice: Program, now: datetime, form: str
) -> None:
    left = lifecycle.create_chat(owner=alice, now=now, title="Here")
    written = export_account(of_alice, form=form)
    account = read_json(written, "account.json")
    assert [row["id"] for row in account["chats"]] == [str(left.pk)]
    (row,) = account["deleted_chats"]
    assert deleted.deleted_at is not None
    assert deleted.erase_at is not None
    assert (row["id"], row["deleted_at"], row["erase_at"]) == (
        str(deleted.pk),
        deleted.deleted_at.isoformat(),
        deleted.erase_at.isoformat(),
    )
    with zipfile.ZipFile(io.BytesIO(written)) as held:
        assert row["file"].startswith("deleted_chats/")
        assert "Call me Captain." in held.read(row["file"]).decode()


def test_a_key_that_cannot_restore_chats_gets_nothing_of_deleted_ones(
    deleted: Chat, alice: User, program: MakeProgram, now: datetime
) -> None:
    preferences.write_preference(owner_id=alice.pk, slot="diet", text="Vegan", now=now)
    written = export_account(program(alice, scopes=("chats:read",)))
    account = read_json(written, "account.json")
    assert {"deleted_chats", "preferences_of_deleted_chats"} <= set(account["left_out"])
    assert "deleted_chats" not in account
    rows = read_json(written, "memory.json")["preferences"]
    assert [row["slot"] for row in rows] == ["diet"]
    with zipfile.ZipFile(io.BytesIO(written)) as held:
        assert not any(name.startswith("deleted_chats/") for name in held.namelist())
        assert not any(b"Captain" in held.read(name) for name in held.namelist())
    written = export_account(program(alice, scopes=("chats:read", "chats:write")))
    account = read_json(written, "account.json")
    assert account["left_out"] == ["skills", "webhooks"]
    assert [row["id"] for row in account["deleted_chats"]] == [str(deleted.pk)]
    assert len(read_json(written, "memory.json")["preferences"]) == 2


def test_a_deleted_temporary_chat_is_in_no_archive(
    deleted: Chat, alice: User, client: Client
) -> None:
    # The job that erases it did not run yet.
    Chat.objects.filter(pk=deleted.pk).update(temporary=True)
    client.force_login(alice)
    written = read_body(client.get("/settings/exchange/everything"))
    assert read_json(written, "account.json")["deleted_chats"] == []
    with zipfile.ZipFile(io.BytesIO(written)) as held:
        assert not any(b"Captain" in held.read(name) for name in held.namelist())


def test_memory_has_its_state_sources_and_times(
    deleted: Chat, alice: User, of_alice: Program, now: datetime
) -> None:
    written = preferences.write_preference(owner_id=alice.pk, slot="diet", text="Vegan", now=now)
    memory = read_json(export_account(of_alice), "memory.json")
    assert (memory["instructions"], bool(memory["consented_at"])) == ("Reply in verse.", True)
    by_slot = {row["slot"]: row for row in memory["preferences"]}
    assert by_slot["diet"]["id"] == str(written.pk)
    # Its only source is in a deleted chat, so the page of the memory does not list it.
    source = Message.objects.get(branch__chat=deleted, role="user")
    assert [(row["chat"], row["message"]) for row in by_slot["name"]["evidence"]] == [
        (str(deleted.pk), str(source.pk))
    ]
    assert {"status", "kind", "valid_from", "valid_to", "learned_at"} <= set(by_slot["name"])


def test_the_archive_of_memory_loads_no_message_texts(
    deleted: Chat, of_alice: Program, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(4) as seen:
        exported_memory.export_all_memory(deleted.owner_id)
    assert not any('"chats_message"."parts"' in query["sql"] for query in seen.captured_queries)


def test_what_a_legal_hold_keeps_is_in_the_archive_until_it_is_erased(
    deleted: Chat, alice: User, of_alice: Program, now: datetime
) -> None:
    place_hold(level="user", case="7", reason="Suit", user=alice, actor="system", now=now)
    row = Preference.objects.get(owner=alice)
    with pytest.raises(UnderHold):
        memory.delete_saved_preference(owner=alice, preference_id=row.pk, now=now)
    written = export_account(of_alice)
    (kept,) = read_json(written, "memory.json")["preferences"]
    assert (kept["id"], kept["status"]) == (str(row.pk), "superseded")
    assert len(read_json(written, "account.json")["deleted_chats"]) == 1


def test_settings_webhooks_uploads_and_skills_of_teams_are_in_the_archive(
    alice: User,
    of_alice: Program,
    now: datetime,
    read: Read,
    demo_model: ModelSpec,
) -> None:
    AccountSettings.objects.create(
        owner=alice, appearance="dark", language="zh-hans", time_zone="Asia/Tokyo"
    )
    Webhook.objects.create(
        owner=alice,
        url="https://x.example/hook",
        secret="sealed",
        off=Webhook.Off.FAILING,
        created_at=now,
        tidied_at=now,
    )
    own = Folder.objects.create(owner=alice, name="Work", without_memory=True)
    upload = read(b"A draft.", "draft.txt")
    made = rosters.create_team(user=alice, draft=draft_team("Ann", "Ben"), shared=False, now=now)
    create_own_skill(
        user=alice,
        place=SkillPlace(team_id=made.team.pk),
        values={"name": "Tides", "description": "On tides.", "text": "Look at the moon."},
        now=now,
    )
    Skill.objects.update(enabled=False)
    written = export_account(of_alice)
    account = read_json(written, "account.json")
    assert account["settings"] == {
        "time_zone": "Asia/Tokyo",
        "appearance": "dark",
        "language": "zh-hans",
    }
    (hook,) = account["webhooks"]
    assert (hook["url"], hook["off"]) == ("https://x.example/hook", "failing")
    (folder,) = account["folder_details"]
    assert account["folders"] == [folder["name"]] == ["Work"]
    assert (folder["id"], folder["without_memory"]) == (str(own.pk), True)
    (team,) = account["teams"]
    (skill,) = account["skills"]
    assert (skill["slug"], skill["enabled"], skill["team"]) == ("tides", False, team["id"])
    assert team["id"] == str(made.team.pk)
    assert "sealed" not in json.dumps(account)
    (file,) = account["files"]
    assert (file["name"], file["attached"], file["sha256"]) == (
        "draft.txt",
        False,
        StoredFile.objects.get(pk=upload["id"]).sha256,
    )
    assert file["file"].startswith("uploads/")
    with zipfile.ZipFile(io.BytesIO(written)) as held:
        assert held.read(file["file"]) == b"A draft."
        assert b"Look at the moon." in held.read("skills/tides/SKILL.md")


def test_a_key_without_scopes_for_them_gets_no_webhooks_and_no_skills(
    alice: User, program: MakeProgram, now: datetime, demo_model: ModelSpec
) -> None:
    made = rosters.create_team(user=alice, draft=draft_team("Ann", "Ben"), shared=False, now=now)
    create_own_skill(
        user=alice,
        place=SkillPlace(team_id=made.team.pk),
        values={"name": "Tides", "description": "On tides.", "text": "Look at the moon."},
        now=now,
    )
    less = export_account(program(alice, scopes=("chats:read",)))
    account = read_json(less, "account.json")
    assert {"skills", "webhooks"} <= set(account["left_out"])
    assert not {"skills", "webhooks"} & set(account)
    with zipfile.ZipFile(io.BytesIO(less)) as held:
        assert "skills/tides/SKILL.md" not in held.namelist()


def test_an_import_says_that_deleted_chats_are_not_imported(
    deleted: Chat, alice: User, of_alice: Program, of_charlie: Program, now: datetime
) -> None:
    left = lifecycle.create_chat(owner=alice, now=now, title="Here")
    fill_with_every_kind(left, 2, now=now)
    written = export_account(of_alice)
    for _ in range(2):
        found = bring(of_charlie, written)
        assert (found.row["state"], found.not_taken) == ("done", [("Gone", "import_deleted")])
        titles = Chat.objects.filter(owner__username="charlie").values_list("title", flat=True)
        assert list(titles) == ["Here"]
    assert not Preference.objects.filter(owner__username="charlie").exists()
    # The same account: nothing is restored and nothing is doubled.
    before = Chat.objects.count(), Preference.objects.count(), PreferenceEvidence.objects.count()
    found = bring(of_alice, written)
    assert (found.row["were_here"], found.row["added"]) == (1, 0)
    assert before == (
        Chat.objects.count(),
        Preference.objects.count(),
        PreferenceEvidence.objects.count(),
    )
    deleted.refresh_from_db()
    assert deleted.deleted_at is not None


def test_an_archive_of_an_older_version_is_imported(of_charlie: Program) -> None:
    held = io.BytesIO()
    own = "0b0f8ae4-61a6-4d5c-9b7e-0a6a6d9d5d11"
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("chats/a.jsonl", join_json_lines(build_ui_message("m1", "Hello")))
        listed = {"chats": [{"id": own, "file": "chats/a.jsonl", "title": "Old"}], "files": []}
        archive.writestr("account.json", json.dumps(listed))
    found = bring(of_charlie, held.getvalue())
    assert (found.row["added"], found.not_taken) == (1, [])


@pytest.mark.parametrize("listed", [{}, "x", None])
def test_a_list_of_deleted_chats_in_another_form_is_ignored(
    alice: User, of_alice: Program, of_charlie: Program, now: datetime, listed: Any
) -> None:
    left = lifecycle.create_chat(owner=alice, now=now, title="Here")
    fill_with_every_kind(left, 2, now=now)

    def changed(account: dict[str, Any]) -> dict[str, Any]:
        return {**account, "deleted_chats": listed}

    found = bring(of_charlie, replace_entries(export_account(of_alice), account=changed))
    assert (found.row["added"], found.not_taken) == (1, [])


def test_the_page_names_what_its_archive_contains(
    deleted: Chat, alice: User, client: Client
) -> None:
    client.force_login(alice)
    assert client.get("/settings/exchange/").status_code == 200
    written = read_body(client.get("/settings/exchange/everything"))
    assert len(read_json(written, "account.json")["deleted_chats"]) == 1
    assert len(read_json(written, "memory.json")["preferences"]) == 1


def test_no_archive_has_data_of_another_person(deleted: Chat, of_charlie: Program) -> None:
    written = export_account(of_charlie)
    with zipfile.ZipFile(io.BytesIO(written)) as held:
        assert held.namelist() == ["memory.json", "account.json"]
        assert b"Captain" not in held.read("memory.json")
