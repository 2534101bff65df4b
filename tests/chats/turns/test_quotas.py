"""Quotas of policies: counted calls, refusals with 402, and concurrent requests."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils import timezone

from chats.actions.usage import load_quota_states
from chats.background import due_jobs
from chats.models import ApiKey, Chat, PassedOn, QuotaUsage, Receipt, Turn
from chats.people import keys
from chats.prompt import model_choice
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta, UsageReport
from chats.record import passthrough_requests, quotas
from chats.turns.start import start_turn
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.retrieved_context import Say
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

pytestmark = pytest.mark.usefixtures("no_breaker")

SetQuota = Callable[..., ContextPolicy]
NOTHING = Decimal(0)
PRICES = {"input_price": "2", "output_price": "10", "currency": "EUR"}


def say_with_usage(sent: int, got: int) -> list[Any]:
    """Return the script of a reply with these token counts."""
    return [TextDelta("Noted."), UsageReport(sent, got, 0, 0), Finished("stop")]


def read_usage() -> list[tuple[int, str, Decimal]]:
    """Return the stored tokens, currency and cost of each day."""
    return list(QuotaUsage.objects.order_by("day").values_list("tokens", "currency", "cost"))


@pytest.fixture
def set_quota(now: datetime) -> SetQuota:
    """Assign an instance-wide policy with quotas."""

    def setting(**values: Any) -> ContextPolicy:
        policy = create_policy(slug="q", name="Q", values=values, actor="system", now=now)
        assign_policy(policy=policy, level="instance", actor="system", now=now)
        return policy

    return setting


def work_at(turn: Turn, now: datetime, *scripts: list[Any]) -> InlineWorker:
    """Process a turn with a stopped clock."""
    worker = InlineWorker(ScriptedProvider(list(scripts)))
    worker.clock = lambda: now
    async_to_sync(worker.turn)(turn.pk)
    turn.refresh_from_db()
    return worker


@pytest.fixture
def ask(chat: Chat, alice: User, now: datetime) -> Callable[..., Turn]:
    """Send a message, process its reply with the scripts, and return the turn."""

    def asking(*scripts: list[Any], at: datetime = now) -> Turn:
        turn = start_turn(user=alice, chat=chat, text="Hello", now=at).turn
        work_at(turn, at, *scripts)
        return turn

    return asking


def test_calls_without_quotas_are_not_counted(ask: Callable[..., Turn]) -> None:
    ask(say_with_usage(70, 30))
    assert read_usage() == []


def test_the_reply_that_reaches_the_limit_is_completed_and_the_next_message_is_refused(
    set_quota: SetQuota, ask: Callable[..., Turn], chat: Chat, alice: User, now: datetime
) -> None:
    set_quota(tokens_per_day=100)
    assert ask(say_with_usage(60, 30)).status == Turn.Status.COMPLETED
    assert ask(say_with_usage(60, 30)).status == Turn.Status.COMPLETED
    assert read_usage() == [(180, "", NOTHING)]
    with pytest.raises(quotas.QuotaExceeded) as refused:
        start_turn(user=alice, chat=chat, text="More", now=now)
    tomorrow = now.astimezone(UTC).date() + timedelta(days=1)
    assert (refused.value.code, refused.value.status) == ("quota_exceeded", 402)
    assert tomorrow.isoformat() in str(refused.value.full)
    later = datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=UTC)
    assert ask(say_with_usage(1, 1), at=later).status == Turn.Status.COMPLETED


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"tokens_per_month": 100}, quotas.MonthlyQuotaExceeded),
        ({"cost_per_month": 1}, quotas.CostQuotaExceeded),
        ({"tokens_per_day": 100, "tokens_per_month": 10_000_000}, quotas.QuotaExceeded),
    ],
)
def test_each_quota_is_refused(
    limits: dict[str, int],
    error: type[Exception],
    set_quota: SetQuota,
    ask: Callable[..., Turn],
    chat: Chat,
    alice: User,
    now: datetime,
    demo_model: ModelSpec,
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(**PRICES)
    set_quota(**limits)
    ask(say_with_usage(400_000, 20_000))
    assert read_usage() == [(420_000, "EUR", Decimal(1))]
    with pytest.raises(error):
        start_turn(user=alice, chat=chat, text="More", now=now)


def test_a_lower_level_cannot_raise_a_quota(
    set_quota: SetQuota, ask: Callable[..., Turn], chat: Chat, alice: User, now: datetime
) -> None:
    set_quota(tokens_per_day=100)
    own = create_policy(
        slug="o", name="O", values={"tokens_per_day": 10_000}, actor="system", now=now
    )
    Chat.objects.filter(pk=chat.pk).update(policy=own)
    ask(say_with_usage(100, 1))
    with pytest.raises(quotas.QuotaExceeded):
        start_turn(user=alice, chat=chat, text="More", now=now)


def test_usage_survives_the_erasure_of_the_chat_and_belongs_to_the_user(
    set_quota: SetQuota, ask: Callable[..., Turn], chat: Chat, alice: User, bob: User, now: datetime
) -> None:
    set_quota(tokens_per_day=100)
    ask(say_with_usage(100, 1))
    chat.delete()
    states = load_quota_states(user=alice, now=now)
    assert [(state.name, state.used, state.limit) for state in states] == [
        ("tokens_per_day", Decimal(101), 100)
    ]
    assert [state.used for state in load_quota_states(user=bob, now=now)] == [0]


def test_every_step_is_counted_and_a_reply_that_has_begun_is_completed(
    set_quota: SetQuota, chat: Chat, alice: User, now: datetime
) -> None:
    set_quota(tokens_per_day=100)
    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    call = [ToolCallDelta(0, "c1", "context_search", '{"query": "x"}')]
    worker = work_at(
        turn,
        now,
        [*call, UsageReport(90, 20, 0, 0), Finished("tool_calls")],
        say_with_usage(100, 20),
    )
    assert turn.status == Turn.Status.COMPLETED
    assert len(worker.scripted.requests) == 2
    assert read_usage() == [(230, "", NOTHING)]


@pytest.mark.parametrize(
    ("script", "counts_prompt"),
    [
        ([TextDelta("Noted."), Finished("stop")], True),
        ([ProviderError("provider_rejected")], False),
    ],
)
def test_calls_without_reported_usage(
    script: list[Any], counts_prompt: bool, set_quota: SetQuota, ask: Callable[..., Turn]
) -> None:
    set_quota(tokens_per_day=1_000_000)
    turn = ask(script)
    reply = turn.reply.token_count or 0 if turn.reply else 0
    prompt = Receipt.objects.get().prompt_tokens
    assert [tokens for tokens, _, _ in read_usage()] == ([prompt + reply] if counts_prompt else [])


def test_a_call_in_progress_counts_as_its_prompt(
    set_quota: SetQuota, chat: Chat, alice: User, now: datetime, demo_model: ModelSpec
) -> None:
    set_quota(tokens_per_day=1_000)
    meter = quotas.QuotaMeter(alice.pk, quotas.Quotas(tokens_per_day=1_000), demo_model.prices)
    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    quotas.check_usage_quota(meter, now=now)
    receipt = Receipt(
        turn=turn, attempt=1, step=1, model_name="m", segments=[], left_out=[], budget={},
        prompt_tokens=1_000, last_seq=1, created_at=now,
        effective_policy_id=resolve_digest(chat),
    )  # fmt: skip
    receipt.save()
    with pytest.raises(quotas.QuotaExceeded):
        quotas.check_usage_quota(meter, now=now)
    # The turn itself can continue.
    quotas.check_usage_quota(meter, now=now, own=turn)


def resolve_digest(chat: Chat) -> str:
    """Return the digest of the chat's effective policy."""
    return str(model_choice.choose_chat_model(chat=chat).effective.pk)


def test_pass_through_requests_count_each_other(
    set_quota: SetQuota, alice: User, demo_model: ModelSpec
) -> None:
    now = timezone.now()
    key, _ = keys.create_key(owner=alice, name="app", scopes=("gateway",), now=now)
    meter = quotas.QuotaMeter(alice.pk, quotas.Quotas(tokens_per_day=1), demo_model.prices)
    row = begin(key, demo_model, meter)
    with pytest.raises(quotas.QuotaExceeded):
        begin(key, demo_model, meter)
    ended = passthrough_requests.Ended("ok", {"input": 5, "output": 2})
    for _ in range(2):
        passthrough_requests.finish_passthrough(row, ended, now=now, meter=meter)
    assert read_usage() == [(7, "", NOTHING)]
    wide = replace(meter, quotas=quotas.Quotas(tokens_per_day=8))
    begin(key, demo_model, wide)
    with pytest.raises(quotas.QuotaExceeded):
        begin(key, demo_model, wide)


def begin(key: ApiKey, model: ModelSpec, meter: quotas.QuotaMeter) -> PassedOn:
    """Store a pass-through request."""
    return passthrough_requests.start_passthrough(
        key=key, model=model, kind="chat.completions", why="key", now=timezone.now(), meter=meter
    )


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ({"input_price": "2", "output_price": "10"}, "0.0120"),
        ({"input_price": "2", "output_price": "10", "cached_price": "1"}, "0.0110"),
        ({"input_price": None, "output_price": "10"}, "0.0100"),
    ],
)
def test_tokens_without_a_price_of_their_own(
    prices: dict[str, str], cost: str, set_quota: SetQuota, ask: Callable[..., Turn]
) -> None:
    set_quota(cost_per_month=100)
    ModelSpec.objects.update(currency="EUR", **prices)
    ask([TextDelta("Noted."), UsageReport(1_000, 1_000, 1_000, 0), Finished("stop")])
    assert read_usage() == [(2_000, "EUR", Decimal(cost))]


def test_a_reply_that_breaks_off_without_usage_counts_with_its_text(
    set_quota: SetQuota, ask: Callable[..., Turn]
) -> None:
    set_quota(tokens_per_day=1_000_000)
    turn = ask([TextDelta("one two three four five six"), ProviderError("provider_timeout")])
    assert turn.status == Turn.Status.FAILED
    assert turn.reply
    assert turn.reply.token_count
    assert read_usage()[0][0] == Receipt.objects.get().prompt_tokens + turn.reply.token_count


def test_a_turn_that_was_accepted_before_is_refused_at_its_first_call(
    set_quota: SetQuota, chat: Chat, alice: User, now: datetime
) -> None:
    set_quota(tokens_per_day=100)
    turn = start_turn(user=alice, chat=chat, text="Hello", now=now).turn
    QuotaUsage.objects.create(owner=alice, day=now.astimezone(UTC).date(), tokens=100)
    worker = work_at(turn, now, say_with_usage(1, 1))
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "quota_exceeded")
    assert worker.scripted.requests == []


def test_the_call_of_a_lost_worker_counts_as_its_prompt(
    set_quota: SetQuota, ask: Callable[..., Turn], now: datetime
) -> None:
    set_quota(tokens_per_day=1_000_000)
    turn = ask(say_with_usage(10, 5))
    Receipt.objects.update(outcome=Receipt.Outcome.OPEN, usage={})
    for _ in range(2):
        quotas.close_lost_receipts(Receipt.objects.filter(turn=turn), now=now)
    assert read_usage()[0][0] == 15 + Receipt.objects.get().prompt_tokens


def test_old_rows_are_deleted(alice: User, now: datetime) -> None:
    days = [now.date() - timedelta(days=age) for age in (0, 40, 63)]
    QuotaUsage.objects.bulk_create(QuotaUsage(owner=alice, day=day, tokens=1) for day in days)
    due_jobs.run_due_job("old_requests", now=now)
    assert set(QuotaUsage.objects.values_list("day", flat=True)) == set(days[:2])


@pytest.mark.skipif(connection.vendor == "sqlite", reason="its test database has one connection")
def test_the_last_token_is_given_to_one_of_fifty_requests(
    transactional_ledger: None,
    set_quota: SetQuota,
    alice: User,
    demo_model: ModelSpec,
    settings: Any,
    now: datetime,
) -> None:
    settings.TURNS_PER_USER = 100
    set_quota(tokens_per_day=100)
    QuotaUsage.objects.create(owner=alice, day=now.astimezone(UTC).date(), tokens=99)
    chats = [make_chat(alice, now) for _ in range(50)]
    codes: list[str] = []

    def send(chat: Chat) -> None:
        try:
            start_turn(user=alice, chat=chat, text="Hello", now=now)
            codes.append("accepted")
        except quotas.QuotaExceeded as refusal:
            codes.append(refusal.code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send, args=(chat,)) for chat in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(codes) == ["accepted", *["quota_exceeded"] * 49]


def make_chat(owner: User, now: datetime) -> Chat:
    """Create a chat with a branch."""
    chat = Chat.objects.create(owner=owner, created_at=now, updated_at=now)
    chat.active_branch = chat.branches.create(created_at=now)
    chat.save()
    return chat


def test_say_is_unaffected_by_a_wide_quota(set_quota: SetQuota, chat: Chat, say: Say) -> None:
    set_quota(tokens_per_day=10**9, tokens_per_month=10**9, cost_per_month=10**6)
    assert say(chat, "Hello").messages[-1].content == "Hello"
