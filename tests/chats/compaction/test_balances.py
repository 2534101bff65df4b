"""The balance of a compaction: its cost, its savings, and the cost of the cache miss."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.utils import timezone

from chats.compaction.people.undo import redo_summary, undo_summary
from chats.counts import balances, keeping, telling
from chats.counts.balances import Balance
from chats.models import Chat, Compaction, CompactionBalance, DailyCount, Receipt
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from chats.turns.start import start_turn
from contextpolicy import event_types, following, ledger
from contextpolicy.engine.policy.costs import Money
from contextpolicy.models import AuditEvent, LedgerReader, ModelSpec
from tests.support.chat_summaries import Fold, SetPolicy, Work, Writes, script_summary
from tests.support.summary_attempts import SUMMARY_IN_ONE_REQUEST

D = Decimal
Ask = Callable[..., Receipt]


@pytest.fixture
def priced(demo_model: ModelSpec) -> ModelSpec:
    """The model of the chat, with prices. Cached input costs a tenth."""
    demo_model.input_price, demo_model.output_price = D(10), D(30)
    demo_model.cached_price, demo_model.currency = D(1), "USD"
    demo_model.save()
    return demo_model


@pytest.fixture
def ask(alice: User, now: datetime, work: Work) -> Ask:
    """Run one turn whose provider reports these tokens, and return the receipt."""

    def asking(chat: Chat, *, sent: int, cached: int, text: str = "And now?") -> Receipt:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        report = UsageReport(
            input_tokens=sent, output_tokens=3, cached_tokens=cached, written_tokens=0
        )
        work(turn, [TextDelta("Like this."), report, Finished("stop")])
        return Receipt.objects.filter(turn=turn).latest("created_at")

    return asking


def count(now: datetime) -> None:
    """Count all pending ledger events."""
    while keeping.count_next_events(now=now):
        pass


def freed(row: Compaction, receipt: Receipt) -> int:
    """Return the tokens that a compaction saved, as counted by the provider."""
    ratio: float = receipt.usage["input"] / receipt.prompt_tokens
    return round((row.tokens_before - row.tokens_after) * ratio)


@pytest.mark.policy_case(13)
def test_a_compaction_is_weighed_by_what_providers_bill(
    priced: ModelSpec,
    writes: Writes,
    writer: ModelSpec,
    long_chat: Chat,
    ask: Ask,
    fold: Fold,
    set_policy: SetPolicy,
    now: datetime,
) -> None:
    writer.currency = "USD"
    writer.save()
    set_policy(summarization_model=writer.slug, **SUMMARY_IN_ONE_REQUEST)
    writes(script_summary())
    ask(long_chat, sent=3_000, cached=2_900)
    row = fold(long_chat)
    count(now)
    assert balances.load_compaction_balance(row).cost == Money({"USD": D("0.003")})
    assert balances.load_compaction_balance(row).net == Money({"USD": D("-0.003")})
    first = ask(long_chat, sent=1_200, cached=200)
    second = ask(long_chat, sent=1_300, cached=1_250)
    count(now)
    found = balances.load_compaction_balance(row)
    tokens = freed(row, first) + freed(row, second)
    # The cache was warm before, and again at the second call, so savings use the cached price.
    assert (found.calls, found.saved_tokens) == (2, tokens)
    assert found.saved == Money({"USD": tokens * D(1) / 1_000_000})
    # 1,000 uncached tokens instead of 100: 900 at 10 instead of 1.
    assert (found.lost_tokens, found.lost) == (900, Money({"USD": D("0.0081")}))
    assert found.net == found.saved - found.cost - found.lost
    assert balances.load_chat_balance(long_chat) == found
    assert balances.list_policy_balances("small")[0][1] == found


def test_an_undo_and_a_redo_break_the_cache_again(
    priced: ModelSpec,
    long_chat: Chat,
    ask: Ask,
    fold: Fold,
    now: datetime,
    alice: User,
    set_policy: SetPolicy,
) -> None:
    row = fold(long_chat)
    ask(long_chat, sent=1_200, cached=0)
    ask(long_chat, sent=1_300, cached=1_250)
    count(now)
    assert balances.load_compaction_balance(row).lost_tokens == 0
    # Enough room for the summarised messages.
    set_policy(token_budget=9_000)
    # Calls use the real time.
    undo_summary(user=alice, compaction=row, now=timezone.now())
    ask(long_chat, sent=3_000, cached=0)
    count(now)
    found = balances.load_compaction_balance(row)
    # 3,000 uncached tokens instead of 50: 2,950 at 10 instead of 1.
    assert (found.lost_tokens, found.lost) == (2_950, Money({"USD": D("0.02655")}))
    # Only the first call after the undo counts.
    ask(long_chat, sent=3_100, cached=2_900)
    redo_summary(user=alice, compaction=row, now=timezone.now())
    ask(long_chat, sent=1_400, cached=0)
    ask(long_chat, sent=1_500, cached=1_400)
    count(now)
    assert balances.load_compaction_balance(row).lost_tokens == 2_950 + 1_200
    assert balances.load_chat_balance(long_chat).lost == balances.load_compaction_balance(row).lost


def test_without_a_price_the_balance_is_unknown_and_never_nothing(
    writes: Writes,
    writer: ModelSpec,
    long_chat: Chat,
    ask: Ask,
    fold: Fold,
    set_policy: SetPolicy,
    now: datetime,
) -> None:
    writer.input_price = None
    writer.save()
    set_policy(summarization_model=writer.slug, **SUMMARY_IN_ONE_REQUEST)
    writes(script_summary())
    row = fold(long_chat)
    ask(long_chat, sent=1_200, cached=0)
    count(now)
    found = balances.load_compaction_balance(row)
    assert found.saved_tokens > 0
    assert (found.cost.unknown, found.saved.unknown) == (1, 1)
    assert balances.format_money(found.net) == balances.format_money(found.saved) == "unknown"


def test_what_was_counted_keeps_the_price_that_it_had(
    priced: ModelSpec, long_chat: Chat, ask: Ask, fold: Fold, now: datetime
) -> None:
    row = fold(long_chat)
    ask(long_chat, sent=1_200, cached=0)
    count(now)
    before = balances.load_compaction_balance(row)
    priced.input_price, priced.currency = D(99), "EUR"
    priced.save()
    receipt = ask(long_chat, sent=1_200, cached=0)
    count(now)
    found = balances.load_compaction_balance(row)
    assert found.saved.amounts["USD"] == before.saved.amounts["USD"]
    assert found.saved.amounts["EUR"] == freed(row, receipt) * D(99) / 1_000_000
    assert found.cost == Money(), "no model was asked"


def test_a_call_without_a_report_stands_apart(
    priced: ModelSpec, long_chat: Chat, fold: Fold, now: datetime, alice: User, work: Work
) -> None:
    row = fold(long_chat)
    turn = start_turn(user=alice, chat=long_chat, text="And?", now=now).turn
    work(turn, [TextDelta("Yes."), Finished("stop")])
    count(now)
    found = balances.load_compaction_balance(row)
    assert found == Balance(calls=1, unreported=1, saved=Money({}, 1))
    assert balances.format_money(found.saved) == balances.format_money(found.net) == "unknown"


def test_what_is_counted_is_counted_once(
    priced: ModelSpec, long_chat: Chat, ask: Ask, fold: Fold, now: datetime, monkeypatch: Any
) -> None:
    fold(long_chat)
    ask(long_chat, sent=1_200, cached=0)

    class Killed(Exception):
        """Simulates the end of the worker."""

    def die(_name: str) -> None:
        raise Killed

    with monkeypatch.context() as killing:
        killing.setattr(keeping, "failpoint", die)
        with pytest.raises(Killed):
            keeping.count_next_events(now=now)
    assert not DailyCount.objects.exists()
    # Two workers read the same events. The second one adds nothing.
    place = following.get_ledger_reader(keeping.READER)
    found = following.read_ledger_events(place, now=now, most=keeping.AT_ONCE)
    count(now)
    whole = list(DailyCount.objects.order_by("pk").values())
    assert not following.advance_reader(place, found, now=now)
    count(now)
    assert list(DailyCount.objects.order_by("pk").values()) == whole
    assert sum(row["replies"] for row in whole) == 9


def test_an_erasure_changes_no_count_of_the_past(
    priced: ModelSpec, long_chat: Chat, ask: Ask, fold: Fold, now: datetime
) -> None:
    fold(long_chat)
    ask(long_chat, sent=1_200, cached=600)
    count(now)
    before = list(DailyCount.objects.order_by("pk").values())
    long_chat.delete()
    count(now)
    assert list(DailyCount.objects.order_by("pk").values()) == before
    assert not CompactionBalance.objects.exists()


def test_what_was_erased_before_it_was_counted_counts_as_the_ledger_tells(
    priced: ModelSpec, long_chat: Chat, ask: Ask, now: datetime
) -> None:
    ask(long_chat, sent=1_200, cached=600)
    long_chat.delete()
    count(now)
    (row,) = DailyCount.objects.all()
    assert (row.replies, row.calls, row.model) == (9, 0, "")


def test_a_compaction_that_goes_meanwhile_is_read_again(
    long_chat: Chat, ask: Ask, fold: Fold, now: datetime, monkeypatch: Any
) -> None:
    fold(long_chat)
    ask(long_chat, sent=1_200, cached=0)

    def gone(_self: object) -> None:
        raise IntegrityError

    with monkeypatch.context() as erasing:
        erasing.setattr("chats.counts.sums.Sums.store", gone)
        assert keeping.count_next_events(now=now)
    assert not DailyCount.objects.exists()
    count(now)
    assert sum(DailyCount.objects.values_list("replies", flat=True)) == 9


def test_failures_count_by_their_code(
    priced: ModelSpec, chat: Chat, alice: User, work: Work, now: datetime
) -> None:
    turn = start_turn(user=alice, chat=chat, text="And?", now=now).turn
    work(turn, [ProviderError("provider_auth")])
    count(now)
    row = DailyCount.objects.get(failed=1)
    assert row.failures == {"provider_auth": 1}


@pytest.mark.policy_case(24)
def test_a_reader_misses_no_event_that_commits_late(chat: Chat, now: datetime) -> None:
    place = following.get_ledger_reader("test")
    ids = list(AuditEvent.objects.order_by("pk").values_list("pk", flat=True))
    following.advance_reader(place, following.Read([], ids[-1], []), now=now)
    place.refresh_from_db()
    ledger.record_event("ledger.read", actor="system", now=now)
    newest = AuditEvent.objects.latest("pk")
    # Simulates another transaction that has the previous id and has not committed yet.
    place.last = newest.pk - 2
    late = AuditEvent.objects.filter(pk=newest.pk - 1)
    assert late.exists()
    found = following.Read([newest], newest.pk, [[newest.pk - 1, now.isoformat()]])
    assert following.advance_reader(place, found, now=now)
    place.refresh_from_db()
    read = following.read_ledger_events(place, now=now, most=10)
    assert [event.pk for event in read.events] == [newest.pk - 1]
    assert (read.missed, read.last) == ([], newest.pk)


def test_an_id_that_was_taken_back_is_not_waited_for_for_ever(now: datetime, db: None) -> None:
    event = ledger.record_event("ledger.read", actor="system", now=now)
    place = LedgerReader(name="test", last=event.pk - 3)
    AuditEvent.objects.filter(pk__lt=event.pk)
    found = following.read_ledger_events(place, now=now, most=10)
    there = {row.pk for row in found.events}
    waited = [pk for pk, _ in found.missed]
    assert waited == [pk for pk in range(event.pk - 2, event.pk) if pk not in there]
    later = following.read_ledger_events(
        place, now=now + following.LONGEST + timedelta(seconds=1), most=10
    )
    assert later.missed == []


def test_every_type_that_is_counted_is_one_of_the_ledger() -> None:
    assert telling.TYPES <= event_types.EVENT_TYPES
