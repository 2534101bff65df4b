"""The parts of an imported file. Chats are read when a worker needs them."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, Any

from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange.draft_builder import MOST_LOSSES, Unreadable
from chats.exchange.draft_messages import clean_draft
from chats.exchange.drafts import ChatDraft, NotTaken
from chats.exchange.inline_images import take_inline_images
from chats.ground.texts import sanitise_text

logger = logging.getLogger(__name__)
UI = "ui"
# Maximum characters of a loss.
LONGEST_LOSS = 200


BUNDLE = "bundle"


# Name of the chat list in an object that is not a chat.
WRAPPED = "conversations"


# Marks entries in an outline that are parsed completely when their chats are needed.
PARSED = "parsed"


Draft = ChatDraft | NotTaken


Tick = Callable[[], None]


Open = Callable[[], IO[bytes]]


# The place of an error in a file outside an archive.
THE_FILE = gettext_lazy("the file")


FAULT = gettext_noop(
    "A server error prevented the import of this chat. Ask an operator to check the server log."
)
# Errors of the parsers for values of an unexpected type. One chat holds up no other.
PARSER_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def build_fault(error: Exception, *, title: str, what: str) -> NotTaken:
    """Log an unexpected error in a chat, and return the chat's result. `what` names the chat."""
    log_import_error(error, what=what)
    return NotTaken(title, "import_fault", FAULT)


def log_import_error(error: Exception, *, what: str) -> None:
    """Log the type of an error without its text, because database errors contain row values."""
    logger.error("%s was not taken: %s", what, type(error).__name__)


def limit_losses(losses: Iterable[str]) -> list[str]:
    """Return the losses of a chat for its report: up to `MOST_LOSSES` of each kind.

    The others are counted.
    """
    kept: list[str] = []
    kinds: Counter[str] = Counter()
    for loss in losses:
        kind = loss.partition(":")[0]
        kinds[kind] += 1
        if kinds[kind] <= MOST_LOSSES:
            kept.append(sanitise_text(loss[:LONGEST_LOSS]))
    more = sum(max(count - MOST_LOSSES, 0) for count in kinds.values())
    return [*kept, f"further_losses:{more}"] if more else kept


@dataclass(frozen=True, slots=True)
class Work:
    """A callback for each piece that is read, and the files to close at the end."""

    tick: Tick
    kept: ExitStack
    # Start, length and product of each chat list that was scanned before. For other entries of an
    # archive: `PARSED`, the number of chats and the format.
    outline: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileRead:
    """A chat in a file, and the position after it: the document, and the offset in it.

    `form` is the format of the document, by which an imported chat is later recognised.
    """

    draft: Draft
    form: str
    mark: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a file: its format, the number of its chats, and an iterator.

    `behind(place, mark)` yields the chats after `place`; with a mark, earlier ones are not read
    again. The documents in an archive may differ in format from the first one.
    """

    form: str
    total: int
    behind: Callable[[int, tuple[int, int]], Iterable[FileRead]]


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """A document with chats: a file, or an entry of an archive.

    `chats(place, offset)` yields the chats after a position, each with the offset after it.
    `is_in_memory`: the part keeps its chats in memory.
    """

    form: str
    total: int
    chats: Callable[[int, int], Iterator[tuple[Draft, int]]]
    is_in_memory: bool = False


def build_parsed_part(form: str, drafts: Sequence[Draft]) -> ArchivePart:
    """Return a part that keeps its chats in memory."""
    part = build_sequential_part(form, len(drafts), lambda: iter(drafts))
    return replace(part, is_in_memory=True)


def build_sequential_part(
    form: str, total: int, drafts: Callable[[], Iterator[Draft]]
) -> ArchivePart:
    """Return a part whose chats are always read from its beginning."""
    return ArchivePart(
        form, total, lambda place, _: ((one, 0) for one in islice(drafts(), place, None))
    )


def sanitise_drafts(drafts: Iterable[ChatDraft | Unreadable], *, tick: Tick) -> Iterator[Draft]:
    """Yield another product's drafts, changed so that they can be stored.

    `tick` is called for each image.
    """
    for draft in drafts:
        if isinstance(draft, Unreadable):
            yield NotTaken(draft.title, "import_malformed", draft.reason)
        else:
            yield take_inline_images(clean_draft(draft), tick=tick)
