"""Turns images in data URLs of imported messages into images of these messages."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from django.conf import settings

from chats.exchange.drafts import ChatDraft, Node
from chats.exchange.pictures import SCAN_LOSSES, build_image_loss
from chats.exchange.shelf import Shelf
from chats.exchange.tool_results import name_result_images
from chats.files import reading, scanning
from chats.files.image_metadata import needs_image_copy
from chats.files.inline import decode_data_url, name_image
from chats.record.images import Bytes, detect_media_type, format_data_url, parse_data_url
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import FilePart, Part

# The maximum total length of the other data URLs of a message, which are stored as text.
MOST_ADDRESSES = 1_000_000


class InlineImages(Mapping[str, Bytes]):
    """The images of a chat from its file, by hash. Their bytes are on disk.

    Copies replace images that are too large for models or have metadata. `losses`: the images that
    are too large or damaged, or that the operator's scanner did not accept. `tick` is called for
    each image, because a copy can take a second.
    """

    def __init__(self, *, tick: Callable[[], None]) -> None:
        self.tick = tick
        self.shelf = Shelf()
        self.places: dict[str, int] = {}
        self.losses: dict[str, str] = {}
        # By the hash of the image in the file.
        self.parts: dict[str, FilePart] = {}

    def __getitem__(self, sha256: str) -> Bytes:
        return parse_data_url(self.shelf.value(self.places[sha256]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def take(self, parts: Sequence[Part]) -> tuple[Sequence[Part], list[str]]:
        """Store the images in the data URLs of a message.

        Returns the parts with images instead, and the losses: data URLs of other files that are too
        long to be stored are left out.
        """
        if not any(map(has_data_url, parts)):
            return parts, []
        room, found, losses = MOST_ADDRESSES, [], []
        for part in map(self.take_part, parts):
            if isinstance(part, FilePart) and has_data_url(part):
                room -= len(part.reference)
                if room < 0:
                    losses.append("file_by_name_only")
                    part = replace(part, reference="")
            found.append(part)
        return tuple(found), losses

    def take_part(self, part: Part) -> Part:
        """Return a part, or the image part for an image in a data URL."""
        if not isinstance(part, FilePart) or not has_data_url(part):
            return part
        try:
            data = decode_data_url(part.reference)
        except ValueError:
            return part
        media_type = detect_media_type(data)
        if not media_type:
            return part
        return name_image(self.add_image(Bytes(media_type, data)), name=part.name)

    def add_image(self, image: Bytes) -> FilePart:
        """Store an image, or its copy if it needs one. Returns its part, also if it is lost."""
        given = hashlib.sha256(image.data).hexdigest()
        if given not in self.parts:
            self.tick()
            self.parts[given] = self.store(image, given=given)
        return self.parts[given]

    def store(self, image: Bytes, *, given: str) -> FilePart:
        """Store the bytes of an image whose hash is `given`, or the loss, and return the part."""
        sha256 = given
        if len(image.data) > settings.FILE_BYTES:
            self.losses[given] = build_image_loss(given)
        elif code := scanning.scan_bytes(image.data):
            self.losses[given] = f"{SCAN_LOSSES[code]}:{given[:12]}"
        elif is_copied_by_imports(image.data):
            copy, _ = reading.make_image_copy(image.data)
            if copy is None:
                self.losses[given] = build_image_loss(given)
            else:
                image, sha256 = copy, hashlib.sha256(copy.data).hexdigest()
        if given not in self.losses:
            self.places[sha256] = self.shelf.put(format_data_url(image.media_type, image.data))
        own = Image(settings.GATEWAY_IMAGE_TOKENS, sha256=sha256, size=len(image.data))
        return FilePart(image.media_type, "", own.reference)


def is_copied_by_imports(data: bytes) -> bool:
    """Return True if an import stores the copy of an image."""
    return len(data) > settings.GATEWAY_IMAGE_BYTES or needs_image_copy(data)


def has_data_url(part: Part) -> bool:
    """Return True if a part is a file with a data URL."""
    return isinstance(part, FilePart) and part.reference.startswith("data:")


def take_inline_images(draft: ChatDraft, *, tick: Callable[[], None]) -> ChatDraft:
    """Return another product's chat with image parts in place of images in data URLs.

    `tick` is called for each image.
    """
    images = InlineImages(tick=tick)
    losses: list[str] = []
    nodes: list[Node] = []
    for node in draft.nodes:
        parts, left_out = images.take(node.parts)
        if node.role == "assistant" and parts is not node.parts:
            parts = name_result_images(parts)
        nodes.append(node if parts is node.parts else replace(node, parts=parts))
        losses += left_out
    if not images and not images.losses and not losses:
        return draft
    losses += images.losses.values()
    return replace(draft, nodes=tuple(nodes), images=images, losses=(*draft.losses, *losses))
