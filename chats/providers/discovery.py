"""Finding model servers on this host, and asking a server what it offers.

Used by operators' pages and at first start, so it brings its own small client instead of the
openai package. Answers are bounded and redirects are not followed.
"""

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import httpx2

from chats.providers.address import AddressRefused, check_base_url
from chats.providers.base import ProviderError
from chats.providers.failures import failure_of_response
from chats.providers.transport import (
    AnswerRefused,
    GuardedTransport,
    Resolver,
    resolve_host,
)

# The ports on which these servers listen unless told otherwise.
LOCAL_PORTS: Mapping[int, str] = {
    11434: "Ollama",
    1234: "LM Studio",
    8080: "llama.cpp",
    8000: "vLLM",
}
MAX_LIST = 4 << 20
MAX_MODELS = 1000


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A model server on this host and the models it offers."""

    name: str
    base_url: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectionCheck:
    """What a test call came to: `code` "ok" or an error's, the HTTP status, words; no answer."""

    code: str
    status: int | None
    sentence: str


async def find_local_servers(
    *, ports: Mapping[int, str] = LOCAL_PORTS, timeout: float = 0.4
) -> list[FoundServer]:
    """The servers that answer on 127.0.0.1 within `timeout` seconds, in the order of `ports`.

    Never raises: a port that is closed or answers anything else is no server.
    """
    found = await asyncio.gather(*(_look_at(port, name, timeout) for port, name in ports.items()))
    return [server for server in found if server is not None]


async def list_models(
    base_url: str,
    api_key: str,
    *,
    allowed_private: Collection[str],
    timeout: float = 5.0,
    resolve: Resolver = resolve_host,
) -> tuple[str, ...]:
    """The names of the models a server offers, at most 1,000.

    Raises AddressRefused and ProviderError. `timeout` in seconds covers the whole call.
    """
    url = check_base_url(base_url, allowed_private=allowed_private).url
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    transport = GuardedTransport(allowed_private=allowed_private, resolve=resolve)
    try:
        async with (
            asyncio.timeout(timeout),
            httpx2.AsyncClient(transport=transport, trust_env=False, timeout=timeout) as client,
            client.stream("GET", f"{url}/models", headers=headers) as response,
        ):
            body = await _body(response)
    except (TimeoutError, httpx2.TimeoutException):
        raise ProviderError("provider_timeout") from None
    except AnswerRefused:
        raise ProviderError("provider_protocol") from None
    except httpx2.TransportError:
        raise ProviderError("provider_unavailable") from None
    if not response.is_success:
        raise failure_of_response(
            status=response.status_code,
            headers=response.headers,
            body=body.decode(errors="replace"),
        )
    return _names(body)


async def check_connection(
    base_url: str,
    api_key: str,
    *,
    allowed_private: Collection[str],
    timeout: float = 5.0,
    resolve: Resolver = resolve_host,
) -> ConnectionCheck:
    """Whether a server answers to this address and key; never raises, never shows its answer."""
    try:
        models = await list_models(
            base_url, api_key, allowed_private=allowed_private, timeout=timeout, resolve=resolve
        )
    except AddressRefused as refusal:
        return ConnectionCheck(refusal.code, None, refusal.sentence)
    except ProviderError as error:
        return ConnectionCheck(error.code, error.status, error.sentence)
    count = len(models)
    return ConnectionCheck("ok", 200, f"The server answers and offers {count} models.")


async def _look_at(port: int, name: str, timeout: float) -> FoundServer | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    try:
        models = await list_models(
            base_url, "", allowed_private={f"127.0.0.1:{port}"}, timeout=timeout
        )
    except ProviderError:
        return None
    return FoundServer(name=name, base_url=base_url, models=models)


async def _body(response: httpx2.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_LIST:
            raise ProviderError("provider_protocol")
    return body


def _names(body: bytes) -> tuple[str, ...]:
    try:
        data = json.loads(body)["data"]
        names = [model["id"] for model in data]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ProviderError("provider_protocol") from None
    if not all(isinstance(name, str) for name in names):
        raise ProviderError("provider_protocol")
    return tuple(names[:MAX_MODELS])
