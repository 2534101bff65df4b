"""Scans the images in a request, and replaces large images and those with metadata by copies.

The copy is the same as for an uploaded image. An image that the owner's messages already have is
not read again: clients send the images of a conversation with each request.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from chats.files import attach, reading, request_waits, uploads
from chats.files.attach import FileFacts, FileNotReady
from chats.files.image_metadata import needs_image_copy
from chats.gateway.matching.conversation import Conversation, Item
from chats.models import MessageImage, OwnedImage, StoredFile
from chats.prompt.model_choice import ChosenModel
from chats.record.images import Bytes
from contextpolicy.engine.messages.messages import FilePart, Part

# The name given to an image of a request that has no name.
IMAGE = str(StoredFile.Kind.IMAGE)


def scan_given_images(said: Conversation, *, user: User) -> None:
    """Scan the images in a request's data with the operator's malware scanner.

    Raises `FileNotRead`, and `FileNotReady` if too many requests are waiting.
    """
    if not (settings.FILE_SCAN and said.images):
        return
    with hold_reading_place(IMAGE):
        for image in said.images.values():
            row = StoredFile(owner_id=user.pk, name=IMAGE, kind=IMAGE, size=len(image.data))
            reading.scan_without_storing(row, image.data)
            attach.check_file_state(row, unread=False)


def copy_given_images(said: Conversation, *, user: User, choice: ChosenModel) -> Conversation:
    """Return a conversation in which copies replace images that are too large or have metadata.

    Opens no transaction. Raises `FileNotRead`, `FileNotReady` if too many requests are waiting,
    `FileQuotaExceeded`, and the refusals of `attach.check_file_policy` for new images.
    """
    scan_given_images(said, user=user)
    if not said.images:
        return said
    known = find_known_images(user, said.images)
    copies = load_known_copies(known, given=said.images)
    size = 0
    for sha256, image in said.images.items():
        if sha256 in copies or known.get(sha256) == 0:
            continue
        if needs_image_copy(image.data):
            copies[sha256] = copy_new_image(image, user=user, choice=choice)
        size += len(copies.get(sha256, image).data)
    if size:
        uploads.check_quota(user.pk, name=IMAGE, size=size)
    return replace_images(said, copies) if copies else said


def find_known_images(user: User, hashes: Collection[str]) -> dict[str, int]:
    """Return the images of a request that the user's messages have, by the hash in the request.

    The value is the id of the stored copy, or 0 if the image itself is stored.
    """
    wanted = list(hashes)
    rows = OwnedImage.objects.filter(
        Q(sha256__in=wanted) | Q(given_sha256__in=wanted), owner=user
    ).values_list("pk", "sha256", "given_sha256")
    found = {given: pk for pk, _, given in rows if given}
    return found | {sha256: 0 for _, sha256, _ in rows if sha256 in hashes}


def load_known_copies(known: Mapping[str, int], *, given: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """Return the stored copies of `find_known_images`, by the hash in the request.

    `given`: the images of the request. Copies that were just erased are left out.
    """
    # A copy can also be known by its own hash. Then its original is not in the request.
    ids = {sha256: pk for sha256, pk in known.items() if pk and sha256 in given}
    rows = MessageImage.objects.in_bulk(list(ids.values()))
    return {
        sha256: Bytes(rows[pk].media_type, bytes(rows[pk].data), sha256, len(given[sha256].data))
        for sha256, pk in ids.items()
        if pk in rows
    }


def copy_new_image(image: Bytes, *, user: User, choice: ChosenModel) -> Bytes:
    """Return the copy of an image. Raises the refusals of `copy_given_images`."""
    size = len(image.data)
    facts = [FileFacts(IMAGE, IMAGE, size)]
    attach.check_file_policy(facts, values=choice.values, model=choice.model)
    row = StoredFile(owner_id=user.pk, name=IMAGE, kind=IMAGE, size=size)
    with hold_reading_place(IMAGE):
        made = reading.copy_image_without_storing(row, image.data)
    attach.check_file_state(row, unread=False)
    if made is None:
        raise RuntimeError("an image without a copy has no error code")
    return made


def hash_bytes(image: Bytes) -> str:
    return hashlib.sha256(image.data).hexdigest()


def replace_images(said: Conversation, copies: Mapping[str, Bytes]) -> Conversation:
    """Return a conversation in which copies replace the images whose hashes are the keys."""
    items = [
        Item(item.role, tuple(replace_image(part, copies) for part in item.parts))
        for item in said.items
    ]
    left = {sha256: image for sha256, image in said.images.items() if sha256 not in copies}
    images = left | {hash_bytes(copy): copy for copy in copies.values()}
    return replace(said, items=tuple(items), images=images)


def replace_image(part: Part, copies: Mapping[str, Bytes]) -> Part:
    """Return the part for the copy of an image. Other parts stay unchanged."""
    image = part.image if isinstance(part, FilePart) else None
    if not isinstance(part, FilePart) or image is None or image.sha256 not in copies:
        return part
    made = copies[image.sha256]
    own = replace(image, sha256=hash_bytes(made), size=len(made.data))
    return replace(part, media_type=made.media_type, reference=own.reference)


@contextmanager
def hold_reading_place(name: str) -> Iterator[None]:
    """Occupy a waiting slot while the request itself reads a file.

    Raises `FileNotReady` if too many requests of this process are waiting.
    """
    with request_waits.hold_waiting_place(seconds=request_waits.BRIEFLY) as has_place:
        if not has_place:
            raise FileNotReady(name=name)
        yield
