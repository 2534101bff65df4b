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
from django.utils.text import get_text_list
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

from chats.files import attach
from chats.models import Branch, Chat, Compaction
from chats.prompt import model_choice
from chats.prompt.next_prompt import (
    SKILL_PARTS,
    Outlook,
    compose_next_prompt,
    get_segment_disposition,
    load_missed_search,
)
from chats.prompt.tail import measure_excerpt_room
from chats.prompt.tokenizer import get_page_counter
from chats.record import states
from chats.record.messages import check_text
from contextpolicy.engine.compose.assembly import assess_compaction_need
from contextpolicy.engine.policy.budget import compute_compact_mark, compute_prepare_mark
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.wording import join_items

IN_THE_MAKING = [Compaction.Status.PREPARING, Compaction.Status.PREPARED]
# The meter does not announce a compaction that is more than this many turns away.
FORESEEN = 20
# The parts of a prompt in display order. Optional ones are shown only if present.
ORDER = ("system", "tools", "summary", "pins", "history", "tail", "question")
OPTIONAL = frozenset({"tools", "tail"})


@dataclass(frozen=True, slots=True)
class Draft:
    """A message being written: its author, text and uploaded files."""

    user: AbstractBaseUser
    text: str
    files: Sequence[uuid.UUID] = ()


@dataclass(frozen=True, slots=True)
class MeterPart:
    """One line of the context meter: label, tokens, and a note about its contents."""

    key: str
    label: str
    tokens: int
    why: str


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
    loaded. A `draft` is counted as the next message, with the excerpts that it retrieves. Raises
    the refusals of `model_choice.choose_chat_model`, for the draft those of
    `record.messages.check_text` and `attach.build_attached_files`, and `composition.PromptRefused`.
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
                model_window=choice.model.window,
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


def build_meter_parts(outlook: Outlook) -> tuple[MeterPart, ...]:
    """Return the lines of the breakdown, each with its reason."""
    tokens, values = outlook.tokens, outlook.choice.values
    limit = outlook.sent.budget.prompt_limit
    why = {
        "system": (pgettext("part of a prompt", "System"), describe_system_sources(outlook)),
        "tools": (gettext("Tools"), gettext("Definitions of the tools that the model can call")),
        "summary": describe_summary_layer(outlook),
        "pins": (gettext("Pins"), describe_pins(outlook)),
        "history": (gettext("History"), describe_history(outlook)),
        "tail": describe_tail(outlook),
        "question": (
            gettext("Your message"),
            gettext("Your text and attached files, counted as you write"),
        ),
    }
    if outlook.kept and not tokens.get("summary"):
        del why["summary"]
    return (
        *(
            MeterPart(key, why[key][0], tokens.get(key, 0), why[key][1])
            for key in ORDER
            if key in why and (tokens.get(key) or key not in OPTIONAL)
        ),
        MeterPart(
            "free",
            pgettext("room", "Free"),
            max(limit - sum(tokens.values()), 0),
            describe_free_room(outlook),
        ),
        MeterPart(
            "reserve",
            gettext("Reply reserve"),
            values.reserve_tokens,
            gettext("Kept free so the reply is not cut off"),
        ),
    )


def describe_system_sources(outlook: Outlook) -> str:
    """Return the sources of the system text, such as the policy and the chat."""
    found = [s.message_id for s in outlook.sent.segments if s.origin == "system"]
    found = [name for name in dict.fromkeys(found) if name not in SKILL_PARTS]
    if not found:
        return describe_skills(outlook) or gettext("None")
    whose = {"policy": gettext("the policy"), "chat": gettext("the chat")}
    named = get_text_list([whose.get(name, name) for name in found], gettext("and"))
    sources = gettext("Instructions from {sources}").format(sources=named)
    return "; ".join(words for words in (sources, describe_skills(outlook)) if words)


def describe_skills(outlook: Outlook) -> str:
    """Return a text with the tokens of skills in the system text, and the number loaded.

    Empty if skills use no tokens.
    """
    tokens = outlook.skill_tokens
    if not tokens:
        return ""
    words = gettext("skills: {tokens:,} tokens, {loaded:,} loaded")
    return words.format(tokens=tokens, loaded=len(outlook.loaded_skills))


def describe_pins(outlook: Outlook) -> str:
    """Return a text with the number of pinned messages that are sent outside the history."""
    count = sum(1 for s in outlook.sent.segments if s.origin == "pin")
    if not count:
        return gettext("None")
    if outlook.given.summary:
        words = ngettext(
            "{n:,} message covered by the summary", "{n:,} messages covered by the summary", count
        )
    else:
        words = ngettext(
            "{n:,} message before the window", "{n:,} messages before the window", count
        )
    return words.format(n=count)


def describe_summary_layer(outlook: Outlook) -> tuple[str, str]:
    """Describe the part before the history: a summary, a window, both, or neither."""
    summary, left = outlook.given.summary, outlook.sent.left_out
    behind = describe_left_out(outlook, "window")
    label = gettext("Summary")
    if summary is not None and any(out.reason == "covered" for out in left):
        covered = format_seq_range(summary.from_seq, summary.to_seq)
        if behind:
            words = gettext("Covers {covered}; {left} left out")
            return label, words.format(covered=covered, left=behind)
        return label, gettext("Covers {covered}").format(covered=covered)
    if behind:
        return gettext("Window"), gettext("Leaves out {left}").format(left=behind)
    if summary is not None:
        return label, gettext("Does not fit into the prompt")
    writes = outlook.choice.values.strategy == "dynamic_summary"
    return label, gettext("None yet") if writes else gettext("Not used by this policy")


def describe_left_out(outlook: Outlook, reason: str) -> str:
    """Return a text with the range of the messages left out for a reason.

    If there are several ranges, it has the number of messages instead. Empty if no messages are
    left out.
    """
    found = [out for out in outlook.sent.left_out if out.reason == reason]
    if len(found) == 1:
        return format_seq_range(found[0].from_seq, found[0].to_seq)
    return (
        format_meter_messages(sum(out.to_seq - out.from_seq + 1 for out in found)) if found else ""
    )


# The parts of the tail by segment label.
TAIL_PARTS = {
    "preferences": gettext_lazy("preferences"),
    "profile": gettext_lazy("your instructions"),
    "recent": gettext_lazy("messages from other chats"),
    "references": gettext_lazy("retrieved context"),
    "date": gettext_lazy("the date of the question"),
}


def describe_tail(outlook: Outlook) -> tuple[str, str]:
    """Return the label of the tail and the names of its parts."""
    if outlook.kept is not None:
        left = describe_left_out(outlook, "state") or gettext("none yet")
        return gettext("State"), gettext("Replaces the dialogue: {left}").format(left=left)
    names = {s.message_id for s in outlook.sent.segments if s.origin == "tail"}
    found = [str(words) for name, words in TAIL_PARTS.items() if name in names]
    words = join_items(found) or gettext("further text")
    label = gettext("Date") if names == {"date"} else gettext("Background")
    return label, f"{words[0].upper()}{words[1:]}"


HISTORY_REPLACED = gettext_lazy("None: replaced by the state")


def describe_history(outlook: Outlook) -> str:
    """Return a sentence about the messages that are sent unchanged."""
    found = [s for s in outlook.sent.segments if s.origin == "history"]
    if not found:
        return str(HISTORY_REPLACED) if outlook.kept else gettext("Nothing yet")
    cut = sum(1 for s in found if get_segment_disposition(s).sent == "cut")
    if cut:
        words = ngettext(
            "{n:,} message, from message {first:,} on, {cut:,} of them cut",
            "{n:,} messages, from message {first:,} on, {cut:,} of them cut",
            len(found),
        )
    else:
        words = ngettext(
            "{n:,} message, from message {first:,} on",
            "{n:,} messages, from message {first:,} on",
            len(found),
        )
    return words.format(n=len(found), first=found[0].seq, cut=cut)


def describe_free_room(outlook: Outlook) -> str:
    """Return a sentence about the prompt limit and about excerpts that a question may add."""
    values, limit = outlook.choice.values, outlook.sent.budget.prompt_limit
    words = describe_full_room(values, limit=limit)
    if outlook.given.background.references or not measure_excerpt_room(outlook.given, outlook.sent):
        return words
    share = int(values.reference_share * limit)
    added = gettext(
        "{words}. A question adds up to {share:,} tokens of excerpts from earlier messages"
    )
    return added.format(words=words, share=share)


def describe_full_room(values: PolicyValues, *, limit: int) -> str:
    """Return a sentence about the prompt limit and its effect on the history."""
    if values.strategy == "entity_state":
        return gettext("Prompt limit: {limit:,}; the state does not grow with the chat").format(
            limit=limit
        )
    if values.strategy == "simple":
        return gettext("Prompt limit: {limit:,}; only the newest messages are sent").format(
            limit=limit
        )
    if values.strategy == "dynamic_summary":
        mark = compute_prepare_mark(values, prompt_limit=limit)
        # xgettext:no-python-format, a percent sign
        words = gettext("Compaction starts at {mark:,} ({share} % of {limit:,})")
    else:
        mark = compute_compact_mark(values, prompt_limit=limit)
        # xgettext:no-python-format, a percent sign
        words = gettext("The window moves at {mark:,} ({share} % of {limit:,})")
    share = round(100 * mark / limit) if limit else 0
    return words.format(mark=mark, share=share, limit=limit)


def format_seq_range(first: int, last: int) -> str:
    """Return “message 5” or “messages 5 to 9”, localized."""
    if first == last:
        return gettext("message {first:,}").format(first=first)
    return gettext("messages {first:,} to {last:,}").format(first=first, last=last)


def format_meter_messages(count: int) -> str:
    """Format a number of messages: 1 message, 2 messages."""
    return ngettext("{n:,} message", "{n:,} messages", count).format(n=count)


def get_pending_summary_status(branch: Branch) -> str | None:
    """Return the status of the branch's pending summary, or None."""
    rows = branch.compactions.filter(status__in=IN_THE_MAKING)
    return rows.values_list("status", flat=True).first()


# Forecasts of the next compaction without a number of turns.
COMPACTION_PAUSED = gettext_lazy("automatic compaction paused")
SUMMARY_READY = gettext_lazy("a summary is ready")
AFTER_NEXT_REPLY = gettext_lazy("compaction after the next reply")


def describe_next_compaction(branch: Branch, *, outlook: Outlook, making: str | None) -> str:
    """Return a sentence about the time at which older messages leave the prompt.

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
