"""Makes smaller copies of images, without metadata."""

import io
from pathlib import Path
from typing import Any

from chats.files.unreadable_files import UnreadableFile

# Images: pixels before decoding, and the longest side of the copy for models and pages.
MOST_PIXELS = 50_000_000
LONGEST_SIDE = 2_048
# Large images with a palette are converted in strips. Each gives this number of rows of the result.
STRIP_ROWS = 64
# The library decodes WebP images of more pixels only with more memory.
MOST_WEBP_PIXELS = 20_000_000
# The bytes of an image's copy. Providers accept 5 MB, some of them in base64, a third more.
LARGEST_COPY = 3_500_000
JPEG_QUALITIES = (90, 75, 50)


def shrink_image(path: Path, copy: Path) -> dict[str, Any]:
    """Write a copy of an image for models and pages: upright, limited in size, without metadata.

    Returns its media type, width and height. Raises `UnreadableFile`.
    """
    from PIL import Image, ImageOps, PngImagePlugin  # noqa: PLC0415  # only for this kind

    # The size is checked here against a separate limit, before anything is decoded.
    Image.MAX_IMAGE_PIXELS = None
    # Some applications store long texts in images. The copy has none of them.
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY
    with Image.open(path, formats=("PNG", "JPEG", "GIF", "WEBP")) as file:
        if file.width * file.height > MOST_PIXELS:
            raise UnreadableFile("image_too_many_pixels")
        file.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))
        # MPO: a JPEG with further pictures, as some phones make them.
        is_photo = file.format in ("JPEG", "MPO")
        image: Image.Image = file
        load_pixels(file)
        if image.mode not in ("RGB", "RGBA", "L", "LA", "CMYK"):
            image = convert_image(image)
        # Before other copies, so that large images fit into the memory.
        image.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=2.0)
        made = ImageOps.exif_transpose(image).convert("RGB" if is_photo else "RGBA")
        made.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=2.0)
    data, kind = encode_image(made, is_photo=is_photo)
    copy.write_bytes(data)
    return {"media_type": kind, "width": made.width, "height": made.height}


def load_pixels(file: Any) -> None:
    """Decode an image. Raises `UnreadableFile` if that needs too much memory."""
    try:
        file.load()
    except OSError:
        # The decoder of WebP reports missing memory like damage.
        if file.format == "WEBP" and file.width * file.height > MOST_WEBP_PIXELS:
            raise UnreadableFile("file_needs_memory") from None
        raise


def convert_image(image: Any) -> Any:
    """Convert an image with a palette, one bit or 16 bits to a mode that can be resized.

    A large image is converted and reduced in strips, because converting it as a whole would need
    several times its memory.
    """
    from PIL import Image  # noqa: PLC0415  # only for this kind

    is_deep = image.mode.startswith("I")
    mode = "L" if is_deep else "RGBA"
    factor = max(max(image.size) // LONGEST_SIDE, 1)
    made = Image.new(mode, (-(-image.width // factor), -(-image.height // factor)))
    rows = STRIP_ROWS * factor
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        if is_deep:
            # The library cuts values above 255, so most of a 16-bit image would be white.
            strip = strip.point(lambda value: value / 256)
        made.paste(strip.convert(mode).reduce(factor), (0, top // factor))
    made.getexif().update(image.getexif())
    return made


def encode_image(image: Any, *, is_photo: bool) -> tuple[bytes, str]:
    """Return the bytes and the media type of an image's copy.

    Photos become JPEGs. Other images become PNGs, unless providers would refuse a PNG of that size.
    Then they become JPEGs, with white instead of transparent pixels.
    """
    from PIL import Image  # noqa: PLC0415  # only for this kind

    held = io.BytesIO()
    if not is_photo:
        image.save(held, "PNG")
        if held.tell() <= LARGEST_COPY:
            return held.getvalue(), "image/png"
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image).convert("RGB")
    for quality in JPEG_QUALITIES:
        held = io.BytesIO()
        image.save(held, "JPEG", quality=quality)
        if held.tell() <= LARGEST_COPY:
            break
    return held.getvalue(), "image/jpeg"
