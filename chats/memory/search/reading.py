"""Searches the archive of a temporary chat, which is never indexed."""

from collections.abc import Sequence

from django.db.models import Q

from chats.memory.search import archive, fulltext, searchable_text
from chats.memory.search.finding import WordCounts, build_search_terms
from chats.memory.search.question import ParsedQuestion
from chats.memory.search.ranking import RankedText, calculate_word_weight, rank_texts
from chats.models import Branch, Message
from chats.record import history

# Maximum archived messages read, the newest ones. A temporary chat ends within a day.
MOST_READ = 1_000


def scan_archived_messages(
    branch: Branch, asked: ParsedQuestion, *, to: int, said: Q
) -> Sequence[Message]:
    """Return the archived messages that match a question, best first.

    `said`: a filter for the messages.
    """
    rows = history.select_path_messages(branch, after=0, before=to + 1).filter(
        excluded=False, erased_at=None
    )
    found = {
        row.seq or 0: row
        for row in rows.select_related("branch__chat").order_by("-seq")[:MOST_READ]
    }
    texts = {seq: searchable_text.build_indexed_text(row) for seq, row in found.items()}
    known = archive.count_texts_by_word(texts.values())
    counts = WordCounts(known.pop("", 0), known)
    present = {word: known[word] for word in asked.telling if word in known}
    stems = {
        word: calculate_word_weight(number, total=counts.total) for word, number in present.items()
    }
    wanted = build_search_terms(asked, stems=stems, counts=counts)
    ranked = rank_texts(
        [
            RankedText.of(
                seq,
                words=text.words,
                full=text.full.replace(fulltext.FULL, ""),
                wanted=wanted,
                session=(0, 0),
                speaker=text.speaker,
                is_own=found[seq].role == Message.Role.USER,
                written_at=text.written_at,
            )
            for seq, text in texts.items()
        ],
        wanted=wanted,
    )
    theirs = set(rows.filter(said).values_list("seq", flat=True))
    return [found[seq] for seq, _ in ranked if seq in theirs]
