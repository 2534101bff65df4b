"""The content of the page of one compaction: its state, its numbers and its ledger rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from chats.compaction.people.undo import can_be_redone
from chats.counts import balances
from chats.counts.balances import Balance
from chats.models import Branch, Chat, Compaction
from chats.models.compactions import EXTRACTIVE
from chats.rendering.store import html_for_many
from chats.web.compactions.report import FactReport
from chats.web.reasons import COMPACTION_STATES, not_used_words
from chats.web.thread.compaction_marker import CompactionMarker, sections_of, summary_texts
from chats.web.thread.composer import BarPart
from chats.web.thread.facts import folded_tokens
from chats.web.thread.rows import BranchUnderPolicy, Coverage, ground_of
from chats.web.thread.sent_now import sent_now
from chats.web.words import counted, grouped
from contextpolicy.engine.budget import prepare_mark, prompt_limit
from contextpolicy.models import AuditEvent
from contextpolicy.resolution import values_of

MOST_EVENTS = 50


@dataclass(frozen=True, slots=True)
class PromptBar:
    """The bar of the prompt before or after."""

    label: str
    words: str
    total: str
    parts: Sequence[BarPart]


@dataclass(frozen=True, slots=True)
class CompactionFigure:
    """A number with its reason."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class CompactionView:
    """The page's content about its compaction, apart from its originals."""

    ground: BranchUnderPolicy
    marker: CompactionMarker
    kind: str
    state: str
    reason: str
    author: str
    is_in_force: bool
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
        """True if this person may put other words in its place."""
        is_summary = self.marker.compaction.kind == Compaction.Kind.SUMMARY
        return self.is_in_force and is_summary and not self.marker.locks.edit


def view_of(row: Compaction, *, chat: Chat, user: User, report: FactReport) -> CompactionView:
    """Return the page's content. Reads a bounded number of rows."""
    ground = ground_of(chat=chat, user=user)
    branch = ground.branch
    is_in_force = row in in_force_on(branch)
    kind, state = state_words(row, cover=ground.cover)
    html = html_for_many(summary_texts(row), seen=row.branch)
    folded = folded_tokens(row.branch, row=row)
    marker = CompactionMarker(
        row,
        html[row.text],
        folded_tokens=folded,
        sections=sections_of(row, chat_id=chat.pk, html=html),
        is_paused=branch.compaction_paused,
        is_unused=row in ground.cover.unused,
        can_redo=row.status == Compaction.Status.UNDONE and can_be_redone(row, branch=branch),
        locks=ground.locks,
        policy_label=ground.policy_label,
        sent=sent_now(row, outlook=ground.outlook, branch=branch),
    )
    limit = limit_of(row, chat=chat)
    scale = max(limit, row.tokens_before, row.tokens_after)
    return CompactionView(
        ground=ground,
        marker=marker,
        kind=kind,
        state=state,
        reason=not_used_words(row.reason) if row.reason and row.kind != "window" else "",
        author=person(row.asked_by, user=user),
        is_in_force=is_in_force,
        is_waiting=row.status == Compaction.Status.PREPARED and row.needs_approval,
        is_paused=branch.compaction_paused,
        bars=bars_of(row, scale=scale) if row.tokens_before else (),
        scale=grouped(limit) if limit else "",
        figures=figures_of(row, marker=marker, chat=chat, user=user, report=report),
        balance=balance_figures(balances.of_compaction(row)),
        report=report,
        events=events_of(row, chat=chat, user=user),
    )


def in_force_on(branch: Branch) -> list[Compaction]:
    """Return the summary in force on a branch, and the window on top of it."""
    active = branch.active_compaction
    return [row for row in (active, active.base if active else None) if row]


def state_words(row: Compaction, *, cover: Coverage) -> tuple[str, str]:
    """Return the colour and the words of a compaction's state, as seen from a branch."""
    if row in cover.unused:
        return "warn", "In force, but not used by this policy"
    if row in (cover.active, cover.summary):
        return "ok", "In use"
    if row.status == Compaction.Status.PREPARED and row.needs_approval:
        return "warn", "Waits for approval"
    return COMPACTION_STATES[Compaction.Status(row.status)]


def limit_of(row: Compaction, *, chat: Chat) -> int:
    """Return the tokens that a prompt may have under the row's policy."""
    window = chat.model.window if chat.model else None
    return prompt_limit(values_of(row.effective_policy), model_window=window)


def bars_of(row: Compaction, *, scale: int) -> list[PromptBar]:
    """Draw the prompt before and after: what was replaced, what replaced it, and the rest."""
    summary = row.summary_tokens or 0
    rest = max(row.tokens_after - summary, 0)
    replaced = max(row.tokens_before - rest, 0)
    return [
        bar("Before", [("history", replaced, "replaced"), ("rest", rest, "the rest")], scale=scale),
        bar("After", [("summary", summary, "summary"), ("rest", rest, "the rest")], scale=scale),
    ]


def bar(label: str, parts: Sequence[tuple[str, int, str]], *, scale: int) -> PromptBar:
    """Draw one bar; positions in percent of the scale."""
    drawn, x = [], 0.0
    for key, tokens, _ in parts:
        width = 100 * tokens / scale if scale else 0
        drawn.append(BarPart(key=key, x=f"{x:.2f}%", width=f"{width:.2f}%"))
        x += width + (0.35 if tokens else 0)
    total = sum(tokens for _, tokens, _ in parts)
    words = ", ".join(f"{name} {tokens:,}" for _, tokens, name in parts)
    return PromptBar(
        label=label, words=f"{label}: {words} tokens", total=grouped(total), parts=drawn
    )


def figures_of(
    row: Compaction, *, marker: CompactionMarker, chat: Chat, user: User, report: FactReport
) -> list[CompactionFigure]:
    """Return the headline numbers, each with where it comes from."""
    found = []
    if row.kind == Compaction.Kind.SUMMARY and row.summary_tokens and marker.folded_tokens:
        share = 100 * (1 - row.summary_tokens / marker.folded_tokens)
        words = f"≈ {marker.folded_tokens:,} → {row.summary_tokens:,}"
        found.append(CompactionFigure("Replaced", words, f"−{share:.1f} %, {marker.covered}"))
    else:
        found.append(
            CompactionFigure("Messages", grouped(marker.count), f"{row.from_seq} to {row.to_seq}")
        )
    found.append(
        CompactionFigure("Started by", person(row.asked_by, user=user), started_words(row, chat))
    )
    if row.kind == Compaction.Kind.SUMMARY:
        found.append(CompactionFigure("Written by", writer(row, user=user), written_words(row)))
    if report.words:
        lost = len(report.lost)
        found.append(
            CompactionFigure("Facts kept", report.words, f"{lost} lost" if lost else "none lost")
        )
    return found


def balance_figures(balance: Balance) -> list[CompactionFigure]:
    """Return what was paid and what was saved, up to the prompts that were counted."""
    unreported = f", {balance.unreported:,} not reported" if balance.unreported else ""
    prompts = counted(balance.calls, "prompt") + unreported
    said = {
        "Cost": (balance.cost, "of its own calls"),
        "Saved": (balance.saved, f"≈ {balance.saved_tokens:,} tokens in {prompts}"),
        "Lost from the cache": (balance.lost, f"≈ {balance.lost_tokens:,} tokens read anew"),
        "Net effect": (balance.net, "saved, less the cost and what the cache lost"),
    }
    return [
        CompactionFigure(
            label,
            balances.words(money),
            f"a price is not set; {note}" if money.unknown else note,
        )
        for label, (money, note) in said.items()
    ]


def started_words(row: Compaction, chat: Chat) -> str:
    """Say why the compaction was begun."""
    if row.trigger == "revision":
        return "by an edit of the summary"
    if row.trigger == "rerun":
        return "written again from the originals"
    if row.trigger == "manual":
        return "asked for, before it was due"
    if row.trigger == "turns":
        threshold = values_of(row.effective_policy).turn_threshold or 0
        return f"more than {counted(threshold, 'turn')} without a summary"
    if row.trigger == "overflow":
        return "the model server refused the prompt as too long"
    limit = limit_of(row, chat=chat)
    if not limit:
        return f"{row.tokens_before:,} tokens"
    mark = prepare_mark(values_of(row.effective_policy), prompt_limit=limit)
    over = "over" if row.tokens_before >= mark else "due from"
    return f"{row.tokens_before:,} tokens, {over} {mark:,}"


def writer(row: Compaction, *, user: User) -> str:
    """Say whose words the summary is."""
    if row.trigger == "revision":
        return person(row.asked_by, user=user)
    return "no model" if row.model_name in {"", EXTRACTIVE} else row.model_name


def written_words(row: Compaction) -> str:
    """Say how long it took, and after which instructions."""
    took = f"{row.duration_ms / 1000:.1f} s" if row.duration_ms is not None else ""
    tries = f"attempt {row.attempt}" if row.attempt > 1 else ""
    how = "sentences of the originals" if row.model_name == EXTRACTIVE else row.prompt_version
    return ", ".join(part for part in (took, tries, how.replace("-", " ")) if part)


def person(name: str, *, user: User) -> str:
    """Name a person or process of the ledger for this reader."""
    if name == f"user:{user.pk}":
        return "you"
    return "somebody else" if name.startswith("user:") else "this server"


def others_of(row: Compaction, *, chat: Chat) -> list[Compaction]:
    """Return the other summaries of the chat that have a text, newest first."""
    rows = Compaction.objects.filter(branch__chat=chat, kind=Compaction.Kind.SUMMARY)
    return list(rows.exclude(pk=row.pk).exclude(text="").order_by("-created_at")[:100])


def events_of(row: Compaction, *, chat: Chat, user: User) -> list[tuple[AuditEvent, str]]:
    """Return the rows of the ledger about it, oldest first, each with who did it."""
    rows = AuditEvent.objects.filter(scope=f"chat:{chat.pk}", data__compaction=str(row.pk))
    found = list(rows.order_by("seq")[:MOST_EVENTS])
    return [(event, person(event.actor, user=user)) for event in found]
