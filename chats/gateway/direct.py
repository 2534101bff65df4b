"""Asks providers from here, for requests that no turn replies to: their words are stored nowhere.

The head of a response waits for its first bytes, as in `relay`, so its status is true. A program
that closes the connection ends the call.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.http import HttpRequest
from django.utils import timezone

from chats.gateway.relay import HeldResponse, WaitingHead, held_response, in_database
from chats.gateway.wire import TurnFailed
from chats.ground.refusals import Refusal
from chats.models import ApiKey, PassedOn
from chats.prompt import model_choice
from chats.providers.base import ProviderError, Timeouts
from chats.providers.registry import ProviderAccountValue
from chats.record import passed_on
from chats.record.passed_on import Ended
from chats.turns import breaker
from contextpolicy.models import ModelSpec

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class DirectCall:
    """A call of a provider that is under way: its row, model and account."""

    row: PassedOn
    model: ModelSpec
    account: ProviderAccountValue
    usage: dict[str, int] = field(default_factory=dict)
    is_over: bool = False

    async def end(self, outcome: str, *, error_code: str = "") -> None:
        """Store the end, once, and tell the ledger; before the last bytes are sent.

        If the database is away the reply is sent all the same; the sweep ends the call later.
        """
        if not self.is_over:
            self.is_over = True
            ended = Ended(outcome, self.usage, error_code)
            try:
                await in_database(partial(store_end, self, ended))
            except (OperationalError, InterfaceError) as error:
                logger.warning("the end of a call was not stored: %s", type(error).__name__)

    async def fail(self, error: ProviderError | Refusal) -> Refusal:
        """Store a failure, and return what the program is told of it."""
        await self.end("failed", error_code=error.code)
        if isinstance(error, Refusal):
            return error
        refusal = TurnFailed(code=error.code, reason=error.sentence)
        if error.retry_after is not None and refusal.retry_after is not None:
            refusal.retry_after = max(1, round(error.retry_after))
        return refusal


Texts = Callable[[DirectCall, WaitingHead], AsyncGenerator[str, None]]


def begin(*, key: ApiKey, model: ModelSpec, kind: str, why: str) -> DirectCall:
    """Store that a request goes on to its provider.

    Raises `ModelUnavailable`, `SecretUnreadable` and `TooManyPassedOn`.
    """
    to_embed = kind == PassedOn.Kind.EMBEDDINGS
    account = model_choice.account_for(model, to_embed=to_embed)
    row = passed_on.begin(key=key, model=model, kind=kind, why=why, now=timezone.now())
    return DirectCall(row, model, account)


def store_end(call: DirectCall, ended: Ended) -> None:
    """Store the end of a call; a refused key pauses its account."""
    now = timezone.now()
    with transaction.atomic():
        passed_on.end(call.row, ended, now=now)
        breaker.trip(model=call.model, code=ended.error_code, now=now)


def response(
    request: HttpRequest,
    call: DirectCall,
    texts: Texts,
    *,
    is_stream: bool,
    headers: Mapping[str, str],
) -> HeldResponse:
    """Return the response whose body `texts` yields; it ends the call itself unless it is left."""
    return held_response(
        request, partial(bytes_of, call, texts), is_stream=is_stream, headers=headers
    )


async def bytes_of(call: DirectCall, texts: Texts, held: WaitingHead) -> AsyncIterator[bytes]:
    """Yield the body; the call counts as stopped if the program leaves before its end."""
    try:
        # Left early, it ends the call upstream.
        async with aclosing(texts(call, held)) as said:
            async for text in said:
                yield text.encode()
    finally:
        await call.end("stopped")


def timeouts() -> Timeouts:
    """Return how long providers are waited for."""
    return Timeouts(**settings.PROVIDER_TIMEOUTS)
