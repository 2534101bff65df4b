"""The outbox of webhooks: deliveries are stored in the transaction of their event.

Each committed event is therefore delivered at least once, and an uncommitted one never. Deliveries
contain ids and numbers, never text: receivers load a message over REST with a key, while it exists.
"""

import json
import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.dispatch import receiver
from django.utils.translation import gettext_noop

from chats.ground import queue
from chats.models import Chat, Message, Webhook, WebhookDelivery
from chats.record.message_commitments import DIGEST, STORED, list_turn_replies
from contextpolicy import ledger
from contextpolicy.models import AuditEvent, LedgerCheckpoint

AUDIT = "ledger.recorded"
CHECKPOINT = "checkpoint.signed"
# The events with their labels.
EVENTS: Mapping[str, str] = {
    "message.added": gettext_noop("A message was added to one of your chats"),
    "turn.finished": gettext_noop(
        "A reply in one of your chats ended: completed, stopped or failed"
    ),
    "compaction.published": gettext_noop("A summary took effect in one of your chats"),
    "task.changed": gettext_noop("The task in one of your team chats changed"),
    "tool.consent_asked": gettext_noop(
        "A tool call in one of your chats is waiting for your consent"
    ),
    "policy.changed": gettext_noop("A policy or its assignments changed"),
    CHECKPOINT: gettext_noop("A checkpoint of the audit log was signed (auditors only)"),
    AUDIT: gettext_noop("All users’ audit events"),
}
# Events about all people require a permission.
NEEDED: Mapping[str, str] = {
    "policy.changed": "contextpolicy.view_contextpolicy",
    CHECKPOINT: "contextpolicy.view_auditevent",
    AUDIT: "contextpolicy.view_auditevent",
}
MOST_BYTES = 256 * 1024
# Fields of a new message in an event of the ledger. A completed message has one more.
NEW = 2
# The ends of turns whose events list the replies.
ENDED = ("completed", "stopped", "failed")
# Seconds until all processes know that a webhook was created or changed.
KNOWN_SECONDS = 5.0
LANES = {False: "fast", True: "slow"}

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """An active webhook: its owner and events."""

    webhook: uuid.UUID
    owner: int
    events: frozenset[str]
    is_slow: bool


class Subscribers:
    """This process's cache of active webhooks."""

    def __init__(self) -> None:
        self.found: tuple[Subscriber, ...] = ()
        self.known_until = -math.inf

    def current(self) -> tuple[Subscriber, ...]:
        """Return the active webhooks, reloaded every few seconds."""
        if time.monotonic() >= self.known_until:
            rows = Webhook.objects.filter(off=Webhook.Off.ON, owner__is_active=True)
            values = rows.order_by("created_at", "pk")
            self.know(
                Subscriber(webhook, owner, frozenset(events), is_slow)
                for webhook, owner, events, is_slow in values.values_list(
                    "pk", "owner_id", "events", "is_slow"
                )
            )
        return self.found

    def know(self, found: Any, *, seconds: float = KNOWN_SECONDS) -> None:
        """Cache these webhooks as the active ones for `seconds`."""
        self.found, self.known_until = tuple(found), time.monotonic() + seconds

    def forget(self) -> None:
        """Clear the cache, now and again after the commit."""
        self.known_until = -math.inf
        transaction.on_commit(partial(setattr, self, "known_until", -math.inf))


SUBSCRIBERS = Subscribers()


@receiver(ledger.recorded)
def store_event_deliveries(event: AuditEvent, **_signal: Any) -> None:
    """Store a delivery of the event for each subscribed webhook. Most instances have none."""
    if subscribers := SUBSCRIBERS.current():
        store_deliveries(event, subscribers)


@receiver(ledger.checkpointed)
def store_checkpoint_deliveries(checkpoint: LedgerCheckpoint, **_signal: Any) -> None:
    """Store the deliveries of a checkpoint: the note itself, which contains no user text."""
    subscribers = [one for one in SUBSCRIBERS.current() if CHECKPOINT in one.events]
    data = {
        "origin": checkpoint.origin.name,
        "size": checkpoint.size,
        "note": checkpoint.note,
    }
    at = checkpoint.signed_at
    WebhookDelivery.objects.bulk_create(
        build_delivery(CHECKPOINT, data, webhook=one.webhook, at=at) for one in subscribers
    )
    for lane in {LANES[one.is_slow] for one in subscribers}:
        queue.enqueue(queue.DELIVER, lane=lane)


def store_deliveries(event: AuditEvent, subscribers: tuple[Subscriber, ...]) -> None:
    """Store the deliveries of an audit event.

    Each webhook gets one delivery for each webhook event to which it is subscribed.
    """
    events = list_webhook_events(event)
    names = frozenset().union(*(subscriber.events for subscriber in subscribers))
    events = add_roles([each for each in events if each[0] in names])
    if any(AUDIT in subscriber.events for subscriber in subscribers):
        events.append((AUDIT, build_recorded_data(event)))
    wanted = [
        (subscriber, name, data)
        for name, data in events
        for subscriber in subscribers
        if name in subscriber.events
    ]
    if not wanted:
        return
    owner = None
    if event.chat_id is not None and any(name not in NEEDED for _, name, _ in wanted):
        owner = Chat.objects.filter(pk=event.chat_id).values_list("owner", flat=True).first()
    rows = [
        build_delivery(name, data, webhook=subscriber.webhook, at=event.at)
        for subscriber, name, data in wanted
        if name in NEEDED or subscriber.owner == owner
    ]
    WebhookDelivery.objects.bulk_create(rows)
    told_ids = {row.webhook_id for row in rows}
    for lane in {LANES[one.is_slow] for one in subscribers if one.webhook in told_ids}:
        queue.enqueue(queue.DELIVER, lane=lane)


def build_delivery(name: str, data: Data, *, webhook: uuid.UUID, at: datetime) -> WebhookDelivery:
    """Return a new delivery, in the format of the Standard Webhooks specification."""
    stated = {"type": name, "timestamp": at.isoformat(), "data": data}
    body = json.dumps(stated, ensure_ascii=False, separators=(",", ":"))
    if len(body.encode()) > MOST_BYTES:
        kept = {
            field: data[field] for field in ("scope", "seq", "type", "chat_id") if field in data
        }
        body = json.dumps({**stated, "data": {**kept, "left_out": True}})
    return WebhookDelivery(webhook_id=webhook, event=name, body=body, created_at=at, next_at=at)


def list_webhook_events(event: AuditEvent) -> list[tuple[str, Data]]:
    data: Data = dict(event.data)
    about: Data = {}
    if event.chat_id:
        about["chat"] = str(event.chat_id)
    if event.turn_id:
        about["turn"] = str(event.turn_id)
        if DIGEST in data and event.type.removeprefix("turn.") in ENDED:
            # A reply with more steps than an event of the ledger lists.
            data[STORED] = [row.listed() for row in list_turn_replies(event.turn_id)]
    return [(name, {**about, **more}) for name, more in _translate_event(event.type, data)]


def build_recorded_data(event: AuditEvent) -> Data:
    """Return the event's data as the ledger hashes and exports it, with both hashes."""
    hashed: Data = json.loads(ledger.format_event_line(event))
    return {**hashed, "previous_hash": event.previous_hash, "hash": event.hash}


def _translate_event(kind: str, data: Data) -> list[tuple[str, Data]]:
    if kind.startswith("policy."):
        return [("policy.changed", {"action": kind.partition(".")[2], **_select_policy_data(data)})]
    means = _OF.get(kind)
    return means(data) if means else []


def _select_policy_data(data: Data) -> Data:
    return {name: data[name] for name in ("policy", "version", "level") if name in data}


def _build_question_events(data: Data) -> list[tuple[str, Data]]:
    """Return the events for the messages that a turn begins with; none for a stored question."""
    question = data.get("message")
    ids = _list_new_messages(data)
    if DIGEST in data and question is not None:
        # More messages than an event of the ledger lists. Without new messages, there is no digest.
        ids = [question]
    return [
        ("message.added", {"message": pk, "role": "user"} if pk == question else {"message": pk})
        for pk in ids
    ]


def _build_end_events(status: str, data: Data) -> list[tuple[str, Data]]:
    finished: Data = {"status": status}
    finished |= {name: data[name] for name in ("finish", "code", "usage") if data.get(name)}
    reply = data.get("reply")
    ids = _list_new_messages(data)
    if reply is not None:
        ids = [*(pk for pk in ids if pk != reply), reply]
        finished["message"] = reply
    added = [("message.added", {"message": pk, "role": "assistant"}) for pk in ids]
    return [*added, ("turn.finished", finished)]


def _build_absorbed_events(data: Data) -> list[tuple[str, Data]]:
    """Return the end of a turn whose message another turn answers."""
    return [("turn.finished", {"status": "absorbed", "absorbed_by": data["by"]})]


def _build_message_events(data: Data) -> list[tuple[str, Data]]:
    return [("message.added", {"message": data["message"]})]


def _build_item_events(data: Data) -> list[tuple[str, Data]]:
    return [("message.added", {"message": pk}) for pk in _list_new_messages(data)]


def _list_new_messages(data: Data) -> list[str]:
    """Return the ids of the stored messages that an event lists, except completed earlier ones."""
    return [row[0] for row in data.get("stored", ()) if len(row) == NEW]


def add_roles(events: list[tuple[str, Data]]) -> list[tuple[str, Data]]:
    """Return the events, with the roles of the added messages that have none."""
    unknown = [data["message"] for name, data in events if is_without_role(name, data)]
    if not unknown:
        return events
    rows = Message.objects.filter(pk__in=unknown).values_list("pk", "role")
    roles = {str(pk): role for pk, role in rows}
    return [
        (name, {**data, "role": roles.get(data["message"], "")})
        if is_without_role(name, data)
        else (name, data)
        for name, data in events
    ]


def is_without_role(name: str, data: Data) -> bool:
    """Return True for an added message whose role the event of the ledger does not contain."""
    return name == "message.added" and "role" not in data


def _build_compaction_events(data: Data) -> list[tuple[str, Data]]:
    fields = ("compaction", "from_seq", "to_seq", "sources", "tokens_before", "tokens_after")
    return [("compaction.published", {name: data[name] for name in fields})]


def _task(data: Data) -> list[tuple[str, Data]]:
    return [("task.changed", {"bytes": data["bytes"]})]


def _consent(data: Data) -> list[tuple[str, Data]]:
    fields = ("call", "server", "tool")
    return [("tool.consent_asked", {name: data[name] for name in fields})]


_OF: Mapping[str, Callable[[Data], list[tuple[str, Data]]]] = {
    "turn.started": _build_question_events,
    "turn.completed": partial(_build_end_events, "completed"),
    "turn.stopped": partial(_build_end_events, "stopped"),
    "turn.failed": partial(_build_end_events, "failed"),
    "team.message_added": _build_message_events,
    "gateway.items_added": _build_item_events,
    "turn.absorbed": _build_absorbed_events,
    "compaction.published": _build_compaction_events,
    "compaction.redone": _build_compaction_events,
    "team.task_changed": _task,
    "tool.consent_asked": _consent,
}


def can_receive_event(owner: User, event: str) -> bool:
    """Return True if the user is active and has the permission that the event needs, if any."""
    needed = NEEDED.get(event)
    return owner.is_active and (needed is None or owner.has_perm(needed))


def list_due_deliveries(*, now: datetime) -> Any:
    """Return the deliveries that may be sent now."""
    rested = Q(webhook__rests_until=None) | Q(webhook__rests_until__lte=now)
    rows = WebhookDelivery.objects.filter(status=WebhookDelivery.Status.WAITING, next_at__lte=now)
    return rows.filter(rested, webhook__off=Webhook.Off.ON, webhook__owner__is_active=True)


def enqueue_due(*, now: datetime) -> int:
    """Enqueue delivery tasks for retries and lost tasks. Return the count."""
    lanes = (
        list_due_deliveries(now=now)
        .order_by()
        .values_list("webhook__is_slow", flat=True)
        .distinct()
    )
    found = [LANES[is_slow] for is_slow in lanes]
    for lane in found:
        queue.enqueue(queue.DELIVER, lane=lane)
    return len(found)
