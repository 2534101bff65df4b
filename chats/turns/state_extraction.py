"""The tail of a turn's prompts: the state of the chat, brought up to the question by a model.

Built once, before the first prompt, and the same in every step. `begin` decides and books the call,
`ask` makes it outside any transaction, `finish` judges the reply. If anything goes wrong, the old
state stays, the turn continues, and its receipts say why.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from chats.models import ChatState, Message, Turn
from chats.prompt import composition, model_choice
from chats.providers.base import Provider, ProviderRequest
from chats.providers.collector import unsaid
from chats.providers.registry import ProviderAccountValue as Account
from chats.record import locking, states
from chats.turns import breaker, side_calls, state_prompt
from chats.turns.call import ModelCall
from chats.turns.lease import Lease, locked_turn, write
from chats.turns.steps import WORKER, Ending, close_call
from contextpolicy import ledger
from contextpolicy.engine.strategies.entity_state import (
    STATE_V1,
    StateUpdate,
    updated_state,
)
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.models import ModelSpec

SENTENCE = "Taking over what your message says into the state of this chat."

Tail = dict[str, str]


@dataclass(frozen=True, slots=True)
class Extraction:
    """A booked call for the state after `to_seq`, based on `base`."""

    receipt_id: uuid.UUID
    request: ProviderRequest
    account: Account
    model: ModelSpec
    base: ChatState | None
    to_seq: int
    schema: Mapping[str, Any]

    @property
    def values(self) -> Mapping[str, Any]:
        """The state so far."""
        return self.base.values if self.base else {}


@transaction.atomic
def begin(
    *,
    lease: Lease,
    turn: Turn,
    choice: model_choice.ChosenModel,
    counter: TokenCounter,
    now: datetime,
) -> Extraction | Tail:
    """Book the extraction of what was not read yet; return the tail if there is nothing to ask.

    After a commit of unknown fate this is called again: the call may be booked already. Raises
    `LeaseLost`.
    """
    write(lease, effective_policy=choice.effective)
    branch = composition.governed(composition.read_branch(turn))
    base = states.newest(branch)
    try:
        model = extractor(choice)
        account = model_choice.account_for(model)
    except model_choice.ModelUnavailable as refusal:
        return keep(lease, base=base, note=refusal.code)
    prompt = state_prompt.compose(
        branch, turn=turn, base=base, values=choice.values, model=model, counter=counter
    )
    if prompt is None:
        return keep(lease, base=base)
    receipt = side_calls.book(
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
    )


def extractor(choice: model_choice.ChosenModel) -> ModelSpec:
    """Return the model that reads the state: the policy's light one, else the chat's own.

    Raises `ModelUnavailable` when the policy names one that is gone; another would not be what the
    administrator chose.
    """
    slug = choice.values.summarization_model
    if not slug:
        return choice.model
    model = ModelSpec.objects.filter(slug=slug).first()
    if model is None:
        raise model_choice.ModelUnavailable(model=slug, reason="it is not set up any more")
    return model


async def ask(
    extraction: Extraction,
    *,
    provider: Provider,
    clock: Callable[[], datetime],
    interrupted: asyncio.Event,
) -> ModelCall:
    """Make the call, within its time and without a retry, because a reply waits for it.

    Its text is not sent to anybody. An error is kept in the call, as for replies.
    """
    call = ModelCall(receipt_id=extraction.receipt_id, say=unsaid, clock=clock)
    await call.listen(
        provider, extraction.request, interrupted=interrupted, seconds=settings.STATE_SECONDS
    )
    return call


@transaction.atomic
def finish(
    *,
    lease: Lease,
    turn: Turn,
    extraction: Extraction,
    call: ModelCall,
    stopped: bool,
    now: datetime,
) -> Tail:
    """Publish the new state or keep the old one, and write the turn's tail. Raises `LeaseLost`.

    After a commit of unknown fate this is called again: then the tail exists already.
    """
    # The branch first, as everywhere.
    locking.find_branch(turn.branch_id)
    known: Tail | None = locked_turn(lease).tail
    if known is not None and "state" in known:
        return known
    row, code = published(extraction, turn=turn, call=call, stopped=stopped, now=now)
    ending = Ending(
        usage=call.usage,
        body_sha256=call.body_sha256,
        finish=Message.Finish.STOPPED if stopped else Message.Finish.STOP,
        error_code="" if stopped else code,
    )
    close_call(receipt_id=extraction.receipt_id, ending=ending, now=now)
    record(extraction, turn=turn, row=row, code=code, now=now)
    if turn.model is None or extraction.model.provider != turn.model.provider:
        # Otherwise the reply's own call is about to find out.
        breaker.trip(model=extraction.model, code=code, now=now)
    return keep(lease, base=row or extraction.base, note=code)


def published(
    extraction: Extraction, *, turn: Turn, call: ModelCall, stopped: bool, now: datetime
) -> tuple[ChatState | None, str]:
    """Return the new version, or None with the code of the reason why there is none."""
    if stopped:
        return None, "stopped"
    if call.error is not None:
        return None, call.error.code
    update = judged(extraction, call)
    if update.outcome not in {"updated", "unchanged"}:
        return None, f"state_{update.outcome}"
    try:
        row = states.append(
            branch_id=turn.branch_id,
            base=extraction.base,
            kind=ChatState.Kind.EXTRACTED,
            values=update.state,
            to_seq=extraction.to_seq,
            now=now,
            turn=turn,
            model_name=extraction.request.model,
            prompt_version=STATE_V1,
        )
    except states.StateChanged as refusal:
        # A person corrected it during the call: their correction counts.
        return None, refusal.code
    return row, ""


def judged(extraction: Extraction, call: ModelCall) -> StateUpdate:
    """Return what the reply makes of the state so far."""
    return updated_state(
        str(call.text), finish=call.finish, state=extraction.values, schema=extraction.schema
    )


def record(
    extraction: Extraction, *, turn: Turn, row: ChatState | None, code: str, now: datetime
) -> None:
    """Record in the ledger which version the turn has and, if it is the old one, why."""
    base = extraction.base
    version = row.version if row else (base.version if base else 0)
    data = {"version": version, "receipt": str(extraction.receipt_id)}
    ledger.record(
        "state.extracted" if row else "state.kept",
        actor=WORKER,
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data=data | ({"to_seq": row.to_seq} if row else {"code": code}),
    )


def keep(lease: Lease, *, base: ChatState | None, note: str = "") -> Tail:
    """Write the turn's tail: the state in force now, for all its steps. Raises `LeaseLost`."""
    tail = {"state": str(base.pk) if base else "", "note": f"state:{note}" if note else ""}
    write(lease, tail=tail)
    return tail
