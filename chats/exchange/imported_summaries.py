"""Restores the summary of an exported chat, and makes it the active summary."""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.compaction import coverage
from chats.compaction.people import revise, summary_permissions
from chats.compaction.provenance import validate_sections
from chats.compaction.sections import parse_sections
from chats.exchange.drafts import LOADED_SKILLS, ChatDraft, DraftSummary
from chats.exchange.message_positions import Places
from chats.exchange.message_times import parse_message_time
from chats.ground.commitments import compute_commitment, new_salt
from chats.ground.refusals import Refusal
from chats.models import Chat, Compaction
from chats.prompt.moved_skills import choose_known_skills
from chats.prompt.tokenizer import O200kCounter
from contextpolicy.engine.messages.ui_messages import METADATA


def restore_imported_summary(
    draft: ChatDraft,
    places: Places,
    *,
    chat: Chat,
    owner: AbstractBaseUser,
    losses: list[str],
    now: datetime,
) -> dict[str, object]:
    """Activate the imported summary, if the user may change summaries here.

    Otherwise prompts contain the messages, and the reason is added to `losses`. Returns the details
    by which an export restores the original summary; empty if it was not imported.
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
    choice = summary_permissions.check_summary_permission(user=owner, chat=chat, action="edit")
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
