"""Stores the new messages of a request in a chat, with a turn, in one transaction.

A request continues a branch, or starts a new one where it differs. Shared messages are not stored
again, and stored messages do not change. While a branch has a running reply, another request with
the same start gets its own branch.
"""

import uuid
from dataclasses import replace
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from chats.actions import branching
from chats.actions.branching import TooManyBranches
from chats.gateway.accept_request import accept_request
from chats.gateway.errors import ConversationLocked
from chats.gateway.matching.candidate_branches import Request
from chats.gateway.matching.conversation import NO_QUESTION
from chats.gateway.matching.find_branch import PathMatch, find_best_match
from chats.gateway.matching.hashes import hash_messages
from chats.gateway.request_chats import (
    NO_TITLE,
    create_provisional_chat,
    derive_request_title,
    find_room_chat,
    make_chat_permanent,
    title_after_conversation,
)
from chats.gateway.request_types import BranchEnd, Placed, Placement, Sent
from chats.ground.refusals import NotFound
from chats.models import Branch, Chat, GatewayChat, Turn
from chats.models.turns import UNFINISHED
from chats.record import history, messages
from chats.record.locking import lock_chat_for_writing
from chats.turns.start import ChatBusy, get_active_branch
from chats.turns.statements import PERSON_LOCK
from contextpolicy.engine.messages.tokens import TokenCounter
from speed import prepared

# Cause of the branch in the ledger.
CAUSE = "gateway"


def place_request(sent: Sent, *, counter: TokenCounter, now: datetime) -> Placed:
    """Store a request and queue its turn.

    Raises `ChatFull`, `ChatBusy`, `TooManyTurnsOfKey`, `TooManyChats`, `InvalidRequest`,
    `NotFound`, `ConversationLocked`, the refusals of `message_text.check_text` and
    `model_choice.choose_chat_model`, `ModelUnavailable`, `QuestionErased`, `QuestionExcluded` and
    `IdempotencyKeyReused`.
    """
    known = find_repeated_turn(sent, now=now)
    if known is not None and not is_to_begin_again(known):
        repeat = count_request_repeat(sent)
        # The first client may have disconnected, and stopped the turn, in between.
        known = find_repeated_turn(sent, now=now)
        if known is not None and not is_to_begin_again(known):
            return Placed(known, "repeat", repeat)
    request = build_match_request(sent, room=sent.room)
    if known is not None:
        return requeue_request(sent, request, known, counter=counter, now=now)
    if sent.end is not None:
        return continue_conversation(sent, request, sent.end, counter=counter, now=now)
    return place_matched_request(sent, request, counter=counter, now=now)


def place_matched_request(
    sent: Sent, request: Request, *, counter: TokenCounter, now: datetime
) -> Placed:
    """Store a request in the chat that its messages match, or in a new chat; queue its turn.

    Raises the errors of `place_request`.
    """
    room = request.room
    # Read-only work runs before locking, and is checked again under the lock.
    sent, request, match = find_request_start(sent, request)
    chat_id = match.branch.chat_id if match else find_room_chat(sent, room=room)
    with transaction.atomic():
        if chat_id is None:
            PERSON_LOCK.hold(owner=sent.user.pk)
            if known := find_repeated_turn(sent, now=now):
                return Placed(known, "repeat", count_request_repeat(sent))
            chat = create_provisional_chat(sent, room=room, now=now)
            found = Placement(get_active_branch(chat), 0, 0, "new")
            return accept_request(sent, request, found, chat=chat, counter=counter, now=now)
        chat = lock_chat_for_writing(chat_id)
        PERSON_LOCK.hold(owner=sent.user.pk)
        # A concurrent request may have been stored in between.
        if known := find_repeated_turn(sent, now=now):
            return Placed(known, "repeat", count_request_repeat(sent))
        match = match_request(request, sent=sent, chat=chat) if match else None
        try:
            found = choose_placement(chat, match=match, sent=sent, now=now)
        except TooManyBranches:
            chat = create_provisional_chat(sent, room=room, now=now)
            found = Placement(get_active_branch(chat), 0, 0, "new")
        return accept_request(sent, request, found, chat=chat, counter=counter, now=now)


def find_repeated_turn(sent: Sent, *, now: datetime) -> Turn | None:
    """Return the turn of an earlier request with the same idempotency key, or None.

    Raises `NotFound` if the turn was deleted, and `IdempotencyKeyReused`.
    """
    known = sent.keyed.find(now=now)
    if known is None:
        return None
    turn = Turn.objects.select_related("branch").filter(pk=uuid.UUID(known["turn"])).first()
    if turn is None:
        raise NotFound
    return turn


@transaction.atomic
def count_request_repeat(sent: Sent) -> int:
    """Count a repeated request and return its number.

    The count keeps the turn running if the client of an earlier request disconnects.
    """
    return sent.keyed.count_repeat()


def is_to_begin_again(turn: Turn) -> bool:
    """Return True if a turn failed or was stopped, so that its request needs a new turn.

    A turn that was asked to stop counts as stopped.
    """
    has_ended = turn.status in (Turn.Status.STOPPED, Turn.Status.FAILED)
    return has_ended or turn.stop_requested_at is not None


def requeue_request(
    sent: Sent, request: Request, first: Turn, *, counter: TokenCounter, now: datetime
) -> Placed:
    """Queue another turn for the request of a stopped or failed turn, on the same branch.

    Messages are not stored again. Partial output of the first turn stays on its branch. Raises
    `NotFound`, and the refusals of `accept_request`.
    """
    with transaction.atomic():
        chat = lock_chat_for_writing(first.branch.chat_id)
        PERSON_LOCK.hold(owner=sent.user.pk)
        # A concurrent request may have retried it in between.
        known = find_repeated_turn(sent, now=now)
        if known is None or known.trigger is None:
            raise NotFound
        if not is_to_begin_again(known):
            return Placed(known, "repeat", count_request_repeat(sent))
        offset = compute_request_offset(request, known)
        last = len(request.items) + offset
        branch = known.branch
        if branch.last_seq != last or is_branch_busy(branch):
            branch = fork_request_branch(branch, chat=chat, last=last, user=sent.user, now=now)
        place = Placement(branch, len(request.items), offset, "retry")
        return accept_request(sent, request, place, chat=chat, counter=counter, now=now)


def fork_request_branch(
    branch: Branch, *, chat: Chat, last: int, user: User, now: datetime
) -> Branch:
    """Fork a branch after the message at seq `last`, for another continuation.

    Raises `TooManyBranches`.
    """
    at = history.select_path_messages(branch, after=last - 1, before=last + 1)
    made = branching.fork_branch(
        chat,
        at=at.select_related("branch__parent").get(),
        fork_seq=last,
        cause=CAUSE,
        user=user,
        now=now,
    )
    return mark_client_windowed(made) if branch.client_windowed else made


def compute_request_offset(request: Request, turn: Turn) -> int:
    """Return the seq of a request's first message, minus 1.

    It is computed from the turn that replies to the request, which must have a trigger.
    """
    newest = max(n for n, item in enumerate(request.items) if item.role == "user")
    seq = turn.trigger.seq if turn.trigger else None
    return (seq or 0) - newest - 1


@transaction.atomic
def continue_conversation(
    sent: Sent, request: Request, end: BranchEnd, *, counter: TokenCounter, now: datetime
) -> Placed:
    """Store a request at the end of a conversation that it names by id.

    Raises the refusals of `place_at_end` and `accept_request`.
    """
    chat = lock_chat_for_writing(end.branch.chat_id)
    PERSON_LOCK.hold(owner=sent.user.pk)
    if known := find_repeated_turn(sent, now=now):
        return Placed(known, "repeat", count_request_repeat(sent))
    place = place_at_end(chat, end, user=sent.user, now=now)
    if GatewayChat.objects.filter(chat=chat, proven=False).update(proven=True):
        # Conversations are archived until their first reply.
        chat.archived = False
    if not chat.title:
        chat.title = derive_request_title(sent.conversation)
    prepared.save_row_fields(chat, "archived", "title")
    return accept_request(sent, request, place, chat=chat, counter=counter, now=now)


def place_at_end(chat: Chat, end: BranchEnd, *, user: User, now: datetime) -> Placement:
    """Return the placement after the end of a conversation in a locked chat.

    A reply with open calls that the active branch shares with its parent does not change: a new
    branch starts before it, where it is stored again with its results. Raises `ConversationLocked`
    if the conversation has a running reply, changed since its end was read, or ends with open calls
    whose reply was excluded or erased or has results, and `TooManyBranches`.
    """
    branch = lock_conversation_branch(chat)
    if (branch.pk, branch.last_seq) != (end.branch.pk, end.last):
        raise ConversationLocked
    shared, offset = end.last - end.first + 1, end.first - 1
    if not end.is_open:
        return Placement(branch, shared, offset, "continue")
    reply = history.select_path_messages(branch, after=end.last - 1, before=end.last + 1).get()
    is_completed = any(part["type"] == "tool_result" for part in reply.parts)
    if is_completed or reply.excluded or reply.erased_at is not None:
        raise ConversationLocked
    if branch.last_seq > branch.fork_seq:
        return Placement(branch, shared, offset, "continue", completes=True)
    made = fork_request_branch(branch, chat=chat, last=end.last - 1, user=user, now=now)
    return Placement(made, shared - 1, offset, "branch")


def lock_conversation_branch(chat: Chat) -> Branch:
    """Return the active branch of a locked chat if messages can be appended now.

    Raises `ConversationLocked`.
    """
    branch = get_active_branch(chat)
    if is_branch_busy(branch):
        raise ConversationLocked
    return branch


def build_match_request(sent: Sent, *, room: str) -> Request:
    items = sent.conversation.items
    return Request(items, hash_messages(items, room=room), room, sent.is_named)


def find_request_start(sent: Sent, request: Request) -> tuple[Sent, Request, PathMatch | None]:
    """Match a request to a branch. Return the request, its hashes and the match.

    If the chat began with only a system text, the client sends our reply as its first message; the
    missing start is then restored.
    """
    said = sent.conversation
    if said.items[0].role == "assistant":
        whole = replace(sent, conversation=replace(said, items=(NO_QUESTION, *said.items)))
        begun = build_match_request(whole, room=request.room)
        match = match_request(begun, sent=whole)
        if match is not None and not (match.offset or match.unmatched):
            return whole, begun, match
    return sent, request, match_request(request, sent=sent)


def match_request(request: Request, *, sent: Sent, chat: Chat | None = None) -> PathMatch | None:
    """Return a request's best match: in the given chat, in the chat it names, or in any chat."""
    chat = chat or sent.chat
    within = sent.earlier.pk if sent.earlier else None
    return find_best_match(request, owner_id=sent.user.pk, chat=chat, within=within)


def choose_placement(
    chat: Chat, *, match: PathMatch | None, sent: Sent, now: datetime
) -> Placement:
    """Choose where a request is stored in a locked chat, and create a branch if needed.

    A match with stored messages makes a temporary chat permanent and sets a missing title. Raises
    `ChatBusy` and `TooManyBranches`.
    """
    if match is None:
        branch = get_active_branch(chat)
        if sent.wanted.chat is not None and len(sent.conversation.items) == 1:
            # One message to a named chat continues it, as on the chat page.
            if is_branch_busy(branch):
                raise ChatBusy(waiting=1)
            return Placement(branch, 0, branch.last_seq, "continue")
        return Placement(create_empty_branch(chat, sent=sent, now=now), 0, 0, "branch")
    if make_chat_permanent(chat):
        title_after_conversation(chat, branch=match.branch, user=sent.user, now=now)
    if chat.title == NO_TITLE and (title := derive_request_title(sent.conversation)):
        chat.title = title
        prepared.save_row_fields(chat, "title")
    if match.unmatched:
        # The client summarised the start itself: keep its list unchanged, without our summaries.
        branch = create_empty_branch(chat, sent=sent, now=now)
        return Placement(mark_client_windowed(branch), 0, 0, "branch")
    return continue_matched_branch(chat, match=match, sent=sent, now=now)


def continue_matched_branch(
    chat: Chat, *, match: PathMatch, sent: Sent, now: datetime
) -> Placement:
    """Return the placement after the messages shared with a branch. Raises `TooManyBranches`."""
    branch, shared, offset = match.branch, match.shared, match.offset
    is_free = not is_branch_busy(branch) and branch.last_seq > branch.fork_seq
    completes = match.is_open and match.is_at_end and is_free
    if match.is_open and not completes:
        shared -= 1
    at_end = shared + offset == branch.last_seq and not is_branch_busy(branch)
    if at_end and (offset == 0 or branch.client_windowed):
        chat.active_branch = branch
        return Placement(branch, shared, offset, "continue", completes)
    fork_seq = shared + offset
    if fork_seq == 0:
        return Placement(create_empty_branch(chat, sent=sent, now=now), 0, 0, "branch")
    at = history.select_path_messages(
        branch, after=fork_seq - 1, before=fork_seq + 1
    ).select_related("branch__parent")
    made = branching.fork_branch(
        chat, at=at.get(), fork_seq=fork_seq, cause=CAUSE, user=sent.user, now=now
    )
    if offset or branch.client_windowed:
        mark_client_windowed(made)
    return Placement(made, shared, offset, "branch")


def create_empty_branch(chat: Chat, *, sent: Sent, now: datetime) -> Branch:
    """Create a branch without shared messages. The active branch does not change.

    Raises `TooManyBranches`.
    """
    active = get_active_branch(chat)
    branch = branching.open_empty_branch(chat, cause=CAUSE, actor=f"user:{sent.user.pk}", now=now)
    chat.active_branch = active
    chat.save(update_fields=["active_branch"])
    return branch


def mark_client_windowed(branch: Branch) -> Branch:
    """Mark a branch whose client truncates the history itself. It gets no summaries."""
    branch.client_windowed = branch.compaction_paused = True
    branch.active_compaction = None
    branch.save(update_fields=["client_windowed", "compaction_paused", "active_compaction"])
    return branch


def is_branch_busy(branch: Branch) -> bool:
    """Return True if a branch has a running turn or a queued message."""
    is_writing = Turn.objects.filter(branch=branch, status__in=UNFINISHED).exists()
    return is_writing or messages.has_waiting_messages(branch_id=branch.pk)
