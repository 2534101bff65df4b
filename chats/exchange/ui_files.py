"""URLs of files and images in UI messages."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import replace

from chats.models import Message, MessageFile
from contextpolicy.engine.messages.files import parse_document_reference
from contextpolicy.engine.messages.messages import FilePart, Part, parse_result_image

ADDRESS = "/api/v1/files/{file_id}/content"
# The address of an image without an upload, such as one of an API client or of a tool result.
IMAGE_ADDRESS = "/api/v1/chats/{chat_id}/messages/{message_id}/images/{sha256}"
UUID_PATTERN = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# The address of an upload, relative or with a host.
OWN_FILE = re.compile(rf"(?:https?://[^/]+)?/api/v1/files/({UUID_PATTERN})/content")
# The address of an image, relative or with a host. Earlier versions gave it without `/api/v1`.
OWN_IMAGE = re.compile(
    rf"(?:https?://[^/]+)?(?:/api/v1)?/chats/{UUID_PATTERN}/messages/{UUID_PATTERN}"
    r"/images/([0-9a-f]{64})"
)


def name_file_addresses(row: Message, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of a message, with a URL in each uploaded file and each image.

    Clients get the name and the URL of a document, not its text.
    """
    if not any(isinstance(part, FilePart) for part in parts):
        return tuple(parts)
    links = MessageFile.objects.filter(message=row).values_list("file__copy_sha256", "file")
    images = {sha256: file_id for sha256, file_id in links if sha256}
    return tuple(
        name_file_address(part, images=images, row=row) if isinstance(part, FilePart) else part
        for part in parts
    )


def name_file_address(part: FilePart, *, images: dict[str, uuid.UUID], row: Message) -> FilePart:
    """Return the part of an upload or an image with its URL. Other parts are returned unchanged.

    The name of an image in a tool result is internal, so clients get none.
    """
    document = parse_document_reference(part.reference)
    image = part.image
    file_id = document.id if document else images.get(image.sha256) if image else None
    if file_id is None and image is not None:
        address = IMAGE_ADDRESS.format(
            chat_id=row.branch.chat_id, message_id=row.pk, sha256=image.sha256
        )
        name = "" if parse_result_image(part)[0] else part.name
        return replace(part, name=name, reference=image.url or address)
    if file_id is None:
        return part
    return replace(part, reference=ADDRESS.format(file_id=file_id), text="")


def identify_image(address: str) -> str:
    """Return the hash in an image's URL. Other URLs are returned unchanged.

    An edit copies the images to a new message, so their URLs change and their hashes do not.
    """
    own = OWN_IMAGE.fullmatch(address)
    return own[1] if own is not None else address
