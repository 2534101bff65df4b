"""Stores the new messages of a request whose branch is known, and queues its turn.

Everything is one transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings

from chats.gateway import statements
from chats.gateway.choice import check_tools, choose_with_key_policy
from chats.gateway.matching.candidate_branches import Request
from chats.gateway.request_types import Placed, Placement, Sent
from chats.gateway.store_items import ItemSource, check_chat_room, store_items
from chats.ground import queue
from chats.models import Chat, GatewayNode, Message, Turn
from chats.prompt import model_choice, turn_question
from chats.record import history, messages, quotas
from chats.turns.events import record_turn_started
from chats.turns.start import (
    TooManyTurnsOfKey,
)
from contextpolicy.engine.messages.tokens import TokenCounter
from speed import prepared


def accept_request(
    sent: Sent,
    request: Request,
    place: Placement,
    *,
    chat: Chat,
    counter: TokenCounter,
    now: datetime,
) -> Placed:
    """Store the new messages and queue the turn. The caller has locked the chat.

    Runs in the caller's transaction. Raises the refusals of `check_request_limits`,
    `apply_requested_model`, `store_items` and `find_latest_question`.
    """
    branch = place.branch
    branch.chat = chat
    choice = apply_requested_model(chat, sent=sent)
    check_request_limits(sent, request, place, choice=choice, now=now)
    rows, completed = store_items(
        request.items[place.shared :],
        source=ItemSource(sent.user, sent.conversation, choice, sent.field),
        branch=branch,
        completed=request.items[place.shared - 1] if place.completes else None,
        counter=counter,
        now=now,
    )
    store_request_hashes(request, place)
    trigger = find_latest_question(request, place, rows)
    turn = Turn(
        branch=branch,
        accepted=messages.increment_accepted_count(chat=chat),
        trigger=trigger,
        model=choice.model,
        model_name=choice.model.name,
        api_key=sent.api_key,
        queued_at=now,
        client={**sent.client, "after": place.offset if branch.client_windowed else 0},
    )
    prepared.insert_row(turn)
    if trigger in rows:
        trigger.turn = turn
        prepared.save_row_fields(trigger, "turn")
    chat.updated_at = now
    prepared.save_row_fields(
        chat, "updated_at", "accepted_count", "active_branch", "model", "policy"
    )
    details = {"gateway": place.decision, "identity": sent.identity.source[:40]}
    actor = f"user:{sent.user.pk}"
    record_turn_started(
        turn,
        actor=actor,
        chat=chat,
        now=now,
        message=trigger,
        stored=[*completed, *rows],
        more=details,
    )
    queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    known: dict[str, Any] = {"turn": str(turn.pk), "message": str(trigger.pk), "chat": str(chat.pk)}
    if sent.end is not None:
        # A repetition starts at the same place.
        end = sent.end
        known |= {"first": end.first, "last": end.last, "open": end.is_open}
    sent.keyed.replace(result=known, now=now)
    return Placed(turn, place.decision)


def apply_requested_model(chat: Chat, *, sent: Sent) -> model_choice.ChosenModel:
    """Set the model and the policy of a chat as requested, and return the effective choice.

    Raises the errors of `model_choice.choose_chat_model`, `ModelUnavailable`, and
    `InvalidRequest` for tools that the model does not support.
    """
    if sent.wanted.chat is None:
        chat.model, chat.policy = sent.wanted.model, sent.policy
    named = sent.wanted.chat is not None or sent.wanted.policy is not None
    choice = choose_with_key_policy(chat, named=named)
    model_choice.get_available_account(choice.model)
    check_tools(choice.model, sent.client.get("tools"))
    return choice


def check_request_limits(
    sent: Sent,
    request: Request,
    place: Placement,
    *,
    choice: model_choice.ChosenModel,
    now: datetime,
) -> None:
    """Raise `ChatFull`, `quotas.QuotaExceeded` or `TooManyTurnsOfKey` if a limit is reached.

    The caller has locked the user.
    """
    check_chat_room(place.branch, number=len(request.items) - place.shared)
    quotas.check_policy_quota(
        owner_id=sent.user.pk, values=choice.values, prices=choice.model.prices, now=now
    )
    limit = settings.GATEWAY_TURNS_PER_KEY
    unfinished = statements.UNFINISHED_OF_KEY.tuples(key=sent.api_key.pk)
    if sum(number for (number,) in unfinished) >= limit:
        raise TooManyTurnsOfKey(limit=limit)


def find_latest_question(request: Request, place: Placement, rows: Sequence[Message]) -> Message:
    """Return the latest user message, to which the turn replies.

    Raises `QuestionErased` and `QuestionExcluded` if it is a stored one that prompts may not
    contain.
    """
    newest = max(n for n, item in enumerate(request.items) if item.role == "user")
    if newest >= place.shared:
        return rows[newest - place.shared]
    seq = newest + 1 + place.offset
    stored = history.select_path_messages(place.branch, after=seq - 1, before=seq + 1).get()
    return turn_question.choose_question([stored])


def store_request_hashes(request: Request, place: Placement) -> None:
    """Store the hashes of the request's messages that have none yet on this path."""
    branch, offset = place.branch, place.offset
    last = len(request.items) + offset
    path = [
        (branch_id, above, to)
        for branch_id, above, to in history.list_path_pieces(branch, after=offset, before=last + 1)
    ]
    known = {
        (branch_id, seq)
        for branch_id, above, to in path
        for seq, _ in statements.NODES.tuples(branch=branch_id, above=above, last=to)
    }
    # A chain that does not start at the first message would match nothing.
    chained = offset == 0
    GatewayNode.objects.bulk_create(
        [
            GatewayNode(
                branch_id=branch_id,
                seq=seq,
                found=request.hashes[seq - offset - 1].found if chained else "",
                loose=request.hashes[seq - offset - 1].loose if chained else "",
                item=request.hashes[seq - offset - 1].item,
            )
            for branch_id, above, to in path
            for seq in range(above + 1, to + 1)
            if (branch_id, seq) not in known
        ],
        ignore_conflicts=True,
    )
