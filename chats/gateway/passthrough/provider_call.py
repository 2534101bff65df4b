"""Provider calls from the web process, for requests without a turn.

Their text is not stored. The response head is sent with the first bytes, as in `relay`, so an
earlier failure gets its own HTTP status. If the client disconnects, the provider call ends.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.http import HttpRequest
from django.utils import timezone

from chats.gateway.held_response import HeldResponse, WaitingHead, build_held_response
from chats.gateway.watch import call_database
from chats.gateway.wire import TurnFailed
from chats.ground.refusals import Refusal
from chats.models import ApiKey, PassedOn
from chats.prompt import model_choice
from chats.prompt.tokenizer import O200kCounter
from chats.providers.base import ProviderError, Timeouts
from chats.providers.collector import ReplyCollector
from chats.providers.registry import ProviderAccountValue
from chats.record import passthrough_requests, quotas
from chats.record.passthrough_requests import Ended
from chats.turns import breaker
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.costs import parse_reported_usage
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import ModelSpec

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class DirectCall:
    """A running provider call: its database row, model and account."""

    row: PassedOn
    model: ModelSpec
    account: ProviderAccountValue
    meter: quotas.QuotaMeter | None = None
    usage: dict[str, int] = field(default_factory=dict)
    # The reply so far. None for calls that have no text.
    reply: ReplyCollector | None = None
    is_over: bool = False

    async def end(self, outcome: str, *, error_code: str = "") -> None:
        """Store the outcome once and record it in the ledger, before the last bytes are sent.

        If the database is unavailable, the reply is still sent, and a due job ends the call later.
        """
        if not self.is_over:
            self.is_over = True
            reported = self.reply.usage if self.reply else {}
            ended = Ended(outcome, {**self.usage, **reported}, error_code)
            try:
                await call_database(partial(store_end, self, ended))
            except (OperationalError, InterfaceError) as error:
                logger.warning("the end of a call was not stored: %s", type(error).__name__)

    async def fail(self, error: ProviderError | Refusal) -> Refusal:
        """Store a failure, and return the refusal for the client."""
        await self.end("failed", error_code=error.code)
        if isinstance(error, Refusal):
            return error
        return TurnFailed(code=error.code, reason=error.sentence, wait=error.retry_after)


Texts = Callable[[DirectCall, WaitingHead], AsyncGenerator[str, None]]


def begin_direct_call(
    *, key: ApiKey, model: ModelSpec, meter: quotas.QuotaMeter | None, kind: str, why: str
) -> DirectCall:
    """Store the start of a pass-through call. `meter`: see `build_call_meter`.

    Raises `ModelUnavailable`, `SecretUnreadable`, `TooManyPassthroughRequests` and
    `quotas.QuotaExceeded`.
    """
    to_embed = kind == PassedOn.Kind.EMBEDDINGS
    account = model_choice.get_model_account(model, to_embed=to_embed)
    row = passthrough_requests.start_passthrough(
        key=key, model=model, kind=kind, why=why, now=timezone.now(), meter=meter
    )
    return DirectCall(row, model, account, meter)


def build_call_meter(
    key: ApiKey,
    *,
    model: ModelSpec,
    values: PolicyValues,
    count: Callable[[TokenCounter], int],
) -> quotas.QuotaMeter | None:
    """Return the meter that counts a call towards the quotas of the key's owner.

    None if the policy with `values` has no quotas. Otherwise `count` is called for the local tokens
    of the prompt.
    """
    meter = quotas.build_quota_meter(owner_id=key.owner_id, values=values, prices=model.prices)
    return None if meter is None else replace(meter, estimate=count(O200kCounter()))


def store_end(call: DirectCall, ended: Ended) -> None:
    """Store the end of a call. If the provider rejected the API key, pause its account."""
    now = timezone.now()
    received = 0
    if call.meter and call.reply and parse_reported_usage(ended.usage) is None:
        received = O200kCounter().count(f"{call.reply.text}{call.reply.reasoning}")
    with transaction.atomic():
        passthrough_requests.finish_passthrough(
            call.row, ended, now=now, meter=call.meter, received=received
        )
        breaker.trip_breaker(model=call.model, code=ended.error_code, now=now)


def build_direct_response(
    request: HttpRequest,
    call: DirectCall,
    texts: Texts,
    *,
    is_stream: bool,
    headers: Mapping[str, str],
) -> HeldResponse:
    """Return a response with the body from `texts`. Closing it early ends the call."""
    return build_held_response(
        request, partial(stream_direct_call, call, texts), is_stream=is_stream, headers=headers
    )


async def stream_direct_call(
    call: DirectCall, texts: Texts, held: WaitingHead
) -> AsyncIterator[bytes]:
    """Yield the body. If the client disconnects early, the call is stored as stopped."""
    try:
        # Closing it early also ends the provider call.
        async with aclosing(texts(call, held)) as said:
            async for text in said:
                yield text.encode()
    finally:
        await call.end("stopped")


def build_provider_timeouts() -> Timeouts:
    return Timeouts(**settings.PROVIDER_TIMEOUTS)
