"""Creates a chat from a draft: completely or not at all, once per original chat.

A newer export of a chat adds its new messages. Messages get new ids; the original ids are stored
and exported again. No model is called. Prompts leave out messages that do not fit, and the first
reply starts the summary that the policy requires.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Max
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext_noop

from chats.actions import branching, lifecycle, organising, system_texts
from chats.actions.branching import BRANCHES_PER_CHAT, TooManyBranches
from chats.compaction import coverage
from chats.compaction.people import revise, rights
from chats.compaction.provenance import validate_sections
from chats.compaction.sections import parse_sections
from chats.exchange import originals
from chats.exchange.drafts import LOADED_SKILLS, ChatDraft, DraftSummary, ImportRefused, Node
from chats.exchange.message_times import MessageTime, parse_message_time, resolve_message_times
from chats.exchange.originals import set_document_ids
from chats.ground.background_lock import alone
from chats.ground.commitments import compute_commitment, new_salt
from chats.ground.refusals import Refusal
from chats.ground.sentences import Sentence
from chats.ground.texts import UNSTORABLE, sanitise_text
from chats.models import Branch, Chat, Compaction, ImportedChat, Message, Turn
from chats.prompt.moved_skills import choose_known_skills
from chats.prompt.tokenizer import O200kCounter
from chats.record import images as image_store
from chats.record import messages
from chats.record.locking import lock_chat
from chats.record.message_commitments import Sealed, build_stored_data, seal_message
from chats.turns.start import ChatFull, derive_title, find_first_text
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import TextPart, serialize_parts
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.messages.ui_messages import METADATA
from contextpolicy.engine.text import names

PAGE = 500
# Maximum characters of a message's parts and metadata.
LONGEST_MESSAGE = 2_000_000
LONGEST_METADATA = 20_000
# Maximum number of similar chats without an id that are compared.
MOST_ALIKE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result for one chat of a file.

    `added`: number of new messages. `was_here`: the chat was imported before. `here`: how many of
    the file's `counted` messages the chat now has. `losses`: contents that could not be imported.
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


@dataclass(slots=True)
class Places:
    """The branch and seq of a chat's messages, by original id."""

    known: dict[str, tuple[Branch, int]]
    branches: list[Branch]
    # Existing branches that may be continued; new messages after the end of any other one start a
    # branch.
    open_ends: set[Any]
    accepted: int
    # The messages written so far, with the commitments for the ledger.
    stored: list[Sealed] = field(default_factory=list)

    def put(self, node: Node, *, chat: Chat, now: datetime) -> tuple[Branch, int, int]:
        """Assign branch, seq and order of acceptance to a message. Raises `TooManyBranches`.

        The first child continues its parent's branch. Each further child starts a branch.
        """
        branch, seq = self.branches[0], 0
        if node.parent is not None:
            branch, seq = self.known[node.parent]
        if branch.last_seq != seq or branch.pk not in self.open_ends:
            if len(self.branches) >= BRANCHES_PER_CHAT:
                raise TooManyBranches(limit=BRANCHES_PER_CHAT)
            branch = Branch(chat=chat, parent=branch, fork_seq=seq, last_seq=seq, created_at=now)
            self.branches.append(branch)
            self.open_ends.add(branch.pk)
        branch.last_seq = seq + 1
        self.accepted += 1
        self.known[node.id] = (branch, seq + 1)
        return branch, seq + 1, self.accepted


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

    `between` is called between messages while counting tokens. `book` is called with the result, in
    the same transaction. Raises `ImportRefused`, `ChatFull`, `TooManyBranches`, the errors of
    `lifecycle.create_chat`, and those of the two callbacks.
    """
    while True:
        known = find_imported_chat(draft, owner=owner, form=form)
        missing = draft.nodes if known is None else list_missing_messages(known, draft)
        ids, losses = originals.restore_originals(draft.originals, missing, owner=owner, now=now)
        draft = replace(draft, file_ids=ids, losses=(*draft.losses, *dict.fromkeys(losses)))
        counts = count_draft_messages(missing, counter=counter, now=now, between=between)
        with alone, transaction.atomic():
            # The lock makes the second of two parallel imports of a chat find the first.
            User.objects.select_for_update(no_key=True).get(pk=owner.pk)
            found = find_imported_chat(draft, owner=owner, form=form)
            if (found and found.pk) != (known and known.pk):
                # The chat was created or erased between the two queries.
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
    """Count the tokens of a draft's messages, by id. Raises `ChatFull` and `ImportRefused`."""
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


def find_imported_chat(draft: ChatDraft, *, owner: AbstractBaseUser, form: str) -> Chat | None:
    """Return the chat from which a draft was exported, or to which it was imported before.

    The chat may be deleted.
    """
    if draft.here:
        itself = Chat.objects.filter(pk=draft.here, owner=owner.pk).first()
        if itself is not None:
            return itself
    rows = ImportedChat.objects.filter(owner=owner.pk, form=form).select_related("chat")
    row = rows.filter(source_id=draft.source).first()
    if row is None and not draft.has_id:
        # A chat without an id is found if a longer file contains all its messages, word for word.
        some = rows.filter(details__beginning=digest_first_message(draft)).order_by("-created_at")
        row = next((one for one in some[:MOST_ALIKE] if is_longer(draft, one.chat)), None)
    return row.chat if row else None


def digest_first_message(draft: ChatDraft) -> str:
    """Return a keyed digest of the first message of a draft."""
    first = json.dumps([draft.nodes[0].id, serialize_neutral_parts(draft.nodes[0])])
    return salted_hmac("chats.exchange.beginning", first, algorithm="sha256").hexdigest()


def is_longer(draft: ChatDraft, chat: Chat) -> bool:
    """Return True if a draft contains all messages of an imported chat unchanged, and more."""
    known = find_known_messages(chat, draft)
    if known is None or known[1]:
        return False
    brought = Message.objects.filter(branch__chat=chat, metadata__source__id__isnull=False)
    return brought.count() <= len(known[0]) < len(draft.nodes)


def find_known_messages(chat: Chat, draft: ChatDraft) -> tuple[set[str], int] | None:
    """Return the draft's messages that a chat already has, and how many of them differ in text.

    An erased message is recognised by a keyed digest of its id. None: the chat cannot be extended,
    because it was written here, was deleted, or has erased messages without such a digest.
    """
    if str(chat.pk) == draft.here or chat.deleted_at is not None:
        return None
    parts = {node.id: node for node in draft.nodes}
    digests = set()
    found: set[str] = set()
    changed = 0
    rows = Message.objects.filter(branch__chat=chat).values_list("metadata", "parts", "erased_at")
    for metadata, listed, erased_at in rows.iterator(chunk_size=PAGE):
        own = str((metadata.get("source") or {}).get("id") or "")
        if own in parts:
            found.add(own)
            changed += serialize_neutral_parts(parts[own]) != set_document_ids(listed, ids={})
        elif erased_at is not None and messages.ERASED_ID not in metadata:
            return None
        else:
            digests.add(metadata.get(messages.ERASED_ID, ""))
    digests.discard("")
    if digests:
        found |= {own for own in parts if messages.digest_of_id(own) in digests}
    return found, changed


def serialize_neutral_parts(node: Node) -> list[dict[str, Any]]:
    """Return the parts of a message without document ids, which differ between imports."""
    return set_document_ids(serialize_parts(node.parts), ids={})


def list_missing_messages(chat: Chat, draft: ChatDraft) -> tuple[Node, ...]:
    known = find_known_messages(chat, draft)
    return tuple(n for n in draft.nodes if n.id not in known[0]) if known is not None else ()


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
    first, last = write_draft_messages(
        draft.nodes, counts, places, images=draft, chat=chat, now=now
    )
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
    transaction. Returns None if the chat changed since the messages were counted.
    """
    chat = lock_chat(chat.pk)
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
    return Imported(
        chat=chat,
        added=len(nodes),
        was_here=True,
        counted=draft.counted,
        here=here,
        losses=losses,
    )


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
    _, last = write_draft_messages(nodes, counts, places, images=draft, chat=chat, now=now)
    for branch in places.branches:
        if branch.pk not in before and branch.parent is not None and branch.fork_seq:
            branching.inherit_compaction(branch, nearest=[branch.parent])
    if is_untouched and draft.active in places.known:
        chat.active_branch = places.known[draft.active][0]
    chat.accepted_count = places.accepted
    chat.updated_at = max(chat.updated_at, last)
    chat.save(update_fields=["active_branch", "accepted_count", "updated_at"])
    return len(places.branches)


def load_message_positions(chat: Chat, draft: ChatDraft) -> tuple[Places, bool]:
    """Return the positions of a locked chat's messages, and True if it was not continued here.

    Only in a chat that was not continued here are new messages added to the end of a branch.
    """
    branches = list(Branch.objects.filter(chat=chat).order_by("created_at", "pk"))
    branches.sort(key=lambda branch: branch.parent_id is not None)
    by_id = {branch.pk: branch for branch in branches}
    known: dict[str, tuple[Branch, int]] = {}
    is_untouched = not Turn.objects.filter(branch__chat=chat).exists()
    digests = {messages.digest_of_id(node.id): node.id for node in draft.nodes}
    rows = Message.objects.filter(branch__chat=chat).order_by("branch", "seq")
    for branch_id, seq, metadata in rows.values_list("branch", "seq", "metadata").iterator(PAGE):
        own = (metadata.get("source") or {}).get("id")
        own = own or digests.get(metadata.get(messages.ERASED_ID, ""))
        if own and seq:
            known[str(own)] = (by_id[branch_id], seq)
        elif messages.ERASED_ID not in metadata:
            is_untouched = False
    ends = set(by_id) if is_untouched else set()
    accepted = rows.aggregate(most=Max("accepted"))["most"] or 0
    return Places(known, branches, ends, max(accepted, chat.accepted_count)), is_untouched


def write_draft_messages(
    nodes: Iterable[Node],
    counts: Mapping[str, MessageTotals],
    places: Places,
    *,
    images: ChatDraft,
    chat: Chat,
    now: datetime,
) -> tuple[datetime, datetime]:
    """Write messages at their positions in batches; return the first and the last time."""
    before = {branch.pk: branch.last_seq for branch in places.branches}
    times = resolve_message_times(images.nodes, now=now)
    rows: list[Message] = []
    first = last = None
    for node in nodes:
        row = build_draft_message(node, times[node.id], now=now, file_ids=images.file_ids)
        row.branch, row.seq, row.accepted = places.put(node, chat=chat, now=now)
        row.token_count, row.counter_version = counts[node.id].tokens, counts[node.id].version
        first = min(first or row.created_at, row.created_at)
        last = max(last or row.created_at, row.created_at)
        rows.append(seal_message(row))
        places.stored.append(Sealed(row.accepted, row.pk, row.commitment))
        if len(rows) >= PAGE:
            flush_message_rows(rows, places, before, images=images)
    flush_message_rows(rows, places, before, images=images)
    for branch in places.branches:
        if before.get(branch.pk) != branch.last_seq:
            Branch.objects.filter(pk=branch.pk).update(last_seq=branch.last_seq)
    return first or now, last or now


def flush_message_rows(
    rows: list[Message], places: Places, before: dict[Any, int], *, images: ChatDraft
) -> None:
    """Insert the buffered messages after their branches, and empty the buffer."""
    new = [branch for branch in places.branches if branch.pk not in before]
    Branch.objects.bulk_create(new, batch_size=PAGE)
    before |= {branch.pk: branch.last_seq for branch in new}
    Message.objects.bulk_create(rows, batch_size=PAGE)
    image_store.store_message_images(rows, found=images.images)
    originals.link_originals(rows, ids=images.file_ids)
    rows.clear()


def build_draft_message(
    node: Node,
    time: MessageTime,
    *,
    now: datetime,
    is_checked: bool = False,
    file_ids: Mapping[str, uuid.UUID] = MappingProxyType({}),
) -> Message:
    """Return the row of a message without its position. `file_ids` maps hashes to files.

    Raises `ImportRefused`, unless `is_checked`.
    """
    parts = set_document_ids(serialize_parts(node.parts), ids=file_ids)
    kept = dict(node.metadata)
    if is_checked:
        check_storable(node.id, parts, kept)
    role = Message.Role.USER if node.role == "user" else Message.Role.ASSISTANT
    usual = Message.Finish.STOP if role == Message.Role.ASSISTANT else ""
    erased = pop_valid_metadata(kept, "erased", lambda said: said is True and not parts)
    return Message(
        role=role,
        parts=parts,
        speaker=pop_valid_metadata(kept, "speaker", is_valid_speaker),
        addressees=pop_valid_metadata(kept, "addressees", is_valid_addressees) or [],
        model_name=pop_valid_metadata(kept, "model", lambda said: is_bounded_name(said, most=200))
        or "",
        finish=pop_valid_metadata(kept, "finish", lambda said: is_valid_finish(said, role=role))
        or usual,
        pinned_at=now if pop_valid_metadata(kept, "pinned", lambda said: said is True) else None,
        excluded=bool(pop_valid_metadata(kept, "excluded", lambda said: said is True)),
        erased_at=now if erased else None,
        metadata={"source": {"id": node.id, "metadata": kept}},
        created_at=time.at,
        undated=None if time.is_known else True,
    )


def pop_valid_metadata(kept: dict[str, object], name: str, is_sound: Any) -> Any:
    """Pop a value from the metadata to store it in a column.

    An invalid value stays in the metadata.
    """
    if name in kept and is_sound(kept[name]):
        return kept.pop(name)
    return None


def is_bounded_name(said: object, *, most: int = 100) -> bool:
    """Return True if a value is a string of 1 to `most` printable characters."""
    return isinstance(said, str) and len(said) <= most and names.is_allowed_name(said)


def is_valid_addressees(said: object) -> bool:
    """Return True if a value is a valid list of addressees."""
    return isinstance(said, list) and 0 < len(said) <= 50 and all(map(is_bounded_name, said))


def is_valid_speaker(said: object) -> bool:
    """Return True if a value is an object with a valid `roleId`, `roleName` and `type`."""
    if not isinstance(said, Mapping) or set(said) != {"roleId", "roleName", "type"}:
        return False
    return (
        is_bounded_name(said["roleId"])
        and is_bounded_name(said["roleName"])
        and said["type"] in ("human", "ai")
    )


def is_valid_finish(said: object, *, role: str) -> bool:
    """Return True if a value is a valid finish reason for the role."""
    return role == Message.Role.ASSISTANT and said in Message.Finish.values


def check_storable(own_id: str, parts: object, kept: object) -> None:
    """Raise `ImportRefused` for values that databases reject or that exceed a limit."""
    for value, limit in ((parts, LONGEST_MESSAGE), (kept, LONGEST_METADATA)):
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > limit:
            problem = Sentence(
                gettext_noop("Message {id} exceeds the limit of {limit:,} characters."),
                id=repr(own_id),
                limit=limit,
            )
            raise ImportRefused("import_too_large", problem)
        if UNSTORABLE.search(text) or "\\u0000" in text:
            problem = Sentence(
                gettext_noop("Message {id} contains a character that cannot be stored."),
                id=repr(own_id),
            )
            raise ImportRefused("import_malformed", problem)


def derive_draft_title(draft: ChatDraft) -> str:
    """Return the title of a draft, or the beginning of the first user message."""
    title = names.normalise_name(names.replace_forbidden_characters(draft.title))[
        : lifecycle.TITLE_LENGTH
    ].strip()
    if names.is_allowed_name(title):
        return title
    texts = (
        part.text
        for node in draft.nodes
        if node.role == "user"
        for part in node.parts
        if isinstance(part, TextPart)
    )
    first = find_first_text(texts)
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


def restore_imported_summary(
    draft: ChatDraft,
    places: Places,
    *,
    chat: Chat,
    owner: AbstractBaseUser,
    losses: list[str],
    now: datetime,
) -> dict[str, object]:
    """Activate the imported summary, if the person may change summaries here.

    Otherwise prompts contain the messages, and the reason is added to `losses`.
    """
    if draft.summary is None:
        return {}
    try:
        with transaction.atomic():
            row = create_imported_compaction(
                draft, draft.summary, places, chat=chat, owner=owner, now=now
            )
    except Refusal as refusal:
        losses.append(f"summary_left_out:{refusal.code}")
        return {}
    kept = {
        name: draft.summary.metadata[name]
        for name in (*METADATA, LOADED_SKILLS)
        if name in draft.summary.metadata
    }
    return {"compaction": str(row.pk), "id": draft.summary.id, "metadata": kept}


def create_imported_compaction(
    draft: ChatDraft,
    said: DraftSummary,
    places: Places,
    *,
    chat: Chat,
    owner: AbstractBaseUser,
    now: datetime,
) -> Compaction:
    """Activate an imported summary on the active branch.

    Raises `NotAllowedByPolicy`, `SummaryEmpty`, `SummaryTooLong`, `InvalidCharacter`.
    """
    choice = rights.check_summary_permission(user=owner, chat=chat, action="edit")
    tokens = revise.check_summary(said.text, limit=choice.values.summary_max_tokens)
    branch = coverage.load_locked_active_branch(chat)
    first, last = places.known[said.first][1], places.known[said.last][1]
    exceptions = sorted(places.known[own][1] for own in said.exceptions)
    sections = validate_sections(
        parse_sections(said.text),
        first=first,
        last=last,
        exceptions=tuple(exceptions),
        branch=branch,
    )
    by = f"user:{owner.pk}"
    salt = new_salt()
    row = Compaction.objects.create(
        branch=branch,
        kind=Compaction.Kind.SUMMARY,
        status=Compaction.Status.PUBLISHED,
        from_seq=first,
        to_seq=last,
        exceptions=exceptions,
        source_count=last - first + 1 - len(exceptions),
        text=said.text,
        salt=salt,
        text_commitment=compute_commitment(said.text, salt=salt),
        sections=sections,
        trigger="import",
        asked_by=by,
        context_revision=draft.revision,
        effective_policy=choice.effective,
        prompt_version=revise.BY_HAND,
        summary_tokens=tokens,
        # The importer's chat may lack some of these skills. Those that are not kept are loaded
        # again on demand.
        skills=choose_known_skills(
            branch, keys=said.loaded_skills, values=choice.values, counter=O200kCounter()
        ),
        created_at=now,
        finished_at=now,
        published_at=parse_message_time(draft.compacted_at, now=now) or now,
    )
    coverage.activate_compaction(branch, to=row)
    # Restore the exported revision. Nothing has been planned here yet, so the change is safe.
    branch.context_revision = draft.revision
    branch.save(update_fields=["context_revision"])
    coverage.record_compaction_event("compaction.published", row=row, now=now, actor=by)
    return row


def clean_draft(draft: ChatDraft) -> ChatDraft:
    """Return a draft of another product with unstorable characters replaced."""
    return replace(draft, nodes=tuple(map(clean_node, draft.nodes)))


def clean_node(node: Node) -> Node:
    """Return a message whose texts can be stored; usually the same object."""
    parts = tuple(node.parts)
    sound = tuple(map(clean_part, parts))
    return node if sound == parts else replace(node, parts=sound)


def clean_part(part: Any) -> Any:
    """Return a message part with NUL and lone surrogates replaced by U+FFFD."""
    return type(part)(**{name: sanitise_text(getattr(part, name)) for name in part.__slots__})
