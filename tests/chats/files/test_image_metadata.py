"""Which images need a copy: those with metadata, and those larger than the copies for models."""

import io
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from chats.files.image_metadata import needs_image_copy

PICTURE = Image.effect_noise((120, 80), 50).convert("RGB")
WIDE = PICTURE.resize((2_049, 20))
FLAT = PICTURE.convert("P")
TEXTS = PngInfo()
TEXTS.add_text("Author", "Alice")


def build_exif() -> Image.Exif:
    """Return metadata with a position."""
    exif = Image.Exif()
    exif[0x010E] = "At home"
    exif.get_ifd(0x8825)[1] = "N"
    return exif


EXIF = build_exif()


def save(kind: str, picture: Image.Image = PICTURE, after: bytes = b"", **options: Any) -> bytes:
    """Return an image as a file, with more bytes after it."""
    held = io.BytesIO()
    picture.save(held, kind, **options)
    return held.getvalue() + after


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(save("PNG"), id="png"),
        pytest.param(save("PNG", FLAT, transparency=1), id="png-palette"),
        pytest.param(save("JPEG"), id="jpeg"),
        pytest.param(save("JPEG", after=b"\0\0"), id="jpeg-padding"),
        pytest.param(save("JPEG", progressive=True), id="jpeg-progressive"),
        pytest.param(save("JPEG", PICTURE.convert("CMYK")), id="jpeg-cmyk"),
        pytest.param(save("JPEG", icc_profile=b"colours"), id="jpeg-profile"),
        pytest.param(save("GIF", FLAT), id="gif"),
        pytest.param(save("GIF", FLAT, transparency=1), id="gif-transparent"),
        pytest.param(save("WEBP"), id="webp"),
        pytest.param(save("WEBP", lossless=True), id="webp-lossless"),
        pytest.param(save("WEBP", PICTURE.convert("RGBA")), id="webp-alpha"),
        pytest.param(save("WEBP", icc_profile=b"colours"), id="webp-profile"),
        pytest.param(b"\x89PNG\r\n\x1a\n damaged", id="png-damaged"),
        pytest.param(save("PNG")[:60], id="png-cut"),
        pytest.param(b"\xff\xd8\xff\xe0 damaged", id="jpeg-damaged"),
        pytest.param(b"\xff\xd8\xff\xff\xff\xda\0\2 ", id="jpeg-filled"),
        pytest.param(b"GIF89a gif", id="gif-damaged"),
        pytest.param(save("GIF", FLAT)[:40], id="gif-cut"),
        pytest.param(b"RIFF\x20\0\0\0WEBPVP8 \xff\0\0\0", id="webp-damaged"),
    ],
)
def test_an_image_with_only_pixels_stays(data: bytes) -> None:
    assert not needs_image_copy(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(save("PNG", exif=EXIF), id="png-exif"),
        pytest.param(save("PNG", pnginfo=TEXTS), id="png-text"),
        pytest.param(save("PNG", WIDE), id="png-wide"),
        pytest.param(save("PNG", after=b"more"), id="png-more"),
        pytest.param(save("PNG", save_all=True, append_images=[WIDE]), id="png-animated"),
        pytest.param(save("JPEG", exif=EXIF), id="jpeg-exif"),
        pytest.param(save("JPEG", comment=b"Alice"), id="jpeg-comment"),
        pytest.param(save("JPEG", WIDE), id="jpeg-wide"),
        pytest.param(save("JPEG", after=save("JPEG")), id="jpeg-two"),
        pytest.param(save("JPEG", after=b"\0\0Alice"), id="jpeg-hidden"),
        pytest.param(save("MPO", save_all=True, append_images=[PICTURE]), id="mpo"),
        pytest.param(save("GIF", FLAT, comment=b"Alice"), id="gif-comment"),
        pytest.param(save("GIF", WIDE.convert("P")), id="gif-wide"),
        pytest.param(
            save("GIF", FLAT, save_all=True, append_images=[FLAT.rotate(9)]), id="gif-animated"
        ),
        pytest.param(save("WEBP", exif=EXIF), id="webp-exif"),
        pytest.param(save("WEBP", xmp=b"<x/>"), id="webp-xmp"),
        pytest.param(save("WEBP", WIDE), id="webp-wide"),
        pytest.param(save("WEBP", WIDE, lossless=True), id="webp-lossless-wide"),
        pytest.param(save("WEBP", WIDE, icc_profile=b"c"), id="webp-profile-wide"),
        pytest.param(save("WEBP", after=b"more"), id="webp-more"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(4_000_000), id="large"),
    ],
)
def test_an_image_with_metadata_or_more_pixels_needs_a_copy(data: bytes) -> None:
    assert needs_image_copy(data)
