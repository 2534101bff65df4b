"""Commitments instead of bare hashes, and no hash at all of what was erased before.

In batches of a transaction each; begun again, it goes on where it ended. The rows of the ledger
cannot be changed: those of before keep the hashes that they have.

Backwards the hashes of summaries come back, since their texts are there. What compared repeated
requests, and what an erasure should have taken, does not.
"""

import hashlib
import hmac
import secrets
from datetime import timedelta

from django.db import migrations
from django.utils import timezone

BATCH = 500


def committed(text, salt):
    raw = text.encode("utf-8", "surrogatepass")
    return hmac.new(bytes.fromhex(salt), raw, hashlib.sha256).hexdigest()


def batches(rows):
    """The rows in batches by key; each is read when the one before was written."""
    last = None
    while True:
        page = rows.order_by("pk") if last is None else rows.order_by("pk").filter(pk__gt=last)
        batch = list(page[:BATCH])
        if not batch:
            return
        yield batch
        last = batch[-1].pk


def salt_summaries(apps, schema_editor):
    Compaction = apps.get_model("chats", "Compaction")
    rows = Compaction.objects.filter(salt="", erased_at=None).only("text", "salt", "kind")
    for batch in batches(rows):
        for row in batch:
            row.salt = secrets.token_hex(32)
            row.text_commitment = committed(row.text, row.salt) if row.text else ""
        Compaction.objects.bulk_update(batch, ["salt", "text_commitment"])


def hash_summaries(apps, schema_editor):
    Compaction = apps.get_model("chats", "Compaction")
    for batch in batches(Compaction.objects.exclude(text="").only("text", "text_sha256")):
        for row in batch:
            raw = row.text.encode("utf-8", "surrogatepass")
            row.text_sha256 = hashlib.sha256(raw).hexdigest()
        Compaction.objects.bulk_update(batch, ["text_sha256"])


def salt_requests(apps, schema_editor):
    Record = apps.get_model("chats", "IdempotencyRecord")
    Message = apps.get_model("chats", "Message")
    Record.objects.filter(created_at__lt=timezone.now() - timedelta(hours=24)).delete()
    for batch in batches(Record.objects.filter(salt="").exclude(body_sha256="")):
        ids = [row.result["message"] for row in batch if "message" in row.result]
        there = Message.objects.filter(pk__in=ids, erased_at=None).values_list("pk", flat=True)
        known = {str(pk) for pk in there}
        for row in batch:
            if row.result.get("message") in known or "message" not in row.result:
                row.salt = secrets.token_hex(32)
                row.body_commitment = committed(row.body_sha256, row.salt)
            row.body_sha256 = ""
        Record.objects.bulk_update(batch, ["salt", "body_commitment", "body_sha256"])


def forget_requests(apps, schema_editor):
    apps.get_model("chats", "IdempotencyRecord").objects.all().delete()


def clear_erased(apps, schema_editor):
    """What erasures of before left: hashes of messages, and of prompts that had them."""
    Message = apps.get_model("chats", "Message")
    PromptText = apps.get_model("chats", "PromptText")
    erased = Message.objects.filter(erased_at__isnull=False).select_related("branch")
    gone = set(
        PromptText.objects.filter(erased_at__isnull=False).values_list("digest", flat=True)
    )
    for batch in batches(erased.only("branch__chat", "erased_at")):
        for chat in {row.branch.chat_id for row in batch}:
            mine = {str(row.pk): row.erased_at for row in batch if row.branch.chat_id == chat}
            clear_receipts(apps, chat=chat, messages=mine, digests=gone)
        Message.objects.filter(pk__in=[row.pk for row in batch]).update(metadata={})
    PromptText.objects.filter(erased_at__isnull=False).delete()
    Compaction = apps.get_model("chats", "Compaction")
    Compaction.objects.filter(erased_at__isnull=False).update(
        text_sha256="", prompt_sha256="", text_commitment="", salt=""
    )


def clear_receipts(apps, *, chat, messages, digests):
    Receipt = apps.get_model("chats", "Receipt")
    newest = max(messages.values())
    rows = Receipt.objects.filter(turn__branch__chat=chat).only("segments")
    for batch in batches(rows):
        touched = []
        for row in batch:
            since = [messages[part[1]] for part in row.segments if part[1] in messages]
            named = any(part[5] in digests for part in row.segments)
            if since or named:
                row.segments = [
                    [*part[:5], "", *part[6:]] if part[5] in digests else part
                    for part in row.segments
                ]
                row.prompt_sha256, row.erased_at = "", min(since, default=newest)
                touched.append(row)
        Receipt.objects.bulk_update(touched, ["segments", "prompt_sha256", "erased_at"])


def nothing(apps, schema_editor):
    pass


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("chats", "0013_chat_list_pages")]

    operations = [
        migrations.RunPython(clear_erased, nothing),
        migrations.RunPython(salt_summaries, hash_summaries),
        migrations.RunPython(salt_requests, forget_requests),
    ]
