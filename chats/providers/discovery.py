"""Finds model servers on this host, and loads a server's model list.

Used by operators' pages and at first start, in processes that never import a vendor's package. Uses
the HTTP client on which those packages are built.
"""

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from chats.providers.address import check_base_url
from chats.providers.base import ProviderError
from chats.providers.failures import parse_response_failure
from chats.providers.kinds import ANTHROPIC_VERSION, strip_api_version
from chats.providers.transport import Resolver, build_guarded_client, resolve_host

# Default ports of these servers.
LOCAL_PORTS: Mapping[int, str] = {
    11434: "Ollama",
    1234: "LM Studio",
    8080: "llama.cpp",
    8000: "vLLM",
}
MAX_LIST = 4 << 20
MAX_MODELS = 1000
# Names under which servers state a model's window: vLLM; OpenRouter and others; Groq; Mistral and
# LM Studio; Anthropic. llama.cpp has it in `meta`, for the window it was started with.
WINDOW_NAMES = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
)
LARGEST_WINDOW = 100_000_000


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A model server found on this host: its base URL and the names of its models."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(
    *, ports: Mapping[int, str] = LOCAL_PORTS, timeout: float = 0.4
) -> list[FoundServer]:
    """Find the servers that answer on 127.0.0.1 within `timeout` seconds, in the order of `ports`.

    Never raises: closed ports and unexpected responses are ignored.
    """
    found = await asyncio.gather(*(_look_at(port, name, timeout) for port, name in ports.items()))
    return [server for server in found if server is not None]


async def list_models(
    base_url: str,
    api_key: str,
    *,
    allowed_private: Collection[str],
    kind: str = "openai",
    timeout: float = 5.0,
    resolve: Resolver = resolve_host,
) -> dict[str, int | None]:
    """Return a server's model names, at most 1,000, each with its context window if reported.

    Raises AddressRefused and ProviderError. `timeout` covers the whole call, in seconds.
    """
    url = f"{check_base_url(base_url, allowed_private=allowed_private).url}/models"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    if kind == "anthropic":
        # Ask for more models: the default page size is 20.
        url = f"{strip_api_version(url.removesuffix('/models'))}/v1/models?limit={MAX_MODELS}"
        headers["anthropic-version"] = ANTHROPIC_VERSION
    try:
        async with (
            asyncio.timeout(timeout),
            build_guarded_client(
                allowed_private=allowed_private, connect_seconds=timeout, resolve=resolve
            ) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            body = await _body(response)
    except TimeoutError:
        raise ProviderError("provider_timeout") from None
    if not response.is_success:
        raise parse_response_failure(
            status=response.status_code,
            headers=response.headers,
            body=body.decode(errors="replace"),
        )
    return _models(body)


async def _look_at(port: int, name: str, timeout: float) -> FoundServer | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    try:
        models = await list_models(
            base_url, "", allowed_private={f"127.0.0.1:{port}"}, timeout=timeout
        )
    except ProviderError:
        return None
    return FoundServer(name=name, base_url=base_url, models=tuple(models))


async def _body(response: httpx2.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_LIST:
            raise ProviderError("provider_protocol")
    return body


def _models(body: bytes) -> dict[str, int | None]:
    try:
        answer = json.loads(body)
        # Together and GitHub Models answer with the list itself.
        # Ollama without models sends null.
        rows = answer if answer and isinstance(answer, list) else answer["data"] or []
        named = [row for row in rows[:MAX_MODELS] if _has_name(row)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ProviderError("provider_protocol") from None
    if rows and not named:
        raise ProviderError("provider_protocol")
    return {row["id"]: find_stated_window(row) for row in named}


def _has_name(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), str) and bool(row["id"])


def find_stated_window(row: Mapping[str, Any]) -> int | None:
    """Return the context window that a server reports for a model, in tokens, or None.

    The window with which a model was trained is ignored, because the server may accept less.
    """
    meta = row.get("meta")
    stated = [meta.get("n_ctx")] if isinstance(meta, Mapping) else []
    stated += [row.get(name) for name in WINDOW_NAMES]
    sizes = (size for size in stated if isinstance(size, int) and not isinstance(size, bool))
    return next((size for size in sizes if 0 < size <= LARGEST_WINDOW), None)
