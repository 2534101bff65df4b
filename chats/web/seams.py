"""The seam of a compaction: where it stands in the thread, what it says, what it kept and lost."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.urls import reverse
from django.utils.safestring import SafeString

from chats.compaction.locks import Locks
from chats.compaction.undo import NothingToRedo
from chats.models import Compaction
from chats.web.sent_now import SentNow
from chats.web.words import counted, short
from contextpolicy.engine.tokens import ApproximateCounter

# Why a window moved, by the engine's reason.
WINDOW_REASONS = {
    "messages": "the chat has as many messages as its policy sends",
    "turns": "the chat has as many turns as its policy sends",
    "tokens": "the prompt reached its limit",
    "unloaded": "the prompt reached its limit",
}
# Why a summary was not used, by the code of the check that it failed or of the fault.
REASONS = {
    "empty": "the summary was empty",
    "too_short": "the summary was too short to stand for anything",
    "cut_by_length": "the summary was cut at its longest length",
    "not_finished": "the summary broke off",
    "reasoning_only": "the model thought but wrote no summary",
    "tool_call": "the model called a tool instead of writing a summary",
    "refusal": "the model refused to write a summary",
    "error_text": "the model wrote an error message instead of a summary",
    "no_content": "the summary had headings and nothing under them",
    "missing_sections": "the summary lacked some of its sections",
    "role_headers": "the summary went on with the chat instead of summing it up",
    "not_smaller": "the summary was no shorter than what it stands for",
    "too_long": "the summary was longer than the policy allows",
    "wrong_language": "the summary was not in the language of the chat",
    "unknown_url": "the summary had an address that stands in none of its messages",
    "cancelled": "somebody stopped it",
    "rejected_by_person": "somebody read it and did not want it",
    "context_changed": "the chat had changed before the summary was used",
    "insufficient": "even with the summary the prompt is larger than its policy aims at",
    "lost_facts": "the summary lost facts that it has to keep",
    "undone": "somebody undid the summary under it",
    "redone": "somebody put another summary back",
    "revised": "somebody edited the summary under it",
    "asked_again": "somebody asked for another one",
    "message_excluded": "one of its messages was excluded",
    "message_erased": "one of its messages was erased",
    "worker_lost": "the worker that wrote it ended",
    "handed_back": "the worker that wrote it was restarted; the next one writes it anew",
    "internal_error": "something went wrong on this server",
    "provider_auth": "the provider refused the key of this server",
    "provider_unavailable": "the model’s provider could not be reached",
    "provider_rate_limited": "the model’s provider asked for a pause",
    "provider_timeout": "the model did not answer in time",
    "content_filtered": "a content filter of the model’s provider stopped it",
    "provider_protocol": "the model’s provider answered in an unknown form",
    "provider_rejected": "the model’s provider refused the request",
    "provider_error": "the model’s provider reported an error",
    "context_overflow": "the messages were too long for the summarising model",
    "model_unavailable": "the summarising model cannot be used now",
}
KINDS = {
    "url": "addresses",
    "date": "dates",
    "identifier": "identifiers",
    "number": "numbers",
    "name": "names",
}
WORDS = re.compile(r"\w+")
# Originals on one page.
ORIGINALS_PAGE = 20


@dataclass(frozen=True, slots=True)
class Source:
    """A message that a line of a summary comes from; `address` is empty when it is not under it."""

    seq: int
    address: str
    key: str


@dataclass(frozen=True, slots=True)
class Bullet:
    """A line of a summary with its sources."""

    html: SafeString
    sources: Sequence[Source]
    # No message that the summary was made of is named as its source.
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a summary under its heading."""

    title: str
    bullets: Sequence[Bullet]


@dataclass(frozen=True, slots=True)
class Facts:
    """How many of the facts in the originals stand in the summary, and which do not."""

    kept: int
    total: int
    lost: Sequence[tuple[str, str]]

    @property
    def words(self) -> str:
        """33 of 36 checked facts kept."""
        return f"{self.kept:,} of {counted(self.total, 'checked fact')} kept"


@dataclass(frozen=True, slots=True)
class Seam:
    """The place of a compaction in the thread. `folded_tokens`: of the messages, where known.

    `is_paused`: automatic compaction rests on this branch after an undo. `is_unused`: in force, but
    the present policy makes no use of it. `can_redo`: what it was put on is in force now. `sent`:
    what the next message sends of its range; None where that cannot be told.
    """

    partial: ClassVar[str] = "chats/_seam.html"
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
    def author(self) -> str:
        """Who had it made, in words."""
        trigger = self.compaction.trigger
        if trigger == "revision":
            return "edited by a person"
        return "by a person" if trigger in {"manual", "rerun"} else "automatically"

    @property
    def count(self) -> int:
        """How many messages the compaction stands for, or leaves out."""
        row = self.compaction
        return row.to_seq - row.from_seq + 1 - len(row.exceptions)

    @property
    def covered(self) -> str:
        """The same in words."""
        return counted(self.count, "message")

    @property
    def what(self) -> str:
        """The seam's first words."""
        if self.compaction.kind == Compaction.Kind.WINDOW:
            left = self.count if self.sent is None else self.sent.none
            return f"{counted(left, 'message')} no longer sent"
        return f"{self.covered} summarised"

    @property
    def is_left_out(self) -> bool:
        """Whether the prompt has no room for the summary although it is in force."""
        return self.sent is not None and not self.sent.summary

    @property
    def tokens(self) -> str:
        """From how many tokens to how many: of the messages and their summary, or of the prompt."""
        row = self.compaction
        if row.kind == Compaction.Kind.SUMMARY and self.folded_tokens:
            summary = row.summary_tokens or ApproximateCounter().count(row.text)
            return f"≈ {short(self.folded_tokens)} → {short(summary)} tokens"
        if not row.tokens_before:
            return ""
        return f"prompt ≈ {short(row.tokens_before)} → {short(row.tokens_after)} tokens"

    @property
    def reason(self) -> str:
        """Why it came to this, in words; a reason without a code of ours stands as it is."""
        row = self.compaction
        if row.kind == Compaction.Kind.WINDOW:
            return WINDOW_REASONS.get(row.reason, "the prompt has no room for them")
        return reason_words(row.reason)

    @property
    def locked(self) -> Sequence[str]:
        """Why what its state calls for cannot be done, each sentence once."""
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
    def facts(self) -> Facts | None:
        """What of the originals' facts the summary kept; None when nothing was checked."""
        kept, lost = (facts_of(self.compaction.retention, side) for side in ("kept", "lost"))
        total = len(kept) + len(lost)
        return Facts(kept=len(kept), total=total, lost=grouped(lost)) if total else None


def reason_words(reason: str) -> str:
    """Codes of reasons in words; a reason without a code of ours stands as it is."""
    codes = reason.split(", ")
    if not all(code in REASONS for code in codes):
        return reason
    return ", ".join(REASONS[code] for code in codes)


def facts_of(retention: Mapping[str, Mapping[str, Sequence[str]]], side: str) -> list[list[str]]:
    """The facts of one side as [kind, fact]."""
    found = retention.get(side, {})
    return [[kind, fact] for kind in KINDS for fact in found.get(kind, ())]


def grouped(facts: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Facts by kind: the kind in words, the facts in one line."""
    lines = []
    for kind, name in KINDS.items():
        found = [fact for of, fact in facts if of == kind]
        if found:
            lines.append((name, ", ".join(found)))
    return lines


def summary_texts(row: Compaction) -> list[str]:
    """The texts of a compaction that have to be rendered."""
    return [row.text, *(bullet["text"] for _, bullet in bullets_of(row))]


def bullets_of(row: Compaction) -> Iterator[tuple[str, dict[str, Any]]]:
    """(title, bullet) of every line, or nothing when the sections are not the whole text.

    A summary that says something outside of its bullets is shown as it was written.
    """
    if not is_told_by_sections(row):
        return
    for section in row.sections:
        for bullet in section["bullets"]:
            yield section["title"], bullet


def is_told_by_sections(row: Compaction) -> bool:
    """Whether sections and bullets hold every word of the text."""
    told: list[str] = []
    for section in row.sections:
        told.append(section["title"])
        for bullet in section["bullets"]:
            told += [bullet["text"], *map(str, bullet["sources"])]
            told += map(str, bullet.get("invalid", ()))
    return Counter(WORDS.findall(" ".join(told))) == Counter(WORDS.findall(row.text))


def sections_of(
    row: Compaction, *, chat_id: uuid.UUID, html: Mapping[str, SafeString]
) -> list[Section]:
    """The summary's sections that say something, each line with links to its originals."""
    lines: dict[str, list[Bullet]] = {}
    for title, bullet in bullets_of(row):
        sources = [source(row, chat_id=chat_id, seq=seq) for seq in bullet["sources"]]
        unsupported = bool(bullet.get("unsupported"))
        lines.setdefault(title, []).append(Bullet(html[bullet["text"]], sources, unsupported))
    return [Section(title, bullets) for title, bullets in lines.items()]


def source(row: Compaction, *, chat_id: uuid.UUID, seq: int) -> Source:
    """Where the original of a seq stands."""
    key = f"original-{row.pk}-{seq}"
    if not row.from_seq <= seq <= row.to_seq:
        return Source(seq=seq, address="", key=key)
    page = (seq - row.from_seq) // ORIGINALS_PAGE + 1
    address = reverse("chats:originals", args=[chat_id, row.pk])
    return Source(seq=seq, address=f"{address}?page={page}", key=key)
