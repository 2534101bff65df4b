"""S27: after an erasure nobody finds out by guessing what a short text was.

Several hundred short texts are tried, the true one among them, by every hash that an earlier
version of the product kept or that comes to mind: plain, as the parts of a message, in the place of
the words in everything that was sent, under every salt that is still there.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from chats.actions import erasure
from chats.compaction.people import revise
from chats.memory import archive
from chats.models import (
    Chat,
    Compaction,
    IdempotencyRecord,
    Message,
    Receipt,
    SearchText,
)
from chats.providers.base import Finished, ProviderRequest, TextDelta, ToolCallDelta
from chats.rendering.store import digest_of, html_for_many
from chats.turns.start import start
from contextpolicy import ledger
from contextpolicy.engine.segments import prompt_json
from contextpolicy.models import ModelSpec
from tests.chats.compaction.conftest import SENTENCE, VALUES, Fold, Say, SetPolicy, branch_of

Work = Callable[..., Any]
TRUE = "yes"
WORDS = """
yes no maybe ok never always Oslo Bergen Paris Berlin Rome Anna Olav Kari Nils Eva red green blue
black white Monday Tuesday Friday January May June cancer HIV pregnant fired divorce guilty innocent
left right north south cat dog admin password secret hunter2 letmein qwerty
"""
DICTIONARY = [
    *WORDS.split(),
    *(f"{word}." for word in WORDS.split()),
    *(str(number) for number in range(300)),
]
HEX = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}


def everything() -> str:
    """Every column of every table that the database has, as it gives it back."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # noqa: S608  # own
            found += [repr(row) for row in cursor.fetchall()]
    return "\n".join(found)


class Guesser:
    """Somebody who has the database, knows the product and all that was sent but the words."""

    def __init__(self, *, sent: Sequence[ProviderRequest], known: Sequence[str]) -> None:
        # What was sent, with a hole where the true words stood.
        self.prompts = [prompt_json(request.messages, request.tools) for request in sent]
        self.known = known

    def texts(self, guess: str) -> Iterator[str]:
        """Everything that a hash may have been taken of, if the guess is right."""
        parts = [{"type": "text", "text": guess}]
        yield guess
        yield json.dumps(guess)
        yield json.dumps(parts)
        yield json.dumps(parts, sort_keys=True, separators=(",", ":"))
        yield f"demo\n{guess}"
        yield f"\n{guess}"
        yield json.dumps({"answer": guess}, sort_keys=True, separators=(",", ":"))
        yield json.dumps({"answer": guess})
        for text in (*self.prompts, *self.known):
            yield text.replace(TRUE, guess)

    def hashes(self, guess: str) -> Iterator[str]:
        """The hashes that say so without a salt."""
        yield digest_of(guess)
        for text in self.texts(guess):
            raw = text.encode()
            once = hashlib.sha256(raw).hexdigest()
            yield once
            yield hashlib.sha256(once.encode()).hexdigest()
            yield hashlib.sha1(raw, usedforsecurity=False).hexdigest()
            yield hashlib.md5(raw, usedforsecurity=False).hexdigest()

    def salted(self, guess: str, salts: Sequence[bytes]) -> Iterator[str]:
        """The hashes that say so under a salt that is there."""
        for text in self.texts(guess):
            raw = text.encode()
            for message in (raw, hashlib.sha256(raw).hexdigest().encode()):
                for salt in salts:
                    yield hmac.digest(salt, message, "sha256").hex()

    def finds(self, stored: str) -> set[str]:
        """The texts of the dictionary that the stored rows give away."""
        there = set(re.findall(r"[0-9a-f]{32,64}", stored))
        columns = salts_in_columns()
        found = {guess for guess in DICTIONARY if not there.isdisjoint(self.hashes(guess))}
        # A salt is worth trying where it stands in a column for salts, and with every true text.
        return found | {g for g in DICTIONARY if not there.isdisjoint(self.salted(g, columns))}


def salts_in_columns() -> list[bytes]:
    """Every salt that a row still has."""
    return [
        bytes.fromhex(salt)
        for model in (Receipt, Compaction, IdempotencyRecord)
        for salt in model._default_manager.exclude(salt="").values_list("salt", flat=True)
    ]


class Told:
    """A chat in which the true words stand in every place that keeps words, and what was sent."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.sent: list[ProviderRequest] = []
        self.summary = ""

    @property
    def guesser(self) -> Guesser:
        """Who knows all but the words."""
        return Guesser(sent=self.sent, known=[self.summary])

    def with_the_words(self) -> list[Message]:
        """The messages that have them, the newest first."""
        rows = Message.objects.select_related("branch").filter(branch__chat=self.chat)
        return [row for row in rows.order_by("-seq") if TRUE in json.dumps(row.parts)]


@pytest.fixture
def told(
    alice: User,
    chat: Chat,
    work: Work,
    say: Say,
    fold: Fold,
    set_policy: SetPolicy,
    demo_model: ModelSpec,
    now: datetime,
) -> Told:
    """Said, answered, searched for, folded, kept as a state, shown, and asked for by a key."""
    told = Told(chat)
    ModelSpec.objects.update(supports_tools=True)
    set_policy()
    first = start(user=alice, chat=chat, text=TRUE, now=now, idempotency_key="k1").turn
    told.sent += work(first, [TextDelta("Noted."), Finished("stop")]).scripted.requests
    for number in range(8):
        say(chat, f"Question {number}. {SENTENCE}", f"Answer {number}. " + SENTENCE * 6)
    row = fold(chat)
    told.summary = f"## Facts\n- The answer to it was {TRUE} [#1]\n- {SENTENCE}[#2]"
    revise.revise(user=alice, compaction=row, text=told.summary, now=now)
    archive.index(branch_of(chat))
    looked = start(user=alice, chat=chat, text="What was it?", now=now).turn
    call = json.dumps({"query": TRUE})
    told.sent += work(
        looked,
        [ToolCallDelta(0, "c1", "chat_history_search", call), Finished("tool_calls")],
        [TextDelta("Found."), Finished("stop")],
    ).scripted.requests
    set_policy(strategy="entity_state", state_schema=SCHEMA)
    extracted = [TextDelta(json.dumps({"answer": TRUE})), Finished("stop")]
    kept = start(user=alice, chat=chat, text="Do it then.", now=now).turn
    told.sent += work(kept, extracted, [TextDelta("Done."), Finished("stop")]).scripted.requests
    set_policy()
    told.sent += work(
        start(user=alice, chat=chat, text="Thanks.", now=now).turn,
    ).scripted.requests
    html_for_many([TRUE, told.summary, f"The answer to it was {TRUE}"], seen=branch_of(chat))
    return told


def test_S27_a_guess_is_found_before_the_erasure_and_the_guesser_knows_its_trade(
    told: Told,
) -> None:
    assert len(DICTIONARY) > 300
    assert VALUES["strategy"] == "dynamic_summary"
    assert SearchText.objects.filter(words__contains=TRUE).exists()
    assert told.guesser.finds(everything()) == {TRUE}
    assert any(TRUE in prompt for prompt in told.guesser.prompts)
    assert list(ledger.verify()) == []


@pytest.mark.parametrize("form", range(6))
def test_S27_the_forms_of_before_would_be_found(form: int, told: Told) -> None:
    parts = json.dumps([{"type": "text", "text": TRUE}], sort_keys=True, separators=(",", ":"))
    body = hashlib.sha256(f"demo\n{TRUE}".encode()).hexdigest()
    texts = [TRUE, parts, told.summary, body, told.guesser.prompts[-1], f"\n{TRUE}"]
    bare = hashlib.sha256(texts[form].encode()).hexdigest()
    assert told.guesser.finds(f"('message.erased', '{{\"sha256\": \"{bare}\"}}')") >= {TRUE}


def test_S27_after_the_erasure_of_a_message_no_guess_is_found(
    told: Told, alice: User, now: datetime
) -> None:
    guesser, rows = told.guesser, told.with_the_words()
    assert len(rows) >= 2, "the words and the search for them"
    for row in rows:
        erasure.erase_message(user=alice, message=row, now=now)
    stored = everything()
    assert guesser.finds(stored) == set()
    assert f'"{TRUE}"' not in stored
    assert list(ledger.verify()) == []
    marked = Receipt.objects.filter(erased_at=now)
    assert marked.count() >= 4
    assert set(marked.values_list("salt", "prompt_sha256")) == {("", "")}


def test_S27_after_the_erasure_of_a_chat_no_guess_is_found(
    told: Told, alice: User, now: datetime
) -> None:
    guesser = told.guesser
    proof = erasure.erase_chat(user=alice, chat=told.chat, now=now)
    stored = everything()
    assert guesser.finds(stored) == set()
    assert proof.commitment in stored
    assert proof.salt not in stored
    assert list(ledger.verify()) == []


def test_S27_salts_of_what_was_erased_stand_nowhere(told: Told, alice: User, now: datetime) -> None:
    before = set(salts_in_columns())
    (first,) = [row for row in told.with_the_words() if row.seq == 1]
    erased = erasure.erase_message(user=alice, message=first, now=now)
    gone = before - set(salts_in_columns())
    assert len(gone) >= 5, "of receipts, of summaries and of the request"
    stored = everything()
    assert not any(salt.hex() in stored for salt in gone)
    (proof,) = erased.proofs.values()
    assert proof.salt not in stored
    assert proof.commitment in stored
    assert HEX.search(stored)
