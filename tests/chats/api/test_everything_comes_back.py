"""The archive of all data can be imported, into another account or into the same one."""

import io
import json
import uuid
import zipfile
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.actions import erasure, lifecycle, organising
from chats.exchange import everything, import_job
from chats.models import Chat, FileImport, Folder, Message, MessageImage
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import FilePart, serialize_parts
from tests.chats.api.bringing import bring, refused, send, work
from tests.chats.api.programs import Program
from tests.support.chat_messages import fill_with_every_kind
from tests.support.exchange_files import (
    PNG,
    PNG_HASH,
    build_ui_message,
    export_account,
    join_json_lines,
    replace_entries,
)

pytestmark = [pytest.mark.requirement("S4.8", by="integrator"), pytest.mark.usefixtures("streams")]


@pytest.fixture
def three(alice: User, chat: Chat, now: datetime) -> list[Chat]:
    """Three chats: one pinned with an image, one in a folder, one archived with a system text."""
    other = [lifecycle.create_chat(owner=alice, now=now, title=name) for name in ("Two", "Three")]
    made = [chat, *(Chat.objects.get(pk=one.pk) for one in other)]
    for number, one in enumerate(made):
        fill_with_every_kind(one, 4, now=now)
        Chat.objects.filter(pk=one.pk).update(created_at=now + timedelta(minutes=number))
    Chat.objects.filter(pk=chat.pk).update(title="One", pinned=True)
    Chat.objects.filter(pk=made[2].pk).update(archived=True, system_text="Be brief.")
    organising.move_to_named_folder(chat=made[1], user=alice, name="Work")
    first = Message.objects.get(branch__chat=chat, seq=1)
    image = FilePart("image/png", "", Image(1000, "low", sha256=PNG_HASH, size=len(PNG)).reference)
    first.parts = [{"type": "text", "text": "This:"}, *serialize_parts([image])]
    first.save()
    MessageImage.objects.create(message=first, sha256=PNG_HASH, media_type="image/png", data=PNG)
    return made


def test_another_account_gets_all_of_it(
    three: list[Chat], of_alice: Program, of_charlie: Program
) -> None:
    written = export_account(of_alice)
    found = bring(of_charlie, written)
    assert (found.row["state"], found.row["form"]) == ("done", "everything")
    assert (found.row["found"], found.row["added"], found.not_taken) == (3, 3, [])
    made = {chat.title: chat for chat in Chat.objects.filter(owner__username="charlie")}
    assert set(made) == {"One", "Two", "Three"}
    assert (made["One"].pinned, made["Three"].archived) == (True, True)
    assert made["Three"].system_text == "Be brief."
    folder = Folder.objects.get(owner__username="charlie")
    assert (folder.name, made["Two"].folder) == ("Work", folder)
    image = MessageImage.objects.get(message__branch__chat=made["One"])
    assert (image.sha256, bytes(image.data)) == (PNG_HASH, PNG)
    texts = [
        list(Message.objects.filter(branch__chat=chat).order_by("seq").values_list("parts"))
        for chat in (three[1], made["Two"])
    ]
    assert texts[0] == texts[1]
    again = bring(of_charlie, written)
    assert (again.row["added"], again.row["were_here"]) == (0, 3)
    assert Folder.objects.filter(owner__username="charlie").count() == 1


def test_ones_own_brings_back_only_what_is_gone(
    alice: User, three: list[Chat], of_alice: Program, now: datetime
) -> None:
    written = export_account(of_alice)
    erasure.erase_chat(user=alice, chat=three[1], now=timezone.now())
    found = bring(of_alice, written)
    assert (found.row["added"], found.row["were_here"]) == (1, 2)
    assert sorted(Chat.objects.values_list("title", flat=True)) == ["One", "Three", "Two"]
    # The restored chat is recognised by its first id.
    again = bring(of_alice, written)
    assert (again.row["added"], again.row["were_here"]) == (0, 3)


def test_somebody_elses_chat_is_not_ones_own(
    three: list[Chat], of_alice: Program, of_charlie: Program
) -> None:
    def stolen(account: dict[str, Any]) -> dict[str, Any]:
        return {**account, "chats": account["chats"][:1]}

    found = bring(of_charlie, replace_entries(export_account(of_alice), account=stolen))
    (made,) = found.chats
    assert found.row["added"] == 1
    assert Chat.objects.get(pk=made["chat"]).owner.username == "charlie"


def test_each_chat_that_cannot_be_read_is_told_and_holds_up_no_other(
    three: list[Chat], of_alice: Program, of_charlie: Program
) -> None:
    written = export_account(of_alice)

    def changed(account: dict[str, Any]) -> dict[str, Any]:
        one, two, last = account["chats"]
        more = {**last, "id": str(uuid.uuid4()), "title": "Gone", "file": "chats/gone.jsonl"}
        passing = {**last, "id": str(uuid.uuid4()), "title": "Passing", "temporary": True}
        return {**account, "chats": [one, {**two, "folder": "\n"}, more, passing, last]}

    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        names = [chat["file"] for chat in json.loads(archive.read("account.json"))["chats"]]
    broken = {names[0].replace("/", "__"): join_json_lines(build_ui_message("a", "x"))[:-9]}
    found = bring(of_charlie, replace_entries(written, account=changed, **broken))
    assert found.row["state"] == "done"
    assert found.not_taken == [
        ("One", "import_malformed"),
        ("Gone", "import_bad_archive"),
        ("Passing", "import_temporary"),
    ]
    two, last = found.chats
    assert two["losses"] == ["folder_left_out:invalid_name"]
    assert last["losses"] == []


def test_what_is_no_archive_to_import_is_refused(three: list[Chat], of_alice: Program) -> None:
    code, sentence = refused(of_alice, export_account(of_alice, form="markdown"))
    assert (code, "JSONL format" in sentence) == ("import_unknown_form", True)
    written = export_account(of_alice)
    for account, expected in (
        (lambda _: [], "import_malformed"),
        (lambda _: {"chats": {}}, "import_malformed"),
        (lambda _: {"chats": []}, "import_empty"),
        (lambda _: {"chats": [None]}, "import_malformed"),
        (lambda told: {"chats": [{**told["chats"][0], "id": "1"}]}, "import_malformed"),
        (lambda told: {"chats": [{**told["chats"][0], "file": "/etc/x"}]}, "import_malformed"),
    ):
        assert refused(of_alice, replace_entries(written, account=account))[0] == expected


def test_it_may_not_have_any_number_of_entries(of_charlie: Program, settings: Settings) -> None:
    chats = [
        {"id": str(uuid.uuid4()), "file": f"chats/{n}.jsonl", "title": f"{n}"} for n in range(30)
    ]
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, chat in enumerate(chats):
            archive.writestr(
                chat["file"], join_json_lines(build_ui_message(f"m{number}", f"Hello {number}"))
            )
        archive.writestr("account.json", json.dumps({"chats": chats}))
    settings.IMPORT_ENTRIES = 31
    assert bring(of_charlie, held.getvalue()).row["added"] == 30
    settings.IMPORT_ENTRIES = 30
    assert refused(of_charlie, held.getvalue())[0] == "import_too_many"


def test_a_later_task_reads_only_the_chats_behind_its_place(
    three: list[Chat], of_alice: Program, of_charlie: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    draft_of = everything.read_archived_chat

    def counted(archive: Any, chat: Any, **more: Any) -> Any:
        read.append(chat.title)
        return draft_of(archive, chat, **more)

    monkeypatch.setattr(everything, "read_archived_chat", counted)
    monkeypatch.setattr(import_job, "SECONDS", 0.0)
    answer = send(of_charlie, export_account(of_alice))
    for _ in range(3):
        work(answer.json()["id"])
    assert read == ["One", "Two", "Three"]
    assert FileImport.objects.get().state == "done"
