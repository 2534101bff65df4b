"""Adapter for servers with OpenAI's chat completions API.

Only this module imports OpenAI's package. The package sends the request through the product's HTTP
client; `reading` reads the response.
"""

import asyncio
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream

from chats.providers.base import ProviderError, ProviderRequest, Timeouts
from chats.providers.call_ids import IdForm, find_required_form
from chats.providers.chunks import ReplyReader
from chats.providers.failures import is_validation_failure, parse_response_failure
from chats.providers.learned_options import LearnedHere
from chats.providers.output_limits import find_lower_limit, limit_output, select_lower_limit
from chats.providers.reading import Deadlines, HttpProvider, provider_errors
from chats.providers.refused_fields import HINTS, find_refused_fields
from chats.providers.required_fields import Fill, find_required_fill, list_effective_fills
from chats.providers.transport import Resolver, build_guarded_client, resolve_host
from chats.providers.wire import (
    ORIGINAL,
    build_openai_body,
    has_original_images,
    has_result_images,
)


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The request options that a server accepted or rejected so far."""

    takes_usage_option: bool = True
    limit_name: str = "max_tokens"
    takes_result_images: bool = True
    id_form: IdForm = "stored"
    fills: tuple[Fill, ...] = ()
    # Fields that it does not know.
    without: frozenset[str] = frozenset()
    takes_original_images: bool = True
    # The model's limit of output tokens. None: it refused no request.
    most_output: int | None = None


class OpenAIProvider(HttpProvider):
    """One account on one server. Bound to the event loop of its first use."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        timeouts: Timeouts,
        allowed_private: Collection[str],
        resolve: Resolver = resolve_host,
    ) -> None:
        super().__init__(timeouts)
        self._has_key = bool(api_key)
        # Per model, because one account may serve models of several generations.
        self._dialects: LearnedHere[_Dialect] = LearnedHere()
        self._client = AsyncOpenAI(
            base_url=base_url,
            # The package requires a key. Without one, the header is removed below.
            api_key=api_key or "none",
            max_retries=0,
            http_client=build_guarded_client(
                allowed_private=allowed_private, connect_seconds=timeouts.connect, resolve=resolve
            ),
        )

    async def aclose(self) -> None:
        await self._client.close()

    def _reader(self) -> ReplyReader:
        return ReplyReader()

    async def _open(self, request: ProviderRequest, deadlines: Deadlines) -> httpx2.Response:
        """Send the request. If the server rejects an option, adapt the request and retry.

        Stores an adaptation only if the retry succeeded: an error can repeat text from a client,
        and later requests are from other users.
        """
        stored = _Dialect(**request.known)
        known = _merge_dialects(stored, self._dialects.get(request.model) or stored)
        dialect = known
        while True:
            try:
                with provider_errors():
                    async with asyncio.timeout_at(deadlines.opening()):
                        response = await self._send(request, dialect)
            except openai.APIStatusError as error:
                body = error.response.text
                request.sent.sha256 = error.response.extensions["sent"]
                failure = parse_response_failure(
                    status=error.status_code, headers=error.response.headers, body=body
                )
                better = _adapt_dialect(dialect, failure, body, request=request)
                # A server that names another limit each time must not cause endless requests.
                lowers_again = known.most_output != dialect.most_output != better.most_output
                if better == dialect or lowers_again:
                    raise failure from None
                dialect = better
            else:
                if dialect != known:
                    self._dialects.put(request.model, dialect)
                # Earlier calls may have learned options that no turn stored. Other fields are not
                # stored, see `learned_options`.
                storable = replace(dialect, without=dialect.without & HINTS)
                if storable != stored:
                    request.sent.learned = asdict(storable)
                return response

    async def _send(self, request: ProviderRequest, dialect: _Dialect) -> httpx2.Response:
        """Send the request and return the response with its body unread.

        Uses the package's plain `post`: its typed method inspects all possible arguments, which
        doubles the time.
        """
        body = _build_body(request, dialect)
        headers = {} if self._has_key else {"Authorization": openai.Omit()}
        # Streamed even for a whole reply, so that its length is limited as it arrives.
        stream = await self._client.post(
            "/chat/completions",
            body=body,
            options={"headers": headers},
            cast_to=object,
            stream=True,
            stream_cls=AsyncStream[object],
        )
        return stream.response


def _merge_dialects(stored: _Dialect, learned: _Dialect) -> _Dialect:
    """Return a dialect with the changed options of both. If both changed one, `learned` wins."""
    usual = _Dialect()
    changed = {
        name: value for name, value in asdict(learned).items() if value != getattr(usual, name)
    }
    return replace(
        stored,
        **{
            **changed,
            "fills": tuple(dict.fromkeys((*stored.fills, *learned.fills))),
            "without": stored.without | learned.without,
            "most_output": select_lower_limit(stored.most_output, learned.most_output),
        },
    )


def _build_body(request: ProviderRequest, dialect: _Dialect) -> dict[str, Any]:
    return build_openai_body(
        limit_output(request, dialect.most_output),
        limit_name=dialect.limit_name,
        takes_usage_option=dialect.takes_usage_option,
        takes_result_images=dialect.takes_result_images,
        id_form=dialect.id_form,
        fills=dialect.fills,
        without=dialect.without,
        takes_original_images=dialect.takes_original_images,
    )


def _adapt_dialect(
    dialect: _Dialect, failure: ProviderError, body: str, *, request: ProviderRequest
) -> _Dialect:
    """Return the dialect without the option that the error names, or unchanged.

    Errors about images in tool results vary widely, so any rejection counts as one.
    """
    is_refused = is_validation_failure(failure)
    # First: the error can repeat the value of such a field, which may contain any other error.
    if is_refused and (found := find_refused_fields(body, body=_build_body(request, dialect))):
        return replace(dialect, without=dialect.without | found)
    # Servers report the errors of chat templates with any status.
    form = find_required_form(body, form=dialect.id_form, messages=request.messages)
    if form is not None:
        return replace(dialect, id_form=form)
    fill = find_required_fill(body, fills=dialect.fills)
    if fill is not None:
        sent = build_openai_body(request, takes_result_images=dialect.takes_result_images)
        has_effect = fill in list_effective_fills(sent["messages"])
        return replace(dialect, fills=(*dialect.fills, fill)) if has_effect else dialect
    limit = find_lower_limit(failure, body, sent=limit_output(request, dialect.most_output))
    if limit is not None:
        return replace(dialect, most_output=limit)
    return _drop_option(dialect, body, request) if is_refused else dialect


def _drop_option(dialect: _Dialect, body: str, request: ProviderRequest) -> _Dialect:
    """Return the dialect without the option that a rejection names, or unchanged."""
    if ORIGINAL in body and has_original_images(_build_body(request, dialect)):
        return replace(dialect, takes_original_images=False)
    if "stream_options" in body:
        return replace(dialect, takes_usage_option=False)
    if "max_completion_tokens" in body:
        return replace(dialect, limit_name="max_completion_tokens")
    if dialect.takes_result_images and has_result_images(build_openai_body(request)):
        return replace(dialect, takes_result_images=False)
    return dialect
