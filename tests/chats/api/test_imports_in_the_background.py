"""Background imports: progress, cancellation, killed workers, limits, cleanup of the file."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.test import TestCase
from django.utils import timezone, translation
from pytest_django.fixtures import Settings

from chats.actions import erasure
from chats.exchange import (
    chat_writer,
    document_parts,
    draft_messages,
    import_job,
    upload,
)
from chats.ground import leases, queue
from chats.models import (
    Chat,
    FileImport,
    FilePiece,
    IdempotencyRecord,
    ImportedChat,
    ImportOutcome,
    Message,
)
from chats.record import imports
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent
from tests.chats.api.bringing import bring, brought, send, work
from tests.chats.api.programs import Program
from tests.support.exchange_files import build_ui_message, join_json_lines

pytestmark = pytest.mark.usefixtures("streams")


def chats_of(*names: str) -> bytes:
    """Return an export with a two-message chat for each name."""
    return json.dumps(
        [
            {
                "uuid": name,
                "name": name,
                "chat_messages": [
                    {"uuid": "q", "sender": "human", "text": f"What is {name}?"},
                    {"uuid": "a", "sender": "assistant", "text": f"{name} is it."},
                ],
            }
            for name in names
        ]
    ).encode()


@pytest.fixture
def three(of_alice: Program) -> FileImport:
    """A queued import of three chats."""
    return FileImport.objects.get(pk=send(of_alice, chats_of("Ada", "Bob", "Cy")).json()["id"])


@pytest.fixture
def at_each_chat(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], None]], None]:
    """Call a function with the title of each chat before it is stored."""
    usual = chat_writer.store_draft

    def watch(look: Callable[[str], None]) -> None:
        def store(draft: Any, **more: Any) -> Any:
            look(draft.title)
            return usual(draft, **more)

        monkeypatch.setattr(chat_writer, "store_draft", store)

    return watch


def titles() -> list[str]:
    """Return the titles of all chats."""
    return sorted(Chat.objects.values_list("title", flat=True))


def committed() -> AbstractContextManager[object]:
    """Run the tasks enqueued inside the block, as after a commit."""
    return TestCase.captureOnCommitCallbacks(execute=True)


def closing_after(chats: int) -> Callable[[], bool]:
    """Return a shutdown check that becomes true after this number of chats."""
    looks: Iterator[bool] = iter([False] * (chats - 1))
    return lambda: next(looks, True)


def begin_work(row: FileImport, is_closing: Callable[[], bool]) -> None:
    """Process an import with a worker that is shut down on the way."""
    import_job.continue_import(
        import_id=row.pk, counter=ApproximateCounter(), clock=timezone.now, is_closing=is_closing
    )


def test_a_file_is_taken_at_once_and_read_by_a_worker(
    of_alice: Program, sent: list[tuple[str, dict[str, str]]]
) -> None:
    with committed():
        answer = send(of_alice, chats_of("Ada"))
    told = answer.json()
    assert (answer.status_code, told["state"], told["found"]) == (202, "queued", None)
    assert sent == [(queue.IMPORT_FILE, {"import_id": told["id"]})]
    assert not Chat.objects.exists()
    work(told["id"])
    row = of_alice.get(f"imports/{told['id']}").json()
    assert (row["state"], row["form"], row["found"], row["done"]) == ("done", "claude", 1, 1)
    assert (row["added"], row["messages"], row["code"]) == (1, 2, "")
    assert of_alice.get("imports").json()["data"] == [row]
    (outcome,) = of_alice.get(f"imports/{told['id']}/chats").json()["data"]
    assert (outcome["title"], outcome["messages"], outcome["losses"]) == ("Ada", 2, [])


def test_the_ledger_tells_of_an_import_in_numbers(of_alice: Program) -> None:
    data = chats_of("Ada", "Bob")
    own = bring(of_alice, data).row["id"]
    started = AuditEvent.objects.get(type="import.started")
    assert started.data == {"import": own, "bytes": len(data)}
    ended = AuditEvent.objects.get(type="import.ended")
    assert ended.data == {
        "import": own,
        "state": "done",
        "code": "",
        "form": "claude",
        "chats": 2,
        "were_here": 0,
        "not_taken": 0,
        "messages": 4,
    }
    assert AuditEvent.objects.filter(type="chat.imported").count() == 2


def test_nothing_of_the_file_is_left_at_the_end(of_alice: Program) -> None:
    size = upload.PIECE * 2 + 5
    data = join_json_lines(build_ui_message("a", "Hello")) + b" " * size
    own = send(of_alice, data).json()["id"]
    pieces = FilePiece.objects.order_by("number")
    assert b"".join(bytes(piece.data) for piece in pieces) == data
    assert len(pieces) == 3
    work(own)
    assert FileImport.objects.get().state == "done"
    assert not FilePiece.objects.exists()


def test_a_worker_that_is_told_to_end_hands_on_and_nothing_is_doubled(
    three: FileImport, sent: list[tuple[str, dict[str, str]]]
) -> None:
    with committed():
        begin_work(three, closing_after(2))
    three.refresh_from_db()
    assert (three.state, three.place, three.found) == ("running", 2, 3)
    assert three.lease_until is None
    assert sent[-1] == (queue.IMPORT_FILE, {"import_id": str(three.pk)})
    work(three.pk)
    three.refresh_from_db()
    assert (three.state, three.added, three.were_here, three.messages) == ("done", 3, 0, 6)
    assert titles() == ["Ada", "Bob", "Cy"]
    assert list(three.outcomes.order_by("place").values_list("place", flat=True)) == [1, 2, 3]


def test_after_a_killed_worker_another_goes_on_when_its_lease_has_ended(
    three: FileImport, at_each_chat: Any, sent: list[tuple[str, dict[str, str]]]
) -> None:
    def die(title: str) -> None:
        if title == "Bob":
            raise KeyboardInterrupt

    at_each_chat(die)
    with pytest.raises(KeyboardInterrupt):
        work(three.pk)
    at_each_chat(lambda title: None)
    with committed():
        imports.enqueue_due(now=timezone.now())
    work(three.pk)
    # While the lease is valid, a second worker does not start.
    assert (sent, titles()) == ([], ["Ada"])
    FileImport.objects.update(lease_until=leases.compute_expired_end())
    with committed():
        assert imports.enqueue_due(now=timezone.now()) == 1
    assert sent == [(queue.IMPORT_FILE, {"import_id": str(three.pk)})]
    work(three.pk)
    three.refresh_from_db()
    assert (three.state, three.added, three.were_here) == ("done", 3, 0)
    assert titles() == ["Ada", "Bob", "Cy"]
    assert Message.objects.count() == 6


def test_a_worker_that_lost_its_lease_writes_nothing(three: FileImport, at_each_chat: Any) -> None:
    def take_over(title: str) -> None:
        if title == "Bob":
            FileImport.objects.update(lease_token=uuid.uuid4())

    at_each_chat(take_over)
    work(three.pk)
    three.refresh_from_db()
    assert (three.state, three.place, titles()) == ("running", 1, ["Ada"])
    assert FilePiece.objects.exists()


def test_a_stop_is_seen_between_two_chats_and_keeps_what_was_made(
    three: FileImport, at_each_chat: Any, of_alice: Program, alice: User
) -> None:
    at_each_chat(
        lambda title: (
            upload.stop_import(user=alice, import_id=three.pk, now=timezone.now())
            if title == "Bob"
            else None
        )
    )
    work(three.pk)
    row = of_alice.get(f"imports/{three.pk}").json()
    assert (row["state"], row["added"], titles()) == ("stopped", 1, ["Ada"])
    assert not FilePiece.objects.exists()
    assert AuditEvent.objects.get(type="import.ended").data["state"] == "stopped"
    work(three.pk)
    assert titles() == ["Ada"]


def test_a_stop_over_rest_is_the_same_twice(three: FileImport, of_alice: Program) -> None:
    first = of_alice.post(f"imports/{three.pk}/stop")
    assert (first.status_code, first.json()["state"]) == (200, "stopped")
    assert of_alice.post(f"imports/{three.pk}/stop").json() == first.json()
    assert AuditEvent.objects.filter(type="import.ended").count() == 1
    work(three.pk)
    assert titles() == []


def test_a_stop_is_seen_amid_a_long_chat(
    three: FileImport, alice: User, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HEARTBEAT_EVERY = -1
    usual = draft_messages.build_draft_message

    def row_of(*given: Any, **more: Any) -> Message:
        upload.stop_import(user=alice, import_id=three.pk, now=timezone.now())
        return usual(*given, **more)

    monkeypatch.setattr(chat_writer, "build_draft_message", row_of)
    work(three.pk)
    three.refresh_from_db()
    assert (three.state, three.place, titles()) == ("stopped", 0, [])


def test_a_person_has_two_imports_at_once_and_the_chats_of_both_once(
    of_alice: Program, settings: Settings
) -> None:
    settings.IMPORTS_PER_USER = 2
    first = send(of_alice, chats_of("Ada", "Bob")).json()["id"]
    second = send(of_alice, chats_of("Bob", "Cy")).json()["id"]
    third = send(of_alice, chats_of("Dan"))
    assert (third.status_code, third.json()["error"]["code"]) == (409, "imports_under_way")
    begin_work(FileImport.objects.get(pk=first), closing_after(1))
    work(second)
    work(first)
    assert titles() == ["Ada", "Bob", "Cy"]
    assert of_alice.get(f"imports/{first}").json()["were_here"] == 1
    assert send(of_alice, chats_of("Dan")).status_code == 202


def test_an_import_of_somebody_else_is_not_there(
    three: FileImport, of_charlie: Program, charlie: User, demo_model: object
) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("GET", "/chats")):
        answer = of_charlie.call(method, f"imports/{three.pk}{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert of_charlie.get("imports").json()["data"] == []
    three.refresh_from_db()
    assert three.state == "queued"
    # Alice's running import neither limits Charlie nor hides his chats.
    assert bring(of_charlie, chats_of("Ada")).row["added"] == 1
    assert ImportedChat.objects.get().owner == charlie


def test_a_repetition_with_its_key_is_the_same_import(of_alice: Program) -> None:
    data = chats_of("Ada")
    first = send(of_alice, data, **{"Idempotency-Key": "k"})
    again = send(of_alice, data, **{"Idempotency-Key": "k"})
    assert (again.status_code, again.json()) == (202, first.json())
    assert again["Idempotent-Replayed"] == "true"
    other = send(of_alice, chats_of("Bob"), **{"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert FileImport.objects.count() == 1
    work(first.json()["id"])
    assert titles() == ["Ada"]


def test_a_report_is_deleted_by_hand_and_its_chats_stay(of_alice: Program) -> None:
    own = send(of_alice, chats_of("Ada")).json()["id"]
    early = of_alice.call("DELETE", f"imports/{own}")
    assert (early.status_code, early.json()["error"]["code"]) == (409, "import_not_over")
    work(own)
    assert of_alice.call("DELETE", f"imports/{own}").status_code == 204
    assert of_alice.get(f"imports/{own}").status_code == 404
    assert (titles(), ImportOutcome.objects.count()) == (["Ada"], 0)


def test_a_report_is_deleted_by_itself_after_its_days(
    of_alice: Program, three: FileImport, settings: Settings
) -> None:
    settings.IMPORT_REPORT_DAYS = 3
    bring(of_alice, chats_of("Ada"))
    now = timezone.now()
    imports.enqueue_due(now=now + timedelta(days=2))
    assert FileImport.objects.count() == 2
    imports.enqueue_due(now=now + timedelta(days=4))
    assert list(FileImport.objects.all()) == [three]


def test_a_person_keeps_so_many_reports(of_alice: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "REPORTS", 2)
    made = [bring(of_alice, chats_of("Ada")).row["id"] for _ in range(3)]
    assert [row["id"] for row in of_alice.get("imports").json()["data"]] == made[:0:-1]


def test_a_fault_at_one_chat_holds_up_no_other(
    three: FileImport, at_each_chat: Any, of_alice: Program
) -> None:
    def fault(title: str) -> None:
        if title == "Bob":
            raise RuntimeError("secret words")

    at_each_chat(fault)
    work(three.pk)
    row = of_alice.get(f"imports/{three.pk}").json()
    assert (row["state"], row["added"], row["not_taken"]) == ("done", 2, 1)
    missed = of_alice.get(f"imports/{three.pk}/chats").json()["data"][1]
    assert (missed["title"], missed["code"], missed["chat"]) == ("Bob", "import_fault", None)
    assert "secret" not in missed["reason"]


def test_trouble_of_the_database_is_tried_again(three: FileImport, at_each_chat: Any) -> None:
    def trouble(title: str) -> None:
        raise OperationalError(title)

    at_each_chat(trouble)
    with pytest.raises(OperationalError):
        work(three.pk)
    three.refresh_from_db()
    assert (three.state, three.place) == ("running", 0)


def test_a_chat_that_kills_its_workers_does_not_do_so_for_ever(
    three: FileImport, at_each_chat: Any, of_alice: Program, settings: Settings
) -> None:
    def die(title: str) -> None:
        if title == "Bob":
            raise KeyboardInterrupt

    at_each_chat(die)
    for _ in range(settings.MAX_ATTEMPTS + 5):
        try:
            work(three.pk)
        except KeyboardInterrupt:
            FileImport.objects.update(lease_until=leases.compute_expired_end())
    row = of_alice.get(f"imports/{three.pk}").json()
    assert (row["state"], row["code"], row["added"]) == ("failed", "worker_lost", 1)
    assert titles() == ["Ada"]
    assert not FilePiece.objects.exists()


def test_what_a_chat_is_refused_for_is_in_the_report(
    of_alice: Program, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MESSAGES_PER_CHAT = 1
    assert bring(of_alice, chats_of("Ada")).not_taken == [("Ada", "chat_full")]
    settings.MESSAGES_PER_CHAT = 10
    monkeypatch.setattr(document_parts, "MOST_CHATS", 1)
    monkeypatch.setattr(import_job, "MOST_CHATS", 1)
    found = bring(of_alice, chats_of("Ada", "Bob", "Cy"))
    assert (titles(), found.not_taken) == (["Ada"], [("", "import_too_many")])
    english = found.outcomes[1]["reason"]
    assert english.startswith("The file has more than 1 chats.")
    answer = of_alice.client.get(
        f"/api/v1/imports/{found.row['id']}/chats", headers={"Accept-Language": "zh-hans"}
    )
    chinese = answer.json()["data"][1]["reason"]
    assert "1" in chinese
    assert chinese != english


def test_a_file_that_cannot_be_read_is_explained_in_each_language(of_alice: Program) -> None:
    found = bring(of_alice, b'{"id": "a", "role": "user"}\n{"id": nonsense}\n')
    row = FileImport.objects.get()
    assert row.state == "failed"
    answer = of_alice.client.get(
        f"/api/v1/imports/{row.pk}", headers={"Accept-Language": "zh-hans"}
    )
    chinese = answer.json()["reason"]
    with translation.override("zh-hans"):
        assert chinese == row.localized_reason
    assert chinese != row.reason == found.row["reason"]


def test_an_erasure_in_an_imported_chat_ends_what_may_bring_its_words_again(
    of_alice: Program, alice: User, three: FileImport
) -> None:
    key = {"Idempotency-Key": "k"}
    brought(of_alice, chats_of("Ada"))
    assert send(of_alice, chats_of("Ada", "Dan"), **key).status_code == 202
    # A chat that was not imported does not affect imports.
    other = of_alice.post("chats", {}).json()["id"]
    erasure.erase_chat(user=alice, chat=Chat.objects.get(pk=other), now=timezone.now())
    assert FileImport.objects.filter(state="queued").count() == 2
    assert IdempotencyRecord.objects.get(key="k").salt
    message = Message.objects.get(role="user")
    erasure.erase_message(user=alice, message=message, now=timezone.now())
    assert not FilePiece.objects.exists()
    three.refresh_from_db()
    assert (three.state, three.code) == ("stopped", "import_erased")
    assert IdempotencyRecord.objects.get(key="k").salt == ""
    work(three.pk)
    assert titles() == ["Ada"]
    certificate = AuditEvent.objects.get(type="message.erased").data["copies"]
    assert certificate["import_files"] == 3


def test_an_erased_chat_goes_from_the_report(of_alice: Program, alice: User) -> None:
    found = bring(of_alice, chats_of("Ada", "Bob"))
    chat = Chat.objects.get(title="Ada")
    erasure.erase_chat(user=alice, chat=chat, now=timezone.now())
    listed = of_alice.get(f"imports/{found.row['id']}/chats").json()["data"]
    assert [told["title"] for told in listed] == ["Bob"]


def test_all_goes_with_the_account(three: FileImport, alice: User) -> None:
    begin_work(three, closing_after(1))
    Chat.objects.all().delete()
    alice.delete()
    assert not FileImport.objects.exists()
    assert not FilePiece.objects.exists()
    work(three.pk)


def test_the_chats_of_a_report_come_page_by_page(of_alice: Program, three: FileImport) -> None:
    work(three.pk)
    first = of_alice.get(f"imports/{three.pk}/chats", limit="2").json()
    assert [told["place"] for told in first["data"]] == [1, 2]
    rest = of_alice.get(f"imports/{three.pk}/chats", cursor=first["next_cursor"]).json()
    assert ([told["place"] for told in rest["data"]], rest["next_cursor"]) == ([3], None)


def test_a_later_task_goes_on_behind_its_mark(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"Chat {number}" for number in range(5)]
    own = send(of_alice, chats_of(*names)).json()["id"]
    looked: list[str] = []
    read = document_parts.parse_product_chat

    def counted(product: str, data: Any, **more: Any) -> Any:
        looked.append(f"Chat {more['number'] - 1}")
        return read(product, data, **more)

    monkeypatch.setattr(import_job, "SECONDS", 0.0)
    monkeypatch.setattr(document_parts, "parse_product_chat", counted)
    work(own)
    # The list was located once. Later tasks continue after it.
    monkeypatch.setattr(document_parts, "locate_json_list", None)
    for _ in range(4):
        work(own)
    assert (looked, titles()) == (names, names)
    assert FileImport.objects.get(pk=own).state == "done"


def test_a_form_is_refused_at_once(of_alice: Program) -> None:
    file = SimpleUploadedFile("chats.zip", b"PK")
    answer = of_alice.client.post("/api/v1/imports", {"file": file})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (415, "unsupported_media_type")
    assert "--data-binary" in error["message"]
    assert not FileImport.objects.exists()
