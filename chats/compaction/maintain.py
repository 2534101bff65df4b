"""After each turn: fold what the policy says, and swap the summary in when it is due.

Plan → claim → summarise → judge → keep → publish. No transaction is open while a model writes, and
no reply waits for any of it.
"""

import logging
import uuid
from datetime import datetime

from django.db.models import F

from chats.compaction import plan, publish
from chats.compaction.perform import perform
from chats.compaction.plan import Claimed
from chats.memory import archive
from chats.models import Branch, Chat, Compaction
from chats.providers.base import ProviderError
from chats.refusals import Refusal
from contextpolicy.engine.budget import compact_mark, prompt_limit
from contextpolicy.engine.tokens import TokenCounter

logger = logging.getLogger(__name__)


def maintain(*, chat_id: uuid.UUID, counter: TokenCounter, now: datetime) -> None:
    """Prepare one summary if one is due; delivered twice, the second finds the place taken.

    What is archived already becomes searchable.
    """
    for branch in Branch.objects.select_related("active_compaction").filter(
        chat_id=chat_id, chat__active_branch=F("pk"), active_compaction__isnull=False
    ):
        archive.index(branch)
    claimed = plan.claim(chat_id=chat_id, counter=counter, now=now)
    if claimed is None:
        return
    try:
        prepare(claimed, counter=counter, now=now)
    except publish.ClaimLost:
        logger.info("compaction %s was released meanwhile", claimed.row.pk)


def prepare(claimed: Claimed, *, counter: TokenCounter, now: datetime) -> None:
    """Perform a claimed compaction, keep its result, and publish it when it is due already."""
    try:
        performed = perform(claimed, counter=counter)
    except (ProviderError, Refusal) as error:
        publish.fail(claimed=claimed, reason=error.code, now=now)
        return
    except Exception:
        logger.exception("compaction %s failed unexpectedly", claimed.row.pk)
        publish.fail(claimed=claimed, reason="internal_error", now=now)
        return
    if publish.store(claimed=claimed, performed=performed, now=now) and is_due(claimed):
        publish.publish_prepared(branch_id=claimed.row.branch_id, now=now)


def is_due(claimed: Claimed) -> bool:
    """Whether the summary goes in force at once rather than at the high mark.

    At once: after the turn trigger, over the high mark, or when a window already hides messages.
    """
    if claimed.plan.trigger == "turns":
        return True
    chat = Chat.objects.select_related("model", "active_branch__active_compaction").get(
        branches=claimed.row.branch_id
    )
    active = chat.active_branch.active_compaction if chat.active_branch else None
    if active is not None and active.kind == Compaction.Kind.WINDOW:
        return True
    window = chat.model.window if chat.model else None
    limit = prompt_limit(claimed.values, model_window=window)
    return claimed.plan.tokens_before >= compact_mark(claimed.values, prompt_limit=limit)
