"""Pictures and documents in another product's archive, to which messages refer by file id."""

import hashlib
import mimetypes
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import replace

from django.conf import settings

from chats.exchange import bounds, pictures
from chats.exchange.drafts import ChatDraft, Node, OriginalFile
from chats.exchange.import_sources import FileRead, Tick
from chats.exchange.inline_images import InlineImages, is_copied_by_imports
from chats.exchange.originals import NO_FILE
from chats.exchange.tool_results import name_result_images
from chats.files import scanning
from chats.files.extractors import MOST_CHARACTERS
from chats.files.inline import name_image
from chats.record.images import Bytes, detect_media_type
from contextpolicy.engine.messages.files import CLEANED_LINE, Document
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import FilePart, Part

# The reference of ChatGPT to a file, and the name of such a file: its id, and its own name.
POINTER = re.compile(r"(?:file-service|sediment)://(file[-_][A-Za-z0-9]+)")
ENTRY = re.compile(r"(file[-_][A-Za-z0-9]+)(?:-(.+)|\..+)")
BY_NAME = "file_by_name_only"
# The media type of documents until they are read.
DOCUMENT = "file/*"
# Without the lists of the operating system.
TYPES = mimetypes.MimeTypes()


class ArchiveAssets:
    """The files in an archive, by id. Each is read when a chat refers to it."""

    def __init__(self, archive: zipfile.ZipFile, *, tick: Tick) -> None:
        self.archive = archive
        # Called for each file, because a copy or a scan can take a second.
        self.tick = tick
        self.entries: dict[str, tuple[zipfile.ZipInfo, str]] = {}
        for entry in archive.infolist():
            found = ENTRY.fullmatch(entry.filename.rpartition("/")[2])
            if found is not None:
                self.entries.setdefault(found[1], (entry, found[2] or ""))

    def attach_all(self, reads: Iterable[FileRead]) -> Iterator[FileRead]:
        """Yield chats with their files. Raises `ImportRefused` for a damaged entry."""
        for read in reads:
            draft = read.draft
            if isinstance(draft, ChatDraft) and self.entries and BY_NAME in draft.losses:
                draft = ChatAssets(self).attach(draft)
            yield replace(read, draft=draft)


class ChatAssets:
    """The files of one chat, and its losses."""

    def __init__(self, assets: ArchiveAssets) -> None:
        self.assets = assets
        self.names: dict[str, tuple[str, str]] = {}
        self.copies = InlineImages(tick=assets.tick)
        self.documents: dict[str, OriginalFile] = {}
        self.losses: list[str] = []
        self.attached = 0

    def attach(self, draft: ChatDraft) -> ChatDraft:
        """Return a chat with pictures and documents in place of the references to them."""
        nodes = tuple(map(self.attach_to_node, draft.nodes))
        images = pictures.Images(self.assets.archive, self.names)
        losses = [*draft.losses]
        for _ in range(min(self.attached, losses.count(BY_NAME))):
            losses.remove(BY_NAME)
        losses += self.losses
        images_of_draft = pictures.join_images(images, self.copies, draft.images)
        return replace(
            draft,
            nodes=nodes,
            images=images_of_draft,
            originals={**draft.originals, **self.documents},
            losses=tuple(losses),
        )

    def attach_to_node(self, node: Node) -> Node:
        parts = tuple(node.parts)
        found = tuple(map(self.attach_part, parts))
        found = tuple(name_result_images(found)) if node.role == "assistant" else found
        return node if found == parts else replace(node, parts=found)

    def attach_part(self, part: Part) -> Part:
        """Return the file that a part refers to; the part itself if there is none."""
        pointer = POINTER.match(part.reference) if isinstance(part, FilePart) else None
        entry, name = self.assets.entries.get(pointer[1], (None, "")) if pointer else (None, "")
        if entry is None or not isinstance(part, FilePart):
            return part
        self.assets.tick()
        name = part.name or name
        if part.media_type == DOCUMENT and not guess_media_type(name).startswith("image/"):
            return self.attach_document(entry, name=name)
        if entry.file_size > settings.FILE_BYTES:
            self.losses.append(f"image_dropped:{entry.filename[:40]}")
            return part
        data = bounds.read_entry(self.assets.archive, entry.filename, most=settings.FILE_BYTES)
        media_type = detect_media_type(data)
        if not media_type:
            return part
        sha256 = hashlib.sha256(data).hexdigest()
        if is_copied_by_imports(data):
            return self.attach_copy(Bytes(media_type, data), part=part, name=name)
        if code := scanning.scan_bytes(data):
            self.losses.append(f"{pictures.SCAN_LOSSES[code]}:{sha256[:12]}")
            return part
        self.names[sha256] = (entry.filename, media_type)
        self.attached += 1
        image = Image(settings.GATEWAY_IMAGE_TOKENS, sha256=sha256, size=len(data))
        return name_image(FilePart(media_type, "", image.reference), name=name)

    def attach_document(self, entry: zipfile.ZipInfo, *, name: str) -> Part:
        """Return a document whose file is stored with the chat, and read in the background."""
        if entry.file_size > settings.FILE_BYTES:
            self.losses.append(f"file_dropped:{entry.filename[:40]}")
            return FilePart(DOCUMENT, name, "")
        sha256 = hash_entry(self.assets.archive, entry)
        self.documents[sha256] = OriginalFile(self.assets.archive, entry, name, "")
        self.attached += 1
        # The length of the text is not known yet. This is the most that it can have.
        characters = max(min(entry.file_size, MOST_CHARACTERS), 1)
        document = Document(NO_FILE, sha256, entry.file_size, 0, characters, CLEANED_LINE)
        return FilePart(guess_media_type(name), name, document.reference)

    def attach_copy(self, image: Bytes, *, part: Part, name: str) -> Part:
        """Return the copy of an image; the part that refers to it if there is no copy."""
        made = self.copies.add_image(image)
        given = hashlib.sha256(image.data).hexdigest()
        if loss := self.copies.losses.get(given):
            self.losses.append(loss)
            return part
        self.attached += 1
        return name_image(made, name=name)


def guess_media_type(name: str) -> str:
    """Return the media type of a file name. The result is the same on every system."""
    return TYPES.guess_type(name)[0] or "application/octet-stream"


def hash_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    """Return the SHA-256 of an archive entry. Raises `ImportRefused` if it is damaged."""
    digest = hashlib.sha256()
    try:
        with archive.open(entry) as file:
            while piece := file.read(bounds.CHUNK):
                digest.update(piece)
    except bounds.UNREADABLE as error:
        raise bounds.build_damaged_entry_error(entry.filename) from error
    return digest.hexdigest()
