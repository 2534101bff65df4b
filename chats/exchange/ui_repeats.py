"""Recognises requests of `useChat` clients that were sent again because their response was lost."""

from collections.abc import Mapping
from typing import Any

from chats.exchange.foreign_metadata import restore_client_metadata
from chats.exchange.ui_lookup import load_branch, parse_own_id, resolve_turn, select_path
from chats.models import Chat, Message, Turn
from chats.models.turns import UNFINISHED


def matches_sent_message(stored: Message, *, text: str, source: Mapping[str, Any]) -> bool:
    """Return True if a stored user message has this text, and this id and data from its client."""
    is_own = stored.role == Message.Role.USER and stored.erased_at is None
    known = stored.metadata.get("source")
    if not is_own or stored.text != text or not isinstance(known, Mapping):
        return False
    given = restore_source(source)
    # A message that an older version stored has the metadata as the client gave it.
    return given in (restore_source(known), dict(known))


def restore_source(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the id and data of a message with the metadata as the client gave it."""
    return {**source, "metadata": restore_client_metadata(source.get("metadata") or {})}


def find_current_turn(chat: Chat, message: Message) -> Turn | None:
    """Return the newest turn that replies to the last user message of the active path.

    In a team, this is the first agent's reply. None if the message is not the last one of its
    user, or has no turn on the path.
    """
    branch = load_branch(chat)
    queued = Message.objects.filter(branch=branch, seq=None).exclude(pk=message.pk)
    if message.seq is None:
        queued = queued.filter(accepted__gt=message.accepted)
    else:
        later = select_path(branch).filter(seq__gt=message.seq)
        if later.filter(role=Message.Role.USER).exists():
            return None
        step = later.filter(turn__isnull=False).select_related("turn").first()
        if step is not None and step.turn is not None:
            return find_newest_attempt(chat, step.turn) or step.turn
    if queued.exists():
        return None
    rows = Turn.objects.filter(branch=branch, trigger=message).select_related("absorbed_by")
    first = rows.order_by("accepted").first()
    if first is None:
        return None
    first = first.absorbed_by or first
    return find_newest_attempt(chat, first) or first


def find_newest_attempt(chat: Chat, turn: Turn) -> Turn | None:
    """Return the newest turn of the active branch that replies in place of a turn, or is that turn.

    It has the same cause, and in a team the same agent and position in the round.
    """
    rows = Turn.objects.filter(
        branch=chat.active_branch_id, agent=turn.agent_id, hop=turn.hop
    ).exclude(status=Turn.Status.ABSORBED)
    if turn.trigger_id is None:
        rows = rows.filter(trigger=None, continues=turn.continues_id)
    else:
        # A regeneration replies to the last message that the turn accepted.
        taken = Message.objects.filter(turn=turn, role=Message.Role.USER)
        rows = rows.filter(trigger__in=[turn.trigger_id, *taken.values_list("pk", flat=True)])
    return rows.order_by("-accepted").first()


def find_newest_unfinished(chat: Chat) -> Turn | None:
    """Return the newest turn of the active branch that is queued or running, or None.

    A turn that was asked to stop is not returned: after `stop()`, the client wants a new reply.
    """
    rows = Turn.objects.filter(
        branch=chat.active_branch_id, status__in=UNFINISHED, stop_requested_at=None
    )
    return rows.order_by("-accepted").first()


def is_in_progress(turn: Turn) -> bool:
    """Return True if a turn is queued or running, and was not asked to stop."""
    return not turn.is_over and turn.stop_requested_at is None


def find_named_turn(chat: Chat, ui_id: str) -> Turn | None:
    """Return the turn of a reply in any branch of a chat, by its id or the id of one of its steps.

    None if the id does not name a reply.
    """
    own = parse_own_id(ui_id)
    if own is None:
        return None
    turn = resolve_turn(own)
    if turn is None:
        rows = Message.objects.filter(pk=own, role=Message.Role.ASSISTANT)
        step = rows.select_related("turn").first()
        turn = step.turn if step else None
    return turn if turn is not None and turn.branch.chat_id == chat.pk else None


def find_latest_attempt(chat: Chat, named: Turn) -> Turn | None:
    """Return the newest turn in place of a named one, unless newer messages follow it."""
    newest = find_newest_attempt(chat, named)
    if newest is None:
        return None
    later = Message.objects.filter(
        branch=newest.branch_id, role=Message.Role.USER, accepted__gt=newest.accepted
    )
    return None if later.exclude(turn=newest).exists() else newest


def find_replacement(chat: Chat, named: Turn) -> Turn | None:
    """Return the turn that replaced a named one, or that is replacing it now. Otherwise None."""
    newest = find_latest_attempt(chat, named)
    if newest is None or newest.pk == named.pk:
        return None
    is_complete = newest.status == Turn.Status.COMPLETED
    return newest if is_complete or is_in_progress(newest) else None
