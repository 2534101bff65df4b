"""Reads files and bundles of UI messages. Each is read completely or refused."""

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from django.conf import settings
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import bounds, jsonstream, pictures
from chats.exchange.drafts import (
    ChatDraft,
    DraftSummary,
    ImportRefused,
    Node,
    find_message_path,
)
from chats.exchange.entry_values import derive_source
from chats.exchange.foreign_metadata import hide_foreign_keys
from chats.exchange.known_chats import serialize_neutral_parts
from chats.exchange.line_reader import LONGEST_ID, LineReader
from chats.exchange.shelf import ShelvedMetadata
from chats.ground.sentences import Sentence
from contextpolicy.engine.messages.messages import TextPart
from contextpolicy.engine.messages.ui_messages import (
    UIMessage,
)
from contextpolicy.engine.text import names

ARCHIVED = re.compile(r"archive/\d{1,15}-\d{1,10}-\d{1,10}\.json")
HISTORY = "history.jsonl"
META_BYTES = 1024 * 1024
MOST_REVISIONS = 10**9


def read_lines(file: IO[bytes], *, tick: Callable[[], None]) -> ChatDraft:
    """Read a file of UI messages, one per line. Raises `ImportRefused`."""
    reader = LineReader(tick=tick)
    for number, value in bounds.read_json_lines(file):
        reader.add(value, place=bounds.describe_line(number))
    return build_chat_draft(reader, {})


def read_values(
    values: Iterable[Any],
    *,
    tick: Callable[[], None],
    chat_id: object = None,
    is_ours: bool = False,
) -> ChatDraft:
    """Read a list of UI messages in the format of the AI SDK. Raises `ImportRefused`.

    System messages are not imported and are reported. Metadata is interpreted only if the list was
    exported here (`is_ours`, or a mark in a message).
    """
    reader = LineReader(tick=tick, is_foreign=True)
    lost = 0
    for place, value in enumerate(values, start=1):
        if isinstance(value, Mapping) and value.get("role") == "system":
            reader.losses.append("system_moved")
            lost += 1
            continue
        reader.add(value, place=Sentence(bounds.MESSAGE, number=place))
    meta = {"chatId": chat_id} if isinstance(chat_id, str) else {}
    draft = build_chat_draft(reader, meta, is_ours=is_ours or reader.is_marked)
    return replace(draft, counted=draft.counted + lost, lost=lost)


def build_chat_draft(
    reader: LineReader, meta: Mapping[str, Any], *, is_ours: bool = True
) -> ChatDraft:
    """Return the draft of the messages that the reader collected."""
    nodes, active = link_messages(reader.messages, is_ours=is_ours)
    chat_id = find_chat_id(reader.messages if is_ours else (), meta)
    return ChatDraft(
        source=chat_id or derive_chat_id(nodes),
        nodes=nodes,
        active=active,
        losses=(*reader.losses, *reader.images.losses.values()),
        counted=len(nodes),
        images=reader.images,
        has_id=bool(chat_id),
    )


def link_messages(
    messages: Sequence[UIMessage], *, is_ours: bool = True
) -> tuple[tuple[Node, ...], str]:
    """Convert messages to nodes with parents. Return them and the end of the active path.

    A message without `parentId` follows the previous one, as do all messages of other products.
    Raises `ImportRefused`.
    """
    if not messages:
        raise ImportRefused(
            "import_empty", gettext_lazy("The file contains no messages. Choose another file.")
        )
    nodes: list[Node] = []
    known: set[str] = set()
    before: str | None = None
    active = messages[-1].id
    for message in messages:
        parent = message.metadata.get("parentId", before) if is_ours else before
        if parent is not None and not (isinstance(parent, str) and parent in known):
            problem = Sentence(
                gettext_noop(
                    "Message {id} refers to a parent that does not precede it. Move the parent "
                    "before it."
                ),
                id=repr(message.id),
            )
            raise ImportRefused("import_malformed", problem)
        if is_ours and message.metadata.get("active") is True:
            active = message.id
        nodes.append(
            build_message_node(
                message, parent=parent if isinstance(parent, str) else None, is_ours=is_ours
            )
        )
        known.add(message.id)
        before = message.id
    return tuple(nodes), active


def build_message_node(message: UIMessage, *, parent: str | None, is_ours: bool) -> Node:
    known = message.metadata
    metadata: Mapping[str, object] = {
        name: known[name] for name in known if name not in ("parentId", "active")
    }
    if not is_ours:
        metadata = hide_foreign_keys(known)
    if isinstance(known, ShelvedMetadata):
        metadata = known.shelf.metadata(metadata)
    return Node(
        id=message.id,
        role=message.role,
        parts=message.parts,
        parent=parent,
        metadata=metadata,
        given=message.given,
    )


def find_chat_id(messages: Iterable[UIMessage], meta: Mapping[str, Any]) -> str:
    """Return the original id of the chat; empty if the file does not contain it."""
    given = meta.get("chatId") or next(
        (m.metadata["chatId"] for m in messages if m.metadata.get("chatId")), ""
    )
    if isinstance(given, str) and names.is_allowed_name(given) and len(given) <= LONGEST_ID:
        return given
    return ""


def derive_chat_id(nodes: Sequence[Node]) -> str:
    """Return an id for a chat without an id, from its message ids or from its content."""
    return derive_source([node.id for node in nodes], lambda: hash_content(nodes))


def hash_content(nodes: Sequence[Node]) -> str:
    """Return a hash of messages, keyed because a plain hash of short texts can be guessed."""
    content = salted_hmac("chats.exchange.content", "", algorithm="sha256")
    for node in nodes:
        content.update(json.dumps([node.id, node.role, serialize_neutral_parts(node)]).encode())
    return content.hexdigest()


def is_bundle(archive: zipfile.ZipFile) -> bool:
    """Return True if an archive has the entry that only bundles have."""
    return HISTORY in archive.namelist()


def read_bundle(archive: zipfile.ZipFile, *, tick: Callable[[], None]) -> ChatDraft:
    """Read a bundle: the current context of the chat, and the summarised messages.

    `tick` is called for each image. Raises `ImportRefused`.
    """
    for name in archive.namelist():
        known = name in (HISTORY, "meta.json") or pictures.ENTRY.fullmatch(name)
        if not known and not ARCHIVED.fullmatch(name):
            problem = gettext_lazy(
                "The bundle contains the unexpected entry {name}. Remove the entry."
            )
            raise bounds.build_archive_error(Sentence(problem, name=repr(name[:80])))
    meta = read_bundle_metadata(archive)
    now_read, then_read = LineReader(tick=tick), LineReader(tick=tick)
    with archive.open(HISTORY) as file:
        for number, value in read_bounded_lines(file):
            now_read.add(value, place=bounds.describe_line(number, name=HISTORY))
    for name in sorted(n for n in archive.namelist() if ARCHIVED.fullmatch(n)):
        data = bounds.read_entry(archive, name, most=settings.IMPORT_CHAT_BYTES)
        listed = jsonstream.parse_lazy_json(data, place=name)
        if not jsonstream.is_json_list(listed):
            missing = gettext_noop(
                "The file {name} does not contain a list of messages. Export the chat again."
            )
            raise ImportRefused("import_malformed", Sentence(missing, name=name))
        for place, value in enumerate(listed, start=1):
            then_read.add(value, place=bounds.describe_message_position(place, name=name))
    draft = merge_bundle_messages(now_read, then_read, meta=meta)
    images, losses = pictures.read_bundle_images(
        archive, wanted=pictures.collect_image_hashes(draft.nodes), tick=tick
    )
    inline = [reader.images for reader in (now_read, then_read)]
    lost = (loss for each in inline for loss in each.losses.values())
    images = pictures.join_images(images, *inline)
    return replace(draft, images=images, losses=(*draft.losses, *losses, *lost))


def read_bounded_lines(file: IO[bytes]) -> Iterable[tuple[int, Any]]:
    """Yield the lines of an entry. Raises `ImportRefused`, also for a damaged entry."""
    try:
        yield from bounds.read_json_lines(file, name=HISTORY)
    except bounds.UNREADABLE as error:
        raise bounds.build_damaged_entry_error(HISTORY) from error


def read_bundle_metadata(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the metadata of a bundle. Raises `ImportRefused`."""
    if "meta.json" not in archive.namelist():
        raise bounds.build_archive_error(
            gettext_lazy("The bundle contains no meta.json. Export the chat again.")
        )
    data = bounds.read_entry(archive, "meta.json", most=META_BYTES)
    meta = bounds.parse_bounded_json(data, place="meta.json")
    if not isinstance(meta, dict) or meta.get("version") != 1:
        problem = gettext_lazy("The version in meta.json is not 1.")
        raise ImportRefused("import_malformed", problem)
    return meta


def merge_bundle_messages(
    now_read: LineReader, then_read: LineReader, *, meta: Mapping[str, Any]
) -> ChatDraft:
    """Combine the summarised and the current messages. Raises `ImportRefused`.

    A message in both was not a source of the summary.
    """
    at = next((n for n, m in enumerate(now_read.messages) if m.kind == "summary"), None)
    if not then_read.messages or at is None:
        if then_read.messages:
            problem = gettext_lazy(
                "The bundle contains archived messages, but no summary of them. Export the chat "
                "again."
            )
            raise ImportRefused("import_malformed", problem)
        nodes, active = link_messages(now_read.messages)
        return build_bundle_draft(
            nodes, active=active, meta=meta, losses=now_read.losses, messages=nodes
        )
    said = now_read.messages[at]
    head = now_read.messages[:at]
    kept = [m for m in now_read.messages[at + 1 :] if m.id not in then_read.ids]
    messages = [*head, *then_read.messages, *kept]
    if len({message.id for message in messages}) < len(messages):
        problem = gettext_lazy("The bundle contains a duplicate ID. Export the chat again.")
        raise ImportRefused("import_malformed", problem)
    nodes, active = link_messages(messages)
    losses = [*now_read.losses, *then_read.losses]
    covered = [message.id for message in then_read.messages]
    path = find_message_path(active, {node.id: node.parent for node in nodes})
    start = path.index(covered[0]) if covered[0] in path else 0
    if path[start : start + len(covered)] != covered:
        losses.append("summary_left_out:not_on_path")
        return build_bundle_draft(nodes, active=active, meta=meta, losses=losses, messages=nodes)
    text = "\n\n".join(part.text for part in said.parts if isinstance(part, TextPart))
    summary = DraftSummary(
        id=said.id,
        text=text,
        first=covered[0],
        last=covered[-1],
        exceptions=frozenset(now_read.ids & then_read.ids),
        metadata=said.metadata,
    )
    return build_bundle_draft(
        nodes, active=active, meta=meta, losses=losses, messages=nodes, summary=summary
    )


def build_bundle_draft(
    nodes: tuple[Node, ...],
    *,
    active: str,
    meta: Mapping[str, Any],
    losses: Sequence[str],
    messages: Sequence[Node],
    summary: DraftSummary | None = None,
) -> ChatDraft:
    title, own = meta.get("title"), meta.get("systemText")
    revision, moment = meta.get("revision"), meta.get("lastCompactionAt")
    shown = [UIMessage(node.id, node.role, node.parts, node.metadata) for node in messages]
    chat_id = find_chat_id(shown, meta)
    return ChatDraft(
        source=chat_id or derive_chat_id(nodes),
        nodes=nodes,
        active=active,
        title=title if isinstance(title, str) else "",
        system_text=own if isinstance(own, str) else "",
        summary=summary,
        compacted_at=moment if isinstance(moment, int) else 0,
        revision=revision if isinstance(revision, int) and 0 <= revision < MOST_REVISIONS else 0,
        has_id=bool(chat_id),
        losses=tuple(losses),
        counted=len(nodes),
    )
