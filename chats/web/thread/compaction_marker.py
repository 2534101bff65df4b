"""The compaction marker: its place in the thread, its words, and what a summary kept and lost."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from zlib import crc32

from django.urls import reverse
from django.utils.safestring import SafeString

from chats.actions.locks import Locks
from chats.compaction.people.undo import NothingToRedo
from chats.models import Compaction
from chats.web.reasons import FACT_KINDS, WINDOW_REASONS, not_used_words
from chats.web.thread.sent_now import SentNow
from chats.web.words import counted, short
from contextpolicy.engine.claims import without_label, without_labels
from contextpolicy.engine.tokens import ApproximateCounter

WORDS = re.compile(r"\w+")
# Originals on one page.
ORIGINALS_PAGE = 20


@dataclass(frozen=True, slots=True)
class SummarySource:
    """A message that a line of a summary comes from; `address` is empty if it is not under it."""

    seq: int
    address: str
    key: str


@dataclass(frozen=True, slots=True)
class Bullet:
    """A line of a summary with its sources."""

    html: SafeString
    sources: Sequence[SummarySource]
    # No message that the summary was made of is named as its source.
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a summary under its heading."""

    title: str
    bullets: Sequence[Bullet]


@dataclass(frozen=True, slots=True)
class FactCount:
    """The count of the originals' facts that stand in the summary, and those that do not."""

    kept: int
    total: int
    lost: Sequence[tuple[str, str]]

    @property
    def words(self) -> str:
        """The count in words: 33 of 36 checked facts kept."""
        return f"{self.kept:,} of {counted(self.total, 'checked fact')} kept"


@dataclass(frozen=True, slots=True)
class CompactionMarker:
    """The marker of a compaction in the thread. `folded_tokens`: of the messages, where known.

    `is_paused`: automatic compaction rests on this branch after an undo. `is_unused`: in force, but
    the present policy makes no use of it. `can_redo`: what it was put on is in force now. `sent`:
    what the next message sends of its range; None if that cannot be told.
    """

    partial: ClassVar[str] = "chats/_compaction_marker.html"
    compaction: Compaction
    html: SafeString
    folded_tokens: int | None = None
    sections: Sequence[Section] = field(default_factory=tuple)
    is_paused: bool = False
    is_unused: bool = False
    can_redo: bool = True
    locks: Locks = field(default_factory=Locks)
    policy_label: str = ""
    sent: SentNow | None = None

    @property
    def look(self) -> str:
        """A digest of what the marker shows; empty where it tells of a time that goes on."""
        row = self.compaction
        if row.status in {Compaction.Status.REJECTED, Compaction.Status.FAILED}:
            return ""
        told = (row.status, row.from_seq, row.to_seq, row.exceptions, row.text, row.remark)
        around = (self.folded_tokens, self.is_paused, self.is_unused, self.can_redo)
        words = (self.policy_label, self.sent, replace(self.locks, pins=None))
        return f"{crc32(repr((told, around, words)).encode()):08x}"

    @property
    def author(self) -> str:
        """The words for who had it made."""
        trigger = self.compaction.trigger
        if trigger == "revision":
            return "edited by a person"
        return "by a person" if trigger in {"manual", "rerun"} else "automatically"

    @property
    def count(self) -> int:
        """The number of messages that the compaction stands for, or leaves out."""
        row = self.compaction
        return row.to_seq - row.from_seq + 1 - len(row.exceptions)

    @property
    def covered(self) -> str:
        """The number of those messages in words."""
        return counted(self.count, "message")

    @property
    def what(self) -> str:
        """The marker's first words."""
        if self.compaction.kind == Compaction.Kind.WINDOW:
            left = self.count if self.sent is None else self.sent.none
            return f"{counted(left, 'message')} no longer sent"
        return f"{self.covered} summarised"

    @property
    def is_left_out(self) -> bool:
        """True if the prompt has no room for the summary although it is in force."""
        return self.sent is not None and not self.sent.summary

    @property
    def tokens(self) -> str:
        """The tokens before and after: of the messages and their summary, or of the prompt."""
        row = self.compaction
        if row.kind == Compaction.Kind.SUMMARY and self.folded_tokens:
            summary = row.summary_tokens or ApproximateCounter().count(row.text)
            return f"≈ {short(self.folded_tokens)} → {short(summary)} tokens"
        if not row.tokens_before:
            return ""
        return f"prompt ≈ {short(row.tokens_before)} → {short(row.tokens_after)} tokens"

    @property
    def reason(self) -> str:
        """The reason why a window moved or a summary was not used, in words.

        A reason without a code of ours stands as it is.
        """
        row = self.compaction
        if row.kind == Compaction.Kind.WINDOW:
            return WINDOW_REASONS.get(row.reason, "the prompt has no room for them")
        return not_used_words(row.reason)

    @property
    def locked(self) -> Sequence[str]:
        """The sentences why the actions that its state calls for cannot be done, each once."""
        locks, status = self.locks, self.compaction.status
        sentences: tuple[str, ...] = ()
        if status == Compaction.Status.UNDONE:
            sentences = (locks.undo,) if self.can_redo else (NothingToRedo.sentence,)
        elif status == Compaction.Status.PREPARED:
            sentences = (locks.approve,) if self.compaction.needs_approval else ()
        elif status in {Compaction.Status.REJECTED, Compaction.Status.FAILED}:
            sentences = (locks.compact,)
        elif status == Compaction.Status.PUBLISHED and self.compaction.kind != "window":
            sentences = (locks.undo, locks.edit, locks.rerun)
        return [sentence for sentence in dict.fromkeys(sentences) if sentence]

    @property
    def facts(self) -> FactCount | None:
        """The count of the facts that the summary kept; None when nothing was checked."""
        kept, lost = (facts_of(self.compaction.retention, side) for side in ("kept", "lost"))
        total = len(kept) + len(lost)
        return FactCount(kept=len(kept), total=total, lost=grouped(lost)) if total else None


def facts_of(retention: Mapping[str, Mapping[str, Sequence[str]]], side: str) -> list[list[str]]:
    """Return the facts of one side as [kind, fact]."""
    found = retention.get(side, {})
    return [[kind, fact] for kind in FACT_KINDS for fact in found.get(kind, ())]


def grouped(facts: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Group facts by kind: the kind in words, the facts in one line."""
    lines = []
    for kind, words in FACT_KINDS.items():
        found = [fact for of, fact in facts if of == kind]
        if found:
            lines.append((words.many, ", ".join(found)))
    return lines


def summary_texts(row: Compaction) -> list[str]:
    """Return the texts of a compaction that have to be rendered."""
    return [row.text, *(bullet["text"] for _, bullet in bullets_of(row))]


def bullets_of(row: Compaction) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (title, bullet) of every line, or nothing when the sections are not the whole text.

    A summary with words outside of its bullets is shown as it was written.
    """
    if not is_told_by_sections(row):
        return
    for section in row.sections:
        for bullet in section["bullets"]:
            yield section["title"], bullet


def is_told_by_sections(row: Compaction) -> bool:
    """Return True if sections and bullets contain every word of the text, apart from labels."""
    told: list[str] = []
    for section in row.sections:
        told.append(section["title"])
        for bullet in section["bullets"]:
            told += [without_label(bullet["text"]), *map(str, bullet["sources"])]
            told += map(str, bullet.get("invalid", ()))
    return Counter(WORDS.findall(" ".join(told))) == Counter(
        WORDS.findall(without_labels(row.text))
    )


def sections_of(
    row: Compaction, *, chat_id: uuid.UUID, html: Mapping[str, SafeString]
) -> list[Section]:
    """Return the summary's sections that have bullets, each line with links to its originals."""
    lines: dict[str, list[Bullet]] = {}
    for title, bullet in bullets_of(row):
        sources = [source(row, chat_id=chat_id, seq=seq) for seq in bullet["sources"]]
        unsupported = bool(bullet.get("unsupported"))
        lines.setdefault(title, []).append(Bullet(html[bullet["text"]], sources, unsupported))
    return [Section(title, bullets) for title, bullets in lines.items()]


def source(row: Compaction, *, chat_id: uuid.UUID, seq: int) -> SummarySource:
    """Return where the original of a seq stands."""
    key = f"original-{row.pk}-{seq}"
    if not row.from_seq <= seq <= row.to_seq:
        return SummarySource(seq=seq, address="", key=key)
    page = (seq - row.from_seq) // ORIGINALS_PAGE + 1
    address = reverse("chats:originals", args=[chat_id, row.pk])
    return SummarySource(seq=seq, address=f"{address}?page={page}", key=key)
