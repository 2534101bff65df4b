"""The context meter: the size of the next message's prompt, shown before it is sent.

The counts are in the provider's tokens: the local count times the model's calibration. The receipt
of the next message matches them.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext, gettext_lazy

from chats.files import attach
from chats.models import Branch, Chat, Compaction
from chats.prompt import model_choice
from chats.prompt.meter_parts import MeterPart, build_meter_parts
from chats.prompt.next_prompt import Outlook, compose_next_prompt, load_missed_search
from chats.prompt.tokenizer import get_page_counter
from chats.record import states
from chats.record.message_text import check_text
from contextpolicy.engine.compose.compaction_need import assess_compaction_need
from contextpolicy.engine.policy.budget import compute_compact_mark, compute_prepare_mark

IN_THE_MAKING = [Compaction.Status.PREPARING, Compaction.Status.PREPARED]


# The meter does not announce a compaction that is more than this many turns away.
FORESEEN = 20


@dataclass(frozen=True, slots=True)
class Draft:
    """A message being written: its author, text and uploaded files."""

    user: AbstractBaseUser
    text: str
    files: Sequence[uuid.UUID] = ()


@dataclass(frozen=True, slots=True)
class Meter:
    """The content of the meter, in estimated provider tokens.

    `approximate`: the counts may differ from the receipt's, because the tokenizer is not loaded
    yet.
    """

    used: int
    prompt_limit: int
    token_budget: int
    reserve: int
    parts: tuple[MeterPart, ...]
    approximate: bool
    policy_label: str
    next_compaction: str
    prepare_mark: int
    limit: int
    system_hidden: bool
    kept: states.Kept | None
    writes_summaries: bool
    # Whether a policy sets a retention period.
    limits_age: bool
    # Why the last reply had no search result in time: `late`, `breaker` or `failed`; else empty.
    missed_search: str
    # The outlook from which the meter was built.
    outlook: Outlook


def build_meter(
    *,
    chat: Chat,
    now: datetime,
    outlook: Outlook | None = None,
    branch: Branch | None = None,
    making: str | None = None,
    draft: Draft | None = None,
) -> Meter:
    """Return the meter of a chat.

    Pass `outlook`, `branch` and `making` (the status of a pending summary) if they are already
    loaded. A `draft` is counted as the next message, with the excerpts that it retrieves; it is
    ignored if an `outlook` is passed. Raises the refusals of `model_choice.choose_chat_model`, for
    the draft those of `record.message_text.check_text` and `attach.build_draft_parts`, and
    `composition.PromptRefused`.
    """
    if branch is None:
        rows = Branch.objects.select_related("active_compaction__base", "parent")
        branch = rows.get(pk=cast(uuid.UUID, chat.active_branch_id))
        branch.chat = chat
        making = get_pending_summary_status(branch)
    if outlook is None:
        choice, counter = model_choice.choose_chat_model(chat=chat), get_page_counter()
        if draft and draft.text.strip():
            check_text(draft.text, limit=choice.values.input_length_limit)
        outlook = compose_next_prompt(
            branch,
            choice=choice,
            counter=counter,
            now=now,
            question=draft.text if draft else "",
            files=attach.build_draft_parts(
                draft.files,
                user=draft.user,
                values=choice.values,
                model=choice.model,
                # Unread files are counted by name until they are read.
                unread=True,
            )
            if draft
            else (),
            searches=draft is not None,
        )
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    return Meter(
        used=sum(outlook.tokens.values()),
        prompt_limit=limit,
        token_budget=limit + values.reserve_tokens,
        reserve=values.reserve_tokens,
        parts=build_meter_parts(outlook),
        approximate=outlook.is_estimate,
        policy_label=outlook.choice.effective.label,
        next_compaction=describe_next_compaction(branch, outlook=outlook, making=making),
        prepare_mark=compute_prepare_mark(values, prompt_limit=limit),
        limit=values.input_length_limit,
        system_hidden=values.hide_system_text,
        kept=outlook.kept,
        writes_summaries=values.strategy == "dynamic_summary",
        limits_age=values.retention_days is not None,
        missed_search=load_missed_search(branch) if values.references else "",
        outlook=outlook,
    )


def get_pending_summary_status(branch: Branch) -> str | None:
    """Return the status of the branch's pending summary, or None."""
    rows = branch.compactions.filter(status__in=IN_THE_MAKING)
    return rows.values_list("status", flat=True).first()


# Forecasts of the next compaction without a number of turns.
COMPACTION_PAUSED = gettext_lazy("automatic compaction paused")


SUMMARY_READY = gettext_lazy("a summary is ready")


AFTER_NEXT_REPLY = gettext_lazy("compaction after the next reply")


def describe_next_compaction(branch: Branch, *, outlook: Outlook, making: str | None) -> str:
    """Return a sentence that says when older messages will leave the prompt.

    Empty if that is far away or unknown.
    """
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    used = sum(outlook.tokens.values())
    if values.strategy == "sliding_window":
        due = used >= compute_compact_mark(values, prompt_limit=limit)
        return gettext("the window moves with the next message") if due else ""
    if values.strategy != "dynamic_summary":
        return ""
    if branch.compaction_paused:
        return str(COMPACTION_PAUSED)
    if making is not None:
        running = making == Compaction.Status.PREPARING
        return gettext("compaction running") if running else str(SUMMARY_READY)
    return format_turns_left(estimate_turns_left(outlook))


def estimate_turns_left(outlook: Outlook) -> int | None:
    """Estimate the number of replies until the next compaction, at least 1. None if unknown."""
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    found = []
    if values.turn_threshold:
        found.append(
            values.turn_threshold + 1 - assess_compaction_need(outlook.given, outlook.sent).turns
        )
    mark = compute_prepare_mark(values, prompt_limit=limit)
    used = sum(outlook.tokens.values())
    count = sum(1 for s in outlook.sent.segments if s.origin == "history")
    # A turn is a question and its reply: two messages of the average size so far.
    each = 2 * outlook.tokens.get("history", 0) // count if count else 0
    if used >= mark:
        found.append(1)
    elif each:
        found.append(-(-(mark - used) // each))
    return max(min(found), 1) if found else None


def format_turns_left(left: int | None) -> str:
    """Format the number of replies until the next compaction. Empty if unknown or far away."""
    if left is None or left >= FORESEEN:
        return ""
    if left == 1:
        return str(AFTER_NEXT_REPLY)
    return gettext("next compaction in about {left:,} turns").format(left=left)
