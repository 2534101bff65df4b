"""Corrects a summary by hand, and compares any two summaries."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.compaction import coverage
from chats.compaction.coverage import (
    get_active_summary,
    load_locked_active_branch,
    record_compaction_event,
    retire_pending_summary,
)
from chats.compaction.people import summary_permissions
from chats.compaction.people.controls import SummaryNotActive
from chats.compaction.provenance import validate_sections
from chats.compaction.sections import parse_sections
from chats.ground.commitments import compute_commitment, new_salt
from chats.ground.refusals import Refusal
from chats.models import Compaction
from chats.prompt.tokenizer import O200kCounter
from chats.record import access
from chats.record.locking import lock_chat
from chats.record.message_text import check_characters

BY_HAND = "by-hand"


class SummaryEmpty(Refusal):
    """The text is empty or contains only whitespace."""

    code = "summary_empty"
    status = 422
    sentence = gettext_noop(
        "The summary is empty. To send the original messages again, undo the summary."
    )
    param = "text"


class SummaryTooLong(Refusal):
    """The text is longer than the policy allows. It is never truncated."""

    code = "summary_too_long"
    status = 422
    sentence = gettext_noop(
        "This summary has about {tokens:,} tokens; the policy allows {limit:,}. Shorten it by"
        " about {over:,}."
    )
    param = "text"


@transaction.atomic
def revise_summary(
    *, user: AbstractBaseUser, compaction: Compaction, text: str, now: datetime
) -> Compaction:
    """Replace the active summary with a user's text, from the next prompt on.

    The text gets a new row; the corrected version does not change. Saving the same text changes
    nothing. Raises `SummaryNotActive`, `NotAllowedByPolicy`, `SummaryEmpty`, `SummaryTooLong`,
    `InvalidCharacter`.
    """
    branch = load_locked_active_branch(lock_chat(compaction.branch.chat_id))
    choice = summary_permissions.check_summary_permission(
        user=user, chat=branch.chat, action="edit"
    )
    text = text.replace("\r\n", "\n").strip()
    tokens = check_summary(text, limit=choice.values.summary_max_tokens)
    row = Compaction.objects.select_related("branch").get(pk=compaction.pk)
    if get_active_summary(branch.active_compaction) != row:
        raise SummaryNotActive
    if row.text == text:
        return row
    by = f"user:{user.pk}"
    retire_pending_summary(branch, reason="revised", now=now, actor=by)
    sections = validate_sections(
        parse_sections(text),
        first=row.from_seq,
        last=row.to_seq,
        exceptions=tuple(row.exceptions),
        branch=branch,
    )
    salt = new_salt()
    new = Compaction.objects.create(
        branch=branch,
        kind=Compaction.Kind.SUMMARY,
        status=Compaction.Status.PUBLISHED,
        previous=row.previous,
        displaced=branch.active_compaction,
        revises=row,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        exceptions=row.exceptions,
        skills=row.skills,
        source_count=row.source_count,
        source_digest=row.source_digest,
        text=text,
        salt=salt,
        text_commitment=compute_commitment(text, salt=salt),
        sections=sections,
        trigger="revision",
        asked_by=by,
        context_revision=branch.context_revision,
        effective_policy=choice.effective,
        prompt_version=BY_HAND,
        tokens_before=row.tokens_before,
        tokens_after=max(row.tokens_after - (row.summary_tokens or 0) + tokens, 0),
        summary_tokens=tokens,
        created_at=now,
        finished_at=now,
        published_at=now,
    )
    coverage.activate_compaction(branch, to=new)
    coverage.forget_request(branch)
    record_compaction_event("compaction.revised", row=new, now=now, actor=by, revises=str(row.pk))
    return new


def check_summary(text: str, *, limit: int) -> int:
    """Return the number of tokens in a user's summary.

    Raises `SummaryEmpty`, `SummaryTooLong` or `InvalidCharacter`.
    """
    check_characters(text)
    if not text:
        raise SummaryEmpty
    tokens = O200kCounter().count(text)
    if tokens > limit:
        raise SummaryTooLong(tokens=tokens, limit=limit, over=tokens - limit)
    return tokens


@dataclass(frozen=True, slots=True)
class LineChange:
    """Consecutive lines with the same kind of change, before and after."""

    kind: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two summaries side by side. `changes` are in text order and include equal lines."""

    older: Compaction
    newer: Compaction
    changes: tuple[LineChange, ...]


def compare_summaries(
    *,
    user: AbstractBaseUser,
    chat_id: uuid.UUID,
    older_id: uuid.UUID,
    newer_id: uuid.UUID,
) -> Comparison:
    """Compare any two summaries of a chat, line by line. Raises `NotFound`.

    The kinds of changes are `equal`, `replace`, `delete` and `insert`.
    """
    older = access.get_compaction(user=user, chat_id=chat_id, compaction_id=older_id)
    newer = access.get_compaction(user=user, chat_id=chat_id, compaction_id=newer_id)
    before, after = older.text.split("\n"), newer.text.split("\n")
    matcher = SequenceMatcher(a=before, b=after, autojunk=False)
    changes = tuple(
        LineChange(kind, tuple(before[a:b]), tuple(after[c:d]))
        for kind, a, b, c, d in matcher.get_opcodes()
    )
    return Comparison(older=older, newer=newer, changes=changes)
