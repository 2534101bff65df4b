"""Name in the ledger each receipt and summary that is marked as erased and that no row names.

From here on verification accepts a mark only if a row of its own chain names it. Earlier erasures
named no receipts, and wrote nothing into the chains of other chats whose prompts had the words.
`erased` is "message" where the chain has a certificate of an erased message, otherwise "unnamed":
`ledger_verify` lists those.

Runs in a transaction for each chat. Repeated after a failure it continues with the chats that are
left. Backwards nothing is done: rows of the ledger stay.
"""

import hashlib
import json
from datetime import UTC

from django.db import migrations, transaction
from django.utils import timezone

TYPES = ("message.erased", "receipt.erased")
MOST = 500


def name_marks(apps, schema_editor):
    Receipt = apps.get_model("chats", "Receipt")
    Compaction = apps.get_model("chats", "Compaction")
    alias = schema_editor.connection.alias
    receipts = Receipt.objects.using(alias).exclude(erased_at=None)
    summaries = Compaction.objects.using(alias).exclude(erased_at=None)
    chats = {
        *receipts.values_list("turn__branch__chat", flat=True),
        *summaries.values_list("branch__chat", flat=True),
    }
    for chat_id in sorted(chats):
        with transaction.atomic(using=alias):
            marked = {
                "receipts": receipts.filter(turn__branch__chat=chat_id),
                "summaries": summaries.filter(branch__chat=chat_id),
            }
            name_in_chain(apps, alias, chat_id=chat_id, marked=marked)


def name_in_chain(apps, alias, *, chat_id, marked):
    Event = apps.get_model("contextpolicy", "AuditEvent")
    Head = apps.get_model("contextpolicy", "LedgerHead")
    scope = f"chat:{chat_id}"
    head = Head.objects.using(alias).select_for_update().filter(scope=scope).first()
    if head is None:
        # A chat without a chain is broken in another way; nothing may be added that hides it.
        return
    rows = Event.objects.using(alias).filter(scope=scope, type__in=TYPES)
    known, is_certified = set(), False
    for kind, data in rows.values_list("type", "data"):
        known |= {*data.get("receipts", ()), *data.get("summaries", ())}
        is_certified |= kind == "message.erased"
    for name, found in marked.items():
        ids = sorted(str(pk) for pk in found.values_list("pk", flat=True))
        left = [pk for pk in ids if pk not in known]
        for start in range(0, len(left), MOST):
            data = {
                "erased": "message" if is_certified else "unnamed",
                "source": None,
                name: left[start : start + MOST],
            }
            append(Event, alias, head=head, chat_id=chat_id, data=data)


def append(Event, alias, *, head, chat_id, data):
    now = timezone.now()
    content = {
        "scope": head.scope,
        "seq": head.count + 1,
        "type": "receipt.erased",
        "at": now.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": "system",
        "chat_id": str(chat_id),
        "turn_id": None,
        "data": data,
    }
    line = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    row = Event(
        scope=head.scope,
        seq=head.count + 1,
        type="receipt.erased",
        at=now,
        actor="system",
        chat_id=chat_id,
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
        ("chats", "0045_calls_of_summaries"),
        ("contextpolicy", "0020_timestamps_of_checkpoints"),
    ]

    operations = [migrations.RunPython(name_marks, nothing)]
