"""Webhooks report when a summary takes effect, also when an undone one is restored."""

import json
from datetime import datetime

from django.contrib.auth.models import User

from chats.compaction.people import undo
from chats.models import Chat
from chats.webhooks import managing
from tests.fakes.receiver import Receiver
from tests.support.chat_summaries import Fold, add_minutes


def test_an_undone_summary_that_is_restored_takes_effect(
    alice: User,
    long_chat: Chat,
    fold: Fold,
    receiver: Receiver,
    now: datetime,
) -> None:
    webhook, _ = managing.create_webhook(
        owner=alice, url=receiver.url, events=["compaction.published"], now=now
    )
    row = fold(long_chat)
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now, 1))
    undo.redo_summary(user=alice, compaction=row, now=add_minutes(now, 2))
    told = [json.loads(each.body)["data"] for each in webhook.deliveries.order_by("pk")]
    assert [each["compaction"] for each in told] == [str(row.pk)] * 2
    assert told[0] == told[1]
