"""The indexed search returns the same results as a full scan, with fewer reads."""

import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from benchmarks import bulk
from chats.memory.search import (
    addressed_names,
    archive,
    finding,
    fulltext,
    ranking,
    searchable_text,
)
from chats.memory.search.question import parse_question
from chats.memory.search.ranking import REACH, RankedText, calculate_word_weight, rank_texts
from chats.memory.search.search import search_archive
from chats.models import Branch, Chat, Message
from chats.record.history import select_path_messages
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

# More messages than the candidate limit. PostgreSQL scans smaller tables without the index.
LONG = 4_000 if connection.vendor == "postgresql" else 2_200
WORDS = ["heron", "lake", "reed", "boat", "oar", "mist", "stone", "moss", "owl", "fern"]


def by_looking_through(branch: Branch, question: str, *, to: int, most: int) -> list[int]:
    """Return the sequence numbers that a full scan with ranking finds."""
    rows = select_path_messages(branch, after=0, before=to + 1).filter(
        excluded=False, erased_at=None
    )
    found = [row for row in rows.order_by("seq") if row.seq]
    texts = {row.seq or 0: searchable_text.build_indexed_text(row) for row in found}
    own = {row.seq or 0 for row in found if row.role == "user"}
    said = {seq: text.words.split() for seq, text in texts.items()}
    asked = parse_question(question, at=timezone.now())
    counts = finding.load_word_counts(branch.chat.owner_id, asked)
    present = {word: counts.words[word] for word in asked.telling if word in counts.words}
    hits: set[int] = set()
    for word in sorted(present, key=lambda one: present[one]):
        is_filler = bool(hits) and counts.share(word) > finding.COMMON
        if is_filler and len(hits) >= finding.ENOUGH:
            break
        holders = sorted((seq for seq, words in said.items() if word in words), reverse=True)
        hits |= set(holders[: finding.MOST_COMPARED] if is_filler else holders)
    near = sorted({seq + step for seq in hits for step in range(-REACH, REACH + 1)} & texts.keys())
    stems = {
        word: calculate_word_weight(number, total=counts.total) for word, number in present.items()
    }
    wanted = finding.build_search_terms(asked, stems=stems, counts=counts)
    ranked = [
        RankedText.of(
            seq,
            words=texts[seq].words,
            full=texts[seq].full.replace("=", ""),
            wanted=wanted,
            session=(0, 0),
            speaker="",
            is_own=seq in own,
            written_at=texts[seq].written_at,
        )
        for seq in near
    ]
    return [seq for seq, _ in rank_texts(ranked, wanted=wanted)][:most]


def same(branch: Branch, *, to: int, chance: random.Random) -> None:
    """Compare both searches for thirty questions."""
    for _ in range(30):
        question = " ".join(chance.choices([*WORDS, "November"], k=chance.randint(1, 5)))
        found = search_archive(branch, question=question, most=12)
        assert found.missing == 0
        seqs = [row.seq for row in found.rows]
        assert seqs == by_looking_through(branch, question, to=to, most=12), question


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.whole) for seed in range(2, 8))]
)
def test_the_index_finds_what_looking_through_every_message_finds(
    seed: int, chat: Chat, say: Say, cover: Cover, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sessions depend on their first message, which is not always on the path of the branch.
    monkeypatch.setattr(ranking, "SESSION", 0.0)
    chance = random.Random(seed)  # noqa: S311  # to be repeated

    def some() -> str:
        return " ".join(chance.choices(WORDS, weights=range(1, 11), k=chance.randint(1, 9)))

    rows = [say(some()) for _ in range(60)]
    cover(60)
    archive.index_branch(reload_first_branch(chat))
    same(reload_first_branch(chat), to=60, chance=chance)
    # Archive fewer messages than indexed, exclude some, and branch in the middle.
    for row in chance.sample(rows, 6):
        Message.objects.filter(pk=row.pk).update(excluded=True)
    archive.remove_indexed_messages([rows[3].pk])
    Message.objects.filter(pk=rows[3].pk).update(erased_at=now)
    cover(41)
    same(reload_first_branch(chat), to=41, chance=chance)
    child = Branch.objects.create(
        chat=chat, parent=reload_first_branch(chat), fork_seq=25, last_seq=25, created_at=now
    )
    Message.objects.bulk_create(
        Message(branch=child, seq=seq, accepted=100 + seq, role="user", created_at=now,
                parts=[{"type": "text", "text": some()}])
        for seq in range(26, 51)
    )  # fmt: skip
    Branch.objects.filter(pk=child.pk).update(last_seq=50)
    cover(45, branch=child)
    child = Branch.objects.select_related("active_compaction", "chat", "parent").get(pk=child.pk)
    archive.index_branch(child)
    same(child, to=45, chance=chance)


@pytest.fixture
def long_chat(chat: Chat, now: datetime) -> Branch:
    """A chat with archived messages. All contain "heron" and two contain "owl"."""
    words = bulk.vocabulary()
    said = [f"heron {text}" for text in bulk.texts(LONG, words=words, length=12)]
    said[1_000] += " owl"
    said[2_000] += " owl"
    branch = bulk.cover(bulk.fill(chat, said, now=now), to_seq=LONG, now=now)
    archive.index_branch(branch)
    return branch


def statements(branch: Branch, question: str) -> Iterator[str]:
    """Return the query plans of a search."""
    heard: list[tuple[str, Any]] = []

    def hear(execute: Any, sql: str, given: Any, many: bool, context: Any) -> Any:
        heard.append((sql, given))
        return execute(sql, given, many, context)

    with connection.execute_wrapper(hear):
        search_archive(branch, question=question, most=20)
    explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "
    for sql, given in heard:
        with connection.cursor() as cursor:
            cursor.execute(explain + sql, given)
            yield "\n".join(str(row[-1]) for row in cursor.fetchall())


def test_a_search_is_led_by_the_index_and_walks_no_table(long_chat: Branch) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    plans = list(statements(long_chat, "owl"))
    # One of them reads the time zone of the account.
    assert len(plans) <= 12
    whole = "\n".join(plans)
    if connection.vendor == "sqlite":
        assert "chats_searchtext_words VIRTUAL TABLE INDEX" in whole
        assert "USING INTEGER PRIMARY KEY" in whole
        assert "SCAN chats_message" not in whole
        assert "SCAN chats_searchtext\n" not in whole
    else:
        assert "Bitmap Index Scan on chats_searchtext_words" in whole
        assert "Seq Scan on chats_message" not in whole
        assert "Seq Scan on chats_searchtext" not in whole


def test_a_word_of_every_message_is_read_from_the_newest_on(
    long_chat: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    ids = fulltext.fetch_text_ids

    def watched(*statement: Any) -> Any:
        found = ids(*statement)
        read.extend(found)
        return found

    monkeypatch.setattr(fulltext, "fetch_text_ids", watched)
    found = search_archive(long_chat, question="heron owl", most=20)
    assert {row.seq for row in found.rows[:2]} == {1_001, 2_001}
    # The common word fills up the candidates of the rare one.
    assert len(found.rows) == 20
    # Some ids are read a second time, to see whether a word is a name.
    assert len(read) <= finding.MOST_COMPARED + 10 + 2 * addressed_names.MOST_HOLDERS
    read.clear()
    found = search_archive(long_chat, question="heron", most=20)
    assert len(found.rows) == 20
    assert len(read) <= finding.MOST_CHOSEN + 2 * addressed_names.MOST_HOLDERS
    assert min(key & 0xFFFFFFFF for key in read) >= LONG - finding.MOST_CHOSEN
