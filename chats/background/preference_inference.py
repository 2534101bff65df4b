"""Preference inference: a model reads an idle chat and suggests preferences of its owner.

Each reading is one short background call to the policy's summary model. Its messages, tokens and
time are limited, and so is the number of calls per day. The claim, the receipt and its ledger entry
are written before the call. The suggestions and the reading position are written in one transaction
after the call. A call that the provider rejects is not repeated. A call whose worker died or
stopped, or for which the provider was unavailable, is repeated once.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

from django.db import transaction
from django.db.models import F, Max, QuerySet

from chats.background import model_call
from chats.ground import leases, queue
from chats.ground.background_lock import alone
from chats.memory.preferences import inference_checks, inference_queue, memory_settings, proposals
from chats.memory.preferences.preference_patterns import LONGEST_MESSAGE
from chats.models import (
    Branch,
    Chat,
    MemorySettings,
    Message,
    PreferenceReading,
    Receipt,
    Turn,
)
from chats.prompt import follow_ups
from chats.prompt.model_choice import ChosenModel
from chats.providers.base import ProviderRequest
from chats.providers.registry import ProviderAccountValue as Account
from chats.record import history, locking, quotas
from chats.turns import side_calls
from chats.turns.call_receipts import WORKER, close_call, count_ended_call
from chats.turns.note_preferences import can_save_preferences
from chats.turns.side_calls import SidePrompt
from chats.turns.step_results import StepResult
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.messages.tokens import TokenCounter, count_wire_tokens
from contextpolicy.models import ModelSpec

logger = logging.getLogger(__name__)
# Limits of one call: user messages, prompt tokens, seconds and output tokens.
MOST_MESSAGES = 16
MOST_TOKENS = 12_000
SECONDS = 60.0
MOST_WRITTEN = 1_500
# Maximum number of calls per person per UTC day.
CALLS_A_DAY = 20
# Pages of messages that one transaction may skip.
PAGES = 20


@dataclass(frozen=True, slots=True)
class ReadingCall:
    """A recorded call that reads a person's messages in a chat, up to the sequence number `to`."""

    reading: PreferenceReading
    to: int
    messages: Sequence[uuid.UUID]
    receipt_id: uuid.UUID
    request: ProviderRequest
    account: Account
    meter: quotas.QuotaMeter | None


def read_chat(
    *,
    chat_id: uuid.UUID,
    counter: TokenCounter,
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
) -> None:
    """Ask the summary model to suggest preferences from messages that it has not seen.

    `is_closing` returns True while this process is shutting down.
    """
    with alone:
        call = prepare_inference_call(chat_id, counter=counter, now=clock())
    if call is None:
        return
    text, ending = model_call.ask_background_model(
        call.request,
        account=call.account,
        seconds=SECONDS,
        is_wanted=lambda: not is_closing(),
        what=f"preferences of {chat_id}",
    )
    finish_inference_call(call, text=text, ending=ending, now=clock())


@transaction.atomic
def prepare_inference_call(
    chat_id: uuid.UUID, *, counter: TokenCounter, now: datetime
) -> ReadingCall | None:
    """Claim the chat, compose the call and record it under the chat's lock.

    None if no call is needed or allowed now. If the day's calls are used up, the chat is due
    again on the next day.
    """
    try:
        chat = locking.lock_chat(chat_id)
    except Chat.DoesNotExist:
        return None
    row = inference_queue.claim_chat_reading(chat_id)
    if row is None:
        return None
    model_call.close_lost_calls([row.receipt_id], now=now)
    settings = memory_settings.lock_memory_settings(chat.owner_id)
    asked = choose_inference_model(chat) if can_infer_from_chat(chat, settings=settings) else None
    if asked is None:
        inference_queue.release_chat_reading(row, due_at=None)
        return None
    if count_daily_calls(settings, now=now) >= CALLS_A_DAY:
        inference_queue.release_chat_reading(row, due_at=compute_next_day(now))
        return None
    choice, model, account = asked
    prompt, said, to = compose_next_inference(
        chat, row, settings, choice=choice, model=model, counter=counter
    )
    if prompt is None:
        inference_queue.release_chat_reading(row, due_at=None, to=to)
        return None
    meter = side_calls.build_side_meter(prompt, chat=chat, values=choice.values, model=model)
    if not quotas.is_quota_left(meter, now=now):
        inference_queue.release_chat_reading(row, due_at=compute_next_day(now))
        return None
    turn = said[-1].turn
    if turn is None:
        raise AssertionError(said[-1].pk)
    record_inference_call(settings, now=now)
    receipt = side_calls.create_side_receipt(
        prompt,
        turn=turn,
        step=Receipt.AFTERWARDS,
        call=number_inference_call(turn),
        effective=choice.effective,
        now=now,
    )
    row.reading_to, row.tries, row.receipt = to, row.tries + 1, receipt
    row.save(update_fields=["reading_to", "tries", "receipt"])
    ledger.record_event(
        "chat.preferences_asked",
        actor=WORKER,
        now=now,
        chat_id=chat_id,
        turn_id=turn.pk,
        data={
            "model": model.name,
            "provider": account.slug,
            "messages": len(said),
            "prompt_tokens": prompt.tokens,
            "calls": [[str(receipt.pk), receipt.commitment]],
        },
    )
    ids = [message.pk for message in said]
    return ReadingCall(row, to, ids, receipt.pk, prompt.request, account, meter)


def can_infer_from_chat(chat: Chat, *, settings: MemorySettings) -> bool:
    """Return True if the owner agreed to inference and the chat allows it."""
    return (
        chat.deleted_at is None
        and chat.owner.is_active
        and memory_settings.is_inferring(settings)
        and can_save_preferences(chat)
    )


def choose_inference_model(chat: Chat) -> tuple[ChosenModel, ModelSpec, Account] | None:
    """Return the choice, the summary model and its account for a chat.

    None if there is no such model, or the policy does not allow inference with it.
    """
    chosen = model_call.choose_background_model(chat)
    if chosen is None:
        return None
    values, allowed = chosen[0].values, chosen[0].values.memory_providers
    is_allowed = follow_ups.is_inference_enabled(values) and (
        allowed is None or chosen[1].provider in allowed
    )
    return chosen if is_allowed else None


def count_daily_calls(settings: MemorySettings, *, now: datetime) -> int:
    """Return the number of calls made for a person today."""
    return settings.inferred_calls if settings.inferred_on == now.astimezone(UTC).date() else 0


def record_inference_call(settings: MemorySettings, *, now: datetime) -> None:
    """Increment the number of calls made for a person today.

    The caller has locked the settings row.
    """
    settings.inferred_calls = count_daily_calls(settings, now=now) + 1
    settings.inferred_on = now.astimezone(UTC).date()
    settings.save(update_fields=["inferred_calls", "inferred_on"])


def compute_next_day(now: datetime) -> datetime:
    """Return the start of the next UTC day."""
    day = now.astimezone(UTC).date() + timedelta(days=1)
    return datetime.combine(day, time(), tzinfo=UTC)


def compose_next_inference(
    chat: Chat,
    row: PreferenceReading,
    settings: MemorySettings,
    *,
    choice: ChosenModel,
    model: ModelSpec,
    counter: TokenCounter,
) -> tuple[SidePrompt | None, list[Message], int]:
    """Compose the next call: the prompt, the person's messages and the new reading position.

    The prompt is None if there is nothing to read.
    """
    branch = load_inference_branch(chat)
    to = row.read_to
    for _ in range(PAGES):
        page = list(
            select_unread_messages(branch, after=to, since=settings.inferring_since)[:MOST_MESSAGES]
        )
        if not page:
            break
        said = [message for message in page if inference_checks.is_readable_message(message.text)]
        to = page[-1].accepted
        while said:
            prompt = compose_inference_prompt(
                said, branch=branch, choice=choice, model=model, counter=counter
            )
            if prompt is not None:
                return prompt, said, to
            # Messages that do not fit are left to the next call, which is due at once. A message
            # that fits into no call is skipped.
            last = said.pop()
            to = last.accepted - 1 if said else last.accepted
    return None, [], to


def load_inference_branch(chat: Chat) -> Branch:
    branches = Branch.objects.select_related("parent", "chat")
    return branches.get(chat=chat, chat__active_branch=F("pk"))


def select_unread_messages(
    branch: Branch, *, after: int, since: datetime | None
) -> QuerySet[Message]:
    """Return the owner's messages that were not read yet, in order of acceptance.

    `after`: the position up to which messages were read. `since`: the time at which the
    owner agreed to inference. Messages of other team members, of API clients and of imports
    are left out, as are excluded and erased ones.
    """
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).filter(
        turn__client__isnull=True,
        role=Message.Role.USER,
        accepted__gt=after,
        speaker__isnull=True,
        turn__isnull=False,
        excluded=False,
        erased_at=None,
        created_at__gte=since,
    )
    return rows.select_related("turn").order_by("accepted")


def load_nearby_replies(said: Sequence[Message], *, branch: Branch) -> list[Message]:
    """Return the replies directly before and between the given messages, at most the last 16."""
    after, before = (said[0].seq or 1) - 2, said[-1].seq or 1
    rows = history.select_path_messages(branch, after=max(after, 0), before=before)
    rows = rows.filter(role=Message.Role.ASSISTANT, excluded=False, erased_at=None)
    found = [row for row in rows.order_by("seq")[: 4 * MOST_MESSAGES] if row.text.strip()]
    return found[-MOST_MESSAGES:]


def compose_inference_prompt(
    said: Sequence[Message],
    *,
    branch: Branch,
    choice: ChosenModel,
    model: ModelSpec,
    counter: TokenCounter,
) -> SidePrompt | None:
    """Compose the call for some messages. None if it would exceed a limit."""
    rows = sorted([*said, *load_nearby_replies(said, branch=branch)], key=lambda row: row.seq or 0)
    read = history.load_all(rows, counter=counter)
    system = WireMessage("system", inference_checks.INSTRUCTIONS)
    question = WireMessage("user", inference_checks.format_conversation(read))
    own, rest = count_wire_tokens(system, counter), count_wire_tokens(question, counter)
    limits = side_calls.load_side_limits(
        branch, values=choice.values, model=model, most=MOST_TOKENS
    )
    if own + rest > limits.tokens:
        return None
    # The frame around the messages counts towards the newest one.
    sizes = [min(message.tokens, rest // len(read)) for message in read[:-1]]
    sizes.append(rest - sum(sizes))
    return SidePrompt(
        request=limits.build_request((system, question), most=MOST_WRITTEN),
        texts=[("system", inference_checks.PREFERENCES_V1, inference_checks.INSTRUCTIONS, own)],
        read=list(zip(read, sizes, strict=True)),
        budget=limits.build_budget(system=own, question=rest),
        tokens=own + rest,
        cut_to=LONGEST_MESSAGE,
    )


def number_inference_call(turn: Turn) -> int:
    """Return the number of the turn's next inference call."""
    rows = Receipt.objects.filter(turn=turn, step=Receipt.AFTERWARDS, call__gte=Receipt.INFERRING)
    last: int | None = rows.aggregate(last=Max("call"))["last"]
    return Receipt.INFERRING if last is None else last + 1


@transaction.atomic
def finish_inference_call(
    call: ReadingCall, *, text: str, ending: StepResult, now: datetime
) -> None:
    """Complete the receipt, and store the suggestions and the reading position.

    Does nothing if the claim was lost. After a temporary failure, the chat is read again later.
    """
    try:
        chat = locking.lock_chat(call.reading.chat_id)
    except Chat.DoesNotExist:
        # The receipt was erased with the chat.
        count_ended_call(call.meter, ending=ending, now=now)
        return
    lease = inference_queue.READINGS.get_lease(call.reading)
    mine = lease.select_row().filter(receipt=call.receipt_id)
    if not mine.exists():
        return
    close_call(receipt_id=call.receipt_id, ending=replace(ending, meter=call.meter), now=now)
    if is_ending_retryable(ending) and call.reading.tries < inference_queue.MOST_TRIES:
        inference_queue.release_chat_reading(call.reading, due_at=now + inference_queue.REST)
        return
    settings = memory_settings.lock_memory_settings(chat.owner_id)
    if text and can_infer_from_chat(chat, settings=settings):
        store_suggestions(call, text=text, chat=chat, now=now)
    since = settings.inferring_since
    rest = (
        select_unread_messages(load_inference_branch(chat), after=call.to, since=since)
        if since
        else None
    )
    has_more = rest is not None and rest.exists()
    is_due = has_more and mine.filter(due_at__lte=call.reading.due_at).exists()
    inference_queue.release_chat_reading(call.reading, due_at=now if is_due else None, to=call.to)
    if is_due:
        queue.enqueue(queue.READ_PREFERENCES, chat_id=chat.pk)


def store_suggestions(call: ReadingCall, *, text: str, chat: Chat, now: datetime) -> None:
    """Store the acceptable suggestions, and record how many were suggested and rejected.

    If any of the messages was excluded or erased during the call, its suggestions are dropped.
    """
    there = Message.objects.filter(pk__in=call.messages).select_related("branch")
    by_id = {row.pk: row for row in there}
    is_gone = any(row.excluded or row.erased_at for row in by_id.values())
    if is_gone or len(by_id) < len(call.messages):
        return
    told = proposals.save_proposals(
        inference_checks.parse_preference_proposals(text),
        read=[by_id[pk] for pk in call.messages],
        owner_id=chat.owner_id,
        folder_id=chat.folder_id,
        now=now,
    )
    ledger.record_event(
        "chat.preferences_read",
        actor=WORKER,
        now=now,
        chat_id=chat.pk,
        data={"receipt": str(call.receipt_id), **dict(sorted(told.items()))},
    )


def is_ending_retryable(ending: StepResult) -> bool:
    """Return True if a retry may succeed. Requests that the provider rejected are never retried."""
    if ending.finish == Message.Finish.STOPPED:
        return True
    passing = {"provider_unavailable", "provider_rate_limited", "provider_timeout"}
    return ending.error_code in passing


def sweep_inference_calls(*, now: datetime) -> int:
    """Close calls of dead workers, and enqueue idle chats for reading. Return the count."""
    from_dead = PreferenceReading.objects.filter(
        leases.match_expired_leases(), receipt__outcome=Receipt.Outcome.OPEN
    )
    lost = list(from_dead.values_list("receipt", flat=True)[: inference_queue.AT_ONCE])
    if lost:
        model_call.close_lost_calls(lost, now=now)
    return len(lost) + inference_queue.enqueue_due()
