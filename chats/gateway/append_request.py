"""Stores the new messages of a request in a chat, with a turn, in one transaction.

A request continues a branch, or starts a branch where it differs. Shared messages are not stored
again, and stored messages do not change. While a branch has a running reply, another request with
the same start gets its own branch.
"""

import uuid
from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from chats.actions import branching, lifecycle
from chats.actions.branching import TooManyBranches
from chats.gateway.accept_request import accept_request
from chats.gateway.errors import ConversationLocked
from chats.gateway.matching.conversation import NO_QUESTION, Conversation
from chats.gateway.matching.find_branch import PathMatch, Request, find_best_match
from chats.gateway.matching.hashes import hash_messages
from chats.gateway.request_types import BranchEnd, Placed, Placement, Sent
from chats.ground.refusals import NotFound
from chats.models import Branch, Chat, GatewayChat, Turn
from chats.models.turns import UNFINISHED
from chats.record import history, messages
from chats.record.locking import lock_chat_for_writing
from chats.turns.start import (
    ChatBusy,
    derive_title,
    find_first_text,
    get_active_branch,
    is_derived_title,
)
from chats.turns.statements import PERSON_LOCK
from contextpolicy.engine.messages.messages import (
    TextPart,
)
from contextpolicy.engine.messages.tokens import TokenCounter
from speed import prepared

# Cause of the branch in the ledger.
CAUSE = "gateway"
# Messages of a conversation in which its title is looked for.
MOST_TITLE_MESSAGES = 20


def place_request(sent: Sent, *, counter: TokenCounter, now: datetime) -> Placed:
    """Store a request and queue its turn.

    Raises `ChatFull`, `ChatBusy`, `TooManyTurnsOfKey`, `TooManyChats`, `InvalidRequest`,
    `NotFound`, `ConversationLocked`, the refusals of `messages.check_text` and
    `model_choice.choose_chat_model`, `ModelUnavailable` and `IdempotencyKeyReused`.
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
    """Store a request where its messages match a chat, or in a new chat, and queue its turn.

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
    """Count a repetition, which keeps the turn running if an earlier client disconnects."""
    return sent.keyed.count_repeat()


def is_to_begin_again(turn: Turn) -> bool:
    """Return True if a turn was stopped or failed, so that it can have no complete reply."""
    has_ended = turn.status in (Turn.Status.STOPPED, Turn.Status.FAILED)
    return has_ended or turn.stop_requested_at is not None


def requeue_request(
    sent: Sent, request: Request, first: Turn, *, counter: TokenCounter, now: datetime
) -> Placed:
    """Queue another turn for the request of a stopped or failed turn, at the same place.

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
            at = history.select_path_messages(branch, after=last - 1, before=last + 1)
            branch = branching.fork_branch(
                chat,
                at=at.select_related("branch__parent").get(),
                fork_seq=last,
                cause=CAUSE,
                user=sent.user,
                now=now,
            )
            if known.branch.client_windowed:
                mark_client_windowed(branch)
        place = Placement(branch, len(request.items), offset, "retry")
        return accept_request(sent, request, place, chat=chat, counter=counter, now=now)


def compute_request_offset(request: Request, turn: Turn) -> int:
    """Return the seq of a request's first message, minus 1, from the turn that replies to it.

    The turn has a trigger.
    """
    newest = max(n for n, item in enumerate(request.items) if item.role == "user")
    seq = turn.trigger.seq if turn.trigger else None
    return (seq or 0) - newest - 1


@transaction.atomic
def continue_conversation(
    sent: Sent, request: Request, end: BranchEnd, *, counter: TokenCounter, now: datetime
) -> Placed:
    """Store a request at the end of a conversation that it names by id.

    Raises `ConversationLocked` if the conversation has a running reply or changed since its end was
    read, and the refusals of `accept_request`.
    """
    chat = lock_chat_for_writing(end.branch.chat_id)
    PERSON_LOCK.hold(owner=sent.user.pk)
    if known := find_repeated_turn(sent, now=now):
        return Placed(known, "repeat", count_request_repeat(sent))
    branch = lock_conversation_branch(chat)
    if branch.pk != end.branch.pk or branch.last_seq != end.last:
        raise ConversationLocked
    if GatewayChat.objects.filter(chat=chat, proven=False).update(proven=True):
        # Conversations are archived until their first reply.
        chat.archived = False
    if not chat.title:
        chat.title = derive_request_title(sent.conversation)
    prepared.save_row_fields(chat, "archived", "title")
    shared = end.last - end.first + 1
    place = Placement(branch, shared, end.first - 1, "continue", completes=end.is_open)
    return accept_request(sent, request, place, chat=chat, counter=counter, now=now)


def lock_conversation_branch(chat: Chat) -> Branch:
    """Return the active branch of a locked chat, if messages can be added to its end now.

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
    """Match a request, and restore the start of a chat that began with only a system text.

    The client of such a chat sends our reply as its first message.
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
    """Match a request to a branch: in the given chat, in the chat it names, or in any chat."""
    chat = chat or sent.chat
    within = sent.earlier.pk if sent.earlier else None
    return find_best_match(request, owner_id=sent.user.pk, chat=chat, within=within)


def find_room_chat(sent: Sent, *, room: str) -> uuid.UUID | None:
    """Return the id of the chat that a request names, or that its conversation id belongs to.

    None if there is no such chat.
    """
    if sent.chat is not None:
        return sent.chat.pk
    if not sent.is_named:
        return None
    rows = GatewayChat.objects.filter(room=room, chat__owner=sent.user, chat__deleted_at=None)
    return rows.order_by("-chat__created_at").values_list("chat", flat=True).first()


def create_provisional_chat(sent: Sent, *, room: str, now: datetime) -> Chat:
    """Create a provisional chat, which is hidden until a second request continues it.

    It does not use or fill its owner's memory. Raises `TooManyChats`.
    """
    title = derive_request_title(sent.conversation) or "…"
    chat = lifecycle.create_chat(owner=sent.user, now=now, title=title)
    chat.archived, chat.without_memory = True, True
    chat.erase_at = now + timedelta(hours=settings.GATEWAY_PROVISIONAL_HOURS)
    prepared.save_row_fields(chat, "archived", "without_memory", "erase_at")
    prepared.insert_row(GatewayChat(chat=chat, room=room, source=sent.identity.source[:40]))
    return chat


def derive_request_title(said: Conversation) -> str:
    """Return the title of a chat that a request opens; empty without a text."""
    texts = (
        part.text
        for item in said.items
        if item.role == "user"
        for part in item.parts
        if isinstance(part, TextPart)
    )
    return derive_title(find_first_text(texts) or find_first_text(said.system))


def choose_placement(
    chat: Chat, *, match: PathMatch | None, sent: Sent, now: datetime
) -> Placement:
    """Return the place of a request in a locked chat, on a new branch if needed.

    Raises `ChatBusy` and `TooManyBranches`.
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
    if match.unmatched:
        # The client summarised the start itself: keep its list unchanged, without our summaries.
        branch = create_empty_branch(chat, sent=sent, now=now)
        return Placement(mark_client_windowed(branch), 0, 0, "branch")
    return continue_matched_branch(chat, match=match, sent=sent, now=now)


def continue_matched_branch(
    chat: Chat, *, match: PathMatch, sent: Sent, now: datetime
) -> Placement:
    """Return the place after the messages shared with a branch. Raises `TooManyBranches`."""
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
    """Return True if a branch has a running turn or a waiting message."""
    is_writing = Turn.objects.filter(branch=branch, status__in=UNFINISHED).exists()
    return is_writing or messages.has_waiting_messages(branch_id=branch.pk)


def make_chat_permanent(chat: Chat) -> bool:
    """Make a provisional chat permanent once a request contains one of its replies.

    Return True for the first such request.
    """
    is_first = GatewayChat.objects.filter(chat=chat, proven=False).update(proven=True)
    if is_first and chat.is_provisional:
        chat.archived, chat.erase_at = False, None
        chat.save(update_fields=["archived", "erase_at"])
    return bool(is_first)


def title_after_conversation(chat: Chat, *, branch: Branch, user: User, now: datetime) -> None:
    """Title a chat after the branch that its client continues.

    A request about the conversation, such as one for its title, may have opened the chat under the
    same id. A title that a person chose stays.
    """
    asked = Message.objects.filter(branch__chat=chat, role=Message.Role.USER, seq=1)
    opened = [find_first_text([row.text]) for row in asked]
    begun = history.select_path_messages(branch, after=0, before=MOST_TITLE_MESSAGES + 1)
    first = find_first_text(row.text for row in begun if row.role == Message.Role.USER)
    title = derive_title(first)
    if title != chat.title and any(is_derived_title(chat.title, text=text) for text in opened):
        lifecycle.rename_chat(chat=chat, title=title, actor=f"user:{user.pk}", now=now)


def accept_request(
    sent: Sent,
    request: Request,
    place: Placement,
    *,
    chat: Chat,
    counter: TokenCounter,
    now: datetime,
) -> Placed:
    """Store the new messages and queue the turn, in the caller's transaction with a locked chat.

    Raises `ChatFull`, `TooManyTurnsOfKey`, and the refusals of `apply_requested_model`,
    `check_texts` and `attach_new_files`.
    """
    branch = place.branch
    branch.chat = chat
    choice = apply_requested_model(chat, sent=sent)
    check_request_limits(sent, branch=branch)
    if place.completes:
        check_result_images(sent, request.items[place.shared - 1], choice=choice)
    held = attach_new_files(sent, request.items[place.shared :], choice=choice)
    new = [each.item for each in held]
    check_texts(new, limit=choice.values.input_length_limit, field=sent.field)
    completed = (
        [complete_tool_calls(branch, request.items[place.shared - 1], sent=sent, counter=counter)]
        if place.completes
        else []
    )
    rows = messages.append_sent(
        chat=chat, branch=branch, said=[(i.role, i.parts) for i in new], counter=counter, now=now
    )
    images.store_message_images(rows, found=sent.conversation.images)
    store_message_files(chat, rows, held=held)
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
    known = {"turn": str(turn.pk), "message": str(trigger.pk), "chat": str(chat.pk)}
    sent.keyed.replace(result=known, now=now)
    return Placed(turn, place.decision)


def attach_new_files(
    sent: Sent, items: Sequence[Item], *, choice: model_choice.ChosenModel
) -> list[ItemFiles]:
    """Return the new messages with their files, which are locked until they are stored.

    Raises the refusals of `attach.build_attached_files`.
    """
    said = sent.conversation
    with request_files.blame_field(sent.field):
        held = [
            request_files.attach_documents(item, said=said, user=sent.user, choice=choice)
            for item in items
        ]
        files = {file.file_id: file for each in held for file in each.files}
        attach.lock_attached_files(list(files.values()))
    return held


def store_message_files(chat: Chat, rows: Sequence[Message], *, held: Sequence[ItemFiles]) -> None:
    """Store the files that new messages use, and whether the chat has documents that were cut."""
    for row, each in zip(rows, held, strict=True):
        for file in each.files:
            messages.store_message_file(row, file=file)
    if any(attach.is_cut(file) for each in held for file in each.files):
        chat.has_cut_files = True
        prepared.save_row_fields(chat, "has_cut_files")


def check_texts(items: Sequence[Item], *, limit: int, field: str) -> None:
    """Raise the refusals of `messages.check_text` for a new user message that is too long."""
    for item in items:
        if item.role == "user" and item.text.strip():
            try:
                messages.check_text(item.text, limit=limit)
            except Refusal as refusal:
                refusal.param = field
                raise


def apply_requested_model(chat: Chat, *, sent: Sent) -> model_choice.ChosenModel:
    """Set the model and the policy of a chat as requested, and return the effective choice.

    Raises the errors of `model_choice.choose_chat_model`, `ModelUnavailable`, and
    `InvalidRequest` for tools that the model does not support.
    """
    if sent.wanted.chat is None:
        chat.model, chat.policy = sent.wanted.model, sent.policy
    choice = model_choice.choose_chat_model(chat=chat)
    model_choice.get_available_account(choice.model)
    check_tools(choice.model, sent.client.get("tools"))
    return choice


def check_request_limits(sent: Sent, *, branch: Branch) -> None:
    """Raise `ChatFull` or `TooManyTurnsOfKey` if a limit is reached."""
    if branch.last_seq + len(sent.conversation.items) > settings.MESSAGES_PER_CHAT:
        raise ChatFull(limit=settings.MESSAGES_PER_CHAT)
    limit = settings.GATEWAY_TURNS_PER_KEY
    unfinished = statements.UNFINISHED_OF_KEY.tuples(key=sent.api_key.pk)
    if sum(number for (number,) in unfinished) >= limit:
        raise TooManyTurnsOfKey(limit=limit)


def check_result_images(sent: Sent, item: Item, *, choice: model_choice.ChosenModel) -> None:
    """Raise the refusals of `attach.check_file_policy` for the images of new tool results."""
    shown = Item("assistant", item.result_images)
    with request_files.blame_field(sent.field):
        request_files.attach_documents(shown, said=sent.conversation, user=sent.user, choice=choice)


def complete_tool_calls(branch: Branch, item: Item, *, sent: Sent, counter: TokenCounter) -> Sealed:
    """Add the tool results to the last reply of a branch, under its own call ids.

    Returns the new commitment to the reply.
    """
    reply = Message.objects.get(branch=branch, seq=branch.last_seq)
    given = [part["call_id"] for part in reply.parts if part["type"] == "tool_call"]
    called = [part.call_id for part in item.parts if isinstance(part, ToolCallPart)]
    own = dict(zip(called, given, strict=True))
    results: list[Part] = []
    for each in item.results:
        for offset, image in find_result_images(item.parts).get(each.call_id, ()):
            results.append(name_result_image(image, call_id=own[each.call_id], offset=offset))
        results.append(replace(each, call_id=own[each.call_id]))
    sealed = messages.add_results(reply, results=results, counter=counter)
    images.store_message_images([reply], found=sent.conversation.images)
    return sealed


def find_latest_question(request: Request, place: Placement, rows: Sequence[Message]) -> Message:
    """Return the latest user message, which the turn replies to."""
    newest = max(n for n, item in enumerate(request.items) if item.role == "user")
    if newest >= place.shared:
        return rows[newest - place.shared]
    seq = newest + 1 + place.offset
    return history.select_path_messages(place.branch, after=seq - 1, before=seq + 1).get()


def store_request_hashes(request: Request, place: Placement) -> None:
    """Store the hashes of those messages on this path that have none yet."""
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
