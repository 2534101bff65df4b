"""Cache warm-ups: causes, requests, limits and records."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from chats.actions import deletion, erasure, lifecycle, marks
from chats.background import cache_warming, due_jobs
from chats.compaction import maintain
from chats.compaction.people import undo
from chats.compaction.publish import publish_prepared
from chats.ground import leases, queue
from chats.models import Chat, Compaction, Message, ProviderAccount, Receipt, Turn, WarmUp
from chats.prompt import composition
from chats.providers import registry
from chats.providers.base import Finished, ProviderError, ProviderRequest, TextDelta, UsageReport
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from contextpolicy import ledger
from contextpolicy.engine.compose.partition import LeftOut, check_partition
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec, PolicyVersion
from tests.chats.compaction.conftest import fold, long_chat, set_policy, small_policy
from tests.support.chat_summaries import SENTENCE, Fold, SetPolicy, add_minutes, reload_branch
from tests.support.scripted_worker import ScriptedProvider
from tests.support.warm_ups import list_warm_up_causes

__all__ = ["fold", "long_chat", "set_policy", "small_policy"]
Work = Callable[..., Any]
WarmsUp = Callable[..., ScriptedProvider]
ADDRESS = "127.0.0.1:11434"
READ = [TextDelta("x"), UsageReport(900, 1, 0, 0), Finished("length")]
REPLY = [TextDelta("Like this."), Finished("stop")]


@pytest.fixture(autouse=True)
def free_server(demo_model: ModelSpec, settings: Any, db: None) -> ProviderAccount:
    """A local server without a price for the model of all chats."""
    settings.ALLOWED_PRIVATE_PROVIDERS = [ADDRESS]
    ProviderAccount.objects.update(kind="openai", base_url=f"http://{ADDRESS}/v1")
    return ProviderAccount.objects.get()


@pytest.fixture
def warms_up(monkeypatch: pytest.MonkeyPatch) -> WarmsUp:
    """Do a warm-up as its task does: `warms_up(chat, cause, script)`; the provider it asked."""

    def warming(
        chat: Chat,
        cause: cache_warming.Cause = "typing",
        script: Sequence[Any] = READ,
        *,
        tries: int = 1,
        now: datetime | None = None,
        is_closing: bool = False,
    ) -> ScriptedProvider:
        provider = ScriptedProvider([list(script)])
        monkeypatch.setattr(registry, "get_provider", lambda *a, **k: provider)
        cache_warming.warm_up_branch(
            branch_id=reload_branch(chat).pk,
            cause=cause,
            tries=tries,
            counter=ApproximateCounter(),
            clock=lambda: now or chat.updated_at,
            is_closing=lambda: is_closing,
        )
        return provider

    return warming


def ask(user: User, chat: Chat, now: datetime) -> Turn:
    """Send another question."""
    return start_turn(user=user, chat=chat, text="And now?", now=now).turn


def warm_receipts() -> list[Receipt]:
    """Return the receipts of warm-ups, oldest first."""
    rows = Receipt.objects.filter(step=Receipt.AFTERWARDS).order_by("turn__accepted", "call")
    return list(rows)


async def forever(_worker: Any) -> None:
    """A server that does not finish reading the prompt."""
    await asyncio.sleep(60)


def is_prefix(request: ProviderRequest, of: ProviderRequest) -> bool:
    """Return True if a request is a prefix of another, with equal tools, model and parameters."""
    same = (request.model, request.tools, request.parameters, request.stream)
    return (
        same == (of.model, of.tools, of.parameters, of.stream)
        and len(of.messages) > len(request.messages) > 0
        and of.messages[: len(request.messages)] == request.messages
    )


def test_what_is_read_ahead_is_how_the_next_prompt_begins(
    alice: User, long_chat: Chat, fold: Fold, work: Work, warms_up: WarmsUp, now: datetime
) -> None:
    fold(long_chat)
    request = warms_up(long_chat, "swap").requests[0]
    assert request.max_output_tokens == 1
    turn = ask(alice, long_chat, now)
    reply = work(turn, REPLY).scripted.requests[0]
    assert is_prefix(request, reply)
    # Only the part that depends on the question is not cached.
    assert len(reply.messages) == len(request.messages) + 1
    assert Receipt.objects.get(turn=turn).purpose == "reply"


def test_the_receipt_says_what_was_read_and_the_ledger_commits_to_it(
    long_chat: Chat, fold: Fold, warms_up: WarmsUp, now: datetime
) -> None:
    row = fold(long_chat)
    usage_before = list(Turn.objects.values_list("usage", flat=True))
    warms_up(long_chat, "swap")
    (receipt,) = warm_receipts()
    assert (receipt.purpose, receipt.outcome, receipt.compaction) == ("warm_up", "ok", row)
    assert receipt.usage["input"] == 900
    sent = [segment[2] for segment in receipt.segments if segment[2]]
    left_out = [LeftOut(*part) for part in receipt.left_out]
    check_partition(last_seq=receipt.last_seq, sent=sent, left_out=left_out)
    event = AuditEvent.objects.get(type="context.warmed")
    assert event.data["calls"] == [[str(receipt.pk), receipt.commitment]]
    # Warm-ups are counted separately. The usage of turns is unchanged.
    assert list(Turn.objects.values_list("usage", flat=True)) == usage_before
    told = Counter[str]()
    assert list(ledger.find_ledger_breaks(tally=told)) == []
    Receipt.objects.filter(pk=receipt.pk).update(prompt_tokens=1)
    assert [found.reason for found in ledger.find_ledger_breaks()] == [
        f"receipt {receipt.pk} was changed"
    ]
    Receipt.objects.filter(pk=receipt.pk).delete()
    assert [found.reason for found in ledger.find_ledger_breaks()] == [
        f"receipt {receipt.pk} is missing"
    ]


def test_the_ledger_holds_while_the_call_is_under_way(
    long_chat: Chat, fold: Fold, warms_up: WarmsUp
) -> None:
    fold(long_chat)
    found: list[Any] = []

    async def look(_worker: Any) -> None:
        found.extend(await sync_to_async(lambda: list(ledger.find_ledger_breaks()))())
        found.append(await sync_to_async(lambda: warm_receipts()[0].outcome)())

    warms_up(long_chat, "swap", [look, *READ])
    assert found == ["open"]


def test_each_swap_is_read_once(
    long_chat: Chat,
    fold: Fold,
    warms_up: WarmsUp,
    now: datetime,
    alice: User,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        row = fold(long_chat)
    assert "swap" in list_warm_up_causes(sent)
    assert len(warms_up(long_chat, "swap").requests) == 1
    assert warms_up(long_chat, "swap").requests == []
    for number, action in enumerate((undo.undo_summary, undo.redo_summary), 2):
        sent.clear()
        with django_capture_on_commit_callbacks(execute=True):
            action(user=alice, compaction=row, now=add_minutes(now))
        assert list_warm_up_causes(sent) == ["swap"]
        assert len(warms_up(long_chat, "swap").requests) == 1
        assert warms_up(long_chat, "swap").requests == []
        assert len(warm_receipts()) == number


def test_a_mark_that_changes_what_was_sent_asks_for_it_too(
    long_chat: Chat,
    fold: Fold,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    fold(long_chat)
    covered = Message.objects.select_related("branch").get(branch=reload_branch(long_chat), seq=1)
    with django_capture_on_commit_callbacks(execute=True):
        marks.pin_message(message=covered, actor="user:1", now=now)
    assert list_warm_up_causes(sent) == ["swap"]


def switch_account(**values: Any) -> Callable[[SetPolicy], object]:
    """Return a function that changes the server's account."""
    return lambda _set: ProviderAccount.objects.update(**values)


@pytest.mark.parametrize(
    "change",
    [
        lambda set_policy: set_policy(warm_up=False),
        switch_account(warm_up=False),
        switch_account(enabled=False),
        switch_account(kind="demo"),
        switch_account(base_url="https://models.example.com/v1"),
        switch_account(base_url="http://10.0.0.9:8000/v1"),
        lambda _set: ModelSpec.objects.update(input_price=1),
        lambda _set: ModelSpec.objects.update(output_price=1),
    ],
    ids=["policy", "switch", "off", "demo", "public", "unlisted", "input price", "output price"],
)
def test_nothing_is_read_ahead_where_it_may_not_or_costs(
    change: Callable[[SetPolicy], object],
    long_chat: Chat,
    set_policy: SetPolicy,
    warms_up: WarmsUp,
    now: datetime,
) -> None:
    change(set_policy)
    assert warms_up(long_chat, "swap").requests == []
    assert not cache_warming.request_warm_up(chat=long_chat, now=add_minutes(now, 60))
    assert not WarmUp.objects.exists()


def test_a_price_of_nothing_is_no_price(long_chat: Chat, warms_up: WarmsUp) -> None:
    ModelSpec.objects.update(input_price=0, output_price=0)
    assert len(warms_up(long_chat).requests) == 1


def test_who_begins_to_write_is_heard_once_in_each_rest(
    alice: User,
    long_chat: Chat,
    now: datetime,
    work: Work,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    def types(at: datetime) -> bool:
        with django_capture_on_commit_callbacks(execute=True):
            return cache_warming.request_warm_up(chat=Chat.objects.get(pk=long_chat.pk), now=at)

    sent.clear()
    ended = Chat.objects.get(pk=long_chat.pk).updated_at
    assert not types(ended + timedelta(seconds=59))
    assert types(ended + timedelta(seconds=61))
    assert not types(ended + timedelta(seconds=61))
    assert not types(ended + timedelta(hours=61))
    assert list_warm_up_causes(sent) == ["typing"]
    turn = ask(alice, long_chat, ended + timedelta(hours=62))
    assert not types(ended + timedelta(hours=63)), "a reply is being written"
    work(turn, REPLY)
    Chat.objects.filter(pk=long_chat.pk).update(updated_at=ended + timedelta(hours=62))
    assert types(ended + timedelta(hours=63))


def test_soon_after_a_warm_up_nobody_needs_another(
    long_chat: Chat, warms_up: WarmsUp, now: datetime
) -> None:
    long_chat.refresh_from_db()
    at = long_chat.updated_at + timedelta(hours=1)
    warms_up(long_chat, "swap", now=at)
    assert not cache_warming.request_warm_up(chat=long_chat, now=at + timedelta(seconds=30))
    assert cache_warming.request_warm_up(chat=long_chat, now=at + timedelta(seconds=90))


@pytest.mark.parametrize("code", ["provider_auth", "provider_unavailable", "context_overflow"])
def test_a_call_that_fails_changes_nothing_and_is_not_repeated(
    code: Any,
    long_chat: Chat,
    fold: Fold,
    warms_up: WarmsUp,
    sent: list[tuple[str, dict[str, str]]],
) -> None:
    fold(long_chat)
    sent.clear()
    model = ModelSpec.objects.values().get()
    turns = list(Turn.objects.values())
    warms_up(long_chat, "swap", [ProviderError(code, limit=10, actual=20)])
    assert [(r.outcome, r.error_code) for r in warm_receipts()] == [("failed", code)]
    assert ProviderAccount.objects.get().paused_until is None
    assert (ModelSpec.objects.values().get(), list(Turn.objects.values())) == (model, turns)
    assert list_warm_up_causes(sent) == []
    assert warms_up(long_chat, "swap").requests == []
    assert WarmUp.objects.get().lease_token == ""


def test_an_unforeseen_failure_is_logged_and_closed(
    long_chat: Chat, warms_up: WarmsUp, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(_worker: Any) -> None:
        raise RuntimeError("unforeseen")

    warms_up(long_chat, "swap", [breaks])
    assert [(r.outcome, r.error_code) for r in warm_receipts()] == [("failed", "internal_error")]
    assert "failed unexpectedly" in caplog.text


def test_a_server_that_hangs_is_not_waited_for(
    long_chat: Chat, warms_up: WarmsUp, settings: Any
) -> None:
    settings.WARM_UP_SECONDS = 0.2
    provider = warms_up(long_chat, "swap", [forever])
    assert provider.cancelled == 1
    assert warm_receipts()[0].error_code == "provider_timeout"


def other_chat(alice: User, now: datetime) -> Chat:
    """Another chat with the same model."""
    return lifecycle.create_chat(owner=alice, now=now)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_message_ends_it_at_once(
    where: str, alice: User, long_chat: Chat, warms_up: WarmsUp, now: datetime
) -> None:
    chat = long_chat if where == "here" else other_chat(alice, now)

    async def somebody_sends(_worker: Any) -> None:
        await sync_to_async(ask)(alice, chat, now)
        await asyncio.sleep(5)
        raise AssertionError("the call went on")

    provider = warms_up(long_chat, "swap", [somebody_sends, *READ])
    assert provider.cancelled == 1
    assert [(r.outcome, r.error_code) for r in warm_receipts()] == [("stopped", "")]
    assert WarmUp.objects.get().warmed_at is None


@pytest.mark.parametrize("change", ["deleted", "erased", "marked"])
def test_a_chat_that_changes_meanwhile_ends_it(
    change: str, alice: User, long_chat: Chat, fold: Fold, warms_up: WarmsUp, now: datetime
) -> None:
    fold(long_chat)
    covered = Message.objects.select_related("branch__chat").get(branch__chat=long_chat, seq=1)
    deeds: dict[str, Callable[[], object]] = {
        "deleted": lambda: deletion.delete_chat(chat=long_chat, actor="user:1", now=now),
        "erased": lambda: erasure.erase_chat(user=alice, chat=long_chat, now=now),
        "marked": lambda: marks.pin_message(message=covered, actor="user:1", now=now),
    }

    async def changes(_worker: Any) -> None:
        await sync_to_async(deeds[change])()
        await asyncio.sleep(5)

    assert warms_up(long_chat, "swap", [changes, *READ]).cancelled == 1
    assert [r.outcome for r in warm_receipts()] == ([] if change == "erased" else ["stopped"])
    assert list(ledger.find_ledger_breaks()) == []


def test_a_process_that_ends_gives_it_up(long_chat: Chat, warms_up: WarmsUp) -> None:
    assert warms_up(long_chat, "swap", [forever], is_closing=True).cancelled == 1
    assert warm_receipts()[0].outcome == "stopped"


def test_a_busy_server_is_asked_again_a_little_later_and_not_for_ever(
    alice: User,
    long_chat: Chat,
    warms_up: WarmsUp,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    elsewhere = ask(alice, other_chat(alice, now), now)
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        assert warms_up(long_chat, "swap").requests == []
    assert [given.get("tries") for task, given in sent if task == queue.WARM_UP] == ["2"]
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        warms_up(long_chat, "swap", tries=cache_warming.MOST_TRIES)
    assert list_warm_up_causes(sent) == []
    stop_turn(user=alice, turn=elsewhere, now=now)
    assert len(warms_up(long_chat, "swap", tries=2).requests) == 1


def test_a_server_reads_one_prompt_ahead_at_a_time(
    alice: User, long_chat: Chat, warms_up: WarmsUp, now: datetime
) -> None:
    other = WarmUp(branch=reload_branch(other_chat(alice, now)), provider="demo", lease_token="t")
    other.save(force_insert=True)
    WarmUp.objects.filter(pk=other.pk).update(lease_until=leases.compute_lease_end())
    assert warms_up(long_chat, "swap").requests == []
    assert warm_receipts() == []


def test_a_reply_of_this_chat_reads_its_prompt_itself(
    alice: User,
    long_chat: Chat,
    warms_up: WarmsUp,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
) -> None:
    ask(alice, long_chat, now)
    sent.clear()
    assert warms_up(long_chat, "swap").requests == []
    assert list_warm_up_causes(sent) == []


def test_a_lost_worker_leaves_no_open_call(
    long_chat: Chat, warms_up: WarmsUp, monkeypatch: pytest.MonkeyPatch, now: datetime
) -> None:
    monkeypatch.setattr(cache_warming, "close_warm_up", lambda *a, **k: None)
    warms_up(long_chat, "swap")
    assert warm_receipts()[0].outcome == "open"
    assert cache_warming.sweep_warm_ups(now=now) == 0
    assert list(ledger.find_ledger_breaks()) == []
    WarmUp.objects.update(lease_until=leases.subtract_from_now(timedelta(seconds=1)))
    assert due_jobs.run_all_due_jobs(now=now) >= 1
    assert [r.outcome for r in warm_receipts()] == ["lost"]
    assert cache_warming.sweep_warm_ups(now=now) == 0


def test_a_worker_that_is_known_to_be_gone_is_swept_at_once(
    long_chat: Chat,
    warms_up: WarmsUp,
    monkeypatch: pytest.MonkeyPatch,
    now: datetime,
    settings: Any,
) -> None:
    monkeypatch.setattr(cache_warming, "close_warm_up", lambda *a, **k: None)
    warms_up(long_chat, "swap")
    due_jobs.take_over(now=now, worker="nobody")
    assert warm_receipts()[0].outcome == "open"
    due_jobs.take_over(now=now, worker=settings.WORKER_NAME)
    assert warm_receipts()[0].outcome == "lost"


def test_who_was_swept_writes_nothing(long_chat: Chat, warms_up: WarmsUp, now: datetime) -> None:
    def taken_for_dead() -> None:
        WarmUp.objects.update(lease_until=leases.subtract_from_now(timedelta(seconds=1)))
        cache_warming.sweep_warm_ups(now=now)

    async def swept(_worker: Any) -> None:
        await sync_to_async(taken_for_dead)()

    warms_up(long_chat, "swap", [swept, *READ])
    assert [(r.outcome, r.usage) for r in warm_receipts()] == [("lost", {})]


def test_an_erasure_reaches_what_was_read_ahead(
    alice: User, long_chat: Chat, fold: Fold, warms_up: WarmsUp, now: datetime
) -> None:
    fold(long_chat)
    warms_up(long_chat, "swap")
    first = Message.objects.select_related("branch__chat").get(branch__chat=long_chat, seq=1)
    erasure.erase_message(user=alice, message=first, now=now)
    (receipt,) = warm_receipts()
    assert (receipt.prompt_sha256, receipt.salt, receipt.erased_at) == ("", "", now)
    assert [s[5] for s in receipt.segments if s[0] == "summary"] == [""]
    assert list(ledger.find_ledger_breaks()) == []


def test_an_erasure_before_the_receipt_is_written_lets_none_be_written(
    alice: User, long_chat: Chat, warms_up: WarmsUp, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Message.objects.select_related("branch__chat").get(branch__chat=long_chat, seq=1)
    compose = composition.compose_prefix

    def composed(**given: Any) -> Any:
        made = compose(**given)
        erasure.erase_message(user=alice, message=first, now=now)
        return made

    monkeypatch.setattr(composition, "compose_prefix", composed)
    assert warms_up(long_chat, "swap").requests == []
    assert warm_receipts() == []


def test_a_chat_without_a_message_has_nothing_to_read(chat: Chat, warms_up: WarmsUp) -> None:
    assert warms_up(chat, "swap").requests == []


def test_a_summary_that_is_due_goes_into_force_ahead(
    alice: User,
    long_chat: Chat,
    counter: Any,
    work: Work,
    warms_up: WarmsUp,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    ready = Compaction.objects.get(status="prepared")
    assert warms_up(long_chat, "ahead").requests == [], "it is not due yet"
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        work(ask(alice, long_chat, now), [TextDelta(SENTENCE * 12), Finished("stop")])
    assert "ahead" in list_warm_up_causes(sent)
    request = warms_up(long_chat, "ahead").requests[0]
    ready.refresh_from_db()
    assert ready.status == "published"
    assert warms_up(long_chat, "swap").requests == [], "that swap was read already"
    reply = work(ask(alice, long_chat, now), REPLY).scripted.requests[0]
    assert is_prefix(request, reply)


def test_no_turn_moves_the_window_that_a_question_of_the_usual_length_would_move(
    alice: User,
    chat: Chat,
    set_policy: Callable[..., PolicyVersion],
    work: Work,
    warms_up: WarmsUp,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    set_policy(strategy="sliding_window")
    moved = 0
    for _ in range(16):
        turn = start_turn(user=alice, chat=chat, text=SENTENCE * 5, now=now).turn
        before = Compaction.objects.count()
        sent.clear()
        with django_capture_on_commit_callbacks(execute=True):
            work(turn, REPLY)
        assert Compaction.objects.count() == before
        if list_warm_up_causes(sent):
            warms_up(chat, "ahead")
        moved += Compaction.objects.count() - before
    assert moved >= 2


def test_the_window_moves_ahead(
    alice: User,
    chat: Chat,
    set_policy: Callable[..., PolicyVersion],
    work: Work,
    warms_up: WarmsUp,
    now: datetime,
) -> None:
    set_policy(strategy="sliding_window")
    moved = 0
    for number in range(14):
        text = f"Answer {number}. " + SENTENCE * 6
        work(ask(alice, chat, now), [TextDelta(text), Finished("stop")])
        provider = warms_up(chat, "ahead")
        if not provider.requests:
            continue
        moved += 1
        before = Compaction.objects.count()
        reply = work(ask(alice, chat, now), [TextDelta(text), Finished("stop")])
        assert is_prefix(provider.requests[0], reply.scripted.requests[0])
        assert Compaction.objects.count() == before
    assert moved >= 1
    assert not publish_prepared(branch_id=reload_branch(chat).pk, now=now)
