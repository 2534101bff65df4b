"""Reads the images in tool servers' results, checks them against the policy, and stores them.

The copy of an image is the same as that of an upload: upright, limited in size, without metadata.
Until its step ends, an image is a part of the stored step (`ToolStep`), with its bytes as text.
Then it is an image of the reply's message.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.db import InterfaceError, OperationalError

from chats.files import attach, reading, uploads
from chats.ground.refusals import Refusal
from chats.models import StoredFile, ToolStep, Turn
from chats.record.images import Bytes
from chats.tool_servers.output import CallOutput, OutputImage
from chats.tool_servers.results import ONLY_IMAGES, format_image_line
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import (
    FilePart,
    name_result_image,
    parse_parts,
    parse_result_image,
    serialize_parts,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import ModelSpec

IMAGE = StoredFile.Kind.IMAGE
NAME = attach.IMAGE_NAME


@dataclass(frozen=True, slots=True)
class ResultImage:
    """An image in a tool result: its offset in the text, its reference, and its copy."""

    offset: int
    image: Image
    copy: Bytes

    def build_part(self, call_id: str) -> FilePart:
        """Return the message part for this image in the result of a call."""
        part = FilePart(self.copy.media_type, "", self.image.reference)
        return name_result_image(part, call_id=call_id, offset=self.offset)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The text of a result without its image lines, and the images."""

    text: str
    images: Sequence[ResultImage] = ()

    def move_images(self, offset: int) -> list[ResultImage]:
        """Return the images with `offset` added, for this text as part of a longer one."""
        return [replace(image, offset=image.offset + offset) for image in self.images]


def read_result_images(
    output: CallOutput,
    *,
    owner_id: int,
    values: PolicyValues,
    model: ModelSpec,
    earlier: Sequence[ResultImage],
) -> ReadResult:
    """Read the images in a result. This takes time, so the caller has no open transaction.

    A line with the reason replaces an image that cannot be used. `earlier`: the images in earlier
    results of the reply, which are not stored yet.
    """
    most = settings.FILES_PER_MESSAGE
    if values.files_per_message is not None:
        most = min(most, values.files_per_message)

    def read(image: OutputImage, kept: Sequence[ResultImage]) -> str | ResultImage:
        unstored = [*earlier, *kept]
        if len(unstored) >= most:
            return "too_many_files"
        taken = sum(len(each.copy.data) for each in unstored)
        return copy_result_image(image, owner_id, values, model, taken=taken)

    return replace_image_lines(output, read=read)


def leave_out_images(output: CallOutput, code: str) -> ReadResult:
    """Return a result in which a line with the reason replaces each image."""
    return replace_image_lines(output, read=lambda image, kept: code)


def replace_image_lines(
    output: CallOutput, *, read: Callable[[OutputImage, Sequence[ResultImage]], str | ResultImage]
) -> ReadResult:
    """Return a tool result without the lines of its images.

    `read` gets an image and the images kept so far. It returns the image to keep, or a
    reason code; a line with the reason then replaces the image.
    """
    images: list[ResultImage] = []
    text, end = "", 0
    for image in output.images:
        text += output.text[end : image.start]
        end = image.end
        found = read(image, images)
        if isinstance(found, str):
            text += format_image_line(found, kind=image.media_type, size=len(image.data))
        else:
            images.append(replace(found, offset=len(text)))
    text += output.text[end:]
    if images and not text.strip():
        text = ONLY_IMAGES
        images = [replace(image, offset=len(text)) for image in images]
    return ReadResult(text, images)


def copy_result_image(
    image: OutputImage, owner_id: int, values: PolicyValues, model: ModelSpec, *, taken: int
) -> str | ResultImage:
    """Return the copy of an image, or a reason code if it is left out.

    `taken`: the bytes of copies that are not stored yet, which count towards the user's limit.
    """
    row = StoredFile(owner_id=owner_id, name=NAME, kind=IMAGE, size=len(image.data))
    if row.size > settings.FILE_BYTES:
        return "file_too_large"
    try:
        facts = attach.FileFacts(NAME, IMAGE, row.size)
        attach.check_file_policy([facts], values=values, model=model)
        copy = reading.copy_image_without_storing(row, image.data)
        if copy is not None:
            uploads.check_quota(owner_id, name=NAME, size=taken + len(copy.data))
    except Refusal as refusal:
        return refusal.code
    except (OperationalError, InterfaceError, OSError):
        # The database or the disk failed. The call was made, so its text is not lost with it.
        return "unreadable"
    if copy is None:
        return row.code
    return ResultImage(0, attach.build_image(row, size=len(copy.data)), copy)


def store_step_images(turn: Turn, *, call_id: str, images: Sequence[ResultImage]) -> None:
    """Store the images in a result with the step of a turn, until the step ends.

    Runs in the caller's transaction, which holds the lock of the turn. Does nothing if an erasure
    deleted the step.
    """
    row = ToolStep.objects.filter(turn=turn, step=turn.step).first() if images else None
    if row is None:
        return
    parts = [
        replace(image.build_part(call_id), text=base64.b64encode(image.copy.data).decode())
        for image in images
    ]
    row.parts = [*row.parts, *serialize_parts(parts)]
    row.save(update_fields=["parts"])


def load_step_images(turn: Turn, *, call_id: str) -> list[ResultImage]:
    """Return the images in a result, as stored with the step of a turn."""
    row = ToolStep.objects.filter(turn=turn, step=turn.step).first()
    found = []
    for part in parse_parts(row.parts) if row else ():
        if not isinstance(part, FilePart) or part.image is None:
            continue
        own, offset = parse_result_image(part)
        if own == call_id:
            copy = Bytes(part.media_type, base64.b64decode(part.text))
            found.append(ResultImage(offset, part.image, copy))
    return found
