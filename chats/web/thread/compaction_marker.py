"""Compaction markers: their position, their labels, and the facts that summaries kept and lost."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from zlib import crc32

from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext

from chats.actions.permissions import Locks
from chats.compaction.people.undo import NothingToRedo
from chats.models import Compaction
from chats.web.reasons import FACT_KINDS, WINDOW_REASONS, describe_unused_reason
from chats.web.thread.sent_now import SentNow
from chats.web.words import abbreviate_number, format_message_count
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.text.claims import strip_bullet_label, strip_summary_labels
from contextpolicy.wording import join_items

WORDS = re.compile(r"\w+")
# Original messages per page.
ORIGINALS_PAGE = 20


@dataclass(frozen=True, slots=True)
class SummarySource:
    """A source message of a summary line. `address` is empty outside the covered range."""

    seq: int
    address: str
    key: str


@dataclass(frozen=True, slots=True)
class Bullet:
    """A summary line with its sources."""

    html: SafeString
    sources: Sequence[SummarySource]
    # True if the line has no source among the summarised messages.
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    bullets: Sequence[Bullet]


@dataclass(frozen=True, slots=True)
class FactCount:
    """Number of facts in the originals and in the summary, and the missing ones."""

    kept: int
    total: int
    lost: Sequence[tuple[str, str]]

    @property
    def words(self) -> str:
        """The count as text, such as “33 of 36 checked facts kept”."""
        words = ngettext(
            "{kept:,} of {n:,} checked fact kept",
            "{kept:,} of {n:,} checked facts kept",
            self.total,
        )
        return words.format(kept=self.kept, n=self.total)


@dataclass(frozen=True, slots=True)
class CompactionMarker:
    """The marker of a compaction in the thread.

    `covered_tokens`: tokens of the covered messages, if known. `is_paused`: automatic compaction is
    paused on this branch after an undo. `is_unused`: published, but not used by the current policy.
    `can_redo`: the compaction it was based on is active. `sent`: how the next prompt sends its
    range; None if unknown.
    """

    partial: ClassVar[str] = "chats/_compaction_marker.html"
    compaction: Compaction
    html: SafeString
    covered_tokens: int | None = None
    sections: Sequence[Section] = field(default_factory=tuple)
    is_paused: bool = False
    is_unused: bool = False
    can_redo: bool = True
    locks: Locks = field(default_factory=Locks)
    policy_label: str = ""
    sent: SentNow | None = None

    @property
    def look(self) -> str:
        """Digest of the marker's content; empty if it shows a running time."""
        row = self.compaction
        if row.status in {Compaction.Status.REJECTED, Compaction.Status.FAILED}:
            return ""
        told = (row.status, row.from_seq, row.to_seq, row.exceptions, row.text, row.remark)
        around = (self.covered_tokens, self.is_paused, self.is_unused, self.can_redo)
        words = (self.policy_label, self.sent, replace(self.locks, pins=None))
        return f"{crc32(repr((told, around, words)).encode()):08x}"

    @property
    def author(self) -> str:
        trigger = self.compaction.trigger
        if trigger == "revision":
            return gettext("edited by a user")
        if trigger in {"manual", "rerun"}:
            return gettext("by a user")
        return gettext("automatically")

    @property
    def count(self) -> int:
        row = self.compaction
        return row.to_seq - row.from_seq + 1 - len(row.exceptions)

    @property
    def covered(self) -> str:
        return format_message_count(self.count)

    @property
    def named_count(self) -> int:
        """Number of messages in the title: those covered, or those that a window leaves out."""
        if self.compaction.kind == Compaction.Kind.WINDOW and self.sent is not None:
            return self.sent.none
        return self.count

    @property
    def what(self) -> str:
        n = self.named_count
        if self.compaction.kind == Compaction.Kind.WINDOW:
            words = ngettext("{n:,} message no longer sent", "{n:,} messages no longer sent", n)
        else:
            words = ngettext("{n:,} message summarised", "{n:,} messages summarised", n)
        return words.format(n=n)

    @property
    def is_left_out(self) -> bool:
        """True if the summary is active but does not fit into the prompt."""
        return self.sent is not None and not self.sent.summary

    @property
    def tokens(self) -> str:
        """Token counts before and after the compaction.

        They count messages and summary, or the prompt. Empty if neither was counted.
        """
        row = self.compaction
        if row.kind == Compaction.Kind.SUMMARY and self.covered_tokens:
            summary = row.summary_tokens or ApproximateCounter().count(row.text)
            words = gettext("≈ {before} → {after} tokens")
            return words.format(
                before=abbreviate_number(self.covered_tokens), after=abbreviate_number(summary)
            )
        if not row.tokens_before:
            return ""
        words = gettext("prompt ≈ {before} → {after} tokens")
        return words.format(
            before=abbreviate_number(row.tokens_before), after=abbreviate_number(row.tokens_after)
        )

    @property
    def reason(self) -> str:
        """The reason why a window moved or a summary was not used.

        Unknown reasons are shown unchanged.
        """
        row = self.compaction
        if row.kind == Compaction.Kind.WINDOW:
            known = WINDOW_REASONS.get(row.reason)
            return str(known) if known else gettext("the prompt has no room for them")
        return describe_unused_reason(row.reason)

    @property
    def locked(self) -> Sequence[str]:
        """The reasons, without duplicates, that lock the actions of the marker's state."""
        locks, status = self.locks, self.compaction.status
        sentences: tuple[str, ...] = ()
        if status == Compaction.Status.UNDONE:
            sentences = (locks.undo,) if self.can_redo else (gettext(NothingToRedo.sentence),)
        elif status == Compaction.Status.PREPARED:
            sentences = (locks.approve,) if self.compaction.needs_approval else ()
        elif status in {Compaction.Status.REJECTED, Compaction.Status.FAILED}:
            sentences = (locks.compact,)
        elif status == Compaction.Status.PUBLISHED and self.compaction.kind != "window":
            sentences = (locks.undo, locks.edit, locks.rerun)
        return [sentence for sentence in dict.fromkeys(sentences) if sentence]

    @property
    def facts(self) -> FactCount | None:
        """The fact count of the summary; None if nothing was checked."""
        kept, lost = (list_side_facts(self.compaction.retention, side) for side in ("kept", "lost"))
        total = len(kept) + len(lost)
        return (
            FactCount(kept=len(kept), total=total, lost=group_facts_by_kind(lost))
            if total
            else None
        )


def list_side_facts(
    retention: Mapping[str, Mapping[str, Sequence[str]]], side: str
) -> list[list[str]]:
    """Return the kept or lost facts of a summary as [kind, fact] pairs."""
    found = retention.get(side, {})
    return [[kind, fact] for kind in FACT_KINDS for fact in found.get(kind, ())]


def group_facts_by_kind(facts: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Group facts by kind: (label, comma-separated facts)."""
    lines = []
    for kind, words in FACT_KINDS.items():
        found = [fact for of, fact in facts if of == kind]
        if found:
            lines.append((str(words.many), join_items(found)))
    return lines


def list_summary_texts(row: Compaction) -> list[str]:
    return [row.text, *(bullet["text"] for _, bullet in iter_summary_bullets(row))]


def iter_summary_bullets(row: Compaction) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (title, bullet) for each line; nothing if the sections lack any text of the summary.

    A summary with text outside its bullets is shown as written.
    """
    if not is_shown_by_sections(row):
        return
    for section in row.sections:
        for bullet in section["bullets"]:
            yield section["title"], bullet


def is_shown_by_sections(row: Compaction) -> bool:
    """Return True if sections and bullets contain every word of the text, ignoring labels."""
    texts: list[str] = []
    for section in row.sections:
        texts.append(section["title"])
        for bullet in section["bullets"]:
            texts += [strip_bullet_label(bullet["text"]), *map(str, bullet["sources"])]
            texts += map(str, bullet.get("invalid", ()))
    return Counter(WORDS.findall(" ".join(texts))) == Counter(
        WORDS.findall(strip_summary_labels(row.text))
    )


def build_summary_sections(
    row: Compaction, *, chat_id: uuid.UUID, html: Mapping[str, SafeString]
) -> list[Section]:
    """Return the summary's non-empty sections, each line with links to its originals."""
    lines: dict[str, list[Bullet]] = {}
    for title, bullet in iter_summary_bullets(row):
        sources = [build_source_link(row, chat_id=chat_id, seq=seq) for seq in bullet["sources"]]
        unsupported = bool(bullet.get("unsupported"))
        lines.setdefault(title, []).append(Bullet(html[bullet["text"]], sources, unsupported))
    return [Section(title, bullets) for title, bullets in lines.items()]


def build_source_link(row: Compaction, *, chat_id: uuid.UUID, seq: int) -> SummarySource:
    key = f"original-{row.pk}-{seq}"
    if not row.from_seq <= seq <= row.to_seq:
        return SummarySource(seq=seq, address="", key=key)
    page = (seq - row.from_seq) // ORIGINALS_PAGE + 1
    address = reverse("chats:originals", args=[chat_id, row.pk])
    return SummarySource(seq=seq, address=f"{address}?page={page}", key=key)
