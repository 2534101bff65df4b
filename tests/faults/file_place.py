"""A person who uploads files, their readers, and the checks after each kill.

Django must be set up first; `borders` does that.
"""

import hashlib
import random
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.storage import FileSystemStorage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from chats.actions import erasure, lifecycle
from chats.files import reading, storage, uploads
from chats.ground import rates
from chats.ground.refusals import NotFound
from chats.models import Chat, FileRemoval, Message, MessageFile, StoredFile, Turn
from chats.models.turns import UNFINISHED
from chats.people import keys
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.programs import Program
from tests.chats.files.sample_files import make_pdf, make_png
from tests.faults import file_laws, town
from tests.faults.borders import Deed, cross, in_child
from tests.faults.laws import Violation
from tests.faults.naive import put
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

# A few more boundaries than each operation has.
BORDERS = {"upload": 27, "read": 16, "attach": 70, "delete": 22, "erase": 70, "remove": 8}
# About the time that it takes.
SECONDS = {"upload": 0.2, "read": 1.2, "attach": 0.4, "delete": 0.1, "erase": 0.4, "remove": 0.1}
ATTACHED = 3
# Larger than the part of a body that stays in memory.
LARGE_BYTES = 700_000
KILLED_READERS = (1, 1, 2, 3)


@dataclass
class Content:
    """The bytes of a file, its name, and the text that a reader must find in it.

    `text` is None for an image, and empty for a file that cannot be read.
    """

    data: bytes
    name: str
    text: str | None

    @property
    def sha256(self) -> str:
        """The hash that identifies the content."""
        return hashlib.sha256(self.data).hexdigest()


class CrossingStorage(FileSystemStorage):
    """The storage in the data folder, with boundaries before, within and after each change."""

    def _save(self, name: str, content: Any) -> str:
        """Write the bytes in three pieces, with a boundary at each."""
        content.chunks = partial(iter_pieces, content.file, size=content.size // 3 + 1)
        cross()
        name = super()._save(name, content)  # type: ignore[misc]  # Django's public hook
        cross()
        return str(name)

    def delete(self, name: str) -> None:
        """Delete the bytes."""
        cross()
        super().delete(name)
        cross()


def iter_pieces(file: IO[bytes], *, size: int) -> Any:
    """Yield the bytes of a file, with a boundary before each piece."""
    file.seek(0)
    while piece := file.read(size):
        cross()
        yield piece


def prepare() -> Path:
    """Use a storage with boundaries and a separate folder of temporary files; return the latter."""
    place = CrossingStorage(location=Path(settings.DATA_DIR) / "files")
    put(storage, "get_file_storage", lambda: place)
    put(uploads, "get_file_storage", lambda: place)
    rates.REQUESTS.take = rates.GATEWAY.take  # type: ignore[method-assign]  # no limit, as there
    folder = Path(settings.DATA_DIR) / "temporary"
    folder.mkdir()
    tempfile.tempdir = str(folder)
    return folder


class FilePlace:
    """A person with files, some of them in the messages of a chat."""

    def __init__(self, number: int, *, dice: random.Random) -> None:
        now = timezone.now()
        self.dice, self.number = dice, 0
        self.owner = User.objects.create_user(f"files-{number}-{uuid.uuid4().hex[:8]}")
        self.chat = lifecycle.create_chat(owner=self.owner, now=now, title=town.PLAIN)
        scopes = ("chats:read", "chats:write")
        _, secret = keys.create_key(owner=self.owner, name="files", scopes=scopes, now=now)
        self.client = Program(secret)
        # Every second person's files are encrypted.
        self.is_encrypted = number % 2 == 1
        # Accepted files by their hash, with their ids and their numbers of uploads of bytes.
        self.kept: dict[str, Content] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self.stored: Counter[str] = Counter()

    def step(self, seen: Counter[tuple[str, str]]) -> int:
        """Run one operation with a kill, repeat it as its client would, and check. Return kills."""
        settings.FILE_ENCRYPTION = self.is_encrypted
        pending = self.list_files().filter(state="pending")
        unused = list(self.list_files().filter(uses=None))
        used = list(Message.objects.filter(branch__chat=self.chat, file_links__isnull=False))
        found = self.dice.random()
        if pending.exists() and found < 0.45:
            return self.read(self.dice.choice(list(pending)), seen)
        if self.kept and found < 0.6:
            return self.attach(seen)
        if unused and found < 0.66:
            row = self.dice.choice(unused)
            deletes = partial(self.delete, row.pk)
            return self.run("delete", deletes, seen, then=partial(self.forget, [row], deletes))
        if used and found < 0.72:
            return self.erase(self.dice.choice(used), seen)
        if found < 0.77 and FileRemoval.objects.exists():
            later = timezone.now() + 2 * storage.UPLOAD_TIME
            action = partial(storage.remove_due_bytes, now=later)
            return self.run("remove", action, seen, then=action)
        return self.upload(seen)

    def list_files(self) -> Any:
        """The person's files, in a stable order."""
        return StoredFile.objects.filter(owner=self.owner).order_by("created_at", "pk")

    def run(
        self, name: str, action: Deed, seen: Counter[tuple[str, str]], *, then: Deed | None = None
    ) -> int:
        """Run an operation in a child that may be killed, then `then`, and check the result."""
        is_timed = self.dice.random() < 0.3
        place: dict[str, Any] = (
            {"seconds": self.dice.random() * SECONDS[name]}
            if is_timed
            else {"at": self.dice.randrange(1, BORDERS[name])}
        )
        died = in_child(action, **place)
        seen[name, "killed" if died else "ended"] += 1
        file_laws.assert_bytes()
        if then is not None:
            then()
        self.look()
        return int(died)

    def upload(self, seen: Counter[tuple[str, str]]) -> int:
        """Upload a new file, a known one, or one whose bytes the storage lost."""
        content = self.choose_content()
        action = partial(self.send, content)

        def repeat() -> None:
            answer = action()
            found = answer.json()
            if answer.status_code not in {200, 201}:
                raise Violation(f"an upload is refused: {found}")
            file_id = uuid.UUID(found["id"])
            if self.ids.setdefault(content.sha256, file_id) != file_id:
                raise Violation("a repeated upload got another file")
            self.kept[content.sha256] = content

        return self.run("upload", action, seen, then=repeat)

    def choose_content(self) -> Content:
        """A new file of some kind, or one that was uploaded before."""
        self.number += 1
        found = self.dice.random()
        if self.kept and found < 0.25:
            content = self.dice.choice(list(self.kept.values()))
            if found < 0.1:
                # The storage lost the bytes.
                row = StoredFile.objects.get(pk=self.ids[content.sha256])
                (Path(settings.DATA_DIR) / "files" / row.path).unlink()
                self.stored[content.sha256] += 1
            return content
        content = make_content(f"{self.owner.username} {self.number}", self.dice)
        self.stored[content.sha256] = 1
        return content

    def send(self, content: Content) -> Any:
        """Upload a file over REST; return the response."""
        file = SimpleUploadedFile(content.name, content.data)
        return self.client.client.post("/api/v1/files", {"file": file})

    def read(self, row: StoredFile, seen: Counter[tuple[str, str]]) -> int:
        """Let workers read a file; some are killed. The due job finds it until it was read."""
        action = partial(
            reading.read_uploaded_file,
            file_id=row.pk,
            counter=ApproximateCounter(),
        )
        killed = 0
        for _ in range(self.dice.choice(KILLED_READERS)):
            died = self.run("read", action, seen)
            if not died:
                break
            killed += died
            past = timezone.now() - timedelta(hours=1)
            StoredFile.objects.filter(pk=row.pk, state="pending").update(lease_until=past)
        free = reading.READINGS.select_free_rows()
        later = timezone.now() + timedelta(hours=1)
        if reading.enqueue_unread_files(now=later) != free.count():
            raise Violation("an unread file is forgotten")
        action()
        row.refresh_from_db()
        if row.state == "pending":
            raise Violation("a file stays unread")
        if row.code == "worker_lost" and killed < settings.MAX_ATTEMPTS:
            raise Violation(f"a file failed after {killed} killed readers")
        self.look()
        return killed

    def attach(self, seen: Counter[tuple[str, str]]) -> int:
        """Send a message with files, and let a worker answer it."""
        rows = list(self.list_files())
        chosen = self.dice.sample(rows, min(len(rows), self.dice.randrange(1, ATTACHED + 1)))
        self.number += 1
        text, ids = f"Look at these, {self.number}.", [row.pk for row in chosen]
        action = partial(self.send_message, text, ids)

        def repeat() -> None:
            town.declare_dead(self.chat)
            action()
            links = MessageFile.objects.filter(
                message__branch__chat=self.chat, message__turn__trigger__accepted__isnull=False
            )
            message = [row for row in self.list_messages() if row.text == text]
            if len(message) != 1:
                raise Violation(f"a message with files is stored {len(message)} times")
            linked = sorted(links.filter(message=message[0]).values_list("file_id", flat=True))
            if linked != sorted(ids):
                raise Violation(f"a message has {len(linked)} of {len(ids)} files")

        return self.run("attach", action, seen, then=repeat)

    def list_messages(self) -> list[Message]:
        """The person's messages."""
        return list(Message.objects.filter(branch__chat=self.chat, role="user"))

    def send_message(self, text: str, ids: list[uuid.UUID]) -> None:
        """Send a message with files and answer it. May be repeated."""
        chat = Chat.objects.get(pk=self.chat.pk)
        turn = start_turn(
            user=self.owner,
            chat=chat,
            text=text,
            now=timezone.now(),
            idempotency_key=text,
            files=ids,
            unread=True,
        ).turn
        if Turn.objects.get(pk=turn.pk).status in UNFINISHED:
            said = [TextDelta("I read"), TextDelta(" them."), Finished("stop")]
            async_to_sync(InlineWorker(ScriptedProvider([said])).turn)(turn.pk)

    def delete(self, file_id: uuid.UUID) -> None:
        """Delete a file, unless it is already deleted."""
        try:
            uploads.delete_file(user=self.owner, file_id=file_id, now=timezone.now())
        except NotFound:
            return

    def erase(self, message: Message, seen: Counter[tuple[str, str]]) -> int:
        """Erase a message with its files."""
        rows = list(StoredFile.objects.filter(uses__message=message))
        links = MessageFile.objects.filter(file__in=rows).exclude(message=message)
        elsewhere = set(links.values_list("file_id", flat=True))
        action = partial(
            erasure.erase_message, user=self.owner, message=message, now=timezone.now()
        )
        gone = [row for row in rows if row.pk not in elsewhere]
        return self.run("erase", action, seen, then=partial(self.forget, gone, action))

    def forget(self, rows: list[StoredFile], action: Deed) -> None:
        """Repeat a deletion; these files are then no longer expected."""
        action()
        for row in rows:
            for known in (self.kept, self.ids, self.stored):
                known.pop(row.sha256, None)

    def look(self) -> None:
        """Check every file of the person."""
        rows = {row.sha256: row for row in self.list_files()}
        if set(rows) != set(self.kept):
            lost, extra = set(self.kept) - set(rows), set(rows) - set(self.kept)
            raise Violation(f"{len(lost)} files are lost, {len(extra)} came from nowhere")
        for sha256, row in rows.items():
            content = self.kept[sha256]
            file_laws.assert_file(row, data=content.data, text=content.text)
            file_laws.assert_events(row, stored=self.stored[sha256])
        file_laws.assert_quota(self.owner, sizes=[len(each.data) for each in self.kept.values()])
        file_laws.assert_bytes()

    def settle(self) -> None:
        """Read every file, then check that each has its text or a failure that is shown."""
        past = timezone.now() - timedelta(hours=1)
        self.list_files().filter(state="pending").update(lease_until=past)
        for row in self.list_files().filter(state="pending"):
            reading.read_uploaded_file(file_id=row.pk, counter=ApproximateCounter())
        self.look()
        for row in self.list_files():
            answer = self.client.get(f"files/{row.pk}").json()
            is_shown = bool(answer["reason"]) == (answer["state"] == "failed")
            if answer["state"] == "pending" or not is_shown:
                raise Violation(f"a file is {answer['state']} without its reason")


def make_content(name: str, dice: random.Random) -> Content:
    """A new file: a text of two sizes, a PDF, an image, or a damaged PDF."""
    kind = dice.choice(["text", "text", "large", "pdf", "image", "damaged"])
    line = f"The parcel of {name} was weighed and noted. "
    if kind == "pdf":
        return Content(make_pdf(line.strip()), f"{name}.pdf", f"[Page 1]\n{line.strip()}")
    if kind == "image":
        size = dice.randrange(2, 60)
        # A text block makes each image different.
        return Content(make_png(size, size) + name.encode(), f"{name}.png", None)
    if kind == "damaged":
        return Content(f"%PDF-1.4\n{line}".encode(), f"{name}.pdf", "")
    text = line * (LARGE_BYTES // len(line) if kind == "large" else dice.randrange(1, 400))
    return Content(text.encode(), f"{name}.txt", text)
