"""Images in a request: data URLs, whose bytes are validated, and https URLs.

An https URL is passed to the provider and never fetched here.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from chats.gateway.errors import InvalidRequest
from chats.record.images import Bytes, detect_media_type
from contextpolicy.engine.messages.images import Image, compute_image_tokens
from contextpolicy.engine.messages.messages import FilePart

# Other parameters, such as a name, may precede the encoding.
_DATA = re.compile(
    r"data:([a-z0-9.+/-]*)(?:;[^;,]{0,200}){0,8};base64,(.*)", re.DOTALL | re.IGNORECASE
)
# Signed addresses can have several thousand characters.
_ADDRESS = re.compile(r"https://[!-~]{1,8000}")
DETAILS = ("", "auto", "low", "high", "original")
ELSEWHERE = "image/*"


def parse_image(said: Any, *, detail: Any, param: str, found: dict[str, Bytes]) -> FilePart:
    """Parse one image. Its data is stored in `found`, by SHA-256. Raises `InvalidRequest`."""
    if detail is not None and detail not in DETAILS:
        problem = f"{param}: detail must be auto, low, high or original."
        raise build_image_error(problem, param=param)
    tokens = settings.GATEWAY_IMAGE_TOKENS
    if isinstance(said, str) and _ADDRESS.fullmatch(said):
        # Models that accept no images get the address instead.
        tokens = compute_image_tokens(tokens, label=said)
        return FilePart(ELSEWHERE, "", Image(tokens, detail or "", url=said).reference)
    given = _DATA.fullmatch(said) if isinstance(said, str) else None
    if given is None:
        problem = f"{param} must be a base64 data URL, or an https URL of an image."
        raise build_image_error(problem, param=param)
    data = decode_image_data(given[2], param=param)
    media_type = detect_media_type(data)
    if not media_type:
        problem = f"{param} is not a PNG, JPEG, GIF or WebP image, regardless of its declared type."
        raise build_image_error(problem, param=param)
    sha256 = hashlib.sha256(data).hexdigest()
    found[sha256] = Bytes(media_type, data)
    image = Image(tokens, detail or "", sha256=sha256, size=len(data))
    return FilePart(media_type, "", image.reference)


def decode_image_data(text: str, *, param: str) -> bytes:
    """Decode the base64 of a data URL. Raises `InvalidRequest`."""
    limit = settings.GATEWAY_IMAGE_BYTES
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise build_image_error(f"{param} has invalid base64.", param=param) from None
    if len(data) > limit:
        problem = f"{param} has {len(data):,} bytes. The maximum is {limit:,}."
        raise build_image_error(problem, param=param, code="image_too_large")
    return data


def build_image_error(problem: str, *, param: str, code: str = "invalid_image") -> InvalidRequest:
    return InvalidRequest(problem, param=param, code=code)


def parse_image_part(part: Mapping[str, Any], *, param: str, found: dict[str, Bytes]) -> FilePart:
    """Parse an image part of chat completions. Raises `InvalidRequest`."""
    value = part.get("image_url")
    fields = value if isinstance(value, dict) else {"url": value}
    at = f"{param}.image_url"
    return parse_image(fields.get("url"), detail=fields.get("detail"), param=at, found=found)
