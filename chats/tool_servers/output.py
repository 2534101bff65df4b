"""Reads the content of a tool result as text, with the images in it."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from chats.ground.texts import sanitise_text
from chats.record.images import detect_media_type


@dataclass(frozen=True, slots=True)
class OutputImage:
    """An image of a result. Its line in the text is `text[start:end]`."""

    data: bytes
    media_type: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CallOutput:
    """The result of a call: its text and images, and whether the tool reports an error.

    `sent_bytes`: the size of the whole text if it was cut to `TOOL_RESULT_BYTES`; otherwise 0.
    """

    text: str
    is_error: bool = False
    sent_bytes: int = 0
    images: Sequence[OutputImage] = ()


def cut_output(output: CallOutput) -> CallOutput:
    """Return a result whose text is cut to `TOOL_RESULT_BYTES`. Images after the cut are kept."""
    data = output.text.encode()
    if len(data) <= settings.TOOL_RESULT_BYTES:
        return output
    kept = data[: settings.TOOL_RESULT_BYTES].decode(errors="ignore")
    images = [
        replace(image, start=min(image.start, len(kept)), end=min(image.end, len(kept)))
        for image in output.images
    ]
    return CallOutput(kept, output.is_error, len(data), tuple(images))


def read_result_content(result: Any) -> CallOutput:
    """Return the content of a result as text, with the images in it.

    Content other than text becomes a line that describes it. Structured content is added if no
    text repeats it, as the protocol recommends.
    """
    text, images = "", []
    for number, block in enumerate(result.content):
        line = sanitise_text(format_block(block))
        text += f"\n{line}" if number else line
        if (data := decode_image(block)) is not None:
            media_type = detect_media_type(data)
            images.append(OutputImage(data, media_type, len(text) - len(line), len(text)))
    has_text = any(block.type == "text" and block.text.strip() for block in result.content)
    if not has_text and result.structured_content is not None:
        structured = sanitise_text(json.dumps(result.structured_content, ensure_ascii=False))
        text += f"\n{structured}" if result.content else structured
    return CallOutput(text, bool(result.is_error), images=tuple(images))


def decode_image(block: Any) -> bytes | None:
    """Return the bytes of an image block or of a resource with an image.

    None for other blocks, for invalid base64, and for kinds of images that messages cannot have.
    """
    resource = getattr(block, "resource", None)
    given = block.data if block.type == "image" else getattr(resource, "blob", None)
    if not isinstance(given, str):
        return None
    try:
        data = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if detect_media_type(data) else None


def format_block(block: Any) -> str:
    """Return the text of one block of content, or a line with its kind, name, type and size."""
    if block.type == "text":
        return str(block.text)
    resource = getattr(block, "resource", None)
    if resource is not None and isinstance(getattr(resource, "text", None), str):
        return f"[resource {resource.uri}]\n{resource.text}"
    if block.type == "resource_link":
        words = (block.name, str(block.uri), block.mime_type, block.description)
        return f"[link to {', '.join(word for word in dict.fromkeys(words) if word)}]"
    data = getattr(block, "data", "") or getattr(resource, "blob", "") or ""
    kind = getattr(block, "mime_type", "") or getattr(resource, "mime_type", "") or "unknown type"
    name = f" {resource.uri}" if resource is not None else ""
    return f"[{block.type}{name}, {kind}, {count_decoded_bytes(data):,} bytes, not shown]"


def count_decoded_bytes(data: str) -> int:
    """Return the number of bytes that a base64 string encodes."""
    return len(data) * 3 // 4 - data[-2:].count("=")
