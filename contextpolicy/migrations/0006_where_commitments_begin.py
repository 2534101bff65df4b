"""A row of the ledger that says where its new form begins.

From here on rows hold commitments instead of bare hashes of words, and the rows that end an attempt
commit to its calls. Rows of before stay as they were written and are verified as before. A ledger
that has no row yet begins in the new form and says nothing.
"""

import hashlib
import json
from datetime import UTC

from django.db import migrations
from django.utils import timezone

TYPE, FORM = "ledger.form_changed", {"from": 1, "to": 2}


def say_so(apps, schema_editor):
    Event = apps.get_model("contextpolicy", "AuditEvent")
    Head = apps.get_model("contextpolicy", "LedgerHead")
    if not Event.objects.exists():
        return
    head = Head.objects.select_for_update().filter(scope="instance").first()
    if head is None:
        head = Head.objects.create(scope="instance", count=0, last_hash="0" * 64)
    now = timezone.now()
    content = {
        "scope": "instance",
        "seq": head.count + 1,
        "type": TYPE,
        "at": now.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": "system",
        "chat_id": None,
        "turn_id": None,
        "data": {"form": FORM},
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    row = Event(
        scope="instance",
        seq=head.count + 1,
        type=TYPE,
        at=now,
        actor="system",
        data={"form": FORM},
        previous_hash=head.last_hash,
        hash=hashlib.sha256((head.last_hash + canonical).encode()).hexdigest(),
    )
    row.save(force_insert=True)
    head.count, head.last_hash = row.seq, row.hash
    head.save(update_fields=["count", "last_hash"])


def nothing(apps, schema_editor):
    """The row stays: nothing is ever taken out of the ledger."""


class Migration(migrations.Migration):
    dependencies = [("contextpolicy", "0005_calibration_by_script")]

    operations = [migrations.RunPython(say_so, nothing)]
