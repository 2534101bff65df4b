"""Small files inside JSON requests, as base64 data URLs."""

import base64
import binascii
import io
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext_noop

from chats.files import reading
from chats.files.detection import UNNAMED, clean_file_name
from chats.files.uploads import MIB, accept_upload
from chats.ground.refusals import Refusal
from contextpolicy.engine.messages.files import build_file_label
from contextpolicy.engine.messages.images import NAMED_LINE, compute_image_tokens
from contextpolicy.engine.messages.messages import LONGEST_FILE_NAME, FilePart

# The maximum total size of the inline files of a request in bytes, after decoding.
INLINE_BYTES = 1 * MIB
BASE64 = ";base64,"


class InvalidInlineFile(Refusal):
    """An inline file is not a base64 data URL."""

    code = "invalid_inline_file"
    status = 422
    sentence = gettext_noop(
        "{name} is not a base64 data URL. Send it as data:text/plain;base64,…, or upload the file "
        "and send its ID."
    )
    param = "inline_files"


class InlineFilesTooLarge(Refusal):
    """The inline files of the request exceed 1 MiB together. Upload them instead."""

    code = "inline_files_too_large"
    status = 413
    sentence = gettext_noop(
        "The inline files in this request exceed {limit} MiB. Upload them with POST "
        "/api/v1/files and send their IDs in `files`."
    )
    param = "inline_files"


class InlineFile(NamedTuple):
    """A file inside a request: its name, which may be empty, and a data URL."""

    name: str
    url: str


def decode_data_url(url: str) -> bytes:
    """Return the bytes of a base64 data URL. Raises ValueError for any other string."""
    head, found, text = url.partition(BASE64)
    if not found or not head.startswith("data:"):
        raise ValueError("not a base64 data URL")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def store_inline_files(
    given: Sequence[InlineFile],
    *,
    owner: AbstractBaseUser,
    now: datetime,
    limit: int | None = INLINE_BYTES,
) -> list[uuid.UUID]:
    """Store the inline files of a request, wait for their texts, and return their ids.

    Waits for at most 45 seconds. Call outside transactions. `limit`: the maximum total size in
    bytes; None: only the limits of uploads apply. Raises `InvalidInlineFile`,
    `InlineFilesTooLarge` and the refusals of `accept_upload`.
    """
    pieces = [decode_inline_file(file) for file in given]
    if limit is not None and sum(map(len, pieces)) > limit:
        raise InlineFilesTooLarge(limit=limit // MIB)
    found = []
    for file, data in zip(given, pieces, strict=True):
        row, _ = accept_upload(io.BytesIO(data), name=file.name or UNNAMED, owner=owner, now=now)
        found.append(row.pk)
    if found:
        reading.wait_until_read(found, seconds=reading.WAIT_SECONDS)
    return found


def decode_inline_file(file: InlineFile) -> bytes:
    """Return the bytes of an inline file. Raises `InvalidInlineFile`."""
    try:
        return decode_data_url(file.url)
    except ValueError:
        raise InvalidInlineFile(name=file.name or UNNAMED) from None


def collect_file_ids(
    sent: Mapping[str, Any], *, owner: AbstractBaseUser, now: datetime
) -> list[uuid.UUID]:
    """Return the file ids of a REST request: those in `files`, then the stored `inline_files`.

    Raises the refusals of `store_inline_files`.
    """
    given = [InlineFile(**file) for file in sent["inline_files"]]
    return [*sent["files"], *store_inline_files(given, owner=owner, now=now)]


def name_image(part: FilePart, *, name: str) -> FilePart:
    """Return an image with the file name that the client gave, if it gave one."""
    image, own = part.image, clean_file_name(name) if name else ""
    if image is None or not own:
        return part
    tokens = compute_image_tokens(
        image.tokens, label=build_file_label(own, limit=LONGEST_FILE_NAME)
    )
    named = replace(image, line=NAMED_LINE, tokens=tokens)
    # Not the internal name of an image in a tool result.
    return replace(part, name=own.replace(":", "-"), reference=named.reference)
