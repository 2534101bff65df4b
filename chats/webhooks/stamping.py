"""Requests an RFC 3161 timestamp of the newest checkpoint, outside transactions.

It runs as a separate background job, so that signing never waits for it. Failures are retried.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from datetime import datetime

from asgiref.sync import async_to_sync
from django.conf import settings

from chats.checkpoints import timestamps as checkpoint_timestamps
from chats.ground import databases
from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError
from chats.providers.transport import build_guarded_client, fetch_response
from contextpolicy.audit import timestamps

SECONDS = 20.0
MOST_BYTES = 64 * 1024
HEADERS = {
    "Content-Type": "application/timestamp-query",
    "Accept": "application/timestamp-reply",
}


def request_due_timestamp(*, clock: Callable[[], datetime]) -> None:
    """Request a timestamp of the newest checkpoint, if one is due."""
    row = checkpoint_timestamps.claim_timestamp(now=clock())
    if row is None:
        return
    digest = hashlib.sha256(row.checkpoint.note.encode()).digest()
    nonce = secrets.randbits(63)
    databases.give_back()
    response, problem = async_to_sync(call_timestamp_authority)(
        timestamps.build_timestamp_request(digest, nonce=nonce)
    )
    problem = problem or timestamps.find_response_fault(response, digest=digest, nonce=nonce)
    checkpoint_timestamps.store_timestamp_response(
        row, response=response, problem=problem, now=clock()
    )


async def call_timestamp_authority(request: bytes) -> tuple[bytes, str]:
    """Return the authority's response and an empty code, or the code of the problem."""
    try:
        async with (
            asyncio.timeout(SECONDS),
            build_guarded_client(
                # The operator configures this address, so it may be in a private network.
                allowed_private=[settings.LEDGER_TSA_HOST],
                connect_seconds=SECONDS,
            ) as client,
        ):
            status, _, body = await fetch_response(
                client, settings.LEDGER_TSA_URL, body=request, headers=HEADERS, most=MOST_BYTES
            )
    except AddressRefused:
        return b"", "address_refused"
    except TimeoutError:
        return b"", "timeout"
    except ProviderError:
        return b"", "no_connection"
    return (body, "") if status == 200 else (b"", "refused")
