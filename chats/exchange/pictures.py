"""Image files in bundles and account archives."""

import hashlib
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from django.conf import settings
from django.db.models import QuerySet

from chats.exchange import bounds
from chats.exchange.drafts import ChatDraft, Node
from chats.exchange.shelf import replace_node_parts
from chats.files import scanning, uploads
from chats.files.attach import IMAGE_NAME, PIXELS_PER_TOKEN
from chats.files.image_copies import LONGEST_SIDE
from chats.files.image_metadata import measure_image
from chats.models import Chat, Message, MessageImage
from chats.record.images import Bytes, detect_media_type, iter_missing_images
from contextpolicy.engine.messages.files import build_file_label
from contextpolicy.engine.messages.images import NAMED_LINE, Image, compute_image_tokens
from contextpolicy.engine.messages.messages import (
    LONGEST_FILE_NAME,
    FilePart,
    Part,
    parse_result_image,
)

FOLDER = "images/"
ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
ENTRY = re.compile(rf"{FOLDER}([0-9a-f]{{64}})\.({'|'.join(ENDINGS.values())})")

# Parts of the losses of images that the scanner did not accept, by its code.
IMAGE_REFUSED = "image_refused"
OVER_LIMIT = "image_over_limit"
SCAN_LOSSES = {
    scanning.FILE_REFUSED: IMAGE_REFUSED,
    scanning.SCANNER_UNAVAILABLE: "image_not_scanned",
}


def build_image_filename(image: MessageImage) -> str:
    return f"{FOLDER}{image.sha256}.{ENDINGS.get(image.media_type, 'png')}"


def iterate_unique_images(rows: QuerySet[Message]) -> Iterator[MessageImage]:
    """Yield the images of messages, without duplicates, one in memory at a time."""
    found = MessageImage.objects.filter(message__in=rows.order_by().values("pk"))
    before = ""
    for pk, sha256 in found.order_by("sha256", "pk").values_list("pk", "sha256"):
        image = MessageImage.objects.filter(pk=pk).first() if sha256 != before else None
        if image is not None:
            before = sha256
            yield image


def collect_image_hashes(nodes: Sequence[Node]) -> set[str]:
    parts = (part for node in nodes for part in node.parts if isinstance(part, FilePart))
    return {part.image.sha256 for part in parts if part.image and part.image.sha256}


def index_archive_images(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the images of an archive by the hashes in their names."""
    named = ((ENTRY.fullmatch(entry.filename), entry) for entry in archive.infolist())
    return {name[1]: entry for name, entry in named if name is not None}


class Images(Mapping[str, Bytes]):
    """The images of a chat in an archive, by hash. Each is read on access."""

    def __init__(self, archive: zipfile.ZipFile, names: Mapping[str, tuple[str, str]]) -> None:
        self.archive = archive
        # The names of the entries, and the types of the images.
        self.names = names

    def __getitem__(self, sha256: str) -> Bytes:
        name, media_type = self.names[sha256]
        return Bytes(media_type, read_image(self.archive, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class JoinedImages(Mapping[str, Bytes]):
    """Images from several sources, by hash."""

    def __init__(self, sources: Sequence[Mapping[str, Bytes]]) -> None:
        self.sources = sources

    def __getitem__(self, sha256: str) -> Bytes:
        for source in self.sources:
            # Not `in`, which would read the image twice.
            if (image := source.get(sha256)) is not None:
                return image
        raise KeyError(sha256)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(sha256 for source in self.sources for sha256 in source))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def join_images(*sources: Mapping[str, Bytes]) -> Mapping[str, Bytes]:
    """Return the images of several sources, by hash, without loading them."""
    found = [source for source in sources if source]
    return found[0] if len(found) == 1 else JoinedImages(found)


def read_image(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of an image. Raises `ImportRefused`."""
    return bounds.read_entry(archive, name, most=settings.GATEWAY_IMAGE_BYTES)


def read_bundle_images(
    archive: zipfile.ZipFile, *, wanted: Collection[str], tick: Callable[[], None]
) -> tuple[Mapping[str, Bytes], list[str]]:
    """Return the images of a bundle by hash, and the losses, including unused images."""
    entries = index_archive_images(archive)
    found, losses = read_wanted_images(archive, entries, wanted=wanted, tick=tick)
    return found, [
        *losses,
        *(build_image_loss(sha256) for sha256 in entries if sha256 not in wanted),
    ]


def read_wanted_images(
    archive: zipfile.ZipFile,
    entries: Mapping[str, zipfile.ZipInfo],
    *,
    wanted: Collection[str],
    tick: Callable[[], None],
) -> tuple[Mapping[str, Bytes], list[str]]:
    """Return the images in messages by hash, and the losses. `tick` is called for each image.

    Skips an image whose bytes do not match the hash in its name, are not valid in a message, or are
    refused by the operator's scanner. Only one is in memory at a time.
    """
    found: dict[str, tuple[str, str]] = {}
    losses = []
    for sha256 in sorted(entries.keys() & set(wanted)):
        tick()
        entry = entries[sha256]
        if entry.file_size > settings.GATEWAY_IMAGE_BYTES:
            losses.append(build_image_loss(sha256))
            continue
        data = read_image(archive, entry.filename)
        media_type = detect_media_type(data)
        if not media_type or hashlib.sha256(data).hexdigest() != sha256:
            losses.append(build_image_loss(sha256))
            continue
        if code := scanning.scan_bytes(data):
            losses.append(f"{SCAN_LOSSES[code]}:{sha256[:12]}")
            continue
        found[sha256] = (entry.filename, media_type)
    return Images(archive, found), losses


class ImageFacts(NamedTuple):
    """The length of an image in bytes, and its width and height in pixels, from its own bytes."""

    size: int
    width: int
    height: int


def correct_image_references(draft: ChatDraft, *, tick: Callable[[], None]) -> ChatDraft:
    """Return a chat whose parts have the sizes and token counts of its images.

    A file can claim other numbers. `tick` is called for each image. Raises `ImportRefused` for a
    damaged entry.
    """
    facts: dict[str, ImageFacts] = {}
    for sha256 in draft.images:
        tick()
        data = draft.images[sha256].data
        facts[sha256] = ImageFacts(len(data), *measure_image(data))
    nodes = tuple(correct_images_of_node(node, facts=facts) for node in draft.nodes)
    return draft if nodes == tuple(draft.nodes) else replace(draft, nodes=nodes)


def correct_images_of_node(node: Node, *, facts: Mapping[str, ImageFacts]) -> Node:
    before = tuple(node.parts)
    parts = tuple(correct_image_part(part, facts=facts) for part in before)
    return node if parts == before else replace_node_parts(node, parts)


def correct_image_part(part: Part, *, facts: Mapping[str, ImageFacts]) -> Part:
    """Return the part of an image with the numbers of its bytes. Other parts stay unchanged."""
    image = part.image if isinstance(part, FilePart) else None
    if not isinstance(part, FilePart) or image is None:
        return part
    if known := facts.get(image.sha256):
        image = replace(image, size=known.size)
        if image.width or image.height:
            image = replace(image, width=known.width, height=known.height)
    # No copy is larger, but the file of a missing image can claim it.
    image = replace(
        image, width=min(image.width, LONGEST_SIDE), height=min(image.height, LONGEST_SIDE)
    )
    image = replace(image, tokens=count_pixel_tokens(image, part=part))
    return part if image == part.image else replace(part, reference=image.reference)


def count_pixel_tokens(image: Image, *, part: FilePart) -> int:
    """Return the tokens of an image, as those of an upload or of an API client are counted."""
    label = image.url
    if image.line >= NAMED_LINE:
        name = IMAGE_NAME if parse_result_image(part)[0] else part.name
        label = build_file_label(name, limit=LONGEST_FILE_NAME)
    pixels = image.width * image.height
    tokens = pixels // PIXELS_PER_TOKEN if pixels else settings.GATEWAY_IMAGE_TOKENS
    return compute_image_tokens(tokens, label=label) if label or pixels else tokens


def leave_out_images_over_limit(
    draft: ChatDraft, *, nodes: Sequence[Node], chat: Chat | None, owner_id: int
) -> ChatDraft:
    """Return a chat; if its images exceed the owner's limit, they are left out as losses."""
    if not has_images_over_limit(draft, nodes=nodes, chat=chat, owner_id=owner_id):
        return draft
    losses = (f"{OVER_LIMIT}:{sha256[:12]}" for sha256 in sorted(draft.images))
    return replace(draft, images={}, losses=(*draft.losses, *losses))


def has_images_over_limit(
    draft: ChatDraft, *, nodes: Sequence[Node], chat: Chat | None, owner_id: int
) -> bool:
    """Return True if the images that an import is about to store exceed the limit of the owner.

    These are the images of each new message (`nodes`), and those that the `chat` of an earlier
    import lacks.
    """
    images = set(draft.images)
    if not images:
        return False
    stored = [sha256 for node in nodes for sha256 in collect_image_hashes([node]) & images]
    if chat is not None:
        lacking = iter_missing_images(chat, hashes=images.difference(stored))
        stored += [sha256 for _, sha256 in lacking]
    if not stored:
        return False
    parts = (part for node in draft.nodes for part in node.parts if isinstance(part, FilePart))
    sizes = {part.image.sha256: part.image.size for part in parts if part.image}
    try:
        size = sum(sizes.get(sha256, 0) for sha256 in stored)
        uploads.check_quota(owner_id, name=draft.title, size=size)
    except uploads.FileQuotaExceeded:
        return True
    return False


def build_image_loss(sha256: str) -> str:
    return f"image_dropped:{sha256[:12]}"
