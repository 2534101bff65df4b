"""Recognises errors about a reply limit that exceeds the model's own, and lowers the limit.

A policy may reserve more tokens for the reply than a model can write. Most servers then refuse the
request and name the model's limit.
"""

import re
from dataclasses import replace

from chats.providers.base import ProviderRequest

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


def _compile(sentence: str) -> re.Pattern[str]:
    """Compile a sentence in which N is a number, with or without separators."""
    return re.compile(re.sub(r"\bN\b", r"(\\d[\\d,]*)", sentence), re.IGNORECASE | re.DOTALL)


# Each with the number to subtract from the one that it names.
_PATTERNS = (
    *((_compile(sentence), 0) for sentence in _SENTENCES),
    (_compile(_FIRST_TOO_LARGE), 1),
)


def find_output_limit(error: str) -> int | None:
    """Return the largest reply in tokens that a server's error states; None for other errors."""
    for pattern, beyond in _PATTERNS:
        found = pattern.search(error)
        digits = found[1].replace(",", "") if found else ""
        if 0 < len(digits) <= _LONGEST:
            return int(digits) - beyond or None
    return None


def is_limit_exceeded(request: ProviderRequest, limit: int | None) -> bool:
    """Return True if a request asks for more output tokens than a limit; None: no limit."""
    return limit is not None and (request.max_output_tokens or 0) > limit


def limit_output(request: ProviderRequest, limit: int | None) -> ProviderRequest:
    """Return the request with a reply of at most `limit` tokens. None: no limit is known.

    Both requests share the hash of the body that is sent.
    """
    if not is_limit_exceeded(request, limit):
        return request
    return replace(request, max_output_tokens=limit)
