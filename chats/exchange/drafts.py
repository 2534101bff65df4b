"""The intermediate representation of an imported chat, before it is stored."""

import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.utils.functional import Promise

from chats.ground.refusals import Refusal
from chats.record.images import Bytes
from contextpolicy.engine.messages.messages import Part, Role


class ImportRefused(Refusal):
    """The file cannot be read or exceeds a limit. Nothing was stored.

    `code` is stable: `import_unknown_form`, `import_malformed`, `import_too_large`,
    `import_too_deep`, `import_too_many`, `import_bad_archive`, `import_empty`,
    `import_incomplete`, `import_temporary`, `import_deleted`.
    """

    status = 422
    sentence = "{problem}"
    param = "file"

    def __init__(self, code: str, problem: str | Promise) -> None:
        super().__init__(problem=problem)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One message of a draft.

    `parent` is the id of the previous message, None for the first of a path. `metadata` is stored
    and exported again, except values that have a column. `given`: the parts of the file as JSON
    data, if `parts` cannot express all of them; they are kept and exported again.
    """

    id: str
    role: Role
    parts: Sequence[Part]
    parent: str | None
    metadata: Mapping[str, object] = field(default_factory=dict)
    given: Sequence[Any] = ()


# The key in the metadata of a summary with the skills that it moves to the system text.
LOADED_SKILLS = "loadedSkills"
# The maximum number of entries that an import reads. A chat has at most 50 skills of a group or
# team.
MOST_LOADED_SKILLS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSummary:
    """A summary of messages in a draft, which it refers to by id."""

    id: str
    text: str
    first: str
    last: str
    exceptions: frozenset[str]
    metadata: Mapping[str, object]

    @property
    def loaded_skills(self) -> list[str]:
        """Skills (slugs) and file parts (keys) that move to the system text, oldest first."""
        named = self.metadata.get(LOADED_SKILLS)
        found = named[:MOST_LOADED_SKILLS] if isinstance(named, list) else []
        return [key for key in found if isinstance(key, str)]


class OriginalFile(NamedTuple):
    """A file in an archive: its entry, its name, and the hash of its copy if it is an image."""

    archive: zipfile.ZipFile
    entry: zipfile.ZipInfo
    name: str
    copy_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDraft:
    """A chat as read from a file. Parents precede their children.

    `source` identifies the chat at its origin. `active` is the id of the last message of the active
    path. `losses`: content that could not be imported. `here`: the id of this user's chat that
    the file may have been exported from. `counted` is the number of messages in the file, `lost`
    the number of those not in `nodes`. `has_id`: `source` is the chat's id; otherwise it is derived
    from the content.
    """

    source: str
    nodes: tuple[Node, ...]
    active: str
    title: str = ""
    system_text: str = ""
    summary: DraftSummary | None = None
    compacted_at: int = 0
    revision: int = 0
    losses: tuple[str, ...] = ()
    counted: int = 0
    lost: int = 0
    has_id: bool = True
    here: str = ""
    folder: str = ""
    pinned: bool = False
    archived: bool = False
    # The bytes of the included images, by hash.
    images: Mapping[str, Bytes] = field(default_factory=dict)
    # The included files by hash, and the ids of those that are stored.
    originals: Mapping[str, OriginalFile] = field(default_factory=dict)
    file_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A chat in a file that could not be imported, and the reason."""

    title: str
    code: str
    reason: str | Promise


def find_message_path(end: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return the ids from the first message to an end."""
    path: list[str] = []
    at: str | None = end
    while at is not None and at in parents:
        path.append(at)
        at = parents[at]
    return path[::-1]
