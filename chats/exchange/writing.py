"""Exports a chat as UI messages, one per line, and as a bundle.

An imported message keeps its original id and metadata, so a chat that is exported, imported and
exported again is byte-for-byte identical.
"""

import json
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Literal, cast

from django.db import transaction
from django.db.models import QuerySet

from chats.compaction.coverage import get_active_summary, is_seq_covered
from chats.exchange import pictures
from chats.exchange.drafts import LOADED_SKILLS
from chats.exchange.foreign_metadata import CHANNEL
from chats.models import Branch, Chat, Compaction, ImportedChat, Message
from chats.record import access, history
from contextpolicy import ledger
from contextpolicy.engine.messages.given_parts import KEPT, restore_given_parts
from contextpolicy.engine.messages.messages import TextPart, parse_parts
from contextpolicy.engine.messages.ui_messages import METADATA, UIMessage, serialize_ui_message

Scope = Literal["active", "full", "all"]
PAGE = 500
VERSION = 1
# Fixed time of every file in a bundle, so that the same chat gives the same bytes.
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
# Values of columns that are exported if set, and imported into their columns.
OF_COLUMNS = (
    "parentId",
    "active",
    "erased",
    "pinned",
    "excluded",
    "model",
    "finish",
    "speaker",
    "addressees",
)


def get_export_branch(chat: Chat) -> Branch:
    """Return the active branch with its active compaction loaded.

    Raises `NotFound` if the chat was erased after it was loaded.
    """
    rows = Branch.objects.select_related("active_compaction__base", "parent")
    branch = access.get_or_not_found(rows.filter(pk=cast(uuid.UUID, chat.active_branch_id)))
    branch.chat = chat
    return branch


def record_export(chat: Chat, *, scope: Scope, form: str, actor: str, now: datetime) -> None:
    """Record an export in the ledger, before its first byte is sent."""
    with transaction.atomic():
        ledger.record_event(
            "chat.exported",
            actor=actor,
            now=now,
            chat_id=chat.pk,
            data={"form": form, "scope": scope},
        )


class Writer:
    """Exports the messages of one chat under their export ids."""

    def __init__(self, chat: Chat, *, scope: Scope) -> None:
        self.chat = chat
        self.scope = scope
        self.branch = get_export_branch(chat)
        self.imported = ImportedChat.objects.filter(chat=chat).first()
        self.summary = (
            get_active_summary(self.branch.active_compaction) if scope == "active" else None
        )
        self.parts = {part.branch_id: part for part in history.list_path_segments(self.branch)}
        self.forks = self.load_forks()

    def load_forks(self) -> dict[uuid.UUID, tuple[uuid.UUID | None, int]]:
        """Return the parent branch and the fork position of each branch of the chat."""
        rows = Branch.objects.filter(chat=self.chat).values_list("pk", "parent", "fork_seq")
        return {pk: (parent, fork_seq) for pk, parent, fork_seq in rows}

    @property
    def chat_id(self) -> str:
        """The exported id: the source id of an imported chat, otherwise the chat's own id."""
        return self.imported.source_id if self.imported else str(self.chat.pk)

    def rows(self) -> QuerySet[Message]:
        """Return the messages in scope, in the order of their lines."""
        if self.scope == "all":
            found = Message.objects.filter(branch__chat=self.chat, seq__isnull=False)
        else:
            found = history.select_path_messages(
                self.branch, after=0, before=self.branch.last_seq + 1
            )
        return found.order_by("seq", "accepted")

    def part(self, after: tuple[int, int]) -> tuple[bytes, tuple[int, int] | None]:
        """Return the lines after a position (seq, accepted), and the next position or None."""
        seq, accepted = after
        rows = self.rows().filter(seq__gte=seq).exclude(seq=seq, accepted__lte=accepted)
        found = list(rows[:PAGE])
        parents = self.parents_of(found)
        lines = []
        for row in found:
            if self.summary is not None and row.seq == self.summary.from_seq:
                lines.append(self.summary_line(self.summary))
            if self.summary is None or not is_seq_covered(self.summary, row.seq or 0):
                lines.append(self.line(row, parents=parents))
        last = found[-1] if len(found) == PAGE else None
        place = (last.seq or 0, last.accepted) if last is not None else None
        return b"".join(encode_json_line(line) for line in lines), place

    def lines(self) -> Iterator[bytes]:
        place: tuple[int, int] | None = (0, 0)
        while place is not None:
            text, place = self.part(place)
            yield text

    def parents_of(self, found: Sequence[Message]) -> Mapping[tuple[Any, int], str]:
        """Return the parent ids of these messages, by branch and seq.

        Empty unless the export covers all branches.
        """
        if self.scope != "all" or not found:
            return {}
        first, last = (found[0].seq or 1) - 1, found[-1].seq or 0
        rows = Message.objects.filter(branch__chat=self.chat, seq__gte=first, seq__lte=last)
        named = rows.values_list("branch", "seq", "pk", "metadata__source__id")
        return {(branch, seq or 0): str(own or pk) for branch, seq, pk, own in named}

    def line(self, row: Message, *, parents: Mapping[tuple[Any, int], str]) -> dict[str, object]:
        source = row.metadata.get("source") or {}
        # Imported messages have only the metadata of their file.
        known = self.known(row) if not source or source.get("sent") else {}
        metadata = {**known, **(source.get("metadata") or {}), **self.of_columns(row)}
        if self.scope == "all":
            metadata["parentId"] = self.parent_of(row, parents=parents)
        role = "user" if row.role == Message.Role.USER else "assistant"
        own_id = str(source.get("id") or row.pk)
        # Readers of UI messages require a part, so an erased message has an empty text.
        parts = parse_parts(row.parts) or (TextPart(""),)
        message = UIMessage(own_id, role, parts, order_metadata(metadata))  # type: ignore[arg-type]  # one of two roles
        written: dict[str, Any] = serialize_ui_message(message)
        return {**written, "parts": restore_source_parts(row, written["parts"])}

    def known(self, row: Message) -> dict[str, object]:
        """Return the metadata of a message that was written here, not imported."""
        is_user = row.role == Message.Role.USER and not row.speaker
        who: dict[str, object] = {}
        if is_user:
            who = {"userId": str(self.chat.owner_id), "username": self.chat.owner.get_username()}
        elif row.speaker:
            who = {"userId": row.speaker["roleId"], "username": row.speaker["roleName"]}
        return {
            "ts": to_milliseconds(row.created_at),
            "chatKey": f"palimpsest-chat-{self.chat.pk}",
            "channel": CHANNEL,
            "chatId": self.chat_id,
            **who,
            "messageId": str(row.pk),
            **({"runId": str(row.turn_id)} if row.turn_id else {}),
            "kind": "normal",
        }

    def of_columns(self, row: Message) -> dict[str, object]:
        """Return the values of a message's columns that differ from their defaults."""
        usual = Message.Finish.STOP if row.role == Message.Role.ASSISTANT else ""
        is_active = self.scope == "all" and self.is_active_end(row)
        columns = {
            "active": is_active,
            "erased": row.erased_at is not None,
            "pinned": row.pinned_at is not None,
            "excluded": row.excluded,
            "model": row.model_name,
            "finish": "" if row.finish == usual else row.finish,
            "speaker": row.speaker,
            "addressees": row.addressees,
        }
        return {name: value for name, value in columns.items() if value}

    def is_active_end(self, row: Message) -> bool:
        """Return True if a message is the last of the active path."""
        part = self.parts.get(row.branch_id)
        return part is not None and row.seq == self.branch.last_seq and row.seq <= part.to

    def parent_of(self, row: Message, *, parents: Mapping[tuple[Any, int], str]) -> str | None:
        """Return the export id of the previous message; None for the first on its path."""
        seq = (row.seq or 1) - 1
        branch: uuid.UUID | None = row.branch_id
        if branch not in self.forks:
            # The branch was created after the export began.
            self.forks = {row.branch_id: (None, 0), **self.load_forks()}
        while branch is not None and seq and seq <= self.forks[branch][1]:
            branch = self.forks[branch][0]
        return parents.get((branch, seq)) if seq else None

    def summary_line(self, row: Compaction) -> dict[str, object]:
        """Return the active summary as an assistant message with its source range."""
        kept: Mapping[str, Any] = {}
        if self.imported and self.imported.details.get("compaction") == str(row.pk):
            kept = self.imported.details
        path = history.select_path_messages(
            self.branch, after=row.from_seq - 1, before=row.to_seq + 1
        )
        ends = path.filter(seq__in=[row.from_seq, row.to_seq]).order_by("seq")
        ids = [str((end.metadata.get("source") or {}).get("id") or end.pk) for end in ends]
        covered = {
            "fromId": ids[0],
            "toId": ids[-1],
            "count": row.to_seq - row.from_seq + 1,
        }
        known: dict[str, object] = {
            "ts": to_milliseconds(row.published_at or row.created_at),
            "chatId": self.chat_id,
            "kind": "summary",
            "sourceRange": covered,
        }
        if row.skills:
            known[LOADED_SKILLS] = list(row.skills)
        metadata = order_metadata(
            {**known, **dict(kept.get("metadata") or {}), "sourceRange": covered}
        )
        own_id = str(kept.get("id") or row.pk)
        return serialize_ui_message(UIMessage(own_id, "assistant", (TextPart(row.text),), metadata))


def restore_source_parts(row: Message, written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of a message as its file or its client gave them.

    `written`: the stored parts, converted to parts of a UI message.
    """
    source = row.metadata.get("source") or {}
    given = restore_given_parts(written, source.get(KEPT), count=len(row.parts))
    return given if given is not None else [*written, *(source.get("parts") or [])]


def to_milliseconds(moment: datetime) -> int:
    """Return a time as Unix milliseconds, as in JavaScript."""
    return int(moment.timestamp() * 1000)


def order_metadata(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return metadata in a fixed order: common keys, then ours, then others.

    Databases do not preserve the order of keys.
    """
    names = [*METADATA, *OF_COLUMNS]
    known = [name for name in names if name in metadata]
    rest = sorted(set(metadata) - set(names))
    return {name: sort_nested_keys(metadata[name]) for name in (*known, *rest)}


def sort_nested_keys(value: object) -> object:
    """Return a value with sorted object keys, and source ranges in their usual order."""
    if isinstance(value, Mapping):
        names: list[str] = sorted(value)
        if set(names) == {"fromId", "toId", "count"}:
            names = ["fromId", "toId", "count"]
        return {name: sort_nested_keys(value[name]) for name in names}
    if isinstance(value, list):
        return [sort_nested_keys(item) for item in value]
    return value


def encode_json_line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def write_bundle(chat: Chat, *, into: IO[bytes]) -> None:
    """Write a chat as an archive: current context, metadata, summarised messages, images."""
    writer = Writer(chat, scope="active")
    row = writer.summary
    meta = {
        "version": VERSION,
        "chatId": writer.chat_id,
        "title": chat.title,
        "systemText": chat.system_text,
        "cursor": None,
        "lastCompactionAt": None,
        "revision": writer.branch.context_revision,
    }
    files: list[tuple[str, bytes]] = [("history.jsonl", b"".join(writer.lines()))]
    if row is not None:
        moment = to_milliseconds(row.published_at or row.created_at)
        covered = list(build_covered_lines(writer, row))
        meta["cursor"] = {"toId": covered[-1]["id"], "count": row.to_seq}
        meta["lastCompactionAt"] = moment
        name = f"archive/{moment}-{row.from_seq}-{row.to_seq}.json"
        files.append(
            (name, b"[" + b",".join(encode_json_line(line)[:-1] for line in covered) + b"]\n")
        )
    files.insert(1, ("meta.json", encode_json_line(meta)))
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(build_zip_entry(name), data, zipfile.ZIP_DEFLATED)
        for image in pictures.iterate_unique_images(writer.rows()):
            # Images are already compressed.
            name = pictures.build_image_filename(image)
            archive.writestr(build_zip_entry(name), bytes(image.data), zipfile.ZIP_STORED)


def build_zip_entry(name: str) -> zipfile.ZipInfo:
    """Return the header of an entry, with a fixed date so that equal chats give equal files."""
    entry = zipfile.ZipInfo(name, date_time=FIXED_TIME)
    entry.external_attr = 0o644 << 16
    return entry


def build_covered_lines(writer: Writer, row: Compaction) -> Iterator[dict[str, object]]:
    """Yield every message in the range of a summary, including those that it does not cover."""
    path = history.select_path_messages(
        writer.branch, after=row.from_seq - 1, before=row.to_seq + 1
    )
    for message in path.order_by("seq").iterator(chunk_size=PAGE):
        yield writer.line(message, parents={})
