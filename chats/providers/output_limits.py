"""Recognises errors about a reply limit that exceeds the model's own, and lowers the limit.

A policy may reserve more tokens for the reply than a model can write. Most servers then refuse the
request and name the model's limit.

A learned limit applies to all users of the account, and an error can repeat text from a client. So
only the usual limits of models count, and adapters store one only after the server accepted it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from chats.providers.base import ProviderError, ProviderRequest
from chats.providers.failures import is_validation_failure

# The sentences of OpenAI and Azure, Groq and Cohere, DeepSeek and Alibaba, Anthropic, Bedrock, and
# Gemini, which names the first value that is too large.
_SENTENCES = (
    r"max(?:_completion)?_tokens is too large.{0,80}?at most N completion tokens",
    r"max(?:_completion)?_tokens\W+must be (?:less than|lower than) or equal to\W+N",
    r"range of max(?:_completion)?_tokens (?:is|should be) \[\d+, ?N\]",
    r"max_tokens: \d+ > N, which is the maximum allowed number of output tokens",
    r"maximum tokens you requested exceeds the model limit of N",
)
_FIRST_TOO_LARGE = (
    r"maxOutputTokens value of \d+ but the supported range is from 1 \(inclusive\) to N"
)
_LONGEST = 9
# The usual limits of models, ascending. Receipts do not store the limit that a model got, so each
# of them is tried when a request is rebuilt: keep every number that was ever listed.
MODEL_LIMITS = (
    *(1_024, 1_500, 2_000, 2_048, 4_000, 4_095, 4_096, 5_000, 5_120, 6_000, 8_000, 8_191, 8_192),
    *(10_000, 10_240, 16_000, 16_384, 20_000, 24_000, 30_000, 32_000, 32_768, 40_000, 40_960),
    *(64_000, 65_535, 65_536, 80_000, 81_920, 96_000, 98_304, 100_000, 120_000, 128_000, 131_072),
    *(192_000, 196_608, 200_000, 256_000, 262_144, 384_000, 393_216),
)


def _compile(sentence: str) -> re.Pattern[str]:
    """Compile a sentence in which N is a number, with or without separators."""
    return re.compile(re.sub(r"\bN\b", r"(\\d[\\d,]*)", sentence), re.IGNORECASE | re.DOTALL)


# Each with the number to subtract from the one that it names.
_PATTERNS = (
    *((_compile(sentence), 0) for sentence in _SENTENCES),
    (_compile(_FIRST_TOO_LARGE), 1),
)


def find_output_limit(error: str) -> int | None:
    """Return the largest reply in tokens that a server's error states.

    None for other errors, and for a number that is not in `MODEL_LIMITS`.
    """
    for pattern, beyond in _PATTERNS:
        found = pattern.search(error)
        digits = found[1].replace(",", "") if found else ""
        if 0 < len(digits) <= _LONGEST:
            limit = int(digits) - beyond
            return limit if limit in MODEL_LIMITS else None
    return None


def find_lower_limit(failure: ProviderError, body: str, *, sent: ProviderRequest) -> int | None:
    """Return the limit that a refusal states if the request `sent` exceeds it; otherwise None."""
    limit = find_output_limit(body) if is_validation_failure(failure) else None
    return limit if is_limit_exceeded(sent, limit) else None


def list_lower_limits(most: int | None) -> Iterator[int]:
    """Yield the limits below the one that a request asks for, the highest first."""
    return (limit for limit in reversed(MODEL_LIMITS) if limit < (most or 0))


def is_limit_exceeded(request: ProviderRequest, limit: int | None) -> bool:
    """Return True if a request asks for more output tokens than a limit; None: no limit."""
    return limit is not None and (request.max_output_tokens or 0) > limit


def select_lower_limit(*limits: int | None) -> int | None:
    """Return the lowest limit; None: no limit is known."""
    return min((limit for limit in limits if limit is not None), default=None)


def limit_output(request: ProviderRequest, limit: int | None) -> ProviderRequest:
    """Return the request with a reply of at most `limit` tokens. None: no limit is known.

    Both requests share the hash of the body that is sent.
    """
    if not is_limit_exceeded(request, limit):
        return request
    return replace(request, max_output_tokens=limit)
