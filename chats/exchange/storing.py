"""Makes a chat of a draft: all of it or nothing, once for each chat that it came from.

Ids are made anew; the first ones are kept and go out again. Nothing is asked of a model: a prompt
leaves out what does not fit, and the first reply brings the summary that the policy asks for.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction

from chats.actions import lifecycle, organising, system_texts
from chats.actions.branching import BRANCHES_PER_CHAT, TooManyBranches
from chats.compaction import coverage
from chats.compaction.people import revise, rights
from chats.compaction.provenance import checked
from chats.compaction.sections import sections_of
from chats.exchange.drafts import ChatDraft, DraftSummary, ImportRefused, Node
from chats.ground.computing import alone
from chats.ground.refusals import Refusal
from chats.ground.seals import commitment, new_salt
from chats.models import Branch, Chat, Compaction, ImportedChat, Message
from chats.record import images, messages
from chats.turns.start import ChatFull, first_words, title_from
from contextpolicy import ledger
from contextpolicy.engine.messages import TextPart, parts_to_json
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.uimessages import METADATA

PAGE = 500
# The characters of one message's parts, and of what is kept beside them.
LONGEST_MESSAGE = 2_000_000
LONGEST_METADATA = 20_000
# The shortest year that a moment is taken from.
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The outcome for one chat of a file: `added` messages, or `was_here`; and what was lost."""

    chat: Chat
    added: int
    was_here: bool
    losses: Sequence[str]


def store(
    draft: ChatDraft,
    *,
    owner: AbstractBaseUser,
    form: str,
    counter: TokenCounter,
    now: datetime,
    between: Callable[[], None],
    book: Callable[[Imported], None],
) -> Imported:
    """Make a chat of a draft; a chat that was imported before is left as it is.

    `between` is called between its messages while they are counted, `book` with the outcome in the
    transaction that makes it. Raises `ImportRefused`, `ChatFull`, `TooManyBranches`, what
    `lifecycle.create_chat` raises, and what the two raise.
    """
    while True:
        known = imported_before(draft, owner=owner, form=form)
        rows = None
        if known is None:
            rows = rows_of(draft, counter=counter, now=now, between=between)
        with alone, transaction.atomic():
            # Of two imports with one chat, the second then finds the first.
            User.objects.select_for_update(no_key=True).get(pk=owner.pk)
            known = imported_before(draft, owner=owner, form=form)
            if known is not None:
                made = Imported(chat=known, added=0, was_here=True, losses=())
            elif rows is not None:
                made = stored(draft, rows, owner=owner, form=form, now=now)
            else:
                # It was erased between the two looks.
                continue
            book(made)
            return made


def rows_of(
    draft: ChatDraft, *, counter: TokenCounter, now: datetime, between: Callable[[], None]
) -> dict[str, Message]:
    """Return the messages of a draft by their ids, counted, without their places.

    Raises `ChatFull` and `ImportRefused`.
    """
    if len(draft.nodes) > settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    rows = {}
    for node in draft.nodes:
        between()
        with alone:
            rows[node.id] = row_of(node, counter=counter, now=now)
    return rows


def imported_before(draft: ChatDraft, *, owner: AbstractBaseUser, form: str) -> Chat | None:
    """Return the chat that was made of this one before, or that it is itself; deleted or not."""
    if draft.here:
        itself = Chat.objects.filter(pk=draft.here, owner=owner.pk).first()
        if itself is not None:
            return itself
    known = ImportedChat.objects.filter(owner=owner.pk, form=form, source_id=draft.source)
    row = known.select_related("chat").first()
    return row.chat if row else None


def stored(
    draft: ChatDraft,
    rows: Mapping[str, Message],
    *,
    owner: AbstractBaseUser,
    form: str,
    now: datetime,
) -> Imported:
    """Store a draft whose messages were counted, in the caller's transaction."""
    actor = f"user:{owner.pk}"
    chat = lifecycle.create_chat(owner=owner, now=now, title=title_of(draft))
    # Read again, with what others expect of a chat that was read.
    chat = Chat.objects.select_related("owner", "model", "active_branch").get(pk=chat.pk)
    branches = placed(draft, rows, chat=chat, now=now)
    Branch.objects.bulk_create(branches[1:], batch_size=PAGE)
    Branch.objects.filter(pk=branches[0].pk).update(last_seq=branches[0].last_seq)
    Message.objects.bulk_create(rows.values(), batch_size=PAGE)
    images.store(list(rows.values()), found=draft.images)
    moments = [row.created_at for row in rows.values()]
    chat.active_branch = rows[draft.active].branch
    chat.accepted_count = len(rows)
    chat.created_at, chat.updated_at = min(moments), max(moments)
    chat.save(update_fields=["active_branch", "accepted_count", "created_at", "updated_at"])
    losses = list(draft.losses)
    details = summarised(draft, rows, chat=chat, owner=owner, losses=losses, now=now)
    if draft.system_text:
        losses += own_text(chat, draft.system_text, actor=actor, now=now)
    losses += filed(draft, chat=chat, owner=owner)
    ImportedChat.objects.create(
        chat=chat,
        owner_id=owner.pk,
        form=form,
        source_id=draft.source,
        details=details,
        created_at=now,
    )
    data = {"form": form, "messages": len(rows), "branches": len(branches)}
    ledger.record("chat.imported", actor=actor, now=now, chat_id=chat.pk, data=data)
    return Imported(chat=chat, added=len(rows), was_here=False, losses=losses)


def placed(
    draft: ChatDraft, rows: Mapping[str, Message], *, chat: Chat, now: datetime
) -> list[Branch]:
    """Give each message its branch and its place; return the branches, parents first.

    The first message behind another goes on in its branch, each further one begins a branch.
    Raises `TooManyBranches`.
    """
    root = chat.active_branch
    if root is None:
        raise ValueError(f"chat {chat.pk} has no branch")
    branches = [root]
    for accepted, node in enumerate(draft.nodes, start=1):
        row = rows[node.id]
        before = rows[node.parent] if node.parent is not None else None
        branch = before.branch if before is not None else root
        seq = before.seq or 0 if before is not None else 0
        if branch.last_seq != seq:
            if len(branches) >= BRANCHES_PER_CHAT:
                raise TooManyBranches(limit=BRANCHES_PER_CHAT)
            branch = Branch(chat=chat, parent=branch, fork_seq=seq, last_seq=seq, created_at=now)
            branches.append(branch)
        branch.last_seq = seq + 1
        row.branch, row.seq, row.accepted = branch, seq + 1, accepted
    return branches


def row_of(node: Node, *, counter: TokenCounter, now: datetime) -> Message:
    """Return the row of a message, counted, without its place. Raises `ImportRefused`."""
    parts = parts_to_json(node.parts)
    kept = dict(node.metadata)
    check_storable(node.id, parts, kept)
    role = Message.Role.USER if node.role == "user" else Message.Role.ASSISTANT
    usual = Message.Finish.STOP if role == Message.Role.ASSISTANT else ""
    erased = taken(kept, "erased", lambda said: said is True and not parts)
    row = Message(
        role=role,
        parts=parts,
        speaker=taken(kept, "speaker", is_speaker),
        addressees=taken(kept, "addressees", is_names) or [],
        model_name=taken(kept, "model", lambda said: is_name(said, most=200)) or "",
        finish=taken(kept, "finish", lambda said: is_finish(said, role=role)) or usual,
        pinned_at=now if taken(kept, "pinned", lambda said: said is True) else None,
        excluded=bool(taken(kept, "excluded", lambda said: said is True)),
        erased_at=now if erased else None,
        metadata={"source": {"id": node.id, "metadata": kept}},
        created_at=moment_of(kept.get("ts"), now=now),
    )
    messages.set_token_count(row, counter=counter)
    return row


def taken(kept: dict[str, object], name: str, is_sound: Any) -> Any:
    """Take a value out of the metadata for its column; what fits no column stays there."""
    if name in kept and is_sound(kept[name]):
        return kept.pop(name)
    return None


def is_name(said: object, *, most: int = 100) -> bool:
    """Tell whether a value can be a name."""
    return isinstance(said, str) and 0 < len(said) <= most and said.isprintable()


def is_names(said: object) -> bool:
    """Tell whether a value can be the addressees of a message."""
    return isinstance(said, list) and 0 < len(said) <= 50 and all(map(is_name, said))


def is_speaker(said: object) -> bool:
    """Tell whether a value can be the speaker of a message."""
    if not isinstance(said, Mapping) or set(said) != {"roleId", "roleName", "type"}:
        return False
    return is_name(said["roleId"]) and is_name(said["roleName"]) and said["type"] in ("human", "ai")


def is_finish(said: object, *, role: str) -> bool:
    """Tell whether a value says how a reply ended."""
    return role == Message.Role.ASSISTANT and said in Message.Finish.values


def moment_of(ts: object, *, now: datetime) -> datetime:
    """Return the moment of a message; `now` for one that is none, or is to come."""
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        return now
    try:
        moment = datetime.fromtimestamp(ts / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return now
    return moment if EARLIEST <= moment <= now else now


def check_storable(own_id: str, parts: object, kept: object) -> None:
    """Raise `ImportRefused` for what no database takes, and for what is over a limit."""
    for value, limit in ((parts, LONGEST_MESSAGE), (kept, LONGEST_METADATA)):
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > limit:
            problem = f"Message {own_id!r} is over the limit of {limit:,} characters."
            raise ImportRefused("import_too_large", problem)
        if messages.UNSTORABLE.search(text) or "\\u0000" in text:
            problem = f"Message {own_id!r} has a character that cannot be stored."
            raise ImportRefused("import_malformed", problem)


def title_of(draft: ChatDraft) -> str:
    """Return the title of a draft; without one, the beginning of what the person said first."""
    title = "".join(c for c in draft.title if c.isprintable()).strip()[: lifecycle.TITLE_LENGTH]
    if title:
        return title
    texts = (
        part.text
        for node in draft.nodes
        if node.role == "user"
        for part in node.parts
        if isinstance(part, TextPart)
    )
    first = "".join(c if c.isprintable() or c == "\n" else " " for c in first_words(texts))
    return title_from(first) if first.strip() else ""


def own_text(chat: Chat, text: str, *, actor: str, now: datetime) -> list[str]:
    """Give the chat the system text that it had; where the policy forbids it, say so."""
    try:
        with transaction.atomic():
            system_texts.write(chat=chat, text=text, actor=actor, now=now)
    except Refusal as refusal:
        return [f"system_text_left_out:{refusal.code}"]
    return []


def filed(draft: ChatDraft, *, chat: Chat, owner: AbstractBaseUser) -> list[str]:
    """Pin, archive and file the chat as it was; where it cannot have its folder, say so."""
    if draft.pinned or draft.archived:
        organising.organise(chat=chat, user=owner, pinned=draft.pinned, archived=draft.archived)
    if not draft.folder:
        return []
    try:
        with transaction.atomic():
            organising.file_in_new_folder(chat=chat, user=owner, name=draft.folder)
    except Refusal as refusal:
        return [f"folder_left_out:{refusal.code}"]
    return []


def summarised(
    draft: ChatDraft,
    rows: Mapping[str, Message],
    *,
    chat: Chat,
    owner: AbstractBaseUser,
    losses: list[str],
    now: datetime,
) -> dict[str, object]:
    """Put the summary that came along in force, if this person may change summaries here.

    Otherwise the messages themselves are sent; `losses` then says why.
    """
    if draft.summary is None:
        return {}
    try:
        with transaction.atomic():
            row = in_force(draft, draft.summary, rows, chat=chat, owner=owner, now=now)
    except Refusal as refusal:
        losses.append(f"summary_left_out:{refusal.code}")
        return {}
    kept = {
        name: draft.summary.metadata[name] for name in METADATA if name in draft.summary.metadata
    }
    return {"compaction": str(row.pk), "id": draft.summary.id, "metadata": kept}


def in_force(
    draft: ChatDraft,
    said: DraftSummary,
    rows: Mapping[str, Message],
    *,
    chat: Chat,
    owner: AbstractBaseUser,
    now: datetime,
) -> Compaction:
    """Put an imported summary in force on the active branch.

    Raises `NotAllowedByPolicy`, `SummaryEmpty`, `SummaryTooLong`, `InvalidCharacter`.
    """
    choice = rights.check(user=owner, chat=chat, deed="edit")
    tokens = revise.check_summary(said.text, limit=choice.values.summary_max_tokens)
    branch = coverage.active_branch(chat)
    first, last = rows[said.first].seq or 1, rows[said.last].seq or 1
    exceptions = sorted(rows[own].seq or 0 for own in said.exceptions)
    sections = checked(
        sections_of(said.text),
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
        text_commitment=commitment(said.text, salt=salt),
        sections=sections,
        trigger="import",
        asked_by=by,
        context_revision=draft.revision,
        effective_policy=choice.effective,
        prompt_version=revise.BY_HAND,
        summary_tokens=tokens,
        created_at=now,
        finished_at=now,
        published_at=moment_of(draft.compacted_at, now=now),
    )
    coverage.swap(branch, to=row)
    # As it goes out again; nothing was planned here yet that a change of it could mislead.
    branch.context_revision = draft.revision
    branch.save(update_fields=["context_revision"])
    coverage.record("compaction.published", row=row, now=now, actor=by)
    return row


def without_unstorable(draft: ChatDraft) -> ChatDraft:
    """Return a draft of another product with every character replaced that no database takes."""
    nodes = tuple(replace(node, parts=tuple(map(cleaned, node.parts))) for node in draft.nodes)
    return replace(draft, nodes=nodes)


def cleaned(part: Any) -> Any:
    """Return a part whose texts can be stored."""
    fields = {name: getattr(part, name) for name in part.__slots__}
    if not any(messages.UNSTORABLE.search(text) for text in fields.values()):
        return part
    return type(part)(**{k: messages.UNSTORABLE.sub("\ufffd", v) for k, v in fields.items()})
