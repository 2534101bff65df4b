"""The form between a file and a chat: what was read, before anything is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from chats.ground.refusals import Refusal
from chats.record.images import Bytes
from contextpolicy.engine.messages import Part, Role


class ImportRefused(Refusal):
    """The file cannot be read, or is over a limit; nothing of it was stored.

    `code` is stable: `import_unknown_form`, `import_malformed`, `import_too_large`,
    `import_too_deep`, `import_too_many`, `import_bad_archive`, `import_empty`, `import_incomplete`.
    """

    status = 422
    sentence = "{problem}"
    param = "file"

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem=problem)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One message of a draft.

    `parent` is the id of the message before it; None: it is the first of a path. `metadata` is kept
    and exported again; what a column holds is taken out of it.
    """

    id: str
    role: Role
    parts: tuple[Part, ...]
    parent: str | None
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSummary:
    """A summary that stands for messages of a draft, by their ids."""

    id: str
    text: str
    first: str
    last: str
    exceptions: frozenset[str]
    metadata: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDraft:
    """A chat as it was read from a file. Parents stand before their children.

    `source` names the chat where it came from; `active` is the id of the last message of the path
    that people look at. `losses`: what of it could not be taken. `here`: the id of the chat of this
    person that it may be, where they bring back what they exported here. `counted` is the number of
    messages in the file, `lost` how many of them are not in `nodes`. `has_id`: `source` is the
    chat's own id; without one it is made of the whole content.
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
    # The bytes of images that came along, by their hash.
    images: Mapping[str, Bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A chat of a file that could not be taken, and why."""

    title: str
    code: str
    reason: str
