"""Finds images that must be replaced by a copy: too large for models, or with metadata.

Only the structure of a file is read, nothing is decoded, so this is fast and safe in a request.
"""

import re
from collections.abc import Iterator

from chats.files.image_copies import LARGEST_COPY, LONGEST_SIDE

# The chunks of a PNG that only describe its pixels and colours.
PNG_CHUNKS = frozenset(
    b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB iCCP sBIT bKGD pHYs hIST cICP mDCV cLLI".split()
)
WEBP_CHUNKS = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ICCP"))
# The segments of a JPEG before its pixels: the header, colours, tables, and the size in pixels.
JFIF, ICC, ADOBE = (0xE0, b"JFIF\0"), (0xE2, b"ICC_PROFILE\0"), (0xEE, b"Adobe")
SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
START_OF_PIXELS, COMMENT = 0xDA, 0xFE
# Segments with metadata or another picture after the first pixels. Pixels contain no such bytes.
JPEG_LATER = re.compile(rb"\xff[\xe0-\xef\xfe\xd8]|\xff\xd9(?=\0*[^\0])", re.DOTALL)
# The blocks of a GIF: a picture, and an extension, of which one describes the next picture.
GIF_PICTURE, GIF_EXTENSION, GIF_CONTROL = 0x2C, 0x21, 0xF9


def needs_image_copy(data: bytes) -> bool:
    """Return True if an image exceeds the size of copies for models, or may have metadata.

    False for an image whose structure is damaged before either is found.
    """
    if len(data) > LARGEST_COPY:
        return True
    if data.startswith(b"\x89PNG"):
        return find_in_png(data)
    if data.startswith(b"\xff\xd8"):
        return find_in_jpeg(data)
    if data.startswith(b"GIF8"):
        return find_in_gif(data)
    return find_in_webp(data)


def measure_image(data: bytes) -> tuple[int, int]:
    """Return width and height in pixels that an image states; zeros if it states none."""
    if data.startswith(b"\x89PNG"):
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if data.startswith(b"GIF8"):
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data.startswith(b"RIFF"):
        return measure_webp(data[12:16], data[20:30])
    for code, start, _ in iterate_segments(data):
        if code in SIZES:
            return measure_segment(data, start)
    return 0, 0


def measure_segment(data: bytes, start: int) -> tuple[int, int]:
    """Return width and height of the segment of a JPEG that states them."""
    return int.from_bytes(data[start + 3 : start + 5]), int.from_bytes(data[start + 1 : start + 3])


def is_too_wide(width: int, height: int) -> bool:
    """Return True if a side is longer than a copy's side may be."""
    return max(width, height) > LONGEST_SIDE


def find_in_png(data: bytes) -> bool:
    """Return True for a PNG that needs a copy."""
    at = 8
    while at + 12 <= len(data):
        size, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        if at + 12 + size > len(data):
            return False
        width, height = (int.from_bytes(data[at + place : at + place + 4]) for place in (8, 12))
        if kind not in PNG_CHUNKS or (kind == b"IHDR" and is_too_wide(width, height)):
            return True
        at += 12 + size
        if kind == b"IEND":
            return at < len(data)
    return False


def iterate_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the code, the beginning and the end of each segment of a JPEG before its pixels."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        code = data[at + 1]
        if code == 0xFF:
            # A fill byte.
            at += 1
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if end > len(data):
            return
        yield code, at + 4, end
        if code == START_OF_PIXELS:
            return
        at = end


def find_in_jpeg(data: bytes) -> bool:
    """Return True for a JPEG that needs a copy."""
    for code, start, end in iterate_segments(data):
        if code in SIZES and is_too_wide(*measure_segment(data, start)):
            return True
        is_known = any(
            code == known and data.startswith(head, start) for known, head in (JFIF, ICC, ADOBE)
        )
        if (0xE0 <= code <= 0xEF or code == COMMENT) and not is_known:
            return True
        if code == START_OF_PIXELS:
            return JPEG_LATER.search(data, end) is not None
    return False


def find_in_gif(data: bytes) -> bool:
    """Return True for a GIF that needs a copy. Every animation needs one."""
    if len(data) < 13 or is_too_wide(*(int.from_bytes(data[n : n + 2], "little") for n in (6, 8))):
        return len(data) >= 13
    at, pictures = 13 + measure_palette(data[10]), 0
    while at + 10 < len(data):
        if data[at] == GIF_EXTENSION:
            if data[at + 1] != GIF_CONTROL:
                return True
            at += 2
        elif data[at] == GIF_PICTURE:
            pictures += 1
            if pictures > 1:
                return True
            at += 11 + measure_palette(data[at + 9])
        else:
            break
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    return False


def measure_palette(flags: int) -> int:
    """Return the number of bytes in a palette."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def find_in_webp(data: bytes) -> bool:
    """Return True for a WebP image that needs a copy."""
    at, whole = 12, 8 + int.from_bytes(data[4:8], "little")
    while at + 8 <= min(len(data), whole):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if at + 8 + size > len(data):
            return False
        if kind not in WEBP_CHUNKS or is_too_wide(*measure_webp(kind, data[at + 8 : at + 18])):
            return True
        at += 8 + size + size % 2
    return len(data) > whole + 1


def measure_webp(kind: bytes, head: bytes) -> tuple[int, int]:
    """Return the width and height stated in a chunk of a WebP image; zeros if it states none."""
    if kind == b"VP8X":
        return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = (int.from_bytes(head[at : at + 2], "little") & 0x3FFF for at in (6, 8))
        return width, height
    return 0, 0
