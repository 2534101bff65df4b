"""Turns uploaded files into message parts: the text of documents, copies of images."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext_noop

from chats.files.file_models import may_get_files
from chats.files.uploads import (
    MIB,
    check_quota,
    check_uploads_on,
    list_files,
    open_stored_file,
)
from chats.ground.refusals import Refusal
from chats.models import Chat, FileChunk, StoredFile
from chats.record.images import Bytes
from chats.record.messages import AttachedFile
from contextpolicy.engine.history.truncation import cut_text
from contextpolicy.engine.messages.files import (
    CLEANED_LINE,
    NAME_ONLY_LINE,
    Document,
    build_file_label,
    parse_document_reference,
    share_tokens,
)
from contextpolicy.engine.messages.images import NAMED_LINE, Image, compute_image_tokens
from contextpolicy.engine.messages.messages import (
    LONGEST_FILE_NAME,
    FilePart,
    parse_result_image,
    serialize_parts,
)
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import ModelSpec
from speed import prepared

State = StoredFile.State
# Models count an image by its area: about one token for 750 pixels.
PIXELS_PER_TOKEN = 750
# The name of an image in a tool result, which has no file.
IMAGE_NAME = "image"


class FileNotFound(Refusal):
    """A file of the message does not exist or belongs to another user."""

    code = "file_not_found"
    status = 422
    sentence = gettext_noop(
        "A file of this message no longer exists. Attach it again, or remove it."
    )
    param = "files"


class FileNotReady(Refusal):
    """A file is still being read. Wait, or set `allow_unread` to send only its name."""

    code = "file_not_ready"
    status = 409
    sentence = gettext_noop(
        "{name} is still being read. Send the message again in a moment. In the web interface "
        "and the REST API, you can also send only the names of files that have not been read yet."
    )
    param = "files"
    retry_after = 1


class FileNotRead(Refusal):
    """A file could not be read. Remove it, or set `allow_unread` to send only its name."""

    code = "file_not_read"
    status = 409
    sentence = gettext_noop(
        "{name} could not be read: {reason} Remove the file, then send the message again. In the "
        "web interface and the REST API, you can also send only the file name."
    )
    param = "files"


class TooManyFiles(Refusal):
    """The message has more files than its policy or `FILES_PER_MESSAGE` (20 by default) allows."""

    code = "too_many_files"
    status = 422
    sentence = gettext_noop(
        "This message has {number} files. The limit is {limit}. Send the others in another message."
    )
    param = "files"


class FileKindNotAllowed(Refusal):
    """The chat's policy does not allow this kind of file."""

    code = "file_kind_not_allowed"
    status = 422
    sentence = gettext_noop(
        "{name} cannot be sent: this chat’s policy does not allow files of the kind {kind}. "
        "Remove it, or ask your administrator."
    )
    param = "files"


class FileModelNotAllowed(Refusal):
    """The policy of the chat does not allow files for its model."""

    code = "file_model_not_allowed"
    status = 422
    sentence = gettext_noop(
        "{name} cannot be sent: the policy of this chat does not allow files for the model {model}."
        " Choose another model, or remove the file."
    )
    param = "files"


class FileTooLargeForPolicy(Refusal):
    """The file exceeds the size limit of the chat's policy."""

    code = "file_too_large_for_policy"
    status = 422
    sentence = gettext_noop(
        "{name} cannot be sent: this chat’s policy allows up to {limit} MiB per file. Attach a "
        "smaller file, or ask your administrator."
    )
    param = "files"


class FilesTooLarge(Refusal):
    """The files of the message exceed the limit (`MESSAGE_FILES_BYTES`, 100 MiB by default)."""

    code = "files_too_large"
    status = 422
    sentence = gettext_noop(
        "This message’s files exceed {limit} MiB in total. Send some of them in another message."
    )
    param = "files"


def build_attached_files(
    file_ids: Sequence[uuid.UUID],
    *,
    user: AbstractBaseUser,
    values: PolicyValues,
    model: ModelSpec,
    unread: bool = False,
    copies: Mapping[uuid.UUID, Bytes] | None = None,
) -> list[AttachedFile]:
    """Return the files of a new message in order, with the texts that its prompts contain.

    `unread`: files that are not read yet, or could not be read, are attached by name only.
    `copies`: the images, if they were loaded before a transaction (`load_image_copies`). Raises
    `FileUploadsOff`, `FileNotFound`, `FileNotReady`, `FileNotRead`, `FileMissing`, `TooManyFiles`,
    `FilesTooLarge`, `FileKindNotAllowed`, `FileModelNotAllowed` and `FileTooLargeForPolicy`.
    """
    ids = list(dict.fromkeys(file_ids))
    check_file_number(len(ids))
    found = {row.pk: row for row in list_files(user).filter(pk__in=ids)}
    if len(found) < len(ids):
        raise FileNotFound
    rows = [found[pk] for pk in ids]
    return attach_rows(rows, values=values, model=model, unread=unread, copies=copies)


def build_draft_parts(
    file_ids: Sequence[uuid.UUID],
    *,
    user: AbstractBaseUser,
    values: PolicyValues,
    model: ModelSpec,
    unread: bool,
) -> list[Mapping[str, str]]:
    """Return the file parts of a message that is not sent yet. Loads no images.

    Raises the refusals of `build_attached_files` except `FileMissing`.
    """
    if not file_ids:
        return []
    attached = build_attached_files(
        file_ids, user=user, values=values, model=model, unread=unread, copies={}
    )
    return [file.part for file in attached]


def attach_rows(
    rows: Sequence[StoredFile],
    *,
    values: PolicyValues,
    model: ModelSpec,
    unread: bool = False,
    copies: Mapping[uuid.UUID, Bytes] | None = None,
    texts: Mapping[uuid.UUID, str] | None = None,
) -> list[AttachedFile]:
    """Return files as parts of a new message. `texts`: the texts of files that are not stored.

    Raises `FilesTooLarge` and the other refusals of `build_attached_files` except
    `FileNotFound`.
    """
    check_file_number(len(rows))
    facts = [FileFacts(row.name, row.kind, row.size) for row in rows]
    check_file_policy(facts, values=values, model=model)
    if sum(row.size for row in rows) > settings.MESSAGE_FILES_BYTES:
        raise FilesTooLarge(limit=settings.MESSAGE_FILES_BYTES // MIB)
    for row in rows:
        check_file_state(row, unread=unread)
    limit = compute_prompt_limit(values, model_window=model.window)
    room = max(values.file_percent * limit // 100, 1)
    shares = share_tokens([row.tokens for row in rows], room=room)
    if copies is None:
        copies = {row.pk: copy for row in rows if (copy := load_image(row))}
    texts = texts or {}
    return [
        AttachedFile(
            row.pk,
            build_part(row, tokens=tokens, values=values, text=texts.get(row.pk)),
            copies.get(row.pk),
        )
        for row, tokens in zip(rows, shares, strict=True)
    ]


def check_file_number(number: int) -> None:
    """Check the number of files in a message. Raises `FileUploadsOff` or `TooManyFiles`."""
    if number:
        check_uploads_on()
    if number > settings.FILES_PER_MESSAGE:
        raise TooManyFiles(number=number, limit=settings.FILES_PER_MESSAGE)


class FileFacts(NamedTuple):
    """The properties of a file that a policy can limit. The size is in bytes."""

    name: str
    kind: str
    size: int


def check_file_policy(
    files: Sequence[FileFacts], *, values: PolicyValues, model: ModelSpec
) -> None:
    """Check the files of a new message to this model against its policy.

    Raises `TooManyFiles`, `FileModelNotAllowed`, `FileKindNotAllowed` and `FileTooLargeForPolicy`.
    """
    if files and not may_get_files(model.slug, values=values):
        raise FileModelNotAllowed(name=files[0].name, model=str(model))
    most = values.files_per_message
    if most is not None and len(files) > most:
        raise TooManyFiles(number=len(files), limit=most)
    for file in files:
        if values.file_kinds is not None and file.kind not in values.file_kinds:
            raise FileKindNotAllowed(name=file.name, kind=file.kind)
        if values.file_mebibytes is not None and file.size > values.file_mebibytes * MIB:
            raise FileTooLargeForPolicy(name=file.name, limit=values.file_mebibytes)


def load_image_copies(
    file_ids: Sequence[uuid.UUID], *, user: AbstractBaseUser
) -> dict[uuid.UUID, Bytes]:
    """Return the copies of a user's images by file id. Call outside transactions.

    Raises `FileMissing`.
    """
    rows = list_files(user).filter(pk__in=list(file_ids)[: settings.FILES_PER_MESSAGE])
    return {row.pk: copy for row in rows if (copy := load_image(row))} if file_ids else {}


def check_file_state(row: StoredFile, *, unread: bool) -> None:
    """Raise `FileNotReady` or `FileNotRead` if a file has no content yet, unless `unread`."""
    if row.state == State.PENDING and not unread:
        raise FileNotReady(name=row.name)
    if row.state == State.FAILED and not unread:
        raise FileNotRead(name=row.name, reason=row.localized_reason)


def build_part(
    row: StoredFile, *, tokens: int, values: PolicyValues, text: str | None = None
) -> dict[str, str]:
    """Return the part of a message for a file. Its text has about `tokens` tokens at most.

    `text`: the whole text of a document that is not stored; None: it is loaded.
    """
    if row.kind == StoredFile.Kind.IMAGE and row.copy_sha256:
        image = build_image(row, size=row.copy_size)
        part = FilePart(row.copy_type, row.name, image.reference)
        if parse_result_image(part)[0]:
            # Not the internal name of an image in a tool result.
            part = replace(part, name=part.name.replace(":", "-", 1))
    else:
        document = build_document(row)
        sent = ""
        if row.characters and tokens:
            most = max(row.characters * tokens // max(row.tokens, 1), 1)
            whole = load_file_text(row) if text is None else text
            sent = cut_text(whole, limit=most, style=values.cut_style).text
        if not sent:
            document = replace(document, line=NAME_ONLY_LINE)
        part = FilePart(row.media_type, row.name, document.reference, sent)
    return serialize_parts([part])[0]


def estimate_image_tokens(row: StoredFile) -> int:
    """Estimate the tokens that an image, or its line of text, takes in prompts."""
    label = build_file_label(row.name, limit=LONGEST_FILE_NAME)
    return compute_image_tokens(row.width * row.height // PIXELS_PER_TOKEN, label=label)


def build_image(row: StoredFile, *, size: int) -> Image:
    """Return a reference to an image's copy of `size` bytes, with its size in pixels."""
    return Image(
        estimate_image_tokens(row),
        sha256=row.copy_sha256,
        size=size,
        line=NAMED_LINE,
        width=row.width,
        height=row.height,
    )


def build_document(row: StoredFile) -> Document:
    """Return the reference to a stored document for a new message."""
    own_id, line = str(row.pk), CLEANED_LINE
    return Document(own_id, row.sha256, row.size, row.pages, row.characters, line)


def is_cut(part: Mapping[str, str]) -> bool:
    """Return True if a stored file part contains only the beginning of its document."""
    document = parse_document_reference(part["reference"])
    return document is not None and len(part.get("text", "")) < document.characters


def has_text(part: Mapping[str, str]) -> bool:
    """Return True if a stored file part refers to a document with text."""
    document = parse_document_reference(part["reference"])
    return document is not None and document.characters > 0


def mark_chat_documents(chat: Chat, *, parts: Iterable[Mapping[str, str]]) -> None:
    """Mark a chat as having documents, or truncated ones, after it got new file parts.

    `parts`: stored file parts.
    """
    found = list(parts)
    marks = {"has_documents": any(map(has_text, found)), "has_cut_files": any(map(is_cut, found))}
    changed = [name for name, is_true in marks.items() if is_true and not getattr(chat, name)]
    for name in changed:
        setattr(chat, name, True)
    if changed:
        prepared.save_row_fields(chat, *changed)


def load_file_text(row: StoredFile) -> str:
    """Return the text of a file, joined from its stored chunks."""
    rows = FileChunk.objects.filter(file=row).order_by("number")
    return "".join(rows.values_list("text", flat=True))


def load_image(row: StoredFile) -> Bytes | None:
    """Return an image's copy for models; None for other files. Raises as `open_stored_file`."""
    if not row.copy_path:
        return None
    with open_stored_file(row, is_copy=True) as file:
        return Bytes(row.copy_type, file.read())


def check_attached_images(files: Sequence[AttachedFile], *, owner_id: int) -> None:
    """Check that the images that a new message is about to store fit into the user's quota.

    The caller has locked the user. Raises `FileQuotaExceeded`.
    """
    images = [(file.part["name"], file.image.data) for file in files if file.image is not None]
    if images:
        size = sum(len(data) for _, data in images)
        check_quota(owner_id, name=images[0][0] or IMAGE_NAME, size=size)


def lock_attached_files(files: Sequence[AttachedFile]) -> None:
    """Lock the files of a new message, so that they are not deleted before it is stored.

    Raises `FileNotFound`.
    """
    ids = [file.file_id for file in files if file.file_id is not None]
    if not ids:
        return
    rows = StoredFile.objects.select_for_update(no_key=True).filter(pk__in=ids)
    if len(rows.order_by("pk").values_list("pk")) < len(ids):
        raise FileNotFound
