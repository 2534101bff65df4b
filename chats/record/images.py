"""Stores the bytes of images with their messages, for prompts and pages."""

import base64
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from chats.models import Chat, Message, MessageImage, OwnedImage
from contextpolicy.engine.messages.images import parse_image_reference
from contextpolicy.engine.messages.messages import WireMessage

PAGE = 500


@dataclass(frozen=True, slots=True)
class Bytes:
    """The media type and bytes of an image that is not stored yet.

    `given_sha256` and `given_size`: the hash and the number of bytes of the original if the image
    is a copy, otherwise empty and 0.
    """

    media_type: str
    data: bytes
    given_sha256: str = ""
    given_size: int = 0

    @property
    def data_url(self) -> str:
        return format_data_url(self.media_type, self.data)


def detect_media_type(data: bytes) -> str:
    """Return the media type of an image, detected from its first bytes. Empty if unknown."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return ""


def build_image_name(image: MessageImage) -> str:
    """Return the name of an image as a file. Its extension matches the media type."""
    return f"{image.sha256[:12]}.{image.media_type.removeprefix('image/')}"


def format_data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def parse_data_url(url: str) -> Bytes:
    """Parse a data URL made by `format_data_url` to media type and bytes."""
    head, _, text = url.partition(";base64,")
    return Bytes(head.removeprefix("data:"), base64.b64decode(text))


def store_message_images(rows: Sequence[Message], *, found: Mapping[str, Bytes]) -> None:
    """Store the images of new messages, in the caller's transaction.

    `found` maps hashes to images.
    """
    if not found:
        return
    for row in rows:
        for sha256 in dict.fromkeys(iter_image_hashes(row)):
            # One image at a time: a chat's images may not fit into memory.
            if (image := found.get(sha256)) is not None:
                create_image(row, image, sha256=sha256, owner_id=row.branch.chat.owner_id)


def create_image(row: Message, image: Bytes, *, sha256: str, owner_id: int) -> None:
    """Store an image of a message, and count it for the owner."""
    stored = MessageImage.objects.create(
        message=row, sha256=sha256, media_type=image.media_type, data=image.data
    )
    OwnedImage.objects.create(
        image=stored,
        owner_id=owner_id,
        sha256=sha256,
        size=len(image.data),
        given_sha256=image.given_sha256,
    )


def store_missing_images(chat: Chat, *, found: Mapping[str, Bytes]) -> None:
    """Store the images of a chat's messages that an earlier import left out.

    Runs in the caller's transaction. `found` maps hashes to images.
    """
    for row, sha256 in iter_missing_images(chat, hashes=found):
        create_image(row, found[sha256], sha256=sha256, owner_id=chat.owner_id)


def iter_missing_images(chat: Chat, *, hashes: Collection[str]) -> Iterator[tuple[Message, str]]:
    """Yield the messages of a chat whose images are not stored, with the hash of each image."""
    if not hashes:
        return
    stored = MessageImage.objects.filter(message__branch__chat=chat)
    missing = set(hashes).difference(stored.values_list("sha256", flat=True))
    if not missing:
        return
    rows = Message.objects.filter(branch__chat=chat, erased_at=None).only("parts")
    for row in rows.iterator(chunk_size=PAGE):
        for sha256 in missing.intersection(iter_image_hashes(row)):
            yield row, sha256


def iter_image_hashes(row: Message) -> Iterable[str]:
    return iter_part_hashes(row.parts)


def iter_part_hashes(parts: Iterable[Mapping[str, str]]) -> Iterable[str]:
    for part in parts:
        image = parse_image_reference(part["reference"]) if part["type"] == "file" else None
        if image is not None and image.sha256:
            yield image.sha256


def has_changed_image(row: Message) -> bool:
    """Return True if an image's stored bytes do not match the hash in its message.

    An image that an import did not contain has no bytes, and does not count as changed.
    """
    hashes = set(iter_image_hashes(row))
    if not hashes:
        return False
    found = MessageImage.objects.filter(message=row)
    # One image at a time: a chat's images may not fit into memory.
    return any(
        image.sha256 in hashes and hashlib.sha256(image.data).hexdigest() != image.sha256
        for image in found.iterator(chunk_size=1)
    )


def load_prompt_images(wires: Sequence[WireMessage], *, chat: Chat) -> dict[str, str]:
    """Return a prompt's images as data URLs by hash, limited to images from its chat."""
    images = (part.image for wire in wires for _, part in wire.images)
    wanted = {image.sha256 for image in images if image is not None and image.sha256}
    if not wanted:
        return {}
    rows = MessageImage.objects.filter(message__branch__chat=chat, sha256__in=wanted)
    return {row.sha256: format_data_url(row.media_type, bytes(row.data)) for row in rows}
