"""The writes of a running turn. Each is one transaction, fenced by the lease.

They open a step (which accepts waiting messages), record the call, and close the step or the turn.
"""

import uuid
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from django.db import IntegrityError, transaction

from chats.ground import queue
from chats.ground.failpoints import failpoint
from chats.ground.leases import LeaseLost
from chats.memory.search.meaning import Look
from chats.models import Branch, Chat, Message, Receipt, ToolStep, Turn
from chats.prompt import calibration
from chats.prompt.tools import registry as tools
from chats.prompt.tools.skill_load import SkillFacts
from chats.providers import stored_options
from chats.record import locking, messages, quotas, reply_logprobs
from chats.turns import (
    breaker,
    lanes,
    note_preferences,
    reply_steps,
    rounds,
    statements,
    tool_steps,
)
from chats.turns.call_receipts import WORKER, close_call
from chats.turns.events import record_attempt_end
from chats.turns.lease import (
    RELEASED,
    Lease,
    claim_turn,
    extend_lease,
    lock_held_turn,
    read_turn,
    update_held_turn,
)
from chats.turns.step_results import (
    StepResult,
    build_ending_data,
    build_failure_fields,
    clear_client_options,
)
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.models import ModelSpec
from speed import prepared
from speed.commits import unflushed_transaction


def claim_and_open(
    *, turn_id: uuid.UUID, worker: str, counter: TokenCounter, now: datetime
) -> tuple[Lease, Turn, ToolStep | None] | None:
    """Claim the turn and open its first step. None if it cannot be claimed.

    The third value is the step that an earlier attempt stored before it called tool servers.

    Locks the branch first. Otherwise two turns of a branch that start at once could deadlock: one
    waits to absorb the other, which waits to see whether the first is running.
    """
    try:
        with unflushed_transaction():
            locking.lock_branch_of(turn_id)
            lease = claim_turn(turn_id=turn_id, worker=worker, now=now)
            if lease is None:
                return None
            turn = start_step(read_turn(lease), lease=lease, counter=counter, now=now)
            stored = tool_steps.find_tool_step(turn) if turn.attempt > 1 else None
            return lease, turn, stored
    except IntegrityError:
        # Another turn of the branch was claimed first.
        return None


def use_tool(
    *,
    lease: Lease,
    turn: Turn,
    call: ToolCallPart,
    offered: Collection[str],
    counter: TokenCounter,
    now: datetime,
    sent: Collection[int] = (),
    look: Look | None = None,
    skills: SkillFacts = tools.NO_SKILLS,
) -> str | None:
    """Run one of the product's own tools and return its result for the model.

    None if a replay has no recorded result for the call. The ledger records a tool that ran.
    Recording raises `LeaseLost` if the lease is lost.
    """
    branch = Branch.objects.select_related("active_compaction").get(pk=turn.branch_id)
    answer = tools.run_tool_call(
        call,
        branch=branch,
        offered=offered,
        counter=counter,
        sent=sent,
        look=look,
        skills=skills,
    )
    if answer.read:
        with transaction.atomic():
            lock_held_turn(lease)
            ledger.record_event(
                "tool.called",
                actor=WORKER,
                now=now,
                chat_id=branch.chat_id,
                turn_id=lease.turn_id,
                data={**answer.read, "attempt": turn.attempt, "step": turn.step},
            )
    return answer.content


@transaction.atomic
def note_no_tools(*, model: ModelSpec, now: datetime) -> ModelSpec:
    """Record that the model's server rejects tools. Return the updated model."""
    model = ModelSpec.objects.select_for_update(no_key=True).get(pk=model.pk)
    if model.supports_tools:
        model.supports_tools = False
        model.save(update_fields=["supports_tools"])
        changes = {"supports_tools": [True, False]}
        data = {"model": model.slug, "changes": changes, "reason": "tools_unsupported"}
        ledger.record_event("model.changed", actor=WORKER, now=now, data=data)
    return model


@transaction.atomic
def open_step(*, lease: Lease, counter: TokenCounter, now: datetime) -> Turn:
    """Open the next step of a turn that continues. Raises `LeaseLost`."""
    # Stopping another turn of the branch can add a message too. Lock order: branches before turns.
    locking.lock_branch_of(lease.turn_id)
    extend_lease(lease)
    return start_step(read_turn(lease), lease=lease, counter=counter, now=now)


def start_step(turn: Turn, *, lease: Lease, counter: TokenCounter, now: datetime) -> Turn:
    """Add all waiting messages to the branch and start the next step. Needs a transaction.

    If the turn's `seen_to` is set, or an earlier lane set it for all lanes, no message is added.
    """
    if turn.seen_to is None:
        turn.seen_to = lanes.find_lane_cutoff(turn) if turn.lane else None
        if turn.seen_to is None:
            messages.take_up(turn=turn, counter=counter, now=now)
        if turn.agent_id is not None:
            # Makes later attempts compose the same prompt.
            turn.seen_to = turn.branch.last_seq if turn.seen_to is None else turn.seen_to
            update_held_turn(lease, seen_to=turn.seen_to)
    # A first attempt has no stored steps before its first step.
    own = count_stored_steps(turn) if turn.attempt > 1 or turn.step else 0
    if turn.attempt > 1 and turn.step == own + 1:
        earlier = Receipt.objects.filter(turn=turn).exclude(attempt=turn.attempt)
        quotas.close_lost_receipts(earlier, now=now)
    update_held_turn(
        lease,
        step=own + 1,
        begun_anew=0,
        partial_text="",
        partial_reasoning="",
        waiting_until=None,
    )
    turn.step, turn.begun_anew = own + 1, 0
    return turn


def count_stored_steps(turn: Turn) -> int:
    return len(statements.OWN_STEPS.tuples(turn=turn.pk))


def close_step(*, lease: Lease, ending: StepResult, counter: TokenCounter, now: datetime) -> bool:
    """Store a finished step. Return True if the turn continues.

    A turn continues if tools ran or a message arrived. Otherwise the same transaction ends it, so
    that no message is missed. If this is repeated after a commit with unknown outcome, an ended
    turn raises `LeaseLost`, and a stored step continues.
    """
    # Count before locking: a long reply takes time.
    counted = messages.count_parts_tokens(
        ending.parts, role=Message.Role.ASSISTANT, counter=counter
    )
    with transaction.atomic():
        chat, turn = lock_chat_and_turn(lease)
        if count_stored_steps(turn) == turn.step:
            return True
        goes_on = should_continue_turn(turn, ending=ending)
        step = reply_steps.store_step(turn=turn, chat=chat, ending=ending, counted=counted, now=now)
        if goes_on:
            prepared.save_row_fields(chat, "accepted_count")
        else:
            finish_turn(
                lease=lease,
                turn=turn,
                chat=chat,
                status=Turn.Status.COMPLETED,
                reply=step,
                ending=ending,
                now=now,
            )
        # Last: these lock the model row until commit.
        calibrate_from_usage(turn=turn, ending=ending)
        if ending.learned and turn.model_id is not None:
            stored_options.store_learned_options(
                model_id=turn.model_id, options=ending.learned, now=now
            )
        failpoint("before_commit_reply")
    failpoint("after_commit_reply")
    return goes_on


def should_continue_turn(turn: Turn, *, ending: StepResult) -> bool:
    """Return True if a turn continues after a step: its tools ran, or a message arrived.

    In a team, the next agent answers new messages. A client's turn has one step: the client runs
    its own tools, and a message written on the page gets its own turn.
    """
    if turn.client is not None:
        return False
    return ending.finish == Message.Finish.TOOL_CALLS or (
        turn.agent_id is None and messages.has_waiting_messages(branch_id=turn.branch_id)
    )


def lock_chat_and_turn(lease: Lease) -> tuple[Chat, Turn]:
    """Return the turn and its chat, both locked for the transaction. Raises `LeaseLost`."""
    chat = locking.lock_turn_chat(lease.turn_id)
    if chat is None:
        raise LeaseLost(lease.turn_id)
    return chat, lock_held_turn(lease)


def calibrate_from_usage(*, turn: Turn, ending: StepResult) -> None:
    """Update the model's calibration from the provider's token counts."""
    if turn.model_id is not None and ending.usage:
        calibration.update_model_factors(
            model_id=turn.model_id,
            estimate=ending.estimate,
            reported=ending.usage,
            completed=ending.outcome == Receipt.Outcome.OK,
        )


@transaction.atomic
def end_early(
    *, lease: Lease, status: str, ending: StepResult, counter: TokenCounter, now: datetime
) -> None:
    """End a turn that failed or was stopped. Its text and its calls so far become its reply."""
    chat, turn = lock_chat_and_turn(lease)
    reply = None
    if turn.attempt > 1 or ending.runs_servers:
        code = ending.error_code or tool_steps.LOST_CODE
        if status == Turn.Status.STOPPED and ending.finish == Message.Finish.STOP:
            # Without a call, the ending does not say why the turn ends.
            ending = replace(ending, finish=Message.Finish.STOPPED)
        ending = reply_steps.add_call_results(turn, ending=ending, code=code)
    if ending.parts:
        counted = messages.count_parts_tokens(
            ending.parts, role=Message.Role.ASSISTANT, counter=counter
        )
        reply = reply_steps.store_step(
            turn=turn, chat=chat, ending=ending, counted=counted, now=now
        )
    elif ending.receipt_id:
        close_call(receipt_id=ending.receipt_id, ending=ending, now=now)
    finish_turn(
        lease=lease, turn=turn, chat=chat, status=status, reply=reply, ending=ending, now=now
    )


def finish_turn(
    *,
    lease: Lease,
    turn: Turn,
    chat: Chat,
    status: str,
    reply: Message | None,
    ending: StepResult,
    now: datetime,
) -> None:
    """Set the turn's final status, record it in the ledger, and enqueue follow-up jobs."""
    update_held_turn(
        lease,
        status=status,
        reply=reply,
        usage=dict(ending.usage),
        finished_at=now,
        waiting_until=None,
        partial_text="",
        partial_reasoning="",
        error_code=ending.error_code,
        **build_failure_fields(ending.error_sentence),
        **({"first_token_at": ending.first_token_at} if ending.first_token_at else {}),
        **clear_client_options(turn, ending=ending),
        **RELEASED,
    )
    store_reply_logprobs(turn, status=status, ending=ending, now=now)
    # A reply to an API client is not marked unread.
    chat.updated_at, chat.unread = now, chat.unread or turn.client is None
    prepared.save_row_fields(chat, "updated_at", "unread", "accepted_count")
    # Lock order: an erasure locks the memory before the ledger heads.
    if reply is not None and not ending.error_code:
        save_preferences(turn, chat=chat, ending=ending, now=now)
    if turn.attempt > 1 or ending.runs_servers:
        # This attempt or an earlier one may have started calls that did not end.
        code = ending.error_code or tool_steps.LOST_CODE
        tool_steps.close_tool_steps(turn, now=now, code=code)
    ledger.record_event(
        f"turn.{status}",
        actor=WORKER,
        now=now,
        chat_id=chat.pk,
        turn_id=turn.pk,
        data=build_ending_data(turn=turn, reply=reply, ending=ending),
    )
    if ending.error_code:
        breaker.trip_breaker(model=turn.model, code=ending.error_code, now=now)
    enqueue_follow_ups(turn, chat=chat, reply=reply, ending=ending)
    if turn.round_id is not None:
        rounds.advance_round(turn, status=status, reply=reply, now=now)
    enqueue_next(branch_id=turn.branch_id)


def store_reply_logprobs(turn: Turn, *, status: str, ending: StepResult, now: datetime) -> None:
    """Store the log probabilities of a complete reply, if its client asked for them."""
    log = ending.token_log
    if log is not None and status == Turn.Status.COMPLETED:
        entries = log.dump_entries()
        reply_logprobs.store_logprobs(turn, entries=entries, is_partial=log.is_partial, now=now)


def save_preferences(turn: Turn, *, chat: Chat, ending: StepResult, now: datetime) -> None:
    """Save the user's stated preferences, and schedule preference inference."""
    if ending.follow_ups.saves_preferences:
        note_preferences.save_stated_preferences(turn, chat=chat, now=now)
    if ending.follow_ups.infers_preferences:
        note_preferences.schedule_inference(chat, now=now)


def enqueue_follow_ups(
    turn: Turn, *, chat: Chat, reply: Message | None, ending: StepResult
) -> None:
    """Enqueue the jobs that follow the turn. They start after the commit."""
    jobs = ending.follow_ups
    if jobs.should_compact(reply) and not chat.is_provisional:
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    ask_for_indexing(chat, reply)
    if jobs.should_warm_up(reply):
        queue.enqueue(queue.WARM_UP, branch_id=turn.branch_id, cause="ahead")
    if ending.error_code:
        return
    if turn.client is None and jobs.should_write_title(reply):
        queue.enqueue(queue.WRITE_TITLE, turn_id=turn.pk)
    if jobs.should_run_hook(reply):
        queue.enqueue(queue.TELL_STRATEGY, turn_id=turn.pk)


def ask_for_indexing(chat: Chat, reply: Message | None) -> None:
    """Enqueue indexing of the chat, unless it is temporary.

    If the task is lost, a due job enqueues it again.
    """
    if reply is not None and not chat.temporary:
        queue.enqueue_indexing(chat.pk)


def enqueue_next(*, branch_id: uuid.UUID) -> None:
    """Enqueue the branch's oldest queued turn."""
    for (turn_id,) in statements.NEXT_TURNS.tuples(branch=branch_id):
        queue.enqueue(queue.RUN_TURN, turn_id=turn_id)


@transaction.atomic
def requeue_turn(*, lease: Lease, now: datetime) -> None:
    """Requeue the turn because this worker is shutting down. This does not count as a loss."""
    turn = lock_held_turn(lease)
    update_held_turn(lease, status=Turn.Status.QUEUED, handed_back=True, queued_at=now, **RELEASED)
    record_attempt_end(turn, kind="turn.handed_back", actor=WORKER, now=now)
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
