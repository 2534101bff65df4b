"""The files of a stored message, for its edited copy."""

import uuid
from collections.abc import Mapping

from chats.models import Message, MessageFile, MessageImage, StoredFile
from chats.record.images import Bytes, iter_part_hashes
from chats.record.messages import AttachedFile
from contextpolicy.engine.messages.files import parse_document_reference


def copy_attached_files(message: Message) -> list[AttachedFile]:
    """Return the files of a stored message, for its edited copy.

    Parts without a stored file stay too: images of API clients, and files of imports.
    """
    parts = [part for part in message.parts if part["type"] == "file"]
    if not parts:
        return []
    links = MessageFile.objects.filter(message=message)
    unused = {row.pk: row for row in StoredFile.objects.filter(uses__in=links)}
    # An image that the message has several times is stored once.
    images = {image.sha256: image for image in MessageImage.objects.filter(message=message)}
    copied = []
    for part in parts:
        image = next((images.pop(each, None) for each in iter_part_hashes([part])), None)
        data = Bytes(image.media_type, bytes(image.data)) if image is not None else None
        copied.append(AttachedFile(take_linked_file(part, unused=unused), part, data))
    return copied


def take_linked_file(
    part: Mapping[str, str], *, unused: dict[uuid.UUID, StoredFile]
) -> uuid.UUID | None:
    """Remove the file of a part from the `unused` files of its message, and return its id or None.

    An imported image has no copy until it is read, so it is also found by name.
    """
    document = parse_document_reference(part["reference"])
    hashes = set(iter_part_hashes([part]))
    for row in unused.values():
        is_image = bool(hashes) and row.kind == StoredFile.Kind.IMAGE
        if (document is not None and document.id == str(row.pk)) or (
            is_image and (row.copy_sha256 in hashes or row.name == part["name"])
        ):
            del unused[row.pk]
            return row.pk
    return None
