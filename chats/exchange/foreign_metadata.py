"""Metadata of other products whose names have a meaning in exports of this product.

A front end's `pinned` or `parentId` must not pin or move a message here. Such values are stored and
exported under `FOREIGN`, and clients get them back under their own names.
"""

from collections.abc import Mapping

from chats.exchange.drafts import LOADED_SKILLS

FOREIGN = "foreignMetadata"
# Names that an import interprets. `kind` is another, if its value is not `normal`.
INTERPRETED = (
    "parentId",
    "active",
    "erased",
    "pinned",
    "excluded",
    "speaker",
    "addressees",
    "chatId",
    LOADED_SKILLS,
    FOREIGN,
)
# The value of `channel` in messages that were written here.
CHANNEL = "palimpsest"


def hide_foreign_keys(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return another product's metadata in the form in which it is stored and exported."""
    hidden = {name: metadata[name] for name in INTERPRETED if name in metadata}
    if metadata.get("kind", "normal") != "normal":
        hidden["kind"] = metadata["kind"]
    shown = {name: metadata[name] for name in metadata if name not in hidden}
    return {**shown, FOREIGN: hidden} if hidden else shown


def restore_client_metadata(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return stored metadata as the other product gave it."""
    hidden = metadata.get(FOREIGN)
    if not isinstance(hidden, Mapping):
        return dict(metadata)
    return {**{name: metadata[name] for name in metadata if name != FOREIGN}, **hidden}
