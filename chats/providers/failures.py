"""Maps providers' error responses to our codes. The raw response is not exposed."""

import json
import math
import re
from collections.abc import Collection, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from django.utils.translation import gettext_noop

from chats.providers.base import ErrorCode, ProviderError
from chats.providers.overflow import find_overflow

QUOTA_SENTENCE = gettext_noop(
    "The quota or credit at the model provider is used up. An operator needs to check the "
    "provider’s account."
)
_REDIRECT = gettext_noop(
    "The provider’s address redirects to another address, and redirects are not followed. An "
    "operator needs to enter the final address."
)
# Also the answer of a firewall to the text of one request, so the key itself may work.
_FORBIDDEN = gettext_noop(
    "The model provider denied access. An operator needs to check the model’s name, and the "
    "permissions and limits of the provider’s API key."
)
_BY_STATUS: dict[int, ErrorCode] = {
    401: "provider_auth",
    407: "provider_auth",
    408: "provider_timeout",
    409: "provider_error",
    425: "provider_unavailable",
    429: "provider_rate_limited",
}
_BY_TYPE: dict[str, ErrorCode] = {
    "server_error": "provider_unavailable",
    "internal_server_error": "provider_unavailable",
    "api_error": "provider_unavailable",
    "overloaded_error": "provider_unavailable",
    "service_unavailable": "provider_unavailable",
    "rate_limit_error": "provider_rate_limited",
    "rate_limit_exceeded": "provider_rate_limited",
    "invalid_request_error": "provider_rejected",
    "timeout": "provider_timeout",
    "timeout_error": "provider_timeout",
}
# Codes for a key that no request can use, among them Google's reasons. Any other code of a 403 is
# about this request, its model or a limit.
_KEY_CODES = frozenset(
    {
        "authentication_error",
        "invalid_api_key",
        "invalid_authentication",
        "invalid_authentication_error",
        "unauthenticated",
        "api_key_invalid",
        "api_key_expired",
        "api_key_service_blocked",
        "api_key_http_referrer_blocked",
        "api_key_ip_address_blocked",
        "account_state_invalid",
    }
)
# The beginning of a message with status 400 about the key, from servers without a code for it: xAI,
# Google's older form. A message never begins with the text of a request.
_KEY_WORDS = re.compile(
    r"(?:incorrect|invalid) api[ _-]key\b|api[ _-]key (?:not valid|expired|is invalid)\b",
    re.IGNORECASE,
)
_DENIED_CODES = frozenset({"403", "permission_denied", "permission_error"})
# Errors for a request with tools to a model without tool support: Ollama, llama.cpp (two releases),
# vLLM, OpenRouter, Groq.
_NO_TOOLS = re.compile(
    r"does not support (?:tool|function call)|unsupported param: tools|tools param requires"
    r"|tool choice requires|support tool use|tool calling`? is not supported",
    re.IGNORECASE,
)
# Codes for a prompt or reply blocked by the server's filter: OpenAI and Azure, Alibaba (two),
# Zhipu.
_FILTER_CODES = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "datainspectionfailed",
        "1301",
    }
)
# Anthropic has no code for either case.
_FILTER_WORDS = re.compile(r"blocked by content filtering policy", re.IGNORECASE)
_QUOTA_WORDS = re.compile(r"credit balance is too low", re.IGNORECASE)
# OpenAI's code for any text that is too long, and the fields with which it is about the prompt.
_TOO_LONG = "string_above_max_length"
_PROMPT_FIELD = re.compile(r"\b(?:content|text|input|prompt|arguments|output)\b")
# The error codes of MiniMax's own form, without that for quotas. Others are temporary errors.
_MINIMAX_QUOTA = 1008
_BY_MINIMAX: dict[int, ErrorCode] = {
    1001: "provider_timeout",
    1002: "provider_rate_limited",
    1004: "provider_auth",
    1026: "content_filtered",
    1027: "content_filtered",
    1039: "provider_rate_limited",
    1041: "provider_rate_limited",
    2013: "provider_rejected",
    2049: "provider_auth",
}
_QUOTA_CODES = frozenset({"insufficient_quota", "insufficient_balance", "billing_not_active"})


def parse_response_failure(*, status: int, headers: Mapping[str, str], body: str) -> ProviderError:
    """Return the error of a response that is not 2xx.

    `headers` is accessed by lower-case names.
    """
    error = _error_object(_parse_json(body))
    codes = _codes(error)
    overflow = find_overflow(status=status, codes=codes, body=body)
    if overflow is not None:
        return ProviderError(
            "context_overflow", status=status, limit=overflow.limit, actual=overflow.actual
        )
    if status in {400, 404, 422, 500, 501} and _NO_TOOLS.search(body):
        return ProviderError("tools_unsupported", status=status)
    if _is_filtered(error, codes) or _FILTER_WORDS.search(body):
        return ProviderError("content_filtered", status=status)
    if status == 402 or _QUOTA_CODES & set(codes) or _QUOTA_WORDS.search(body):
        return ProviderError("provider_rejected", status=status, sentence=QUOTA_SENTENCE)
    if 300 <= status < 400:
        return ProviderError("provider_rejected", status=status, sentence=_REDIRECT)
    if status == 403 and not _KEY_CODES & set(codes):
        return ProviderError("provider_rejected", status=status, sentence=_FORBIDDEN)
    wait = _retry_after(headers)
    is_key = status < 500 and bool(_KEY_CODES & set(codes))
    is_key |= status == 400 and _KEY_WORDS.match(_message(error)) is not None
    return ProviderError(
        "provider_auth" if is_key else _code_of_status(status),
        status=status,
        retry_after=_stated_delay(error) if wait is None else wait,
    )


def is_validation_failure(failure: ProviderError) -> bool:
    """Return True if a server refused an option of the request, or may have."""
    return failure.code == "provider_rejected" and failure.status in {400, 422}


def parse_stream_failure(chunk: Mapping[str, Any]) -> ProviderError:
    error = _error_object(chunk)
    codes = _codes(error)
    overflow = find_overflow(status=None, codes=codes, body=json.dumps(chunk))
    if overflow is not None:
        return ProviderError("context_overflow", limit=overflow.limit, actual=overflow.actual)
    if _is_filtered(error, codes) or _FILTER_WORDS.search(str(error.get("message"))):
        return ProviderError("content_filtered")
    if _QUOTA_CODES & set(codes):
        return ProviderError("provider_rejected", sentence=QUOTA_SENTENCE)
    return _find_coded_failure(codes) or ProviderError("provider_error")


def parse_minimax_failure(status: int) -> ProviderError:
    """Return the error of a status code in `base_resp`."""
    if status == _MINIMAX_QUOTA:
        return ProviderError("provider_rejected", sentence=QUOTA_SENTENCE)
    return ProviderError(_BY_MINIMAX.get(status, "provider_error"))


def _find_coded_failure(codes: Collection[str]) -> ProviderError | None:
    """Return the error of the first known code in a stream. A code about the key comes first."""
    if _KEY_CODES & set(codes):
        return ProviderError("provider_auth")
    if _DENIED_CODES & set(codes):
        return ProviderError("provider_rejected", sentence=_FORBIDDEN)
    for code in codes:
        if code in _BY_TYPE:
            return ProviderError(_BY_TYPE[code])
        if code.isdecimal() and 400 <= int(code) < 600:
            return ProviderError(_code_of_status(int(code)), status=int(code))
    return None


def _code_of_status(status: int) -> ErrorCode:
    if status >= 500:
        return "provider_unavailable"
    return _BY_STATUS.get(status, "provider_rejected")


def _parse_json(body: str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error_object(answer: object) -> Mapping[str, Any]:
    """Return the error object in a response.

    It is under `error`, at the top level, or first in a list (Gemini).
    """
    if isinstance(answer, list):
        answer = answer[0] if answer else None
    if not isinstance(answer, dict):
        return {}
    error = answer.get("error")
    return error if isinstance(error, dict) else answer


def _is_filtered(error: Mapping[str, Any], codes: Collection[str]) -> bool:
    """Return True if a content filter caused the error. OpenRouter marks that in a plain 403."""
    metadata = error.get("metadata")
    is_flagged = isinstance(metadata, dict) and "flagged_input" in metadata
    return is_flagged or bool(_FILTER_CODES & set(codes))


def _codes(error: Mapping[str, Any]) -> list[str]:
    """Return the error's own codes, the most specific first. Google's reason is in the details.

    Leaves out the code for text that is too long if that text is not part of the prompt: a shorter
    prompt would not help.
    """
    details = error.get("details")
    reasons = [
        detail["reason"].lower()
        for detail in (details if isinstance(details, list) else ())
        if isinstance(detail, dict) and isinstance(detail.get("reason"), str)
    ]
    codes = [str(error[key]).lower() for key in ("code", "type", "status") if error.get(key)]
    codes = [*reasons, *codes]
    field = str(error.get("param") or "")
    if not field or _PROMPT_FIELD.search(field):
        return codes
    return [code for code in codes if code != _TOO_LONG]


def _message(error: Mapping[str, Any]) -> str:
    """Return the message of an error. xAI sends it as a string in place of the error object."""
    found = error.get("message") or error.get("error") or ""
    return found.strip() if isinstance(found, str) else ""


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the number of seconds that the provider asks to wait, or None.

    It is given in milliseconds (Azure, OpenAI), in seconds or as a date. A date is compared with
    the response's Date header, so no clock is needed.
    """
    if millis := headers.get("retry-after-ms"):
        seconds = _number(millis)
        return None if seconds is None else seconds / 1000
    text = headers.get("retry-after", "")
    seconds = _number(text)
    if seconds is not None or not text:
        return seconds
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return max(0.0, wait.total_seconds())


def _stated_delay(error: Mapping[str, Any]) -> float | None:
    """Return the number of seconds to wait that Google states in its errors, or None."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return _number(delay[:-1])
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
