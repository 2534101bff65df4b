"""A team's message cap: above it, prompts leave out the oldest messages in one batch.

As with any window, these messages stay searchable in the archive. The number of
messages follows from the seqs, so no query counts them.
"""

import logging
import uuid
from datetime import datetime

from django.db import transaction
from django.db.models import Max, Min

from chats.compaction import window
from chats.ground.refusals import NotFound
from chats.memory.search import index_progress
from chats.models import Branch, Chat, Compaction, Turn
from chats.models.turns import UNFINISHED
from chats.prompt import model_choice
from chats.prompt.composition import WindowMoveRequired
from chats.prompt.prepared_summary import CAP
from chats.record import history
from chats.record.locking import lock_chat_for_writing
from contextpolicy.engine.compose.assembly import WindowNeeded

logger = logging.getLogger(__name__)


def get_message_cap(chat: Chat) -> int:
    """Return the message cap of the chat's team; 0 without a cap."""
    if chat.team_id is None:
        return 0
    caps = Chat.objects.filter(pk=chat.pk).values_list("team__current__message_cap", flat=True)
    return caps.first() or 0


def is_over_message_cap(branch: Branch, *, cap: int) -> bool:
    """Return True if the number of messages after the covered ones exceeds the cap.

    Always False while automatic compaction is paused on the branch.
    """
    if not cap or branch.compaction_paused or branch.last_seq <= cap:
        return False
    return branch.last_seq - (index_progress.get_archived_seq(branch) or 0) > cap


def apply_message_cap(*, chat_id: uuid.UUID, now: datetime) -> Compaction | None:
    """Leave the oldest messages out of prompts if the chat exceeds its team's cap.

    Returns the new window. None if the chat is within the cap, its newest turn alone exceeds it,
    its policies conflict, or a reply is being written. The cap is checked again at the end of the
    round.
    """
    rows = Chat.objects.select_related("owner", "model", "active_branch__active_compaction")
    chat = rows.filter(pk=chat_id, deleted_at=None).first()
    if chat is None or chat.active_branch is None:
        return None
    branch, cap = chat.active_branch, get_message_cap(chat)
    if not is_over_message_cap(branch, cap=cap):
        return None
    to_seq = find_cutoff_seq(branch, cap=cap)
    if to_seq is None:
        return None
    try:
        effective = model_choice.resolve_effective_policy(chat=chat, model=chat.model)
    except model_choice.PolicyRefused as refusal:
        logger.warning("chat %s stays over its cap: %s", chat_id, refusal.code)
        return None
    # Agents have separate windows, so there is no common prompt size before and after the move.
    needed = WindowNeeded(to_seq, tokens_before=0, tokens_after=0, reason=CAP)
    return move_window_if_idle(branch, move=WindowMoveRequired(needed, effective), now=now)


def find_cutoff_seq(branch: Branch, *, cap: int) -> int | None:
    """Return the seq of the last message to leave out, so that about ¾ of the cap remain.

    Never splits a turn. None: the newest turn alone exceeds that size.
    """
    wanted = branch.last_seq - cap * 3 // 4
    turn_id = (
        history.select_path_messages(branch, after=wanted - 1, before=wanted + 1).get().turn_id
    )
    if turn_id is None:
        return wanted
    path = history.select_path_messages(branch, after=0, before=branch.last_seq + 1)
    turn = path.filter(turn=turn_id).aggregate(first=Min("seq"), last=Max("seq"))
    first, last = turn["first"], turn["last"]
    if last < branch.last_seq:
        return int(last)
    return int(first) - 1 if first - 1 > (index_progress.get_archived_seq(branch) or 0) else None


@transaction.atomic
def move_window_if_idle(
    branch: Branch, *, move: WindowMoveRequired, now: datetime
) -> Compaction | None:
    """Move the window of a branch, and return its row.

    None if the branch has an unfinished turn or is no longer active, if the chat was deleted, or if
    the window did not move.
    """
    try:
        chat = lock_chat_for_writing(branch.chat_id)
    except NotFound:
        return None
    is_busy = Turn.objects.filter(branch=branch.pk, status__in=UNFINISHED).exists()
    if is_busy or chat.active_branch_id != branch.pk:
        return None
    return window.move_window(branch_id=branch.pk, move=move, now=now)
