"""Stores a request for several replies, with one turn for each.

This makes `n` work with every server. The first turn continues the conversation; each other turn
gets its own branch.
"""

import uuid
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from chats.gateway.accept_request import accept_request
from chats.gateway.append_request import (
    build_match_request,
    compute_request_offset,
    fork_request_branch,
    is_to_begin_again,
    place_request,
)
from chats.gateway.matching.candidate_branches import Request
from chats.gateway.request_types import Placed, Placement, Sent
from chats.ground.refusals import NotFound
from chats.models import Turn
from chats.record.idempotency import GATEWAY, IdempotentRequest
from chats.record.locking import lock_chat_for_writing
from contextpolicy.engine.messages.tokens import TokenCounter


def place_choices(sent: Sent, *, count: int, counter: TokenCounter, now: datetime) -> list[Placed]:
    """Store a request, and queue a turn for each choice.

    A repeated request gets the same turns; those that were stopped or failed start again. Raises
    the errors of `place_request`, and `TooManyBranches`.
    """
    if count == 1:
        return [place_request(sent, counter=counter, now=now)]
    with transaction.atomic():
        stored = sent.keyed.find(now=now) or {}
        first = place_request(sent, counter=counter, now=now)
        ids = [uuid.UUID(pk) for pk in stored.get("others", [])]
        request = build_match_request(sent, room=sent.room)
        rows = {row.pk: row for row in Turn.objects.select_related("branch").filter(pk__in=ids)}
        earlier = [rows.get(pk) for pk in ids]
        placed = [first]
        for number in range(count - 1):
            turn = earlier[number] if number < len(earlier) else None
            if turn is None or is_to_begin_again(turn):
                placed.append(
                    place_other_choice(sent, request, first.turn, counter=counter, now=now)
                )
            else:
                placed.append(Placed(turn, "repeat", first.repeat))
        others = [str(each.turn.pk) for each in placed[1:]]
        known = sent.keyed.find(now=now)
        if known is not None and known.get("others") != others:
            sent.keyed.replace(result={**known, "others": others}, now=now)
    return placed


def place_other_choice(
    sent: Sent, request: Request, first: Turn, *, counter: TokenCounter, now: datetime
) -> Placed:
    """Queue another turn for the question of a turn, on a new branch.

    Raises `NotFound`, `TooManyBranches` and the refusals of `accept_request`.
    """
    chat = lock_chat_for_writing(first.branch.chat_id)
    if first.trigger is None:
        raise NotFound
    offset = compute_request_offset(request, first)
    last = len(request.items) + offset
    active = chat.active_branch
    branch = fork_request_branch(first.branch, chat=chat, last=last, user=sent.user, now=now)
    chat.active_branch = active
    # The key belongs to the first turn. Its record names the others.
    unkeyed = IdempotentRequest(user=sent.user, route=GATEWAY, key="", body="")
    place = Placement(branch, len(request.items), offset, "branch")
    return accept_request(
        replace(sent, keyed=unkeyed), request, place, chat=chat, counter=counter, now=now
    )
