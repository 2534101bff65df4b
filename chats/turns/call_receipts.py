"""Receipts of model calls: created before the call, completed after it."""

import uuid
from datetime import datetime
from typing import cast

from django.db import transaction

from chats.models import Branch, Chat, Message, PromptText, Receipt, Turn
from chats.prompt import person, turn_question
from chats.prompt.built_prompt import Prompt, SentAboutPerson
from chats.prompt.tokenizer import O200kCounter
from chats.record import messages, quotas, receipts, zones
from chats.turns import statements
from chats.turns.lease import (
    Lease,
    update_held_turn,
)
from chats.turns.step_results import StepResult
from contextpolicy import ledger
from contextpolicy.engine.policy.costs import parse_reported_usage
from speed import prepared

WORKER = "worker"


class PromptOutdated(Exception):
    """The prompt contains text that was erased or withdrawn after the prompt was composed."""


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
    """Write the receipt before the call is made, and return its id. Raises `LeaseLost`.

    Also stores the effective policy with the turn. The turn's first call records an event if the
    context was compressed. Safe to repeat after a commit with unknown outcome: the id of an
    existing receipt is returned. `is_first_asking` skips this lookup, because no receipt can exist
    yet. Raises `PromptOutdated` and `quotas.QuotaExceeded`.
    """
    if prompt.offers_files and not turn.branch.chat.has_cut_files:
        # Lock order: chats before persons and branches.
        Chat.objects.filter(pk=turn.branch.chat_id).update(has_cut_files=True)
        turn.branch.chat.has_cut_files = True
    if prompt.about:
        check_texts_about_person(prompt.about, turn=turn)
    # A reply that has begun is completed.
    if prompt.meter and turn.step == 1 and call == 1:
        statements.PERSON_LOCK.hold(owner=prompt.meter.owner_id)
        quotas.check_usage_quota(prompt.meter, now=now, own=turn)
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


def check_texts_about_person(about: SentAboutPerson, *, turn: Turn) -> None:
    """Raise `PromptOutdated` if the texts about the owner have changed since they were loaded.

    An erasure deletes the copies in existing receipts. It locks the owner, as this function does,
    so it runs either before this check or after the receipt is stored. Lock order: before branches
    and their turns.
    """
    statements.PERSON_LOCK.hold(owner=turn.branch.chat.owner_id)
    known = person.load_person_context(
        about.branch, choice=about.choice, until=turn_question.get_question_time(turn)
    )
    if (known.preferences, known.recent) != (about.preferences, about.recent):
        raise PromptOutdated


def store_receipt(
    prompt: Prompt, *, turn: Turn, step: int, call: int, model_name: str, now: datetime
) -> Receipt:
    """Write the receipt of a planned call, with the prompt texts that it refers to.

    Also freezes the prompt's zone on the branch.
    """
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


@transaction.atomic(savepoint=False)
def close_call(*, receipt_id: uuid.UUID, ending: StepResult, now: datetime) -> None:
    """Complete a receipt with the call's outcome. Does nothing if it is already complete.

    Counts the call towards its user's quotas.
    """
    completed = {
        "outcome": ending.outcome,
        "usage": dict(ending.usage),
        "error_code": ending.error_code,
        "finished_at": now,
    }
    closed = statements.OPEN_RECEIPT.run(completed, receipt=receipt_id, body=ending.body_sha256)
    if closed:
        count_ended_call(ending.meter, ending=ending, now=now)


def count_ended_call(meter: quotas.QuotaMeter | None, *, ending: StepResult, now: datetime) -> None:
    """Count an ended call towards the quotas of its user. Does nothing without a meter."""
    if meter:
        quotas.add_usage(
            meter,
            usage=ending.usage,
            is_answered=ending.outcome != Receipt.Outcome.FAILED,
            received=count_received_tokens(ending),
            now=now,
        )


def count_received_tokens(ending: StepResult) -> int:
    """Return the local tokens of a reply; 0 if the provider reported its usage."""
    if not ending.parts or parse_reported_usage(ending.usage) is not None:
        return 0
    counted = messages.count_parts_tokens(
        ending.parts, role=Message.Role.ASSISTANT, counter=O200kCounter()
    )
    return counted.tokens
