"""Fact retention of summaries: kept and lost facts, including those of an edited text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.utils.translation import gettext

from chats.compaction.people import revise
from chats.compaction.perform import is_quoted
from chats.ground.refusals import Refusal
from chats.models import Chat, Compaction, Message
from chats.prompt import model_choice
from chats.record.history import select_path_messages
from chats.web.reasons import FACT_KINDS
from chats.web.thread.compaction_marker import FactCount, list_side_facts
from chats.web.words import format_number
from contextpolicy.engine.text.facts import compare_summary_facts

# Maximum number of originals searched for a fact.
MOST_SEARCHED = 2000
# Characters of context before and after a lost fact.
AROUND = 60


@dataclass(frozen=True, slots=True)
class Lost:
    """A fact missing from the summary: kind, source message and surrounding text."""

    kind: str
    fact: str
    seq: int | None
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class KindRow:
    """Number of facts of a kind: found, kept and lost."""

    name: str
    found: int
    kept: int
    lost: int


@dataclass(frozen=True, slots=True)
class FactReport:
    """The retention report; empty if the originals contain no facts."""

    kinds: Sequence[KindRow]
    lost: Sequence[Lost]

    @property
    def words(self) -> str:
        found = sum(row.found for row in self.kinds)
        words = gettext("{kept:,} of {total:,}")
        return words.format(kept=found - len(self.lost), total=found) if found else ""


@dataclass(frozen=True, slots=True)
class Weight:
    """Size and facts of the editor's text, or its refusal."""

    tokens: str
    limit: str
    facts: str
    lost: Sequence[str]
    refusal: Refusal | None


def load_summary_sources(row: Compaction) -> list[Message]:
    """Return the source messages of a summary, up to the search limit."""
    rows = select_path_messages(row.branch, after=row.from_seq - 1, before=row.to_seq + 1)
    return list(rows.exclude(seq__in=row.exceptions).order_by("seq")[:MOST_SEARCHED])


def report_of(row: Compaction) -> FactReport:
    """Return the stored retention report of a summary, or compute it."""
    if row.kind != Compaction.Kind.SUMMARY or not row.text:
        return FactReport((), ())
    sources = load_summary_sources(row)
    stored = row.retention or compare_facts(row.text, sources=sources)
    kept, lost = list_side_facts(stored, "kept"), list_side_facts(stored, "lost")
    kinds = []
    for kind, words in FACT_KINDS.items():
        here, gone = (sum(of == kind for of, _ in facts) for facts in (kept, lost))
        if here or gone:
            kinds.append(KindRow(str(words.many).capitalize(), here + gone, here, gone))
    return FactReport(kinds, [locate_fact(kind, fact, sources=sources) for kind, fact in lost])


def compare_facts(text: str, *, sources: Sequence[Message]) -> Mapping[str, Any]:
    """Return the facts of the originals that a text contains, and those that it lacks."""
    texts = [message.text for message in sources if is_quoted(message.role, message.text)]
    return asdict(compare_summary_facts("\n".join(texts), text))


def locate_fact(kind: str, fact: str, *, sources: Sequence[Message]) -> Lost:
    """Return a fact with its first occurrence and one line of surrounding text."""
    whole = re.compile(rf"(?<!\w){re.escape(fact)}(?!\w)", re.IGNORECASE)
    for message in sources:
        text = " ".join(message.text.split())
        found = whole.search(text)
        if found is not None:
            before, after = get_surrounding_text(text, found.start(), found.end())
            return Lost(str(FACT_KINDS[kind].one), found[0], message.seq, before, after)
    return Lost(str(FACT_KINDS[kind].one), fact, None, "", "")


def get_surrounding_text(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the text before and after a position, cut at word boundaries."""
    before = text[max(start - AROUND, 0) : start]
    after = text[end : end + AROUND]
    if start > AROUND:
        before = before.partition(" ")[2]
    if end + AROUND < len(text):
        after = after.rpartition(" ")[0]
    return before, after


def insert_lost_fact(row: Compaction, *, report: FactReport, number: int | None) -> str:
    """Return the editor text with a lost fact as a new line in its first section.

    `number`: position of the fact, from 1. With any other number, the text is unchanged.
    """
    if number is None or not 0 < number <= len(report.lost):
        return row.text
    lost = report.lost[number - 1]
    source = f" [#{lost.seq}]" if lost.seq else ""
    line = f"- {lost.before}{lost.fact}{lost.after}{source}"
    lines = row.text.split("\n")
    headings = [index for index, each in enumerate(lines) if each.startswith("#")]
    place = headings[1] if len(headings) > 1 else len(lines)
    while place and not lines[place - 1].strip():
        place -= 1
    return "\n".join([*lines[:place], line, *lines[place:]])


def measure_summary(row: Compaction, *, chat: Chat, text: str) -> Weight:
    """Return the token count of a text, the policy's limit and the text's facts, or the refusal."""
    try:
        limit = model_choice.choose_chat_model(chat=chat).values.summary_max_tokens
        tokens = revise.check_summary(text, limit=limit)
    except Refusal as refusal:
        return Weight("", "", "", (), refusal)
    stored = compare_facts(text, sources=load_summary_sources(row))
    kept, lost = (list_side_facts(stored, side) for side in ("kept", "lost"))
    facts = (
        FactCount(kept=len(kept), total=len(kept) + len(lost), lost=()) if kept or lost else None
    )
    return Weight(
        tokens=format_number(tokens),
        limit=format_number(limit),
        facts=facts.words if facts else "",
        lost=[fact for _, fact in lost][:5],
        refusal=None,
    )
