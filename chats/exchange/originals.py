"""Exports and restores the original files of messages in account archives, named by their hash."""

import hashlib
import re
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import IO, Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet
from django.utils.translation import gettext, gettext_noop

from chats.exchange import bounds, jsonstream
from chats.exchange.archive_entries import write_file_entry
from chats.exchange.drafts import Node, OriginalFile
from chats.files import uploads
from chats.files.attach import mark_chat_documents
from chats.files.guarded_storage import FileStorageUnavailable
from chats.files.scanning import FILE_REFUSED
from chats.files.storage import UNREADABLE_CONTENT, iter_file_bytes
from chats.ground.refusals import Refusal
from chats.models import Chat, Message, MessageFile, StoredFile
from chats.record.images import iter_part_hashes
from contextpolicy.engine.messages.files import Document, parse_document_reference
from contextpolicy.engine.messages.messages import FilePart

FOLDER = "files/"
# Folder of the uploads that no message uses. An import does not open it.
UPLOADS = "uploads/"
ENTRY = re.compile(rf"{FOLDER}([0-9a-f]{{64}})")
# The id of a document whose file this user does not have.
NO_FILE = str(uuid.UUID(int=0))
IN_MEMORY = 1024 * 1024
# The maximum number of files in the list of an archive.
MOST_FILES = 100_000
# The problems of a file in an archive, by code.
PROBLEMS = {
    "file_missing": gettext_noop(
        "The content is missing on this server, so it is not in this archive. Ask an operator to "
        "restore it from a backup, then export your data again."
    ),
    "file_unreadable": gettext_noop(
        "The content cannot be decrypted: it is damaged, or its encryption key is missing. It is "
        "not in this archive. Ask an operator to restore it, then export your data again."
    ),
    "file_changed": gettext_noop(
        "The stored content is not the content that was uploaded. This archive contains the "
        "stored content. Ask an operator to restore it from a backup, then export your data again."
    ),
    "file_storage_unavailable": gettext_noop(
        "The server could not read the content, so it is not in this archive. Export your data "
        "again later. If the file is still missing, tell an operator."
    ),
}


Originals = Mapping[str, OriginalFile]


def write_originals(
    chat: Chat, *, archive: zipfile.ZipFile, folder: str, written: dict[str, Mapping[str, Any]]
) -> None:
    """Write the message files that a folder lacks, and add their hashes to `written`."""
    links = MessageFile.objects.filter(message__branch__chat=chat).values("file")
    rows = StoredFile.objects.filter(pk__in=links)
    write_missing_files(rows, archive=archive, folder=folder, written=written)


def write_unattached(
    owner: AbstractBaseUser, *, archive: zipfile.ZipFile, written: dict[str, Mapping[str, Any]]
) -> None:
    """Write a user's uploads that no message uses yet, like `write_originals`.

    An import ignores them, because it restores only files of messages.
    """
    rows = uploads.list_files(owner).filter(uses=None)
    more = {"attached": False}
    write_missing_files(rows, archive=archive, folder=UPLOADS, written=written, more=more)


def write_missing_files(
    rows: QuerySet[StoredFile],
    *,
    archive: zipfile.ZipFile,
    folder: str,
    written: dict[str, Mapping[str, Any]],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the files whose hashes are not in `written`, and add them with `more` fields."""
    for row in rows.order_by("created_at", "pk").iterator(chunk_size=100):
        if row.sha256 in written:
            continue
        name = f"{folder}{row.sha256}"
        problem = write_original(row, archive=archive, name=name)
        written[row.sha256] = {
            "sha256": row.sha256,
            "name": row.name,
            "kind": row.kind,
            "media_type": row.media_type,
            "size": row.size,
            "file": name if problem in {"", "file_changed"} else None,
            **describe_problem(row, problem),
            **({"copy_sha256": row.copy_sha256} if row.copy_sha256 else {}),
            **(more or {}),
        }


def write_original(row: StoredFile, *, archive: zipfile.ZipFile, name: str) -> str:
    """Write the bytes of a file to an archive. Return the code of a problem, or an empty string.

    Changed bytes are written unchanged. Nothing is written for bytes that the storage
    lacks, cannot read or cannot decrypt, so that one such file does not prevent the archive.
    """
    digest = hashlib.sha256()
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as held:
        pieces = iter_file_bytes(row)
        while True:
            try:
                piece = next(pieces, b"")
            except FileNotFoundError:
                return "file_missing"
            except UNREADABLE_CONTENT:
                return "file_unreadable"
            except FileStorageUnavailable as refusal:
                return refusal.code
            if not piece:
                break
            digest.update(piece)
            held.write(piece)
        write_file_entry(archive, name=name, file=held)
    return "" if digest.hexdigest() == row.sha256 else "file_changed"


def describe_problem(row: StoredFile, problem: str) -> Mapping[str, str]:
    """Return the code and the reason of a problem in the active language; empty without one."""
    if not problem:
        return {}
    if row.code == FILE_REFUSED:
        return {"code": row.code, "reason": row.localized_reason}
    return {"code": problem, "reason": gettext(PROBLEMS[problem])}


def index_originals(archive: zipfile.ZipFile, account: Any) -> dict[str, OriginalFile]:
    """Map hashes to the files of an archive, with the names from its list."""
    found = {
        match[1]: OriginalFile(archive, entry, "", "")
        for entry in archive.infolist()
        if (match := ENTRY.fullmatch(entry.filename))
    }
    listed = account.get("files") if isinstance(account, Mapping) else None
    if not jsonstream.is_json_list(listed):
        return found
    for place, said in enumerate(jsonstream.get_list_items(listed)):
        if place >= MOST_FILES:
            break
        sha256 = said.get("sha256") if isinstance(said, Mapping) else None
        if isinstance(sha256, str) and sha256 in found and not is_in_other_folder(said):
            name, copied = said.get("name"), said.get("copy_sha256")
            found[sha256] = found[sha256]._replace(
                name=name if isinstance(name, str) else "",
                copy_sha256=copied if isinstance(copied, str) else "",
            )
    return found


def is_in_other_folder(said: Mapping[str, Any]) -> bool:
    """Return True if a listed file is in a folder that is not imported."""
    file = said.get("file")
    return isinstance(file, str) and not file.startswith(FOLDER)


def select_originals(originals: Originals, nodes: Sequence[Node]) -> dict[str, OriginalFile]:
    """Return the archive files that messages use, by hash."""
    documents, images = collect_file_hashes(nodes)
    return {
        sha256: original
        for sha256, original in originals.items()
        if sha256 in documents or original.copy_sha256 in images
    }


def collect_file_hashes(nodes: Sequence[Node]) -> tuple[set[str], set[str]]:
    """Return the hashes of the documents and of the images in messages."""
    documents: set[str] = set()
    images: set[str] = set()
    for node in nodes:
        for part in node.parts:
            if not isinstance(part, FilePart):
                continue
            if document := parse_document_reference(part.reference):
                documents.add(document.sha256)
            elif part.image is not None and part.image.sha256:
                images.add(part.image.sha256)
    return documents, images


def restore_originals(
    originals: Originals,
    nodes: Sequence[Node],
    *,
    owner: AbstractBaseUser,
    now: datetime,
    between: Callable[[], None],
) -> tuple[dict[str, uuid.UUID], list[str]]:
    """Store the files that messages use, before any transaction. `between` is called for each.

    Returns the losses, and the ids of the files by the hash of a document or of an image's copy. A
    file that the user already has is not stored again. An entry is a loss if its bytes do not
    match the hash in its name, or if it is refused as an upload. Raises `FileStorageUnavailable`.
    """
    documents, images = collect_file_hashes(nodes)
    known = uploads.list_files(owner).filter(sha256__in=documents)
    # An upload that failed is read again, or stored again if the scanner refused it.
    known = known.exclude(state=StoredFile.State.FAILED)
    restored = dict(known.values_list("sha256", "pk"))
    losses = []
    for sha256, original in sorted(originals.items()):
        is_wanted = sha256 in documents or original.copy_sha256 in images
        if not is_wanted or sha256 in restored:
            continue
        between()
        try:
            file_id = store_original(original, sha256=sha256, owner=owner, now=now)
        except FileStorageUnavailable:
            raise
        except Refusal:
            losses.append(f"file_dropped:{sha256[:12]}")
            continue
        restored[sha256] = file_id
        if original.copy_sha256 in images:
            restored[original.copy_sha256] = file_id
    return restored, losses


def store_original(
    original: OriginalFile, *, sha256: str, owner: AbstractBaseUser, now: datetime
) -> uuid.UUID:
    """Store a file from an archive like an upload.

    Raises `ImportRefused` and the refusals of uploads.
    """
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as held:
        copy_entry(original, into=held, sha256=sha256)
        row, _ = uploads.accept_upload(held, name=original.name, owner=owner, now=now)
    return row.pk


def copy_entry(original: OriginalFile, *, into: IO[bytes], sha256: str) -> None:
    """Copy an archive entry, with its size limited while reading. Raises `ImportRefused`."""
    limit, size, digest = settings.FILE_BYTES, 0, hashlib.sha256()
    name = original.entry.filename
    try:
        with original.archive.open(original.entry) as entry:
            while piece := entry.read(bounds.CHUNK):
                size += len(piece)
                if size > limit:
                    raise bounds.build_file_size_error(limit)
                digest.update(piece)
                into.write(piece)
    except bounds.UNREADABLE as error:
        raise bounds.build_damaged_entry_error(name) from error
    if digest.hexdigest() != sha256:
        raise bounds.build_damaged_entry_error(name)


def set_document_ids(
    parts: Sequence[dict[str, Any]], *, ids: Mapping[str, uuid.UUID]
) -> list[dict[str, Any]]:
    """Return stored parts whose documents have the ids of this user's files.

    Imported parts may contain any id, so a document that matches no file of the user gets no id.
    """
    return [
        {
            **part,
            "reference": replace(document, id=str(ids.get(document.sha256, NO_FILE))).reference,
        }
        if (document := get_document(part)) is not None
        else part
        for part in parts
    ]


def get_document(part: Mapping[str, Any]) -> Document | None:
    """Return the document of a stored part; None for other parts."""
    return parse_document_reference(part["reference"]) if part["type"] == "file" else None


def link_originals(rows: Sequence[Message], *, ids: Mapping[str, uuid.UUID]) -> None:
    """Link the new messages of one chat to their files, in the caller's transaction."""
    links = []
    linked: list[Mapping[str, Any]] = []
    for row in rows:
        documents = [(part, get_document(part)) for part in row.parts]
        hashes = [document.sha256 for _, document in documents if document is not None]
        hashes += iter_part_hashes(row.parts)
        found = dict.fromkeys(ids[sha256] for sha256 in hashes if sha256 in ids)
        links += [MessageFile(message=row, file_id=file_id) for file_id in found]
        linked += [part for part, found in documents if found is not None and found.sha256 in ids]
    MessageFile.objects.bulk_create(links)
    if linked:
        mark_chat_documents(rows[0].branch.chat, parts=linked)
