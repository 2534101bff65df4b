"""Asks a server for embeddings: a request goes on as it came, and so does what comes back.

By the guarded client and not by the package, which would cost the web process 30 MB.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from django.conf import settings

from chats.providers.address import AddressRefused, check_base_url
from chats.providers.base import ProviderError, Timeouts
from chats.providers.failures import failure_of_response
from chats.providers.registry import ProviderAccountValue
from chats.providers.transport import ask, guarded_client
from contextpolicy.engine.costs import is_count

# 2,048 embeddings of 1,536 numbers as texts of JSON are about half of it.
MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Embedded:
    """The embeddings in the provider's form, and the tokens that it counted; None: it did not."""

    data: list[Any]
    tokens: int | None


async def embed(
    account: ProviderAccountValue, body: Mapping[str, Any], *, timeouts: Timeouts
) -> Embedded:
    """Return the embeddings that a request asks for, one for each of its inputs in their order.

    Raises ProviderError.
    """
    headers = {"Content-Type": "application/json"}
    if account.api_key:
        headers["Authorization"] = f"Bearer {account.api_key}"
    allowed = settings.ALLOWED_PRIVATE_PROVIDERS
    try:
        url = check_base_url(account.base_url, allowed_private=allowed).url
        async with (
            asyncio.timeout(timeouts.total),
            guarded_client(allowed_private=allowed, connect_seconds=timeouts.connect) as client,
        ):
            status, told, answer = await ask(
                client,
                f"{url}/embeddings",
                body=json.dumps(body).encode(),
                headers=headers,
                most=MOST_BYTES,
            )
    except TimeoutError:
        raise ProviderError("provider_timeout") from None
    except AddressRefused:
        raise ProviderError("provider_unavailable", retryable=False) from None
    if not 200 <= status < 300:
        shown = answer.decode(errors="replace")
        raise failure_of_response(status=status, headers=told, body=shown)
    # Much JSON takes a second, in which nobody else would be served.
    return await asyncio.to_thread(read, answer, wanted=inputs_in(body["input"]))


def inputs_in(said: Any) -> int:
    """Return how many inputs a request has: a text or its tokens are one, a list has several."""
    return len(said) if isinstance(said, list) and not isinstance(said[0], int) else 1


def read(answer: bytes, *, wanted: int) -> Embedded:
    """Read what a server sent. Raises ProviderError unless it has an embedding for each input."""
    try:
        # NaN and infinity are no JSON, and no vector.
        found = json.loads(answer, parse_constant=_refuse)
        data, usage = found["data"], found.get("usage")
        is_whole = len(data) == wanted and all(entry.get("embedding") for entry in data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ProviderError("provider_protocol") from None
    if not is_whole:
        raise ProviderError("provider_protocol")
    counted = usage if isinstance(usage, dict) else {}
    tokens = counted.get("prompt_tokens", counted.get("total_tokens"))
    return Embedded(data, tokens if is_count(tokens) else None)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
