"""Reads the chats of a JSON document, one by one where the format allows it."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import assistants, bounds, deep_trees, foreign, jsonstream, reading
from chats.exchange.draft_builder import MOST_LOSSES
from chats.exchange.drafts import ChatDraft, ImportRefused, NotTaken
from chats.exchange.import_sources import (
    BUNDLE,
    PARSED,
    PARSER_FAULTS,
    THE_FILE,
    UI,
    WRAPPED,
    ArchivePart,
    Draft,
    Open,
    Tick,
    Work,
    build_fault,
    build_parsed_part,
    sanitise_drafts,
)
from chats.ground.sentences import Sentence

# Formats with one chat; an error of the chat is then an error of the file.
OF_ONE_CHAT = (UI, BUNDLE)


MOST_CHATS = 20_000
# Names that only our export of a chat as JSON has next to its messages (`documents`).
OURS = frozenset({"id", "system_text", "summary"})


def build_chat_limit_error() -> NotTaken:
    problem = gettext_noop(
        "The file has more than {limit:,} chats. Only the first {limit:,} were imported."
    )
    return NotTaken("", "import_too_many", Sentence(problem, limit=MOST_CHATS))


def parse_session_chats(form: str, values: Iterable[Any], *, tick: Tick) -> list[Draft]:
    """Return the chats of a session. Values other than objects count as lost messages.

    `tick` is called for each image. Raises `ImportRefused`.
    """
    strays = 0

    def objects() -> Iterator[Mapping[str, Any]]:
        nonlocal strays
        for value in map(jsonstream.parse_lazy_value, values):
            if isinstance(value, dict):
                yield value
            else:
                strays += 1

    first, *rest = sanitise_drafts(foreign.parse_session(form, objects()), tick=tick)
    if strays and isinstance(first, ChatDraft):
        losses = (*first.losses, *["message_dropped"] * min(strays, MOST_LOSSES))
        counted, lost = first.counted + strays, first.lost + strays
        first = replace(first, losses=losses, counted=counted, lost=lost)
    return [first, *rest]


def read_document_part(again: Open, *, size: int, name: str, work: Work) -> ArchivePart:
    """Return the chats of a JSON document. Raises `ImportRefused`.

    `name`: the name of the archive entry, for error messages.
    """
    place = name or THE_FILE
    key = name or "the file"
    if work.outline.get(key, [PARSED])[0] != PARSED:
        start, total, product = work.outline[key]
        return build_list_part(product, again, start, total=total, place=place, work=work)
    found_list = locate_json_list(again, place=place, work=work)
    if found_list is None:
        return read_object_part(again, size=size, place=place, work=work)
    start, total = found_list
    value, product = inspect_list_head(again, start, place=place, work=work)
    form = foreign.detect_list_format(value)
    if form == "gemini":
        return read_gemini_part(again, start, place=place, work=work)
    if form:
        return read_messages_part(form, again, start, size=size, place=place, work=work)
    if not product:
        what = Sentence(
            gettext_noop("a list of {names}"), names=jsonstream.describe_object_names(value)
        )
        raise foreign.build_unknown_format_error(what)
    work.outline[key] = [start, total, product]
    return build_list_part(product, again, start, total=total, place=place, work=work)


def build_list_part(
    product: str, again: Open, start: int, *, total: int, place: str | Promise, work: Work
) -> ArchivePart:
    def chats(behind: int, offset: int) -> Iterator[tuple[Draft, int]]:
        found = read_list_values(
            again, offset or start, place=place, work=work, is_first=not offset
        )
        skipped = 0 if offset else behind
        for number, (data, end) in enumerate(islice(found, skipped, None), start=behind + 1):
            draft = parse_product_chat(product, data, number=number, place=place, tick=work.tick)
            yield draft, end

    return ArchivePart(product, total, chats)


def inspect_list_head(
    again: Open, start: int, *, place: str | Promise, work: Work
) -> tuple[Any, str]:
    """Return the first value of a list, and the application that exported the first known chat."""
    first, refused = None, None
    head = islice(read_list_values(again, start, place=place, work=work), foreign.LOOKED_AT)
    for number, (data, _) in enumerate(head):
        try:
            value = deep_trees.parse_chat_json(data, place=place) if data is not None else None
            product = foreign.detect_product(value)
        except ImportRefused as refusal:
            refused = refused or refusal
            continue
        first = first if number else value
        if product or foreign.detect_list_format(first):
            return first, product
    if refused is not None:
        raise refused
    return first, ""


def parse_product_chat(
    product: str, data: bytearray | None, *, number: int, place: str | Promise, tick: Tick
) -> Draft:
    title = f"Chat {number}"
    if data is None:
        refusal = bounds.build_chat_size_error()
        return NotTaken(title, refusal.code, refusal.full)
    try:
        chat = deep_trees.parse_chat_json(
            data, place=Sentence(bounds.CHAT_OF, name=place, number=number)
        )
        if foreign.detect_product(chat) != product:
            found: foreign.Found = foreign.build_format_mismatch(chat, place=number, form=product)
        else:
            found = foreign.READERS[product](chat)
        (draft,) = sanitise_drafts([found], tick=tick)
    except ImportRefused as refusal:
        return NotTaken(title, refusal.code, refusal.full)
    except PARSER_FAULTS as error:
        return build_fault(error, title=title, what=f"chat {number} of a {product} file")
    return draft


def locate_json_list(again: Open, *, place: str | Promise, work: Work) -> tuple[int, int] | None:
    """Return the position of the first value in a document's list, and the number of values.

    None: the document is a single chat. Concatenated objects count as a list with a negative
    position, as in `read_list_values`. Raises `ImportRefused` for an incomplete document.
    """
    reader = jsonstream.Reader(again(), place=place, tick=work.tick)
    if reader.take(b"["):
        start = reader.offset
        total = sum(1 for _ in reader.elements(most=0))
        reader.close()
        return start, total
    begin = reader.offset
    if not reader.take(b"{"):
        raise reader.error("it is neither a list nor an object")
    for name in reader.names():
        if name == WRAPPED and reader.peek() == b"[":
            reader.take(b"[")
            start = reader.offset
            return start, sum(1 for _ in reader.elements(most=0))
        reader.value(most=0)
    if reader.peek():
        total = 1
        while reader.peek():
            reader.value(most=0)
            total += 1
        return -begin - 1, total
    reader.close()
    return None


def read_list_values(
    again: Open,
    start: int,
    *,
    place: str | Promise,
    work: Work,
    is_first: bool = True,
) -> Iterator[tuple[bytearray | None, int]]:
    """Yield the values of a list, each with the position after it.

    A value that is too large is yielded as None. With a negative `start`, the document is a
    sequence of objects without a list around them.
    """
    most = settings.IMPORT_CHAT_BYTES
    if start < 0:
        reader = jsonstream.Reader(again(), place=place, tick=work.tick, offset=-start - 1)
        while reader.peek():
            data = reader.value(most=most)
            yield data, -reader.offset - 1
        return
    reader = jsonstream.Reader(again(), place=place, tick=work.tick, offset=start)
    for data in reader.elements(most=most, is_first=is_first):
        yield data, reader.offset


def read_object_part(again: Open, *, size: int, place: str | Promise, work: Work) -> ArchivePart:
    """Return the chat in a document. Raises `ImportRefused`."""
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.build_chat_size_error()
    document = deep_trees.parse_chat_json(again().read(size + 1), place=place)
    if product := foreign.detect_product(document):
        draft = next(sanitise_drafts([foreign.READERS[product](document)], tick=work.tick))
        return build_parsed_part(product, [draft])
    listed = foreign.find_body_messages(document)
    if listed is None:
        names = jsonstream.describe_object_names(document)
        raise foreign.build_unknown_format_error(
            Sentence(gettext_noop("an object with {names}"), names=names)
        )
    values = cast(Sequence[Any], listed)
    form = foreign.detect_list_format(values[0])
    if form == UI:
        is_ours = isinstance(document, Mapping) and document.keys() >= OURS
        ui = reading.read_values(
            values, tick=work.tick, chat_id=document.get("id"), is_ours=is_ours
        )
        return build_parsed_part(UI, [ui])
    drafts = parse_session_chats(form, values, tick=work.tick)
    return build_parsed_part(form, drafts)


def read_messages_part(
    form: str, again: Open, start: int, *, size: int, place: str | Promise, work: Work
) -> ArchivePart:
    """Return the chat in a list of messages. Raises `ImportRefused`."""
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.build_chat_size_error()
    values = parse_list_messages(again, start, place=place, work=work)
    if form == UI:
        draft: Draft = reading.read_values(values, tick=work.tick)
    else:
        (draft,) = parse_session_chats(form, values, tick=work.tick)
    return build_parsed_part(form, [draft])


def parse_list_messages(
    again: Open, start: int, *, place: str | Promise, work: Work
) -> Iterator[Any]:
    """Yield the messages of a list. Raises `ImportRefused`, also for too many."""
    for number, (data, _) in enumerate(
        read_list_values(again, start, place=place, work=work), start=1
    ):
        if number > bounds.LINES:
            problem = gettext_lazy("The list has more than {limit:,} messages. Split it.")
            raise ImportRefused("import_too_many", Sentence(problem, limit=bounds.LINES))
        yield bounds.parse_bounded_json(
            data or b"null", place=bounds.describe_message_position(number, name=place)
        )


def parse_gemini_chat(name: str, activities: Sequence[Mapping[str, Any]], *, tick: Tick) -> Draft:
    """Parse the activities of one conversation or day. A fault gets the title `name`."""
    try:
        return next(sanitise_drafts([assistants.parse_gemini_activities(activities)], tick=tick))
    except PARSER_FAULTS as error:
        return build_fault(error, title=name, what="a conversation of a gemini file")


def read_gemini_part(again: Open, start: int, *, place: str | Promise, work: Work) -> ArchivePart:
    """Return the conversations in a list of activities. Raises `ImportRefused`."""
    held = work.kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # closed with the work
    groups: dict[str, list[tuple[int, int]]] = {}
    too_large: list[NotTaken] = []
    at = 0
    for number, (data, _) in enumerate(
        read_list_values(again, start, place=place, work=work), start=1
    ):
        if data is None:
            refusal = bounds.build_chat_size_error()
            too_large.append(NotTaken(f"Activity {number}", refusal.code, refusal.full))
            continue
        value = bounds.parse_bounded_json(data, place=place)
        if assistants.is_gemini_activity(value):
            held.write(data)
            groups.setdefault(assistants.get_gemini_conversation(value), []).append((at, len(data)))
            at += len(data)
    named = sorted(groups)

    def chats(behind: int, _offset: int) -> Iterator[tuple[Draft, int]]:
        for name in named[behind:]:
            activities = []
            for begin, length in groups[name]:
                held.seek(begin)
                activities.append(bounds.parse_bounded_json(held.read(length), place=place))
            yield parse_gemini_chat(name, activities, tick=work.tick), 0
        yield from ((missed, 0) for missed in too_large[max(behind - len(named), 0) :])

    return ArchivePart("gemini", len(named) + len(too_large), chats)
