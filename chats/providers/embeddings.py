"""Requests embeddings from a server. Request and response are passed through unchanged.

Uses the guarded client, because the vendor's package would cost the web process 30 MB.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from chats.providers.address import AddressRefused, check_base_url
from chats.providers.base import ProviderError, Timeouts
from chats.providers.failures import parse_response_failure
from chats.providers.registry import ProviderAccountValue
from chats.providers.transport import build_guarded_client, fetch_response
from contextpolicy.engine.policy.costs import is_count
from contextpolicy.engine.strict_json import load_strict_json

# Twice the size of 2,048 embeddings of 1,536 numbers as JSON text.
MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Embedded:
    """The embeddings in the provider's format, and its token count; None: not reported."""

    data: list[Any]
    tokens: int | None


async def request_embeddings(
    account: ProviderAccountValue, body: Mapping[str, Any], *, timeouts: Timeouts
) -> Embedded:
    """Return the embeddings for a request, one per input, in the provider's order.

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
            build_guarded_client(
                allowed_private=allowed, connect_seconds=timeouts.connect
            ) as client,
        ):
            status, told, answer = await fetch_response(
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
        raise parse_response_failure(status=status, headers=told, body=shown)
    # Parsing much JSON takes a second, which would block the event loop.
    return await asyncio.to_thread(parse_embeddings, answer, wanted=count_inputs(body["input"]))


def count_inputs(said: Any) -> int:
    """Return the number of inputs in a request.

    A string, or a list of tokens, is one input. Any other list has one input per entry.
    """
    return len(said) if isinstance(said, list) and not isinstance(said[0], int) else 1


def parse_embeddings(answer: bytes, *, wanted: int) -> Embedded:
    """Parse a response. Raises ProviderError unless it has an embedding for each input."""
    try:
        # NaN and infinity are neither JSON nor valid in a vector.
        found = load_strict_json(answer)
        data, usage = found["data"], found.get("usage")
        is_whole = len(data) == wanted and all(entry.get("embedding") for entry in data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ProviderError("provider_protocol") from None
    if not is_whole:
        raise ProviderError("provider_protocol")
    counted = usage if isinstance(usage, dict) else {}
    tokens = counted.get("prompt_tokens", counted.get("total_tokens"))
    return Embedded(data, tokens if is_count(tokens) else None)
