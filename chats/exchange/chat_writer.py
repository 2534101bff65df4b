"""Creates a chat from a draft: completely or not at all, once per original chat.

A newer export of a chat adds its new messages. Messages get new ids; the original ids are stored
and exported again. No model is called. Prompts leave out messages that do not fit, and the first
reply starts the summary that the policy requires.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.utils.translation import gettext_lazy

from chats.actions import branching, lifecycle, organising, system_texts
from chats.exchange import originals, pictures
from chats.exchange.draft_messages import build_draft_message
from chats.exchange.drafts import ChatDraft, ImportRefused, Node
from chats.exchange.imported_summaries import restore_imported_summary
from chats.exchange.known_chats import (
    digest_first_message,
    find_imported_chat,
    find_known_messages,
    list_missing_messages,
)
from chats.exchange.message_positions import PAGE, Places, load_message_positions
from chats.exchange.message_times import MessageTime, resolve_message_times
from chats.ground.background_lock import alone
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, ImportedChat, Message
from chats.record import images as image_store
from chats.record import messages
from chats.record.locking import ChatErased, lock_chat, lock_chat_row
from chats.record.message_commitments import Sealed, build_stored_data, seal_message
from chats.turns.derived_titles import derive_title, find_first_text
from chats.turns.start import ChatFull
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import FilePart, TextPart
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.text import names

DELETED_HERE = gettext_lazy(
    "This chat is deleted in your account. Restore it, then import the file again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result for one chat of a file.

    `added`: number of new messages. `was_here`: the chat was imported before. `here`: how many of
    the file's `counted` messages the chat now has. `losses`: content that could not be imported.
    """

    chat: Chat
    added: int
    was_here: bool
    counted: int
    here: int
    losses: Sequence[str]


@dataclass(frozen=True, slots=True)
class MessageTotals:
    """The token count of an unsaved message, and the version of its counter."""

    tokens: int | None
    version: str


def store_draft(
    draft: ChatDraft,
    *,
    owner: AbstractBaseUser,
    form: str,
    counter: TokenCounter,
    now: datetime,
    between: Callable[[], None],
    book: Callable[[Imported], None],
) -> Imported:
    """Create a chat from a draft, or add the new messages to a previously imported chat.

    `between` is called between files, images, and messages while counting tokens. `book` is called
    with the result, in the same transaction. Raises `ImportRefused`, `ChatFull`, `TooManyBranches`,
    the errors of `lifecycle.create_chat`, and those of the two callbacks.
    """
    given = pictures.correct_image_references(draft, tick=between)
    while True:
        known = find_imported_chat(given, owner=owner, form=form)
        missing = given.nodes if known is None else list_missing_messages(known, given)
        ids, losses = originals.restore_originals(
            given.originals, missing, owner=owner, now=now, between=between
        )
        draft = replace(given, file_ids=ids, losses=(*given.losses, *dict.fromkeys(losses)))
        draft = pictures.leave_out_images_over_limit(
            draft, nodes=missing, chat=known, owner_id=owner.pk
        )
        counts = count_draft_messages(missing, counter=counter, now=now, between=between)
        with alone, transaction.atomic():
            if known is not None:
                with suppress(ChatErased):
                    lock_chat_row(known.pk)
            # The lock makes the second of two parallel imports of a chat find the first.
            User.objects.select_for_update(no_key=True).get(pk=owner.pk)
            found = find_imported_chat(draft, owner=owner, form=form)
            if (found and found.pk) != (known and known.pk):
                # The chat was created or erased between the two queries.
                continue
            if pictures.has_images_over_limit(draft, nodes=missing, chat=known, owner_id=owner.pk):
                # Another request or import used the room after the first look.
                continue
            if found is None:
                made = create_imported_chat(draft, counts, owner=owner, form=form, now=now)
            else:
                grown_chat = extend_imported_chat(
                    found, draft, counts, owner=owner, form=form, now=now
                )
                if grown_chat is None:
                    continue
                made = grown_chat
            book(made)
            return made


def count_draft_messages(
    nodes: Sequence[Node], *, counter: TokenCounter, now: datetime, between: Callable[[], None]
) -> dict[str, MessageTotals]:
    """Return the token counts of a draft's messages, by id.

    Raises `ChatFull` and `ImportRefused`.
    """
    if len(nodes) > settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    counts: dict[str, MessageTotals] = {}
    known: dict[MessageTotals, MessageTotals] = {}
    for node in nodes:
        between()
        with alone:
            row = build_draft_message(
                node, MessageTime(now, is_known=False), now=now, is_checked=True
            )
            messages.set_token_count(row, counter=counter)
            one = MessageTotals(row.token_count, row.counter_version)
            # Share equal objects, because most are equal.
            counts[node.id] = known.setdefault(one, one)
    return counts


def create_imported_chat(
    draft: ChatDraft,
    counts: Mapping[str, MessageTotals],
    *,
    owner: AbstractBaseUser,
    form: str,
    now: datetime,
) -> Imported:
    """Store a draft with counted messages, in the caller's transaction."""
    actor = f"user:{owner.pk}"
    chat = lifecycle.create_chat(owner=owner, now=now, title=derive_draft_title(draft))
    # Reload with the related rows that later code needs.
    chat = Chat.objects.select_related("owner", "model", "active_branch").get(pk=chat.pk)
    root = chat.active_branch
    if root is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    places = Places({}, [root], {root.pk}, 0)
    first, last = write_draft_messages(draft.nodes, counts, places, draft=draft, chat=chat, now=now)
    chat.active_branch = places.known[draft.active][0]
    chat.accepted_count = places.accepted
    chat.created_at, chat.updated_at = first, last
    chat.save(update_fields=["active_branch", "accepted_count", "created_at", "updated_at"])
    losses = list(draft.losses)
    details = restore_imported_summary(
        draft, places, chat=chat, owner=owner, losses=losses, now=now
    )
    if draft.system_text:
        losses += set_imported_text(chat, draft.system_text, actor=actor, now=now)
    losses += file_imported_chat(draft, chat=chat, owner=owner)
    if not draft.has_id:
        details["beginning"] = digest_first_message(draft)
    ImportedChat.objects.create(
        chat=chat,
        owner_id=owner.pk,
        form=form,
        source_id=draft.source,
        details=details,
        created_at=now,
    )
    data = {
        "form": form,
        "messages": len(draft.nodes),
        "branches": len(places.branches),
        **build_stored_data(places.stored),
    }
    ledger.record_event("chat.imported", actor=actor, now=now, chat_id=chat.pk, data=data)
    record_refused_images(draft, chat=chat, actor=actor, now=now)
    return Imported(
        chat=chat,
        added=len(draft.nodes),
        was_here=False,
        counted=draft.counted,
        here=draft.counted - draft.lost,
        losses=losses,
    )


def extend_imported_chat(
    chat: Chat,
    draft: ChatDraft,
    counts: Mapping[str, MessageTotals],
    *,
    owner: AbstractBaseUser,
    form: str,
    now: datetime,
) -> Imported | None:
    """Add the new messages of a draft to the previously imported chat.

    They continue the chat, or start a branch if the chat was continued here. Runs in the caller's
    transaction. Returns None if the chat changed since the messages were counted. Raises
    `ImportRefused` for a deleted chat.
    """
    chat = lock_chat(chat.pk)
    if chat.deleted_at is not None:
        raise ImportRefused("import_deleted", DELETED_HERE)
    known = find_known_messages(chat, draft)
    here = draft.counted - draft.lost
    losses: list[str] = []
    nodes: list[Node] = []
    if known is not None:
        found, changed = known
        nodes = [node for node in draft.nodes if node.id not in found]
        losses = [*draft.losses, *([f"message_changed:{changed}"] if changed else [])]
    if any(node.id not in counts for node in nodes):
        return None
    if nodes:
        places, is_untouched = load_message_positions(chat, draft)
        branches = append_draft_messages(
            chat, nodes, draft, counts, places, is_untouched=is_untouched, now=now
        )
        row = ImportedChat.objects.get(chat=chat)
        if is_untouched and draft.active in places.known:
            # Reload: the summary belongs to the branch that is now active.
            chat = Chat.objects.select_related("owner", "model", "active_branch").get(pk=chat.pk)
            row.details |= restore_imported_summary(
                draft, places, chat=chat, owner=owner, losses=losses, now=now
            )
        elif draft.summary is not None:
            losses.append("summary_left_out:grown")
        row.source_id = draft.source
        row.save(update_fields=["details", "source_id"])
        data = {
            "form": form,
            "messages": len(nodes),
            "branches": branches,
            **build_stored_data(places.stored),
        }
        actor = f"user:{owner.pk}"
        ledger.record_event("chat.imported", actor=actor, now=now, chat_id=chat.pk, data=data)
        record_refused_images(draft, chat=chat, actor=actor, now=now)
    if known is not None:
        image_store.store_missing_images(chat, found=draft.images)
    return Imported(
        chat=chat,
        added=len(nodes),
        was_here=True,
        counted=draft.counted,
        here=here,
        losses=losses,
    )


def record_refused_images(draft: ChatDraft, *, chat: Chat, actor: str, now: datetime) -> None:
    """Record each image of the chat that the virus scanner refused, like a refused upload."""
    for loss in draft.losses:
        if loss.startswith(f"{pictures.IMAGE_REFUSED}:"):
            data = {"kind": "image"}
            ledger.record_event("file.refused", actor=actor, now=now, chat_id=chat.pk, data=data)


def append_draft_messages(
    chat: Chat,
    nodes: Sequence[Node],
    draft: ChatDraft,
    counts: Mapping[str, MessageTotals],
    places: Places,
    *,
    is_untouched: bool,
    now: datetime,
) -> int:
    """Write new messages to a locked chat. Return the number of its branches.

    Raises `ChatFull` and `TooManyBranches`.
    """
    size = Message.objects.filter(branch__chat=chat).count() + len(nodes)
    if size > settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    before = {branch.pk for branch in places.branches}
    _, last = write_draft_messages(nodes, counts, places, draft=draft, chat=chat, now=now)
    for branch in places.branches:
        if branch.pk not in before and branch.parent is not None and branch.fork_seq:
            branching.inherit_compaction(branch, nearest=[branch.parent])
    if is_untouched and draft.active in places.known:
        chat.active_branch = places.known[draft.active][0]
    chat.accepted_count = places.accepted
    chat.updated_at = max(chat.updated_at, last)
    chat.save(update_fields=["active_branch", "accepted_count", "updated_at"])
    return len(places.branches)


def write_draft_messages(
    nodes: Iterable[Node],
    counts: Mapping[str, MessageTotals],
    places: Places,
    *,
    draft: ChatDraft,
    chat: Chat,
    now: datetime,
) -> tuple[datetime, datetime]:
    """Write messages at their positions in batches; return the first and the last time."""
    before = {branch.pk: branch.last_seq for branch in places.branches}
    times = resolve_message_times(draft.nodes, now=now)
    rows: list[Message] = []
    first = last = None
    for node in nodes:
        row = build_draft_message(node, times[node.id], now=now, file_ids=draft.file_ids)
        row.branch, row.seq, row.accepted = places.put(node, chat=chat, now=now)
        row.token_count, row.counter_version = counts[node.id].tokens, counts[node.id].version
        first = min(first or row.created_at, row.created_at)
        last = max(last or row.created_at, row.created_at)
        rows.append(seal_message(row))
        places.stored.append(Sealed(row.accepted, row.pk, row.commitment))
        if len(rows) >= PAGE:
            flush_message_rows(rows, places, before, draft=draft)
    flush_message_rows(rows, places, before, draft=draft)
    for branch in places.branches:
        if before.get(branch.pk) != branch.last_seq:
            Branch.objects.filter(pk=branch.pk).update(last_seq=branch.last_seq)
    return first or now, last or now


def flush_message_rows(
    rows: list[Message], places: Places, before: dict[Any, int], *, draft: ChatDraft
) -> None:
    """Insert the buffered messages after their branches, and empty the buffer."""
    new = [branch for branch in places.branches if branch.pk not in before]
    Branch.objects.bulk_create(new, batch_size=PAGE)
    before |= {branch.pk: branch.last_seq for branch in new}
    Message.objects.bulk_create(rows, batch_size=PAGE)
    image_store.store_message_images(rows, found=draft.images)
    originals.link_originals(rows, ids=draft.file_ids)
    rows.clear()


def derive_draft_title(draft: ChatDraft) -> str:
    """Return the title of a draft, the beginning of its first user message, or a file name.

    Empty if it has none of these.
    """
    title = names.normalise_name(names.replace_forbidden_characters(draft.title))[
        : lifecycle.TITLE_LENGTH
    ].strip()
    if names.is_allowed_name(title):
        return title
    parts = [part for node in draft.nodes if node.role == "user" for part in node.parts]
    texts = (part.text for part in parts if isinstance(part, TextPart))
    files = (part.name for part in parts if isinstance(part, FilePart) and part.name)
    first = find_first_text(texts) or next(files, "")
    return derive_title(first) if first.strip() else ""


def set_imported_text(chat: Chat, text: str, *, actor: str, now: datetime) -> list[str]:
    """Set the chat's system text. If the policy forbids it, return that as a loss."""
    try:
        with transaction.atomic():
            system_texts.set_system_text(chat=chat, text=text, actor=actor, now=now)
    except Refusal as refusal:
        return [f"system_text_left_out:{refusal.code}"]
    return []


def file_imported_chat(draft: ChatDraft, *, chat: Chat, owner: AbstractBaseUser) -> list[str]:
    """Set the folder, pin and archive flags of the chat as in the file.

    Returns a loss if the folder cannot be set.
    """
    if draft.pinned or draft.archived:
        organising.organise_chat(
            chat=chat, user=owner, pinned=draft.pinned, archived=draft.archived
        )
    if not draft.folder:
        return []
    try:
        with transaction.atomic():
            organising.move_to_named_folder(chat=chat, user=owner, name=draft.folder)
    except Refusal as refusal:
        return [f"folder_left_out:{refusal.code}"]
    return []
