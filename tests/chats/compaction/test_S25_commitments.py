"""S25: the ledger commits to every model call and summary, and verification checks both ways."""

import asyncio
import hashlib
import io
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F
from django.test import Client

from chats.actions import erasure, lifecycle
from chats.compaction import claims, maintain
from chats.ground.commitments import compute_commitment, new_salt
from chats.models import Chat, Compaction, Message, PromptText, Receipt, Turn
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta
from chats.record import commitment_check, receipts
from chats.turns.attempt_state import SHUTDOWN, STOP
from chats.turns.call_receipts import close_call
from chats.turns.recover import release_expired
from chats.turns.start import start_turn
from chats.turns.step_results import StepResult
from contextpolicy import ledger, roles
from contextpolicy.engine.messages.segments import format_prompt_json
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import Fold, Writes, add_minutes, reload_branch, script_summary

Work = Callable[..., Any]
TRIGGERS = import_module("contextpolicy.migrations.0002_ledger_triggers")
FINE = [TextDelta("Fine."), Finished("stop")]
TOOL = [ToolCallDelta(0, "c1", "nothing_here", "{}"), Finished("tool_calls")]


def breaks() -> list[str]:
    """Return the findings of the verification."""
    return [found.reason for found in ledger.find_ledger_breaks()]


def told() -> dict[str, int]:
    """Return the counts of the verification."""
    counts = Counter[str]()
    assert list(ledger.find_ledger_breaks(tally=counts)) == []
    return dict(counts)


def endings(turn: Turn) -> dict[str, list[list[str]]]:
    """Return the calls committed to by the rows that ended an attempt of a turn."""
    rows = AuditEvent.objects.filter(turn_id=turn.pk, type__in=commitment_check.ENDINGS)
    return {row.type: row.data["calls"] for row in rows.order_by("seq")}


def calls(turn: Turn, attempt: int) -> list[list[str]]:
    """Return the receipts of an attempt with their recomputed commitments."""
    rows = Receipt.objects.filter(turn=turn, attempt=attempt).order_by("step", "call")
    return [[str(row.pk), receipts.recompute_commitment(row)] for row in rows]


async def goes_down(worker: Any) -> None:
    """Shut the worker down while it waits for the model."""
    for run in worker.runs.values():
        run.interrupt(SHUTDOWN)
    await asyncio.sleep(60)


async def is_stopped(worker: Any) -> None:
    """Stop the reply as its owner."""
    for run in worker.runs.values():
        run.interrupt(STOP)
    await asyncio.sleep(60)


async def is_taken_for_dead(worker: Any) -> None:
    """Let the sweep find an expired lease while the model still writes."""
    now = worker.clock()
    await worker.db(release_expired, now=now, worker=worker.name)


@pytest.fixture
def ask(alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec) -> Work:
    """Run a turn with the given scripts: `ask(*scripts)`."""

    def asking(*scripts: Any) -> Turn:
        turn = start_turn(user=alice, chat=chat, text="And now?", now=now).turn
        work(turn, *scripts)
        return turn

    return asking


@pytest.mark.parametrize(
    ("scripts", "ending", "count"),
    [
        ([FINE], "turn.completed", 1),
        ([TOOL, TOOL, FINE], "turn.completed", 3),
        ([[TextDelta("Half"), ProviderError("provider_auth")]], "turn.failed", 1),
        ([[TextDelta("Half"), is_stopped]], "turn.stopped", 1),
        ([[TextDelta("Half"), goes_down]], "turn.handed_back", 1),
        ([TOOL, [TextDelta("Half"), is_taken_for_dead, *FINE]], "turn.requeued", 2),
    ],
    ids=["reply", "steps", "failure", "stop", "handed back", "lost"],
)
def test_S25_the_row_that_ends_an_attempt_commits_to_each_of_its_calls(
    scripts: Any, ending: str, count: int, ask: Work
) -> None:
    turn = ask(*scripts)
    assert endings(turn) == {ending: calls(turn, 1)}
    assert len(calls(turn, 1)) == count
    assert told() == {commitment_check.HELD: count}


def test_S25_each_attempt_has_its_own_row(ask: Work, work: Work) -> None:
    turn = ask([goes_down])
    work(turn, FINE)
    assert turn.status == Turn.Status.COMPLETED
    assert endings(turn) == {"turn.handed_back": calls(turn, 1), "turn.completed": calls(turn, 2)}
    assert told() == {commitment_check.HELD: 2}


def test_S25_what_runs_is_no_break_and_is_not_committed_to_yet(
    alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    seen = []

    async def looks(worker: Any) -> None:
        seen.append((await worker.db(breaks), await worker.db(Receipt.objects.count)))

    work(start_turn(user=alice, chat=chat, text="Hello", now=now).turn, TOOL, [looks, *FINE])
    assert seen == [([], 2)]


def test_S25_the_commitments_of_a_turn_cost_one_query(ask: Work) -> None:
    turn = ask(TOOL, FINE)
    with transaction.atomic():
        wrapped: list[str] = []

        def counting(execute: Any, sql: str, *rest: Any) -> Any:
            wrapped.append(sql)
            return execute(sql, *rest)

        with connection.execute_wrapper(counting):
            assert len(receipts.list_attempt_calls(turn_id=turn.pk, attempt=1)) == 2
    assert len(wrapped) == 1


def test_S25_a_summary_commits_to_its_text_and_to_each_of_its_calls(
    long_chat: Chat, writer: ModelSpec, writes: Writes, set_policy: Work, now: datetime
) -> None:
    set_policy(summarization_model="writer")
    provider = writes(*[script_summary("Too short")] * 9)
    maintain.maintain_chat_context(
        chat_id=long_chat.pk, counter=ApproximateCounter(), now=add_minutes(now)
    )
    rows = list(Compaction.objects.filter(kind="summary").order_by("attempt"))
    # The next rung calls no model.
    asked = len(provider.requests)
    assert [(row.status, len(row.calls)) for row in rows] == [("rejected", asked), ("prepared", 0)]
    sent = [format_prompt_json(request.messages, ()) for request in provider.requests]
    assert rows[0].calls == [compute_commitment(prompt, salt=rows[0].salt) for prompt in sent]
    for row in rows:
        event = AuditEvent.objects.filter(
            type__in=["compaction.rejected", "compaction.prepared"], data__compaction=str(row.pk)
        ).get()
        assert event.data["calls"] == row.calls
        if event.type == "compaction.prepared":
            assert event.data["text_commitment"] == compute_commitment(row.text, salt=row.salt)
    assert breaks() == []


def test_S25_a_failed_summary_and_one_of_a_dead_worker_commit_to_their_calls(
    long_chat: Chat, writer: ModelSpec, writes: Writes, set_policy: Work, now: datetime
) -> None:
    set_policy(summarization_model="writer")
    writes([ProviderError("provider_unavailable")])
    claimed = claims.claim_compaction(chat_id=long_chat.pk, counter=ApproximateCounter(), now=now)
    assert claimed is not None
    maintain.run_summary_attempt(claimed, counter=ApproximateCounter(), clock=lambda: now)
    failed = Compaction.objects.get(status="failed")
    assert len(failed.calls) == 1
    event = AuditEvent.objects.get(type="compaction.failed")
    assert event.data["calls"] == failed.calls

    class Killed(BaseException):
        """Simulates the end of the process."""

    async def dies(_worker: Any) -> None:
        raise Killed

    writes([dies])
    again = claims.claim_compaction(
        chat_id=long_chat.pk, counter=ApproximateCounter(), now=add_minutes(now, 90)
    )
    assert again is not None
    with pytest.raises(Killed):
        maintain.run_summary_attempt(
            again, counter=ApproximateCounter(), clock=lambda: add_minutes(now, 90)
        )
    Compaction.objects.filter(pk=again.row.pk).update(lease_until=now)
    claims.sweep_dead(now=add_minutes(now, 95))
    again.row.refresh_from_db()
    assert len(again.row.calls) == 1
    rows = AuditEvent.objects.filter(type__startswith="compaction.").order_by("-seq")
    closing = next(row for row in rows if row.data.get("compaction") == str(again.row.pk))
    assert closing.data["calls"] == again.row.calls
    assert breaks() == []


@pytest.fixture
def two_calls(ask: Work) -> tuple[Receipt, Receipt]:
    """Two finished calls of one attempt."""
    turn = ask(TOOL, FINE)
    first, second = Receipt.objects.filter(turn=turn).order_by("step")
    return first, second


def reseal(row: Receipt) -> None:
    """Change a receipt and recompute its commitment."""
    row.prompt_tokens += 1
    receipts.seal_receipt(row).save()


def add(row: Receipt, **changes: Any) -> None:
    """Add a receipt to the attempt that no ledger event mentions."""
    row.pk, row.call = None, 7
    row.id = Receipt._meta.get_field("id").get_default()
    row._state.adding = True
    receipts.seal_receipt(row)
    for name, value in changes.items():
        setattr(row, name, value)
    row.save()


RECEIPT_TAMPERS: dict[str, tuple[Callable[[Receipt], Any], str]] = {
    "tokens": (lambda r: change(r, prompt_tokens=F("prompt_tokens") + 1), commitment_check.CHANGED),
    "segments": (lambda r: change(r, segments=r.segments[:-1]), commitment_check.CHANGED),
    "left out": (lambda r: change(r, left_out=[[1, 2, "window"]]), commitment_check.CHANGED),
    "budget": (lambda r: change(r, budget={**r.budget, "limit": 1.5}), commitment_check.CHANGED),
    "hash": (lambda r: change(r, prompt_sha256="0" * 64), commitment_check.CHANGED),
    "model": (lambda r: change(r, model_name="another"), commitment_check.CHANGED),
    "salt": (lambda r: change(r, salt=new_salt()), commitment_check.CHANGED),
    "no salt": (lambda r: change(r, salt=""), commitment_check.CHANGED),
    "sealed again": (reseal, commitment_check.OTHER_COMMITMENT),
    "no commitment": (
        lambda r: change(r, commitment=""),
        commitment_check.OTHER_COMMITMENT,
    ),
    "moved to an attempt": (lambda r: change(r, attempt=9), commitment_check.CHANGED),
    "deleted": (lambda r: r.delete(), commitment_check.ABSENT),
    "marked erased": (
        lambda r: change(r, erased_at=r.created_at, salt="", prompt_sha256=""),
        commitment_check.UNSAID,
    ),
    "added": (add, commitment_check.CALL_WITHOUT_ENTRY),
    "added unsealed": (
        lambda r: add(r, commitment="", salt=""),
        commitment_check.CALL_WITHOUT_ENTRY,
    ),
}


def change(row: Any, **values: Any) -> None:
    """Update a row without any check."""
    type(row)._default_manager.filter(pk=row.pk).update(**values)


@pytest.mark.tampers
@pytest.mark.parametrize("name", RECEIPT_TAMPERS)
def test_S25_a_receipt_that_was_tampered_with_is_found(
    name: str, two_calls: tuple[Receipt, Receipt]
) -> None:
    assert breaks() == []
    tamper, template = RECEIPT_TAMPERS[name]
    reason = template.format(pk="")
    tamper(two_calls[1])
    found = list(ledger.find_ledger_breaks())
    assert len(found) == 1
    assert reason in found[0].reason
    row = AuditEvent.objects.get(type="turn.completed")
    assert found[0].seq == (0 if "added" in name else row.seq)
    out = io.StringIO()
    with pytest.raises(CommandError, match="broken in 1 of its chains"):
        call_command("ledger_verify", scope=row.scope, stdout=out)
    assert reason in out.getvalue()


SUMMARY_TAMPERS: dict[str, tuple[Callable[[Compaction], Any], str]] = {
    "text": (lambda c: change(c, text=f"{c.text} More."), commitment_check.CHANGED),
    "text and commitment": (
        lambda c: change(c, text="x", text_commitment=compute_commitment("x", salt=c.salt)),
        commitment_check.CHANGED,
    ),
    "salt": (lambda c: change(c, salt=""), commitment_check.CHANGED),
    "calls": (lambda c: change(c, calls=["0" * 64]), commitment_check.OTHER_CALLS),
    "deleted": (lambda c: c.delete(), commitment_check.ABSENT),
    "marked erased": (
        lambda c: change(c, erased_at=c.created_at),
        commitment_check.UNSAID,
    ),
    "added": (lambda c: copied(c), commitment_check.SUMMARY_WITHOUT_ENTRY),
}


def copied(row: Compaction) -> None:
    """Insert a copy of a summary that no event mentions."""
    row.id = Compaction._meta.get_field("id").get_default()
    row.status = "replaced"
    row.save(force_insert=True)


@pytest.mark.tampers
@pytest.mark.tampers
@pytest.mark.parametrize("name", SUMMARY_TAMPERS)
def test_S25_a_summary_that_was_tampered_with_is_found(
    name: str, long_chat: Chat, fold: Fold
) -> None:
    row = fold(long_chat)
    assert breaks() == []
    tamper, template = SUMMARY_TAMPERS[name]
    reason = template.format(pk="")
    tamper(row)
    assert [reason in found for found in breaks()] == [True]


@pytest.mark.tampers
def test_S25_a_summary_that_ended_without_a_word_of_its_calls_is_found(
    long_chat: Chat, fold: Fold, now: datetime
) -> None:
    other = fold(long_chat)
    # From here on, `other` is the copy.
    copied(other)
    with transaction.atomic():
        ledger.record_event(
            "compaction.started",
            actor="worker",
            now=now,
            chat_id=long_chat.pk,
            data={"compaction": str(other.pk)},
        )
    assert breaks() == []
    change(other, calls=["0" * 64])
    assert breaks() == [commitment_check.CALLS_WITHOUT_ENTRY.format(pk=other.pk)]


def test_S25_a_chat_that_vanished_is_found_and_one_that_was_erased_is_none(
    alice: User, two_calls: tuple[Receipt, Receipt], chat: Chat, now: datetime
) -> None:
    pk = chat.pk
    with transaction.atomic():
        erasure.erase_chat(user=alice, chat=chat, now=now)
        assert breaks() == []
        transaction.set_rollback(True)
    Chat.objects.filter(pk=pk).update(active_branch=None)
    Chat.objects.filter(pk=pk).delete()
    assert breaks() == [commitment_check.CHAT_ABSENT]


def test_S25_a_whole_chain_that_was_dropped_is_found(
    two_calls: tuple[Receipt, Receipt], chat: Chat
) -> None:
    with connection.cursor() as cursor:
        for statement in TRIGGERS.DROP[connection.vendor]:
            cursor.execute(statement)
        for table in ("auditevent", "ledgerhead"):
            cursor.execute(
                f"DELETE FROM contextpolicy_{table} WHERE scope = %s",  # noqa: S608  # own tables
                [f"chat:{chat.pk}"],
            )
    assert len(breaks()) == 1
    assert breaks()[0].startswith(commitment_check.CALL_WITHOUT_ENTRY.format(pk=""))


def test_S25_what_was_erased_is_counted_and_said_and_no_break(
    alice: User, two_calls: tuple[Receipt, Receipt], chat: Chat, now: datetime, long_chat: Chat
) -> None:
    message = Message.objects.select_related("branch").get(branch__chat=chat, seq=1)
    before = told()[commitment_check.HELD]
    erasure.erase_message(user=alice, message=message, now=now)
    counts = told()
    assert counts[commitment_check.ERASED] >= 2
    assert sum(counts.values()) == before
    out = io.StringIO()
    call_command("ledger_verify", stdout=out)
    assert f"{commitment_check.ERASED}: {counts[commitment_check.ERASED]}\n" in out.getvalue()
    auditor = signed_in(person("priya", roles.AUDITOR))
    html = auditor.get("/admin/contextpolicy/auditevent/verify/").content.decode()
    assert f"{commitment_check.ERASED}: {counts[commitment_check.ERASED]}" in html
    receipt = Receipt.objects.filter(erased_at__isnull=False).first()
    assert receipt is not None
    html = auditor.get(f"/admin/chats/receipt/{receipt.pk}/change/").content.decode()
    assert 'data-note="not-rebuildable"' in html


def test_S25_rows_of_before_the_new_form_keep_verifying(
    two_calls: tuple[Receipt, Receipt], long_chat: Chat, fold: Fold, chat: Chat, now: datetime
) -> None:
    """Rows of the previous format: no calls, no commitments, only a hash of the summary's text."""
    turn = two_calls[0].turn
    for row in two_calls:
        add(row, commitment="", salt="", attempt=3)
    old = fold(long_chat)
    with transaction.atomic():
        ledger.record_event(
            "turn.completed",
            actor="worker",
            now=now,
            chat_id=chat.pk,
            turn_id=turn.pk,
            data={"attempt": 3, "finish": "stop"},
        )
        ledger.record_event(
            "compaction.published",
            actor="worker",
            now=now,
            chat_id=long_chat.pk,
            data={
                "compaction": str(old.pk),
                "text_sha256": hashlib.sha256(old.text.encode()).hexdigest(),
            },
        )
    assert told()[commitment_check.BEFORE] == 2
    change(old, text=f"{old.text} More.", text_commitment="")
    assert len(breaks()) == 1


def test_S25_a_call_of_the_version_before_is_sealed_when_its_attempt_ends(
    alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    async def as_before(worker: Any) -> None:
        await worker.db(Receipt.objects.update, commitment="", salt="")

    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    work(turn, [as_before, *FINE])
    assert endings(turn) == {"turn.completed": calls(turn, 1)}
    assert told() == {commitment_check.HELD: 1}


def test_the_owner_reads_that_a_prompt_cannot_be_rebuilt_since_and_charlie_does_not(
    alice: User, two_calls: tuple[Receipt, Receipt], chat: Chat, now: datetime
) -> None:
    turn = two_calls[0].turn
    page = f"/chats/{chat.pk}/turns/{turn.pk}/receipt"
    owner: Client = signed_in(alice)
    assert 'data-note="prompt-hash"' in owner.get(page).content.decode()
    message = Message.objects.select_related("branch").get(pk=str(turn.trigger_id))
    erasure.erase_message(user=alice, message=message, now=now)
    html = owner.get(page).content.decode()
    assert html.count('data-note="not-rebuildable"') == 2
    assert 'data-note="prompt-hash"' not in html
    told_by_rest = owner.get(f"/api/v1/chats/{chat.pk}/turns/{turn.pk}").json()["receipts"]
    assert {row["prompt_sha256"] for row in told_by_rest} == {""}
    assert all(row["not_rebuildable_since"] for row in told_by_rest)
    committed = dict(endings(turn)["turn.completed"])
    assert {row["id"]: row["commitment"] for row in told_by_rest} == committed
    assert signed_in(person("charlie", roles.USER)).get(page).status_code == 404


def test_every_text_of_a_chat_is_kept_for_that_chat_alone(
    alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    """Two chats contain the same system text. Erasing it in one chat keeps it in the other."""
    other = lifecycle.create_chat(owner=alice, now=now)
    for one in (chat, other):
        Chat.objects.filter(pk=one.pk).update(system_text="Answer like a pirate.")
        turn = start_turn(user=alice, chat=Chat.objects.get(pk=one.pk), text="Hello", now=now).turn
        work(turn, FINE)
    erasure.erase_chat(user=alice, chat=chat, now=now)
    left = Receipt.objects.get()
    (own,) = [segment for segment in left.segments if segment[1] == "chat"]
    texts = reload_branch(other).chat
    assert texts.system_text == "Answer like a pirate."
    assert PromptText.objects.get(digest=own[5]).text == "Answer like a pirate."
    assert (left.erased_at, breaks()) == (None, [])


def sent_as(sha256: str) -> Any:
    """Return a script that reports a sent body with this hash."""

    async def leave(worker: Any) -> None:
        worker.scripted.requests[-1].sent.sha256 = sha256

    return [leave, *FINE]


def test_the_hash_of_a_body_that_left_is_committed_to(ask: Work) -> None:
    turn = ask(sent_as("a" * 64))
    row = Receipt.objects.get(turn=turn)
    assert row.body_sha256 == "a" * 64
    event = AuditEvent.objects.get(turn_id=turn.pk, type="turn.completed")
    assert event.data["bodies"] == {str(row.pk): compute_commitment("a" * 64, salt=row.salt)}
    assert "a" * 64 not in str(event.data)
    assert breaks() == []
    for other in ("b" * 64, ""):
        Receipt.objects.filter(pk=row.pk).update(body_sha256=other)
        assert breaks() == [f"receipt {row.pk} {commitment_check.OTHER_BODY}"]


def test_a_call_that_sent_no_bytes_has_none_and_nothing_is_missed(ask: Work) -> None:
    turn = ask(FINE)
    assert Receipt.objects.get(turn=turn).body_sha256 == ""
    assert "bodies" not in AuditEvent.objects.get(turn_id=turn.pk, type="turn.completed").data
    assert breaks() == []


def test_an_erasure_takes_the_hash_of_the_body_also_of_a_call_that_ends_later(
    ask: Work, chat: Chat, now: datetime, alice: User
) -> None:
    ask(sent_as("a" * 64))
    first = Message.objects.get(branch__chat=chat, seq=1)
    # A background call, such as the call for a title.
    ask(FINE)
    late = Receipt.objects.latest("created_at")
    Receipt.objects.filter(pk=late.pk).update(outcome="open")
    erasure.erase_message(user=alice, message=first, now=now)
    close_call(receipt_id=late.pk, ending=StepResult(body_sha256="c" * 64), now=now)
    erased = Receipt.objects.exclude(erased_at=None)
    assert erased.count() == 2
    assert set(erased.values_list("body_sha256", flat=True)) == {""}
    assert breaks() == []
