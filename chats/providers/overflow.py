"""Recognises provider errors that mean "the prompt is too long for this model".

Providers share no status, code or message, so this is a table. A plain rate limit is not an
overflow, because waiting resolves it. A per-minute token limit below the size of a single request
is an overflow; the numbers show the difference. Ideas from the overflow table of pi-mono
(packages/ai/src/utils/overflow.ts).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "request_too_large",
        "string_above_max_length",
    }
)
_PER_MINUTE = re.compile(
    r"per min(?:ute)?\b.{0,20}?Limit:? (?P<limit>[\d,]+).*?Requested:? (?P<actual>[\d,]+)",
    re.IGNORECASE | re.DOTALL,
)
# The providers' sentences, with the groups `limit` and `actual` for token numbers.
_SENTENCES = (
    (
        "openai azure vllm deepseek openrouter deepinfra",
        r"maximum context length is (?P<limit>N) tokens"
        r"(?:.*?(?:resulted in|requested(?: about)?|request has|a total of at least)"
        r" (?P<actual>N) (?:input )?tokens)?",
    ),
    ("openai", r"exceeds the context window of this model"),
    ("anthropic", r"prompt is too long(?:: (?P<actual>N) tokens > (?P<limit>N) maximum)?"),
    ("anthropic", r"exceed context limit: (?P<actual>N) \+ N > (?P<limit>N)"),
    (
        "gemini",
        r"input token count(?: \((?P<actual>N)\))? exceeds the maximum number of tokens allowed"
        r"(?: \((?P<limit>N)\))?",
    ),
    ("vertex", r"input token count is (?P<actual>N) but model only supports up to (?P<limit>N)"),
    (
        "mistral",
        r"Prompt contains (?P<actual>N) tokens.*?too large for model with (?P<limit>N) maximum",
    ),
    ("llama.cpp", r"n_prompt_tokens\W+(?P<actual>N)\W+n_ctx\W+(?P<limit>N)"),
    (
        "llama.cpp",
        r"request (?:\((?P<actual>N) tokens\) )?exceeds the available context size"
        r"(?: \((?P<limit>N) tokens\))?",
    ),
    (
        "llama-cpp-python",
        r"Requested tokens \((?P<actual>N)\) exceed context window of (?P<limit>N)",
    ),
    ("ollama", r"input (?:length )?exceeds (?:the )?context length"),
    ("lm studio", r"input length (?P<actual>N) exceeds context length (?P<limit>N)"),
    ("lm studio", r"tokens to keep from the initial prompt is greater than the context length"),
    (
        "lm studio",
        r"keep the first (?P<actual>N) tokens when context the overflows"
        r".*?context length of only (?P<limit>N)",
    ),
    (
        "vllm",
        r"prompt \((?:total )?length (?P<actual>N)\) is longer than the maximum model length of "
        r"(?P<limit>N)",
    ),
    (
        "xai",
        r"maximum prompt length is (?P<limit>N)(?: but the request contains (?P<actual>N))?",
    ),
    ("groq", r"reduce the length of the messages or completion"),
    (
        "together",
        r"`inputs` tokens \+ `max_new_tokens` must be <= (?P<limit>N)"
        r"(?:.*?Given: (?P<actual>N))?",
    ),
    ("bedrock", r"input is too long for (?:the )?requested model"),
    ("copilot", r"prompt token count of (?P<actual>N) exceeds the limit of (?P<limit>N)"),
    ("moonshot", r"exceeded model token limit: (?P<limit>N)(?: \(requested: (?P<actual>N)\))?"),
    ("minimax", r"context window exceeds limit"),
    ("dashscope", r"Range of input length should be \[1, (?P<limit>N)\]"),
)
LONGEST_NUMBER = 10
# N is a number of tokens, with or without separators.
PATTERNS = tuple(
    (provider, re.compile(re.sub(r"\bN\b", r"\\d[\\d,]*", sentence), re.IGNORECASE | re.DOTALL))
    for provider, sentence in _SENTENCES
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """The tokens in an overflow error: the model's limit, and the size of the request."""

    limit: int | None = None
    actual: int | None = None


def find_overflow(*, status: int | None, codes: Collection[str], body: str) -> Overflow | None:
    """Return the overflow described by an error, or None for any other error.

    `codes` are the error's own codes (code, type) in lower case. `body` is the raw response, so
    that messages wrapped by routers are found too. `status` is None for an error within a stream.
    """
    if named := _PER_MINUTE.search(body):
        found = _numbers(named)
        return found if (found.actual or 0) > (found.limit or 0) else None
    for _, pattern in PATTERNS:
        if named := pattern.search(body):
            return _numbers(named)
    if status == 413 or not _CODES.isdisjoint(codes):
        return Overflow()
    return None


def _numbers(match: re.Match[str]) -> Overflow:
    named = match.groupdict()
    return Overflow(limit=_tokens(named.get("limit")), actual=_tokens(named.get("actual")))


def _tokens(text: str | None) -> int | None:
    digits = (text or "").replace(",", "")
    # A longer number is not a token count, and could not be stored.
    return int(digits) if 0 < len(digits) < LONGEST_NUMBER else None
