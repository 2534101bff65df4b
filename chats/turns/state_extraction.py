"""The tail of a turn's prompts: the chat's state, updated by a model up to the question.

The tail is built once, before the first prompt, and is the same in every step. `begin_extraction`
decides whether to call the model and records the call. `call_extraction_model` makes the call
outside any transaction. `finish_extraction` validates the reply. On any error the previous state is
kept, the turn continues, and its receipts contain the reason.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext_lazy, gettext_noop

from chats.files.file_models import may_get_branch
from chats.models import Branch, ChatState, Message, Turn
from chats.prompt import model_choice, prompt_facts
from chats.providers.base import Provider, ProviderRequest
from chats.providers.collector import discard_piece
from chats.providers.registry import ProviderAccountValue as Account
from chats.record import locking, quotas, states
from chats.turns import breaker, side_calls, state_prompt
from chats.turns.call_receipts import WORKER, close_call
from chats.turns.calling import ModelCall
from chats.turns.lease import Lease, lock_held_turn, update_held_turn
from chats.turns.step_results import StepResult
from contextpolicy import ledger
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.strategies.entity_state import (
    STATE_V2,
    StateUpdate,
    parse_state_answer,
)
from contextpolicy.models import ModelSpec

SENTENCE = gettext_noop("Updating the state of this chat from your message.")

Tail = dict[str, str]


@dataclass(frozen=True, slots=True)
class Extraction:
    """A recorded call for the state after `to_seq`, based on `base`."""

    receipt_id: uuid.UUID
    request: ProviderRequest
    account: Account
    model: ModelSpec
    base: ChatState | None
    to_seq: int
    schema: Mapping[str, Any]
    meter: quotas.QuotaMeter | None

    @property
    def values(self) -> Mapping[str, Any]:
        return self.base.values if self.base else {}


@transaction.atomic
def begin_extraction(
    *,
    lease: Lease,
    turn: Turn,
    choice: model_choice.ChosenModel,
    counter: TokenCounter,
    now: datetime,
) -> Extraction | Tail:
    """Record an extraction from the unread messages.

    If there are none, or no model is available, write and return the turn's tail instead. Safe to
    repeat after a commit with unknown outcome: a call that is already recorded is reused. Raises
    `LeaseLost` and `quotas.QuotaExceeded`.
    """
    quotas.check_policy_quota(
        owner_id=turn.branch.chat.owner_id,
        values=choice.values,
        prices=choice.model.prices,
        now=now,
        own=turn,
    )
    update_held_turn(lease, effective_policy=choice.effective)
    branch = prompt_facts.with_active_compaction(prompt_facts.read_branch(turn))
    base = states.find_newest_state(branch)
    try:
        model = choose_extraction_model(choice, branch=branch)
        account = model_choice.get_model_account(model)
    except model_choice.ModelUnavailable as refusal:
        return write_state_tail(lease, base=base, note=refusal.code)
    prompt = state_prompt.compose_state_prompt(
        branch, turn=turn, base=base, values=choice.values, model=model, counter=counter
    )
    if prompt is None:
        return write_state_tail(lease, base=base)
    receipt = side_calls.create_side_receipt(
        prompt, turn=turn, step=turn.step, effective=choice.effective, now=now
    )
    return Extraction(
        receipt_id=receipt.pk,
        request=prompt.request,
        account=account,
        model=model,
        base=base,
        to_seq=prompt.to_seq,
        schema=choice.values.state_schema,
        meter=side_calls.build_side_meter(
            prompt, chat=branch.chat, values=choice.values, model=model
        ),
    )


def choose_extraction_model(choice: model_choice.ChosenModel, *, branch: Branch) -> ModelSpec:
    """Return the model that extracts the state: the policy's summary model, else the chat's model.

    Raises `ModelUnavailable` if the policy names a missing model, for which the administrator did
    not choose a substitute. Also raises it if the policy does not let the model get the branch's
    files.
    """
    slug = choice.values.summarization_model
    if not slug:
        return choice.model
    model = ModelSpec.objects.filter(slug=slug).first()
    if model is None:
        raise model_choice.ModelUnavailable(
            model=slug, reason=gettext_lazy("the provider was disconnected")
        )
    if not may_get_branch(model.slug, branch=branch, values=choice.values):
        raise model_choice.ModelUnavailable(
            model=str(model), reason=gettext_lazy("the policy does not allow it to get files")
        )
    return model


async def call_extraction_model(
    extraction: Extraction,
    *,
    provider: Provider,
    clock: Callable[[], datetime],
    interrupted: asyncio.Event,
) -> ModelCall:
    """Make the call with a time limit and without retries, because a reply waits for it.

    The text of the response is not shown on pages while it arrives. Errors are stored in
    the call, as for replies.
    """
    call = ModelCall(receipt_id=extraction.receipt_id, say=discard_piece, clock=clock)
    await call.listen(
        provider, extraction.request, interrupted=interrupted, seconds=settings.STATE_SECONDS
    )
    return call


@transaction.atomic
def finish_extraction(
    *,
    lease: Lease,
    turn: Turn,
    extraction: Extraction,
    call: ModelCall,
    stopped: bool,
    now: datetime,
) -> Tail:
    """Publish the new state or keep the old one, and write the turn's tail.

    Safe to repeat after a commit with unknown outcome: an existing tail is returned. Raises
    `LeaseLost`.
    """
    # Lock order: the branch comes first, as everywhere.
    locking.find_branch(turn.branch_id)
    known: Tail | None = lock_held_turn(lease).tail
    if known is not None and "state" in known:
        return known
    row, code = publish_extracted_state(extraction, turn=turn, call=call, stopped=stopped, now=now)
    ending = StepResult(
        usage=call.usage,
        body_sha256=call.body_sha256,
        finish=Message.Finish.STOPPED if stopped else Message.Finish.STOP,
        error_code="" if stopped else code,
        meter=extraction.meter,
    )
    close_call(receipt_id=extraction.receipt_id, ending=ending, now=now)
    record_extraction(extraction, turn=turn, row=row, code=code, now=now)
    if turn.model is None or extraction.model.provider != turn.model.provider:
        # With the same provider, the reply's own call would fail with the same error.
        breaker.trip_breaker(model=extraction.model, code=code, now=now)
    return write_state_tail(lease, base=row or extraction.base, note=code)


def publish_extracted_state(
    extraction: Extraction, *, turn: Turn, call: ModelCall, stopped: bool, now: datetime
) -> tuple[ChatState | None, str]:
    """Store a new version of the state. Return it, or None and the code of the reason."""
    if stopped:
        return None, "stopped"
    if call.error is not None:
        return None, call.error.code
    update = evaluate_extraction(extraction, call)
    if update.outcome not in {"updated", "unchanged"}:
        return None, f"state_{update.outcome}"
    try:
        row = states.append_state_version(
            branch_id=turn.branch_id,
            base=extraction.base,
            kind=ChatState.Kind.EXTRACTED,
            values=update.state,
            to_seq=extraction.to_seq,
            now=now,
            turn=turn,
            model_name=extraction.request.model,
            prompt_version=STATE_V2,
        )
    except states.StateChanged as refusal:
        # A user edited the state during the call. The edit takes precedence.
        return None, refusal.code
    return row, ""


def evaluate_extraction(extraction: Extraction, call: ModelCall) -> StateUpdate:
    """Return the update to the previous state that the reply makes."""
    return parse_state_answer(
        str(call.text), finish=call.finish, state=extraction.values, schema=extraction.schema
    )


def record_extraction(
    extraction: Extraction, *, turn: Turn, row: ChatState | None, code: str, now: datetime
) -> None:
    """Record the turn's state version in the ledger, and the reason if the state did not change."""
    base = extraction.base
    version = row.version if row else (base.version if base else 0)
    data = {"version": version, "receipt": str(extraction.receipt_id)}
    ledger.record_event(
        "state.extracted" if row else "state.kept",
        actor=WORKER,
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data=data | ({"to_seq": row.to_seq} if row else {"code": code}),
    )


def write_state_tail(lease: Lease, *, base: ChatState | None, note: str = "") -> Tail:
    """Write the turn's tail, which contains the state for all its steps. Raises `LeaseLost`."""
    tail = {"state": str(base.pk) if base else "", "note": f"state:{note}" if note else ""}
    update_held_turn(lease, tail=tail)
    return tail
