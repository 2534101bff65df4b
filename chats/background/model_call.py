"""Background model calls, cancelled on timeout or when the result is no longer needed."""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import DatabaseError

from chats.compaction import plan
from chats.files.file_models import may_get_chat
from chats.ground import cancelling, databases
from chats.ground.refusals import Refusal
from chats.models import Chat, Message, Receipt
from chats.prompt import model_choice
from chats.prompt.model_choice import ChosenModel
from chats.providers import registry
from chats.providers.base import ProviderError, ProviderRequest, Timeouts
from chats.providers.collector import ReplyCollector
from chats.providers.registry import ProviderAccountValue as Account
from chats.record import quotas
from chats.turns.step_results import StepResult
from contextpolicy.models import ModelSpec

logger = logging.getLogger(__name__)
# Seconds between checks for cancellation.
LOOK_EVERY = 0.1


def choose_background_model(chat: Chat) -> tuple[ChosenModel, ModelSpec, Account] | None:
    """Return the summary model of a chat's policy with its account.

    None if the policy has no usable summary model.
    """
    try:
        choice = model_choice.choose_chat_model(chat=chat)
        model = plan.find_summariser(choice.values)
        if model and not may_get_chat(model.slug, chat_id=chat.pk, values=choice.values):
            return None
        account = model_choice.get_model_account(model) if model else None
    except Refusal:
        return None
    if model is None or account is None or account.kind == "demo":
        return None
    return choice, model, account


def ask_background_model(
    request: ProviderRequest,
    *,
    account: Account,
    seconds: float,
    is_wanted: Callable[[], bool],
    what: str,
) -> tuple[str, StepResult]:
    """Make the call outside any transaction. Return the text of a complete reply, and its result.

    The text of an incomplete reply is empty. The call is polled with `is_wanted`, and cancelled as
    soon as that returns False. `what` describes the call in the log. Unexpected errors become the
    ending `internal_error`. Raises Django's DatabaseError, because then nothing can be written.
    """
    databases.give_back()
    try:
        reply, ending = async_to_sync(run_background_call)(
            request,
            account=account,
            seconds=seconds,
            is_wanted=sync_to_async(databases.close_connections_after(is_wanted)),
        )
    except DatabaseError:
        raise
    except Exception:
        logger.exception("%s failed unexpectedly", what)
        return "", StepResult(error_code="internal_error")
    is_whole = not reply.error and reply.reason == Message.Finish.STOP and not reply.asked
    return (str(reply.text) if is_whole else ""), ending


def close_lost_calls(receipts: Collection[uuid.UUID | None], *, now: datetime) -> int:
    """Mark the open calls of dead workers as lost. Return the count."""
    made = [pk for pk in receipts if pk is not None]
    return quotas.close_lost_receipts(Receipt.objects.filter(pk__in=made), now=now)


async def run_background_call(
    request: ProviderRequest,
    *,
    account: Account,
    seconds: float,
    is_wanted: Callable[[], Awaitable[bool]],
) -> tuple[ReplyCollector, StepResult]:
    """Make the call and return the collected reply with its result.

    The call is cancelled as soon as `is_wanted` returns False. Unexpected errors of the adapter
    propagate.
    """
    provider = registry.get_provider(account, timeouts=Timeouts(**settings.PROVIDER_TIMEOUTS))
    reply = ReplyCollector()
    hearing = asyncio.create_task(reply.hear_all(provider, request))
    give_up = time.monotonic() + seconds
    is_given_up = False
    try:
        while not (await asyncio.wait({hearing}, timeout=LOOK_EVERY))[0]:
            if time.monotonic() > give_up:
                reply.error = ProviderError("provider_timeout")
                break
            if is_given_up := not await is_wanted():
                break
    finally:
        await cancelling.cancel_tasks(hearing)
        await registry.aclose_all()
    if not hearing.cancelled() and (error := hearing.exception()):
        raise error
    return reply, StepResult(
        usage=reply.usage,
        body_sha256=reply.body_sha256,
        finish=Message.Finish.STOPPED if is_given_up else Message.Finish.STOP,
        error_code=reply.error.code if reply.error and not is_given_up else "",
    )
