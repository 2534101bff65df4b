"""Writes archive entries whose compression ratio an import accepts."""

import shutil
import zipfile
import zlib
from typing import IO

from chats.exchange import bounds

# Half of the ratio that an import refuses, because libraries compress differently.
MOST_RATIO = bounds.RATIO // 2


def write_file_entry(archive: zipfile.ZipFile, *, name: str, file: IO[bytes]) -> None:
    """Write a file as an entry, without compression if its ratio would be too high."""
    entry = zipfile.ZipInfo(name)
    is_stored = has_high_ratio(file)
    entry.compress_type = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
    with archive.open(entry, "w", force_zip64=True) as into:
        shutil.copyfileobj(file, into, bounds.CHUNK)


def has_high_ratio(file: IO[bytes]) -> bool:
    """Return True if a file is large and compresses more than `MOST_RATIO` to one. Rewinds it."""
    size = bounds.measure_file_size(file)
    if size <= bounds.RATIO_FROM:
        return False
    packer, packed = zlib.compressobj(), 0
    # Usually the first few pieces already have enough compressed bytes.
    while packed * MOST_RATIO < size and (piece := file.read(bounds.CHUNK)):
        packed += len(packer.compress(piece))
    packed += len(packer.flush())
    file.seek(0)
    return packed * MOST_RATIO < size
