"""S27: after an erasure, guessing does not reveal the text of a short message.

Several hundred short texts are tried, including the true one, against every stored hash. Inputs:
the plain text, message parts, and complete requests with the guess inserted. Hashes are tried
without a salt and with every remaining salt.
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
from chats.memory.search import archive
from chats.models import Chat, Compaction, IdempotencyRecord, Message, Receipt, SearchText
from chats.providers.base import Finished, ProviderRequest, TextDelta, ToolCallDelta
from chats.rendering.store import compute_rendering_digest, render_texts
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.engine.messages.segments import format_prompt_json
from contextpolicy.models import ModelSpec
from tests.support.chat_summaries import SENTENCE, SMALL_POLICY, Fold, Say, SetPolicy, reload_branch

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
    """Return all rows of all tables as text."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # noqa: S608  # own
            found += [repr(row) for row in cursor.fetchall()]
    return "\n".join(found)


class Guesser:
    """An attacker with the database, the source code, and all requests except the secret text."""

    def __init__(self, *, sent: Sequence[ProviderRequest], known: Sequence[str]) -> None:
        # The requests as sent. The secret text is a placeholder in them.
        self.prompts = [format_prompt_json(request.messages, request.tools) for request in sent]
        self.known = known

    def texts(self, guess: str) -> Iterator[str]:
        """Yield every text whose hash could confirm the guess."""
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
        """Yield the unsalted hashes that would confirm the guess."""
        yield compute_rendering_digest(guess)
        for text in self.texts(guess):
            raw = text.encode()
            once = hashlib.sha256(raw).hexdigest()
            yield once
            yield hashlib.sha256(once.encode()).hexdigest()
            yield hashlib.sha1(raw, usedforsecurity=False).hexdigest()
            yield hashlib.md5(raw, usedforsecurity=False).hexdigest()

    def salted(self, guess: str, salts: Sequence[bytes]) -> Iterator[str]:
        """Yield the salted hashes that would confirm the guess."""
        for text in self.texts(guess):
            raw = text.encode()
            for message in (raw, hashlib.sha256(raw).hexdigest().encode()):
                for salt in salts:
                    yield hmac.digest(salt, message, "sha256").hex()

    def finds(self, stored: str) -> set[str]:
        """Return the dictionary entries that stored hashes confirm."""
        there = set(re.findall(r"[0-9a-f]{32,64}", stored))
        columns = salts_in_columns()
        found = {guess for guess in DICTIONARY if not there.isdisjoint(self.hashes(guess))}
        # Try the salts from the salt columns, with every entry.
        return found | {g for g in DICTIONARY if not there.isdisjoint(self.salted(g, columns))}


def salts_in_columns() -> list[bytes]:
    """Return every salt that is still stored."""
    return [
        bytes.fromhex(salt)
        for model in (Receipt, Compaction, IdempotencyRecord)
        for salt in model._default_manager.exclude(salt="").values_list("salt", flat=True)
    ]


class Told:
    """A chat with the secret text in every place that stores text, and its requests."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.sent: list[ProviderRequest] = []
        self.summary = ""

    @property
    def guesser(self) -> Guesser:
        """The attacker for this chat."""
        return Guesser(sent=self.sent, known=[self.summary])

    def with_the_words(self) -> list[Message]:
        """Return the messages with the secret text, newest first."""
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
    """The secret text in a message, reply, search, summary, state, page and idempotency key."""
    told = Told(chat)
    ModelSpec.objects.update(supports_tools=True)
    set_policy()
    first = start_turn(user=alice, chat=chat, text=TRUE, now=now, idempotency_key="k1").turn
    told.sent += work(first, [TextDelta("Noted."), Finished("stop")]).scripted.requests
    for number in range(8):
        say(chat, f"Question {number}. {SENTENCE}", f"Answer {number}. " + SENTENCE * 6)
    row = fold(chat)
    told.summary = f"## Facts\n- The answer to it was {TRUE} [#1]\n- {SENTENCE}[#2]"
    revise.revise_summary(user=alice, compaction=row, text=told.summary, now=now)
    archive.index_branch(reload_branch(chat))
    looked = start_turn(user=alice, chat=chat, text="What was it?", now=now).turn
    call = json.dumps({"query": TRUE})
    told.sent += work(
        looked,
        [ToolCallDelta(0, "c1", "chat_history_search", call), Finished("tool_calls")],
        [TextDelta("Found."), Finished("stop")],
    ).scripted.requests
    set_policy(strategy="entity_state", state_schema=SCHEMA)
    extracted = [TextDelta(json.dumps({"answer": TRUE})), Finished("stop")]
    kept = start_turn(user=alice, chat=chat, text="Do it then.", now=now).turn
    told.sent += work(kept, extracted, [TextDelta("Done."), Finished("stop")]).scripted.requests
    set_policy()
    told.sent += work(
        start_turn(user=alice, chat=chat, text="Thanks.", now=now).turn,
    ).scripted.requests
    render_texts([TRUE, told.summary, f"The answer to it was {TRUE}"], seen=reload_branch(chat))
    return told


def test_S27_a_guess_is_found_before_the_erasure_and_the_guesser_knows_its_trade(
    told: Told,
) -> None:
    assert len(DICTIONARY) > 300
    assert SMALL_POLICY["strategy"] == "dynamic_summary"
    assert SearchText.objects.filter(words__contains=TRUE).exists()
    assert told.guesser.finds(everything()) == {TRUE}
    assert any(TRUE in prompt for prompt in told.guesser.prompts)
    assert list(ledger.find_ledger_breaks()) == []


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
    assert list(ledger.find_ledger_breaks()) == []
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
    assert list(ledger.find_ledger_breaks()) == []


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
