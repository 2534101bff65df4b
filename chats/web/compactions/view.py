"""View models of the compaction page: state, numbers and ledger rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.utils.translation import gettext, ngettext

from chats.compaction.people.undo import can_be_redone
from chats.counts import balances
from chats.counts.balances import Balance
from chats.models import Branch, Chat, Compaction
from chats.models.compactions import EXTRACTIVE
from chats.rendering.store import render_texts
from chats.web.compactions.report import FactReport
from chats.web.reasons import COMPACTION_STATES, describe_unused_reason
from chats.web.thread.compaction_marker import (
    CompactionMarker,
    build_summary_sections,
    list_summary_texts,
)
from chats.web.thread.composer import BarPart
from chats.web.thread.facts import sum_covered_tokens
from chats.web.thread.rows import BranchUnderPolicy, Coverage, load_branch_under_policy
from chats.web.thread.sent_now import count_sent_messages
from chats.web.words import format_number, format_token_count
from contextpolicy.engine.policy.budget import compute_prepare_mark, compute_prompt_limit
from contextpolicy.models import AuditEvent
from contextpolicy.resolution import load_policy_values
from contextpolicy.wording import join_items

MOST_EVENTS = 50


@dataclass(frozen=True, slots=True)
class PromptBar:
    """A bar with the parts of the prompt, either uncompacted or compacted."""

    label: str
    words: str
    total: str
    parts: Sequence[BarPart]


@dataclass(frozen=True, slots=True)
class CompactionFigure:
    """A number with a label and a note."""

    label: str
    value: str
    note: str
    # Code of the note, if there is one.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CompactionView:
    """The compaction page's data, without its originals."""

    ground: BranchUnderPolicy
    marker: CompactionMarker
    kind: str
    status: str
    state: str
    reason: str
    # The user of the page started or wrote it.
    is_own: bool
    is_in_use: bool
    is_waiting: bool
    is_paused: bool
    bars: Sequence[PromptBar]
    scale: str
    figures: Sequence[CompactionFigure]
    balance: Sequence[CompactionFigure]
    report: FactReport
    events: Sequence[tuple[AuditEvent, str]]

    @property
    def can_edit(self) -> bool:
        """True if the user may edit the summary."""
        is_summary = self.marker.compaction.kind == Compaction.Kind.SUMMARY
        return self.is_in_use and is_summary and not self.marker.locks.edit


def build_compaction_view(
    row: Compaction, *, chat: Chat, user: User, report: FactReport
) -> CompactionView:
    """Return the page's data. Reads a bounded number of rows."""
    ground = load_branch_under_policy(chat=chat, user=user)
    branch = ground.branch
    is_in_use = row in list_active_compactions(branch)
    kind, status, state = describe_compaction_state(row, cover=ground.cover)
    html = render_texts(list_summary_texts(row), seen=row.branch)
    replaced = sum_covered_tokens(row.branch, row=row)
    marker = CompactionMarker(
        row,
        html[row.text],
        covered_tokens=replaced,
        sections=build_summary_sections(row, chat_id=chat.pk, html=html),
        is_paused=branch.compaction_paused,
        is_unused=row in ground.cover.unused,
        can_redo=row.status == Compaction.Status.UNDONE and can_be_redone(row, branch=branch),
        locks=ground.locks,
        policy_label=ground.policy_label,
        sent=count_sent_messages(row, outlook=ground.outlook, branch=branch),
    )
    limit = limit_of(row, chat=chat)
    scale = max(limit, row.tokens_before, row.tokens_after)
    return CompactionView(
        ground=ground,
        marker=marker,
        kind=kind,
        status=status,
        state=state,
        reason=describe_unused_reason(row.reason) if row.reason and row.kind != "window" else "",
        is_own=row.asked_by == f"user:{user.pk}",
        is_in_use=is_in_use,
        is_waiting=row.status == Compaction.Status.PREPARED and row.needs_approval,
        is_paused=branch.compaction_paused,
        bars=build_prompt_bars(row, scale=scale) if row.tokens_before else (),
        scale=format_number(limit) if limit == scale else "",
        figures=build_compaction_figures(row, marker=marker, chat=chat, user=user, report=report),
        balance=build_balance_figures(balances.load_compaction_balance(row)),
        report=report,
        events=load_compaction_events(row, chat=chat, user=user),
    )


def list_active_compactions(branch: Branch) -> list[Compaction]:
    """Return the active compactions of a branch: its summary, and a window based on it."""
    active = branch.active_compaction
    return [row for row in (active, active.base if active else None) if row]


def describe_compaction_state(row: Compaction, *, cover: Coverage) -> tuple[str, str, str]:
    """Return the CSS class, code and label of a compaction's state, as seen from a branch."""
    if row in cover.unused:
        return "warn", "unused", gettext("Published, but not used by the policy")
    if row in (cover.active, cover.summary):
        return "ok", "in_use", gettext("In use")
    if row.status == Compaction.Status.PREPARED and row.needs_approval:
        return "warn", "pending_approval", gettext("Pending approval")
    kind, label = COMPACTION_STATES[Compaction.Status(row.status)]
    return kind, row.status, str(label)


def limit_of(row: Compaction, *, chat: Chat) -> int:
    """Return the prompt limit of the row's policy with the chat's model, in tokens."""
    window = chat.model.window if chat.model else None
    return compute_prompt_limit(load_policy_values(row.effective_policy), model_window=window)


def build_prompt_bars(row: Compaction, *, scale: int) -> list[PromptBar]:
    """Return the bars before and after: replaced messages, summary, and the rest."""
    summary = row.summary_tokens or 0
    rest = max(row.tokens_after - summary, 0)
    replaced = max(row.tokens_before - rest, 0)
    before = gettext("Before: {part:,} tokens replaced, {rest:,} other tokens")
    after = gettext("After: {part:,} tokens in the summary, {rest:,} other tokens")
    return [
        build_prompt_bar(
            gettext("Before"),
            [("history", replaced), ("rest", rest)],
            words=before.format(part=replaced, rest=rest),
            scale=scale,
        ),
        build_prompt_bar(
            gettext("After"),
            [("summary", summary), ("rest", rest)],
            words=after.format(part=summary, rest=rest),
            scale=scale,
        ),
    ]


def build_prompt_bar(
    label: str, parts: Sequence[tuple[str, int]], *, words: str, scale: int
) -> PromptBar:
    """Return one bar with positions in percent of `scale`. `words` describes it."""
    drawn, x = [], 0.0
    for key, tokens in parts:
        width = 100 * tokens / scale if scale else 0
        drawn.append(BarPart(key=key, x=f"{x:.2f}%", width=f"{width:.2f}%"))
        x += width + (0.35 if tokens else 0)
    total = sum(tokens for _, tokens in parts)
    return PromptBar(label=label, words=words, total=format_number(total), parts=drawn)


def build_compaction_figures(
    row: Compaction, *, marker: CompactionMarker, chat: Chat, user: User, report: FactReport
) -> list[CompactionFigure]:
    found = []
    if row.kind == Compaction.Kind.SUMMARY and row.summary_tokens and marker.covered_tokens:
        share = 100 * (1 - row.summary_tokens / marker.covered_tokens)
        words = f"≈ {marker.covered_tokens:,} → {row.summary_tokens:,}"
        note = ngettext(
            "−{share:.1f} %, {n:,} message", "−{share:.1f} %, {n:,} messages", marker.count
        ).format(share=share, n=marker.count)
        found.append(CompactionFigure(gettext("Replaced"), words, note))
    else:
        covered = gettext("{first} to {last}").format(first=row.from_seq, last=row.to_seq)
        found.append(CompactionFigure(gettext("Messages"), format_number(marker.count), covered))
    by = describe_ledger_actor(row.asked_by, user=user)
    began, note = describe_trigger(row, chat)
    found.append(CompactionFigure(gettext("Started by"), by, note, began))
    if row.kind == Compaction.Kind.SUMMARY:
        by = describe_summary_author(row, user=user)
        found.append(CompactionFigure(gettext("Written by"), by, describe_generation(row)))
    if report.words:
        lost = len(report.lost)
        note = gettext("{n} lost").format(n=lost) if lost else gettext("none lost")
        found.append(CompactionFigure(gettext("Facts kept"), report.words, note))
    return found


def build_balance_figures(balance: Balance) -> list[CompactionFigure]:
    """Return the cost, savings, cache losses and net effect over the counted prompts."""
    losses = gettext("≈ {tokens:,} tokens not read from the cache")
    said = (
        (gettext("Cost"), balance.cost, gettext("for the summarising model’s calls")),
        (gettext("Saved"), balance.saved, describe_savings(balance)),
        (gettext("Cache losses"), balance.lost, losses.format(tokens=balance.lost_tokens)),
        (gettext("Net effect"), balance.net, gettext("savings minus costs and cache losses")),
    )
    unpriced = gettext("price or usage unknown; {note}")
    return [
        CompactionFigure(
            label,
            balances.format_money(money),
            unpriced.format(note=note) if money.unknown else note,
        )
        for label, money, note in said
    ]


def describe_savings(balance: Balance) -> str:
    """Return a sentence with the saved tokens and the number of prompts.

    Prompts whose usage the provider did not report are stated separately.
    """
    if balance.unreported:
        words = ngettext(
            "≈ {tokens:,} tokens in {n:,} prompt, {unreported:,} not reported",
            "≈ {tokens:,} tokens in {n:,} prompts, {unreported:,} not reported",
            balance.calls,
        )
    else:
        words = ngettext(
            "≈ {tokens:,} tokens in {n:,} prompt",
            "≈ {tokens:,} tokens in {n:,} prompts",
            balance.calls,
        )
    return words.format(tokens=balance.saved_tokens, n=balance.calls, unreported=balance.unreported)


def describe_trigger(row: Compaction, chat: Chat) -> tuple[str, str]:
    """Return the code and the label of the compaction's trigger."""
    if row.trigger == "revision":
        return "revision", gettext("edited summary")
    if row.trigger == "rerun":
        return "rerun", gettext("regenerated from the originals")
    if row.trigger == "manual":
        return "manual", gettext("requested by a user")
    if row.trigger == "turns":
        threshold = load_policy_values(row.effective_policy).turn_threshold or 0
        words = ngettext(
            "more than {n:,} turn without a summary",
            "more than {n:,} turns without a summary",
            threshold,
        )
        return "turns", words.format(n=threshold)
    if row.trigger == "overflow":
        return "overflow", gettext("the model server refused the prompt as too long")
    limit = limit_of(row, chat=chat)
    if not limit:
        return "tokens", format_token_count(row.tokens_before)
    mark = compute_prepare_mark(load_policy_values(row.effective_policy), prompt_limit=limit)
    if row.tokens_before >= mark:
        code, words = "over_mark", gettext("{tokens:,} tokens, over {mark:,}")
    else:
        code, words = "below_mark", gettext("{tokens:,} tokens, below {mark:,}")
    return code, words.format(tokens=row.tokens_before, mark=mark)


def describe_summary_author(row: Compaction, *, user: User) -> str:
    if row.trigger == "revision":
        return describe_ledger_actor(row.asked_by, user=user)
    return gettext("no model") if row.model_name in {"", EXTRACTIVE} else row.model_name


def describe_generation(row: Compaction) -> str:
    took = tries = ""
    if row.duration_ms is not None:
        took = gettext("{seconds:.1f} s").format(seconds=row.duration_ms / 1000)
    if row.attempt > 1:
        tries = gettext("attempt {n}").format(n=row.attempt)
    how = row.prompt_version.replace("-", " ")
    if row.model_name == EXTRACTIVE:
        how = gettext("extracted sentences")
    return join_items(part for part in (took, tries, how) if part)


def describe_ledger_actor(name: str, *, user: User) -> str:
    """Return the label of a ledger actor for the reader: “you”, another user or this server."""
    if name == f"user:{user.pk}":
        return gettext("you")
    return gettext("another user") if name.startswith("user:") else gettext("this server")


def list_other_summaries(row: Compaction, *, chat: Chat) -> list[Compaction]:
    """Return up to 100 other summaries of the chat that have a text, newest first."""
    rows = Compaction.objects.filter(branch__chat=chat, kind=Compaction.Kind.SUMMARY)
    return list(rows.exclude(pk=row.pk).exclude(text="").order_by("-created_at")[:100])


def load_compaction_events(
    row: Compaction, *, chat: Chat, user: User
) -> list[tuple[AuditEvent, str]]:
    """Return the ledger rows about a compaction, oldest first, each with the label of its actor.

    At most `MOST_EVENTS` rows.
    """
    rows = AuditEvent.objects.filter(scope=f"chat:{chat.pk}", data__compaction=str(row.pk))
    found = list(rows.order_by("seq")[:MOST_EVENTS])
    return [(event, describe_ledger_actor(event.actor, user=user)) for event in found]
