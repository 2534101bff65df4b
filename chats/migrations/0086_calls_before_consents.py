"""Commit to the model calls of attempts that ended because a tool call waited for consent.

These attempts had no entry in the ledger, so the verification reported their chats as broken. Only
turns with a `tool.consent_asked` entry are changed, and only calls that no entry names.

Runs in a transaction for each chat. Repeated after a failure it continues with the chats that are
left. Backwards nothing is done: rows of the ledger stay.
"""

import hashlib
import json
from datetime import UTC
from itertools import groupby

from django.db import migrations, transaction
from django.db.models import F
from django.utils import timezone


def commit_to_calls(apps, schema_editor):
    alias = schema_editor.connection.alias
    Event = apps.get_model("contextpolicy", "AuditEvent")
    asked = Event.objects.using(alias).filter(type="tool.consent_asked").exclude(turn_id=None)
    pairs = asked.order_by().values_list("chat_id", "turn_id").distinct()
    ordered = sorted(pair for pair in pairs if pair[0])
    for chat_id, group in groupby(ordered, key=lambda pair: pair[0]):
        with transaction.atomic(using=alias):
            commit_in_chain(apps, alias, chat_id=chat_id, turn_ids=[pair[1] for pair in group])


def commit_in_chain(apps, alias, *, chat_id, turn_ids):
    Event = apps.get_model("contextpolicy", "AuditEvent")
    Head = apps.get_model("contextpolicy", "LedgerHead")
    Turn = apps.get_model("chats", "Turn")
    Receipt = apps.get_model("chats", "Receipt")
    scope = f"chat:{chat_id}"
    head = Head.objects.using(alias).select_for_update().filter(scope=scope).first()
    if head is None:
        # A chat without a chain is broken in another way; nothing may be added that hides it.
        return
    for turn in Turn.objects.using(alias).filter(pk__in=turn_ids, branch__chat=chat_id):
        known = set()
        for data in Event.objects.using(alias).filter(scope=scope, turn_id=turn.pk).values_list(
            "data", flat=True
        ):
            known |= {call[0] for call in data.get("calls", ())}
        # In one statement, because a worker can begin an attempt at any time.
        rows = (
            Receipt.objects.using(alias)
            .filter(turn=turn)
            .exclude(commitment="")
            .exclude(turn__status="running", attempt=F("turn__attempt"))
        )
        left = [
            (attempt, [str(pk), commitment])
            for attempt, pk, commitment in rows.order_by("attempt", "step", "call").values_list(
                "attempt", "pk", "commitment"
            )
            if str(pk) not in known
        ]
        for attempt, calls in groupby(left, key=lambda pair: pair[0]):
            data = {"attempt": attempt, "calls": [call for _, call in calls]}
            append(Event, alias, head=head, chat_id=chat_id, turn_id=turn.pk, data=data)


def append(Event, alias, *, head, chat_id, turn_id, data):
    now = timezone.now()
    content = {
        "scope": head.scope,
        "seq": head.count + 1,
        "type": "turn.waiting",
        "at": now.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": "system",
        "chat_id": str(chat_id),
        "turn_id": str(turn_id),
        "data": data,
    }
    line = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    row = Event(
        scope=head.scope,
        seq=head.count + 1,
        type="turn.waiting",
        at=now,
        actor="system",
        chat_id=chat_id,
        turn_id=turn_id,
        data=data,
        previous_hash=head.last_hash,
        hash=hashlib.sha256((head.last_hash + line).encode()).hexdigest(),
    )
    row.save(force_insert=True, using=alias)
    head.count, head.last_hash = row.seq, row.hash
    head.save(update_fields=["count", "last_hash"], using=alias)


def nothing(apps, schema_editor):
    """The rows stay: nothing is ever taken out of the ledger."""


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("chats", "0085_undated_messages"),
        ("contextpolicy", "0037_reword_labels_of_models"),
    ]

    operations = [migrations.RunPython(commit_to_calls, nothing)]
