"""The images of messages: file parts that are sent to the model, and their token count.

A part's reference marks it as an image. Image bytes are stored under their hash. For an external
image only the URL is stored. This module does not handle bytes.
"""

import re
from dataclasses import dataclass

_HEAD = r"image:tokens=(\d{1,6})&detail=(|auto|low|high)"
_STORED = re.compile(rf"{_HEAD}&sha256=([0-9a-f]{{64}})&size=(\d{{1,12}})")
_LINKED = re.compile(rf"{_HEAD}&url=(https://\S+)")


@dataclass(frozen=True, slots=True)
class Image:
    """An image for token counting: the hash and size of its bytes, or its URL.

    `tokens` is a fixed number, set when the image is stored. `detail` is the client's setting.
    """

    tokens: int
    detail: str = ""
    sha256: str = ""
    size: int = 0
    url: str = ""

    @property
    def reference(self) -> str:
        """The text that a file part stores for the image."""
        place = f"url={self.url}" if self.url else f"sha256={self.sha256}&size={self.size}"
        return f"image:tokens={self.tokens}&detail={self.detail}&{place}"


def parse_image_reference(reference: str) -> Image | None:
    """Parse a file part's reference. None if it refers to anything but an image."""
    if found := _STORED.fullmatch(reference):
        return Image(int(found[1]), found[2], sha256=found[3], size=int(found[4]))
    if found := _LINKED.fullmatch(reference):
        return Image(int(found[1]), found[2], url=found[3])
    return None
