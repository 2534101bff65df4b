"""Stores and reads the files in a request, and converts documents to message parts."""

import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple

from django.contrib.auth.models import User

from chats.files import attach, reading, uploads
from chats.files.attach import FileFacts, FileNotFound, FileNotReady
from chats.files.detection import UNNAMED, clean_file_name
from chats.gateway.files import (
    GivenFile,
    get_document_hash,
    get_given_hash,
    get_given_id,
    name_by_hash,
)
from chats.gateway.given_images import (
    IMAGE,
    copy_given_images,
    hold_reading_place,
    scan_given_images,
)
from chats.gateway.matching.conversation import Conversation, Item
from chats.ground.refusals import Refusal
from chats.models import FileChunk, StoredFile
from chats.prompt.model_choice import ChosenModel
from chats.record.images import Bytes
from chats.record.messages import AttachedFile
from contextpolicy.engine.messages.messages import FilePart, Part, parse_parts, serialize_parts
from contextpolicy.engine.messages.tokens import TokenCounter


class ItemFiles(NamedTuple):
    """A request message with the text of its documents, and the stored files that it uses."""

    item: Item
    files: Sequence[AttachedFile]


@contextmanager
def blame_field(name: str) -> Iterator[None]:
    """Add the field name to refusals raised within the block, except errors of the server."""
    try:
        yield
    except Refusal as refusal:
        if refusal.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            refusal.param = name
        raise


def store_given_files(
    said: Conversation, *, user: User, choice: ChosenModel, now: datetime
) -> Conversation:
    """Store the new documents of a request, and wait until workers have read its files.

    Opens no transaction. Raises `FileNotFound` and the refusals of `copy_given_images` and
    `uploads.accept_upload`.
    """
    said = copy_given_images(said, user=user, choice=choice)
    said = replace_file_ids(said, user=user, choice=choice)
    hashes = list_given_hashes(part for item in said.items for part in item.parts)
    if not hashes:
        return said
    rows = {row.sha256: row for row in select_rows(user, hashes)}
    for sha256 in hashes:
        row, given = rows.get(sha256), said.files.get(sha256)
        if (
            given is not None
            and not given.file_id
            and (row is None or row.state == StoredFile.State.FAILED)
        ):
            name = given.name or UNNAMED
            rows[sha256], _ = uploads.accept_upload(
                io.BytesIO(given.data), name=name, owner=user, now=now
            )
    reading.wait_until_read([row.pk for row in rows.values()], seconds=reading.WAIT_SECONDS)
    return said


def read_given_files(
    said: Conversation,
    *,
    user: User,
    choice: ChosenModel,
    counter: TokenCounter,
    is_unchanged: bool,
) -> Conversation:
    """Return a conversation with the text of its documents, without storing anything.

    `is_unchanged`: the images stay as the client sent them. Raises `FileNotFound` and the refusals
    of `copy_given_images` and `attach.build_attached_files`.
    """
    if is_unchanged:
        scan_given_images(said, user=user)
    else:
        said = copy_given_images(said, user=user, choice=choice)
    said = replace_file_ids(said, user=user, choice=choice)
    items = []
    wanted = list_given_hashes(part for item in said.items for part in item.parts)
    known = {row.sha256: row for row in select_rows(user, wanted) if is_file_ready(row)}
    unsaved: dict[uuid.UUID, tuple[StoredFile, list[FileChunk]]] = {}
    for item in said.items:
        hashes = list_given_hashes(item.parts)
        for sha256 in hashes:
            if sha256 not in known:
                given = said.files[sha256]
                row, chunks = read_given(given, sha256=sha256, user=user, counter=counter)
                known[sha256], unsaved[row.pk] = row, (row, chunks)
        rows = [known[sha256] for sha256 in hashes]
        check_item_files(item, said=said, rows=rows, choice=choice)
        texts = {
            row.pk: "".join(chunk.text for chunk in unsaved[row.pk][1])
            for row in rows
            if row.pk in unsaved
        }
        made = attach.attach_rows(rows, values=choice.values, model=choice.model, texts=texts)
        parts = replace_given_parts(item.parts, dict(zip(hashes, made, strict=True)))
        items.append(Item(item.role, parts))
    return replace(said, items=tuple(items), unsaved=tuple(unsaved.values()))


def is_file_ready(row: StoredFile) -> bool:
    """Return True if the text of a stored file is available."""
    return row.state == StoredFile.State.READY


def read_given(
    given: GivenFile, *, sha256: str, user: User, counter: TokenCounter
) -> tuple[StoredFile, list[FileChunk]]:
    """Return an unsaved row of a document, and its text as unsaved chunks.

    Raises `FileNotReady` for an upload whose text is not available or if too many requests are
    waiting, and the refusals of `uploads.check_content`.
    """
    if given.file_id is not None:
        raise FileNotReady(name=given.name)
    name = clean_file_name(given.name or UNNAMED)
    size, found = uploads.check_content(io.BytesIO(given.data), name=name)
    row = StoredFile(
        owner_id=user.pk,
        name=name,
        kind=found.kind,
        media_type=found.media_type,
        size=size,
        sha256=sha256,
    )
    with hold_reading_place(name):
        return row, reading.read_without_storing(row, given.data, counter=counter)


def replace_file_ids(said: Conversation, *, user: User, choice: ChosenModel) -> Conversation:
    """Replace references to uploads: documents with their hashes, images with copies.

    Raises `FileNotFound`, `FileNotReady`, `FileNotRead` and `FileMissing`.
    """
    ids = {pk for item in said.items for part in item.parts if (pk := get_given_id(part))}
    if not ids:
        return said
    rows = {row.pk: row for row in uploads.list_files(user).filter(pk__in=ids)}
    if len(rows) < len(ids):
        raise FileNotFound
    reading.wait_until_read(list(ids), seconds=reading.WAIT_SECONDS)
    rows = {row.pk: row for row in uploads.list_files(user).filter(pk__in=ids)}
    images: dict[str, Bytes] = {**said.images}
    files = {**said.files}
    made = {}
    for pk, row in rows.items():
        if row.kind != StoredFile.Kind.IMAGE:
            files.setdefault(row.sha256, GivenFile(row.name, file_id=pk))
            made[pk] = name_by_hash(row.name, row.sha256)
            continue
        attach.check_file_state(row, unread=False)
        if (copy := attach.load_image(row)) is not None:
            images[row.copy_sha256] = copy
        files[row.copy_sha256] = GivenFile(row.name, file_id=pk)
        part = attach.build_part(row, tokens=0, values=choice.values)
        made[pk] = parse_stored_part(part)
    items = [
        Item(item.role, tuple(replace_file_id(part, made) for part in item.parts))
        for item in said.items
    ]
    return replace(said, items=tuple(items), images=images, files=files)


def replace_file_id(part: Part, made: Mapping[uuid.UUID, FilePart]) -> Part:
    """Return the file part for an upload that a part refers to. Other parts stay unchanged."""
    pk = get_given_id(part)
    return made[pk] if pk else part


def parse_stored_part(part: Mapping[str, str]) -> FilePart:
    """Parse a file part from its stored JSON."""
    return next(one for one in parse_parts([part]) if isinstance(one, FilePart))


def select_rows(user: User, hashes: Iterable[str]) -> list[StoredFile]:
    """Return the user's files with these hashes."""
    wanted = {*hashes} - {""}
    return list(uploads.list_files(user).filter(sha256__in=wanted)) if wanted else []


def list_given_hashes(parts: Iterable[Part]) -> list[str]:
    """Return the hashes of the documents to which parts refer, without duplicates."""
    return list(dict.fromkeys(found for part in parts if (found := get_given_hash(part))))


def attach_documents(
    item: Item, *, said: Conversation, user: User, choice: ChosenModel
) -> ItemFiles:
    """Return a message of a request with its documents, whose files are stored.

    Raises `FileNotFound` and the refusals of `attach.build_attached_files`.
    """
    held = [part for part in item.parts if isinstance(part, FilePart)]
    if not held:
        return ItemFiles(item, [])
    hashes = list_given_hashes(held)
    known = {row.sha256: row for row in select_rows(user, map(get_document_hash, held))}
    check_item_files(item, said=said, rows=[*known.values()], choice=choice)
    if any(sha256 not in known for sha256 in hashes):
        raise FileNotFound
    rows = [known[sha256] for sha256 in hashes]
    for row in rows:
        given = said.files.get(row.sha256)
        row.name = clean_file_name((given and given.name) or row.name)
    made = attach.attach_rows(rows, values=choice.values, model=choice.model)
    parts = replace_given_parts(item.parts, dict(zip(hashes, made, strict=True)))
    found: dict[uuid.UUID, AttachedFile] = {}
    for part in parts:
        pk = find_stored_file(part, known=known, said=said)
        if pk is not None:
            found.setdefault(pk, AttachedFile(pk, serialize_parts([part])[0]))
    return ItemFiles(Item(item.role, parts), list(found.values()))


def check_item_files(
    item: Item, *, said: Conversation, rows: Sequence[StoredFile], choice: ChosenModel
) -> None:
    """Raise the refusals of `attach.check_file_policy` for the images and documents of a message.

    `rows`: its documents. The size of an image is that of the original that the client sent.
    """
    facts = [FileFacts(row.name, row.kind, row.size) for row in rows]
    for part in item.parts:
        if isinstance(part, FilePart) and part.image is not None:
            given = said.images.get(part.image.sha256)
            size = (given.given_size if given else 0) or part.image.size
            facts.append(FileFacts(IMAGE, IMAGE, size))
    attach.check_file_policy(facts, values=choice.values, model=choice.model)


def find_stored_file(
    part: Part, *, known: Mapping[str, StoredFile], said: Conversation
) -> uuid.UUID | None:
    """Return the id of the stored file that a part uses. None if it uses no file."""
    if not isinstance(part, FilePart):
        return None
    if part.image is not None:
        given = said.files.get(part.image.sha256)
        return given.file_id if given else None
    row = known.get(get_document_hash(part))
    return row.pk if row else None


def replace_given_parts(
    parts: Sequence[Part], made: Mapping[str, AttachedFile]
) -> tuple[Part, ...]:
    """Replace the references in parts with their documents. Duplicate references are dropped."""
    left = {sha256: parse_stored_part(file.part) for sha256, file in made.items()}
    found: list[Part] = []
    for part in parts:
        sha256 = get_given_hash(part)
        if not sha256:
            found.append(part)
        elif sha256 in left:
            found.append(left.pop(sha256))
    return tuple(found)
