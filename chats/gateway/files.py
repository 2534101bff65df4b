"""Files in requests: base64 data, or the id of a file uploaded by the key's owner.

Until a request is stored, its messages refer to files by SHA-256. Documents are then stored like
uploads, and their text is extracted. Images become image parts.
"""

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chats.files.inline import decode_data_url, name_image
from chats.gateway.errors import InvalidRequest
from chats.gateway.images import parse_image
from chats.record.images import Bytes, detect_media_type, format_data_url
from contextpolicy.engine.messages.files import parse_document_reference
from contextpolicy.engine.messages.messages import FilePart, Part

# The reference of a file part until the request is stored.
_BY_HASH = re.compile(r"given:sha256=([0-9a-f]{64})")
_BY_ID = re.compile(r"given:id=([0-9a-f-]{36})")


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file in a request: its bytes, or the id of an upload. The name may be empty."""

    name: str
    data: bytes = b""
    file_id: uuid.UUID | None = None


def parse_file_part(
    part: Mapping[str, Any], *, param: str, images: dict[str, Bytes], files: dict[str, GivenFile]
) -> FilePart:
    """Parse a file part of chat completions.

    Its data is stored in `images` or `files`, by SHA-256. Raises `InvalidRequest`.
    """
    at = f"{param}.file"
    fields = part.get("file")
    if not isinstance(fields, dict):
        raise InvalidRequest(f"{at} must be an object.", param=at)
    if fields.get("file_url") is not None:
        problem = f"{at}.file_url: files are not loaded from addresses. Send file_data or file_id."
        raise InvalidRequest(problem, param=f"{at}.file_url", code="file_url_not_supported")
    name, data, file_id = (fields.get(key) for key in ("filename", "file_data", "file_id"))
    if (data is None) == (file_id is None):
        problem = f"{at} needs either file_data or file_id."
        raise InvalidRequest(problem, param=at, code="missing_field")
    if not isinstance(name, str | None):
        raise InvalidRequest(f"{at}.filename must be a text.", param=f"{at}.filename")
    if file_id is not None:
        return FilePart("", name or "", f"given:id={parse_file_id(file_id, param=at)}")
    return parse_file_data(data, name=name or "", param=at, images=images, files=files)


def parse_file_id(said: Any, *, param: str) -> uuid.UUID:
    """Parse the id of an upload. Raises `InvalidRequest`."""
    try:
        return uuid.UUID(said)
    except (AttributeError, TypeError, ValueError):
        at = f"{param}.file_id"
        problem = f"{at} must be the id of a file from POST /api/v1/files."
        raise InvalidRequest(problem, param=at) from None


def parse_file_data(
    said: Any, *, name: str, param: str, images: dict[str, Bytes], files: dict[str, GivenFile]
) -> FilePart:
    """Return the message part for a file in base64 or in a base64 data URL.

    Raises `InvalidRequest`.
    """
    at = f"{param}.file_data"
    try:
        is_url = isinstance(said, str) and said.startswith("data:")
        data = decode_data_url(said) if is_url else base64.b64decode(said, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidRequest(f"{at} must be base64 or a base64 data URL.", param=at) from None
    if media_type := detect_media_type(data):
        url = format_data_url(media_type, data)
        return name_image(parse_image(url, detail=None, param=at, found=images), name=name)
    sha256 = hashlib.sha256(data).hexdigest()
    files[sha256] = GivenFile(name, data)
    return name_by_hash(name, sha256)


def get_given_hash(part: Part) -> str:
    """Return the SHA-256 of the document that a part refers to; empty for other parts."""
    found = _BY_HASH.fullmatch(part.reference) if isinstance(part, FilePart) else None
    return found[1] if found else ""


def get_given_id(part: Part) -> uuid.UUID | None:
    """Return the id of the upload that a part refers to; None for other parts."""
    found = _BY_ID.fullmatch(part.reference) if isinstance(part, FilePart) else None
    return uuid.UUID(found[1]) if found else None


def name_by_hash(name: str, sha256: str) -> FilePart:
    """Return a file part that refers to a document of the request by its SHA-256."""
    return FilePart("", name, f"given:sha256={sha256}")


def get_document_hash(part: FilePart) -> str:
    """Return the SHA-256 of the document that a part refers to or contains; empty for others."""
    if given := get_given_hash(part):
        return given
    document = parse_document_reference(part.reference)
    return document.sha256 if document else ""
