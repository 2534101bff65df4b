"""The images of messages: file parts that are sent to the model, and their token count.

A part's reference marks it as an image. Image bytes are stored under their hash. For an external
image only the URL is stored. This module does not handle bytes.
"""

import re
from dataclasses import dataclass

_HEAD = (
    r"image:tokens=(?P<tokens>\d{1,6})&detail=(?P<detail>|auto|low|high|original)"
    r"(?:&line=(?P<line>2)&pixels=(?P<width>\d{1,5})x(?P<height>\d{1,5}))?"
)
_STORED = re.compile(rf"{_HEAD}&sha256=(?P<sha256>[0-9a-f]{{64}})&size=(?P<size>\d{{1,12}})")
_LINKED = re.compile(rf"{_HEAD}&url=(?P<url>https://\S+)")
# The line of text for an image: 2 has the name of the file and the size in pixels. Images that were
# stored without it keep line 1, so that their prompts keep their prefix and can be rebuilt.
NAMED_LINE = 2
# Tokens of an image at least, without its name: those of its line.
FEWEST_IMAGE_TOKENS = 85


@dataclass(frozen=True, slots=True)
class Image:
    """An image for token counting: the hash and size of its bytes, or its URL.

    `tokens` is a fixed number, set when the image is stored. `detail` is the client's setting.
    `line` is the version of its line of text. `width` and `height` are in pixels; 0 if unknown.
    """

    tokens: int
    detail: str = ""
    sha256: str = ""
    size: int = 0
    url: str = ""
    line: int = 1
    width: int = 0
    height: int = 0

    @property
    def reference(self) -> str:
        """The text that a file part stores for the image."""
        place = f"url={self.url}" if self.url else f"sha256={self.sha256}&size={self.size}"
        line = f"&line={self.line}&pixels={self.width}x{self.height}" if self.line > 1 else ""
        return f"image:tokens={self.tokens}&detail={self.detail}{line}&{place}"


def parse_image_reference(reference: str) -> Image | None:
    """Parse a file part's reference. None if it refers to anything but an image."""
    found = _STORED.fullmatch(reference) or _LINKED.fullmatch(reference)
    if found is None:
        return None
    given = found.groupdict()
    return Image(
        int(given["tokens"]),
        given["detail"],
        sha256=given.get("sha256", ""),
        size=int(given.get("size", 0)),
        url=given.get("url", ""),
        line=int(given["line"] or 1),
        width=int(given["width"] or 0),
        height=int(given["height"] or 0),
    )


def compute_image_tokens(tokens: int, *, label: str) -> int:
    """Return the token count of an image: `tokens`, or that of its line if it is higher.

    Models that accept no images get the line instead. It contains the name, which has at most one
    token per byte.
    """
    return max(tokens, FEWEST_IMAGE_TOKENS + len(label.encode("utf-8", "surrogatepass")))
