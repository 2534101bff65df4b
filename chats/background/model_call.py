"""Background model calls, cancelled on timeout or when the result has no more use."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from django.conf import settings

from chats.ground import cancelling
from chats.models import Message
from chats.providers import registry
from chats.providers.base import ProviderError, ProviderRequest, Timeouts
from chats.providers.collector import ReplyCollector
from chats.providers.registry import ProviderAccountValue as Account
from chats.turns.writes import StepResult

# How often to check for cancellation, in seconds.
LOOK_EVERY = 0.1


async def run_background_call(
    request: ProviderRequest,
    *,
    account: Account,
    seconds: float,
    is_wanted: Callable[[], Awaitable[bool]],
) -> tuple[ReplyCollector, StepResult]:
    """Make the call and return the reply with its ending.

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
