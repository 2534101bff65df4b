"""The writes of a running turn: each is one transaction, fenced by the lease.

They open a step (which accepts waiting messages), record the call, and close the step or the turn.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.functional import Promise

from chats.ground import queue
from chats.ground.failpoints import failpoint
from chats.ground.leases import LeaseLost
from chats.ground.sentences import build_sentence_columns
from chats.memory.search.meaning import Look
from chats.models import Branch, Chat, Message, PromptText, Receipt, ToolStep, Turn
from chats.prompt import calibration
from chats.prompt.built_prompt import Prompt
from chats.prompt.tools import registry as tools
from chats.prompt.tools.skill_load import SkillFacts
from chats.providers.logprobs import TokenLog
from chats.record import locking, messages, receipts, reply_logprobs, zones
from chats.record.message_commitments import build_stored_data, list_turn_replies
from chats.turns import breaker, lanes, note_preferences, rounds, statements, tool_steps
from chats.turns.lease import (
    RELEASED,
    Lease,
    claim_turn,
    extend_lease,
    lock_held_turn,
    read_turn,
    update_held_turn,
)
from contextpolicy import ledger, plugins
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.calibration import Factors
from contextpolicy.models import ModelSpec
from speed import prepared
from speed.commits import unflushed_transaction

WORKER = "worker"

# The maximum number of characters of `Turn.error_sentence`.
LONGEST_SENTENCE = 500


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step or turn: its parts, finish reason, usage, error, and follow-up jobs."""

    parts: Sequence[Mapping[str, Any]] = ()
    finish: str = Message.Finish.STOP
    usage: Mapping[str, Any] = field(default_factory=dict)
    # SHA-256 of the request body as sent.
    body_sha256: str = ""
    receipt_id: uuid.UUID | None = None
    first_token_at: datetime | None = None
    error_code: str = ""
    error_sentence: str | Promise = ""
    # Compaction is due from this many tokens of the reply. None: the policy does not compact.
    fold_from: int | None = None
    # A cache warm-up is due from this many tokens of the reply. None: no warm-up.
    warm_from: int | None = None
    # Slug of the policy's summary model, which writes the title after a chat's first reply.
    light_model: str = ""
    # The policy's strategy, which may have an `on_turn_complete` hook.
    strategy: str = ""
    # Whether the person's messages may contain preferences to save.
    tells: bool = False
    # Whether a model may infer preferences once the chat is idle.
    infers: bool = False
    # Tools of servers ran, so the stored copy of the step is due for deletion.
    runs_servers: bool = False
    # Log probabilities of the text, if the client asked for them.
    token_log: TokenLog | None = None
    # Local tokens of the prompt, its shares by script, and the calibration factors when it was
    # composed.
    estimate: int = 0
    factors: Factors = field(default_factory=Factors)
    shares: Mapping[str, float] = field(default_factory=dict)

    def asks_for_folding(self, reply: Message | None) -> bool:
        """Return True if the chat may now exceed a compaction threshold."""
        tokens = reply.token_count or 0 if reply else 0
        return self.fold_from is not None and tokens >= self.fold_from

    def asks_for_warm_up(self, reply: Message | None) -> bool:
        """Return True if the next prompt may have another prefix."""
        tokens = reply.token_count or 0 if reply else 0
        return self.warm_from is not None and tokens >= self.warm_from

    @property
    def outcome(self) -> str:
        """The outcome for the receipt of the call."""
        if self.error_code:
            return Receipt.Outcome.FAILED
        stopped = self.finish == Message.Finish.STOPPED
        return Receipt.Outcome.STOPPED if stopped else Receipt.Outcome.OK


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

    None if a replay has no recorded result for the call. The ledger records a tool that ran. Raises
    `LeaseLost` if the lease is lost by then.
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
    extend_lease(lease)
    return start_step(read_turn(lease), lease=lease, counter=counter, now=now)


def start_step(turn: Turn, *, lease: Lease, counter: TokenCounter, now: datetime) -> Turn:
    """Add all waiting messages to the branch and start the next step. Needs a transaction."""
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
        Receipt.objects.filter(turn=turn, outcome=Receipt.Outcome.OPEN).exclude(
            attempt=turn.attempt
        ).update(outcome=Receipt.Outcome.LOST, finished_at=now)
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


@transaction.atomic
def create_receipt(
    *,
    lease: Lease,
    turn: Turn,
    prompt: Prompt,
    call: int,
    now: datetime,
    is_first_asking: bool = False,
) -> uuid.UUID:
    """Write the receipt before the call is made.

    Records an event if the context was compressed. Safe to repeat after a commit with unknown
    outcome: an existing receipt is returned. `is_first_asking` skips this lookup, because no
    receipt can exist yet.
    """
    if prompt.offers_search and not turn.branch.search_offered:
        # Lock order: branches before their turns.
        Branch.objects.filter(pk=turn.branch_id).update(search_offered=True)
    update_held_turn(lease, effective_policy=prompt.effective)
    if not is_first_asking:
        booked = statements.BOOKED_CALLS.tuples(
            turn=turn.pk, attempt=turn.attempt, step=turn.step, call=call
        )
        if booked:
            return cast(uuid.UUID, booked[0][0])
    receipt = store_receipt(
        prompt, turn=turn, step=turn.step, call=call, model_name=turn.model_name, now=now
    )
    if prompt.compressed and turn.step == 1 and call == 1:
        ledger.record_event(
            "context.compressed",
            actor=WORKER,
            now=now,
            chat_id=turn.branch.chat_id,
            turn_id=turn.pk,
            data={**prompt.compressed, "receipt": str(receipt.pk)},
        )
    return receipt.pk


def store_receipt(
    prompt: Prompt, *, turn: Turn, step: int, call: int, model_name: str, now: datetime
) -> Receipt:
    """Write the receipt of a planned call, with the prompt texts that it refers to."""
    # In text layouts the first segment includes the separators, which can exceed its own tokens.
    counts = {part[5]: max(part[3], 0) for part in prompt.receipt_fields["segments"] if part[5]}
    digests = [
        PromptText(digest=key, origin=origin, text=text, tokens=counts.get(key))
        for key, origin, text in prompt.texts
    ]
    prepared.insert_all(digests, missing=True)
    receipt = Receipt(
        turn=turn,
        attempt=turn.attempt,
        step=step,
        call=call,
        effective_policy=prompt.effective,
        compaction=prompt.compaction,
        model_name=model_name,
        created_at=now,
        **prompt.receipt_fields,
    )
    prepared.insert_row(receipts.seal_receipt(receipt))
    zones.freeze_zone(turn.branch, zone=prompt.zone)
    return receipt


def close_call(*, receipt_id: uuid.UUID, ending: StepResult, now: datetime) -> None:
    """Complete a receipt with the call's outcome. Does nothing if it is already complete."""
    completed = {
        "outcome": ending.outcome,
        "usage": dict(ending.usage),
        "error_code": ending.error_code,
        "finished_at": now,
    }
    statements.OPEN_RECEIPT.run(completed, receipt=receipt_id, body=ending.body_sha256)


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
        step = store_step(turn=turn, chat=chat, ending=ending, counted=counted, now=now)
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
        # Last: this locks the model row until commit.
        calibrate_from_usage(turn=turn, ending=ending)
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
            factors=ending.factors,
            shares=ending.shares,
            estimate=ending.estimate,
            reported=ending.usage,
            completed=ending.outcome == Receipt.Outcome.OK,
        )


def store_step(
    *, turn: Turn, chat: Chat, ending: StepResult, counted: messages.Counted, now: datetime
) -> Message:
    """Store the step's assistant message and complete its receipt."""
    if ending.receipt_id:
        close_call(receipt_id=ending.receipt_id, ending=ending, now=now)
    if ending.runs_servers:
        tool_steps.close_tool_steps(turn)
    told = rounds.build_speaker_fields(turn, ending.parts) if turn.agent_id is not None else {}
    return messages.append_step(
        turn=turn,
        chat=chat,
        parts=ending.parts,
        finish=ending.finish,
        counted=counted,
        now=now,
        **told,
    )


@transaction.atomic
def end_early(
    *, lease: Lease, status: str, ending: StepResult, counter: TokenCounter, now: datetime
) -> None:
    """End a turn that failed or was stopped. The text so far becomes its reply."""
    chat, turn = lock_chat_and_turn(lease)
    reply = None
    if ending.parts:
        counted = messages.count_parts_tokens(
            ending.parts, role=Message.Role.ASSISTANT, counter=counter
        )
        reply = store_step(turn=turn, chat=chat, ending=ending, counted=counted, now=now)
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
        **({} if turn.client is None else {"client": {}}),
        **RELEASED,
    )
    store_reply_logprobs(turn, status=status, ending=ending, now=now)
    # A reply to an API client is not marked unread.
    chat.updated_at, chat.unread = now, chat.unread or turn.client is None
    prepared.save_row_fields(chat, "updated_at", "unread", "accepted_count")
    # Lock order: an erasure locks the memory before the ledger heads.
    if reply is not None and not ending.error_code:
        save_preferences(turn, chat=chat, ending=ending, now=now)
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
    if ending.asks_for_folding(reply) and not chat.is_provisional:
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    ask_for_indexing(chat, reply)
    if ending.asks_for_warm_up(reply):
        queue.enqueue(queue.WARM_UP, branch_id=turn.branch_id, cause="ahead")
    if turn.client is None and should_write_title(reply, ending=ending):
        queue.enqueue(queue.WRITE_TITLE, turn_id=turn.pk)
    if (
        reply is not None
        and not ending.error_code
        and plugins.is_turn_hook_strategy(ending.strategy)
    ):
        queue.enqueue(queue.TELL_STRATEGY, turn_id=turn.pk)
    if turn.round_id is not None:
        rounds.advance_round(turn, status=status, reply=reply, usage=ending.usage, now=now)
    enqueue_next(branch_id=turn.branch_id)


def store_reply_logprobs(turn: Turn, *, status: str, ending: StepResult, now: datetime) -> None:
    """Store the log probabilities of a complete reply, if its client asked for them."""
    log = ending.token_log
    if log is not None and status == Turn.Status.COMPLETED:
        entries = log.dump_entries()
        reply_logprobs.store_logprobs(turn, entries=entries, is_partial=log.is_partial, now=now)


def save_preferences(turn: Turn, *, chat: Chat, ending: StepResult, now: datetime) -> None:
    """Save the person's stated preferences, and schedule preference inference."""
    if ending.tells:
        note_preferences.save_stated_preferences(turn, chat=chat, now=now)
    if ending.infers:
        note_preferences.schedule_inference(chat, now=now)


def ask_for_indexing(chat: Chat, reply: Message | None) -> None:
    """Enqueue indexing of the chat, unless it is temporary.

    If the task is lost, a due job enqueues it again.
    """
    if reply is not None and not chat.temporary:
        queue.enqueue_indexing(chat.pk)


def should_write_title(reply: Message | None, *, ending: StepResult) -> bool:
    """Return True if a model may write the title now.

    This is the case after the first reply, unless it failed.
    """
    is_first = reply is not None and reply.seq == 2 and not ending.error_code
    return is_first and bool(ending.light_model) and settings.TITLES_BY_MODEL


def build_ending_data(*, turn: Turn, reply: Message | None, ending: StepResult) -> dict[str, Any]:
    """Return the ledger data of an ended turn: ids, numbers, and a commitment to each call."""
    attempt = build_attempt_data(turn, reply=reply)
    data: dict[str, Any] = {"finish": ending.finish if reply else "", **attempt}
    if reply is not None:
        data |= {"reply": str(reply.pk), "seq": reply.seq}
    if ending.usage:
        data["usage"] = dict(ending.usage)
    if ending.error_code:
        data["code"] = ending.error_code
    return data


def build_failure_fields(sentence: str | Promise) -> dict[str, Any]:
    """Return the columns of a turn that store its error message."""
    text, values = build_sentence_columns(sentence, longest=LONGEST_SENTENCE)
    return {"error_sentence": text, "error_details": values}


def build_attempt_data(turn: Turn, *, reply: Message | None = None) -> dict[str, Any]:
    """Return the ledger data of an ending attempt: its number, its calls and its replies."""
    calls, bodies = receipts.list_attempt_calls(turn_id=turn.pk, attempt=turn.attempt)
    # Most turns have a single step, and its reply is already loaded.
    is_only = reply is not None and turn.step == 1
    replies = [reply] if reply is not None and is_only else list_turn_replies(turn.pk)
    return {
        "attempt": turn.attempt,
        "calls": calls,
        **({"bodies": bodies} if bodies else {}),
        **build_stored_data(replies),
    }


def enqueue_next(*, branch_id: uuid.UUID) -> None:
    """Enqueue the branch's oldest queued turn."""
    for (turn_id,) in statements.NEXT_TURNS.tuples(branch=branch_id):
        queue.enqueue(queue.RUN_TURN, turn_id=turn_id)


@transaction.atomic
def requeue_turn(*, lease: Lease, now: datetime) -> None:
    """Requeue the turn because this worker shuts down. It does not count as a loss."""
    turn = lock_held_turn(lease)
    update_held_turn(lease, status=Turn.Status.QUEUED, handed_back=True, queued_at=now, **RELEASED)
    ledger.record_event(
        "turn.handed_back",
        actor=WORKER,
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data=build_attempt_data(turn),
    )
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
