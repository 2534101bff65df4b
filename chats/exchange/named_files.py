"""Files of another product's messages, which its file names and rarely contains."""

from collections.abc import Mapping

from contextpolicy.engine.messages.messages import FilePart

# The names of fields with a file's name, its media type and its address, the best first.
NAMES = ("file_name", "filename", "name", "fileName", "title")
TYPES = ("media_type", "mimeType", "mime", "mediaType", "type")
ADDRESSES = ("url", "image_url", "data")
# Objects in which other products put the fields of a file.
WRAPPERS = ("image_file", "image_url", "file", "source")
LONGEST_NAME = 200
LONGEST_TYPE = 100


def build_named_file(item: object, *, is_image: bool = False) -> FilePart:
    """Return a file by its name, with its content if that is a data URL or base64 text.

    `item`: the name, or an object with the name.
    """
    if not isinstance(item, Mapping):
        return FilePart("image/*" if is_image else "file/*", str(item)[:LONGEST_NAME], "")
    inner = [item[name] for name in WRAPPERS if isinstance(item.get(name), Mapping)]
    layers = [item, *inner]
    name = find_text(layers, NAMES)[:LONGEST_NAME]
    media_type = next((kind for layer in layers if "/" in (kind := find_text([layer], TYPES))), "")[
        :LONGEST_TYPE
    ]
    address = find_text(layers, ADDRESSES)
    if address and media_type and ":" not in address:
        # Base64 text without the head of a data URL.
        address = f"data:{media_type};base64,{address}"
    is_image = is_image or media_type.startswith("image/") or address.startswith("data:image/")
    shown = media_type or ("image/*" if is_image else "file/*")
    return FilePart(shown, name, address if address.startswith("data:") else "")


def find_text(layers: list[Mapping[str, object]], names: tuple[str, ...]) -> str:
    """Return the first text under one of the names; empty if there is none."""
    values = (layer.get(name) for layer in layers for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")
