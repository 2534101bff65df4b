"""The search finds what looking through every message would, and reads far less for it."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.db import connection

from chats.memory import archive, fulltext
from chats.memory.ranking import K1, NEIGHBOURS_SHARE, B
from chats.memory.search import MOST_COMPARED, search
from chats.memory.words import asked
from chats.models import Branch, Chat, Message
from chats.record.history import on_path
from tests.chats.memory.conftest import Cover, Say, branch_of
from tests.load import bulk

WORDS = ["heron", "lake", "reed", "boat", "oar", "mist", "stone", "moss", "owl", "fern"]


def by_looking_through(branch: Branch, question: str, *, to: int, most: int) -> list[int]:
    """The seqs that the search finds, without any index: BM25 as it stands in the books."""
    rows = on_path(branch, after=0, before=to + 1).filter(excluded=False, erased_at=None)
    texts = {
        row.seq: archive.words_of(row, chat_id=branch.chat_id)[1:]
        for row in rows.order_by("seq")
        if row.seq
    }
    telling = [word for word in asked(question) if any(word in text for text in texts.values())]
    found_in = {word: sum(word in text for text in texts.values()) for word in telling}
    hits = {seq for seq, text in texts.items() if set(telling) & set(text)}
    near = sorted({seq + step for seq in hits for step in (-1, 0, 1)} & texts.keys())
    own = {seq: Counter(word for word in texts[seq] if word in found_in) for seq in near}
    lengths = {seq: len(texts[seq]) for seq in near}
    sides = {seq: [at for at in (seq - 1, seq, seq + 1) if at in own] for seq in near}
    together = {seq: sum((own[at] for at in sides[seq]), Counter()) for seq in near}
    wide = {seq: sum(lengths[at] for at in sides[seq]) for seq in near}

    def marks(counts: dict[int, Counter[str]], sizes: dict[int, int]) -> dict[int, float]:
        average = sum(sizes.values()) / len(sizes)
        found = {}
        for seq, count in counts.items():
            norm = K1 * (1 - B + B * sizes[seq] / average)
            found[seq] = sum(
                math.log(1 + (to - found_in[word] + 0.5) / (found_in[word] + 0.5))
                * count[word] * (K1 + 1) / (count[word] + norm)
                for word in telling
            )  # fmt: skip
        best = max(found.values()) or 1.0
        return {seq: mark / best for seq, mark in found.items()}

    if not near:
        return []
    alone, around = marks(own, lengths), marks(together, wide)
    total = {seq: alone[seq] + NEIGHBOURS_SHARE * around[seq] for seq in near if around[seq]}
    return sorted(total, key=lambda seq: (-round(total[seq], 9), -seq))[:most]


def same(branch: Branch, *, to: int, chance: random.Random) -> None:
    """Thirty questions have the same answers either way."""
    for _ in range(30):
        question = " ".join(chance.choices([*WORDS, "November"], k=chance.randint(1, 5)))
        found = search(branch, question=question, most=12)
        assert found.missing == 0
        seqs = [row.seq for row in found.rows]
        assert seqs == by_looking_through(branch, question, to=to, most=12), question


@pytest.mark.parametrize("seed", range(4))
def test_the_index_finds_what_looking_through_every_message_finds(
    seed: int, chat: Chat, say: Say, cover: Cover, now: datetime
) -> None:
    chance = random.Random(seed)  # noqa: S311  # to be repeated

    def some() -> str:
        return " ".join(chance.choices(WORDS, weights=range(1, 11), k=chance.randint(1, 9)))

    rows = [say(some()) for _ in range(60)]
    cover(60)
    archive.index(branch_of(chat))
    same(branch_of(chat), to=60, chance=chance)
    # Less is archived than indexed, some was withdrawn, and a branch parts from the middle.
    for row in chance.sample(rows, 6):
        Message.objects.filter(pk=row.pk).update(excluded=True)
    archive.forget([rows[3].pk])
    Message.objects.filter(pk=rows[3].pk).update(erased_at=now)
    cover(41)
    same(branch_of(chat), to=41, chance=chance)
    child = Branch.objects.create(
        chat=chat, parent=branch_of(chat), fork_seq=25, last_seq=25, created_at=now
    )
    Message.objects.bulk_create(
        Message(branch=child, seq=seq, accepted=100 + seq, role="user", created_at=now,
                parts=[{"type": "text", "text": some()}])
        for seq in range(26, 51)
    )  # fmt: skip
    Branch.objects.filter(pk=child.pk).update(last_seq=50)
    cover(45, branch=child)
    child = Branch.objects.select_related("active_compaction", "chat", "parent").get(pk=child.pk)
    archive.index(child)
    same(child, to=45, chance=chance)


@pytest.fixture
def long_chat(chat: Chat, now: datetime) -> Branch:
    """Four thousand archived messages, of which every one says "heron" and two say "owl"."""
    words = bulk.vocabulary()
    said = [f"heron {text}" for text in bulk.texts(4_000, words=words, length=12)]
    said[1_000] += " owl"
    said[3_000] += " owl"
    branch = bulk.cover(bulk.fill(chat, said, now=now), to_seq=4_000, now=now)
    archive.index(branch)
    return branch


def statements(branch: Branch, question: str) -> Iterator[str]:
    """The plans of the statements that a search runs."""
    heard: list[tuple[str, Any]] = []

    def hear(execute: Any, sql: str, given: Any, many: bool, context: Any) -> Any:
        heard.append((sql, given))
        return execute(sql, given, many, context)

    with connection.execute_wrapper(hear):
        search(branch, question=question, most=20)
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
    assert len(plans) <= 8
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
    selected = fulltext.selected

    def watched(*statement: Any) -> Any:
        found = selected(*statement)
        read.extend(key for key, _ in found)
        return found

    monkeypatch.setattr(fulltext, "selected", watched)
    found = search(long_chat, question="heron owl", most=20)
    assert {row.seq for row in found.rows[:2]} == {1_001, 3_001}
    assert len(read) < 10
    read.clear()
    found = search(long_chat, question="heron", most=20)
    assert len(found.rows) == 20
    assert len(read) <= MOST_COMPARED + 10
    assert min(key & 0xFFFFFFFF for key in read) >= 4_000 - MOST_COMPARED
