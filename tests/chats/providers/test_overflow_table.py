"""Row F13 and invariants 49 and 50: context overflow errors, one per provider."""

import json

import pytest

from chats.providers.failures import parse_response_failure, parse_stream_failure
from chats.providers.overflow import PATTERNS

# Provider, status, error or whole body, token limit, tokens sent.
OVERFLOWS: list[tuple[str, int, object, int | None, int | None]] = [
    (
        "openai",
        400,
        {
            "message": "This model's maximum context length is 128000 tokens. However, your "
            "messages resulted in 150321 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        },
        128000,
        150321,
    ),
    (
        "openai, newer",
        400,
        {
            "message": "Your input exceeds the context window of this model. Please adjust your "
            "input and try again.",
            "code": "context_length_exceeded",
        },
        None,
        None,
    ),
    (
        "openai, tokens per minute",
        429,
        {
            "message": "Request too large for gpt-4o in organization org-x on tokens per min "
            "(TPM): Limit 30000, Requested 61337. The input or output tokens must be reduced in "
            "order to run successfully.",
            "type": "tokens",
            "code": "rate_limit_exceeded",
        },
        30000,
        61337,
    ),
    (
        "azure",
        400,
        {
            "message": "This model's maximum context length is 16385 tokens. However, you "
            "requested 17012 tokens (12916 in the messages, 4096 in the completion). Please "
            "reduce the length of the messages or completion.",
            "code": "context_length_exceeded",
        },
        16385,
        17012,
    ),
    (
        "anthropic",
        400,
        {
            "type": "invalid_request_error",
            "message": "prompt is too long: 213462 tokens > 200000 maximum",
        },
        200000,
        213462,
    ),
    (
        "anthropic, with the reply",
        400,
        {
            "type": "invalid_request_error",
            "message": "input length and `max_tokens` exceed context limit: 199759 + 8192 > "
            "200000, decrease input length or `max_tokens` and try again",
        },
        200000,
        199759,
    ),
    (
        "anthropic, in bytes",
        413,
        {"type": "request_too_large", "message": "Request exceeds the maximum size"},
        None,
        None,
    ),
    (
        "gemini",
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1196265) exceeds the maximum number of "
                    "tokens allowed (1048575).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        1048575,
        1196265,
    ),
    (
        "vertex",
        400,
        {
            "message": "Unable to submit request because the input token count is 2000000 but "
            "model only supports up to 1048576.",
        },
        1048576,
        2000000,
    ),
    (
        "mistral",
        400,
        {
            "message": "Prompt contains 40135 tokens and 0 draft tokens, too large for model "
            "with 32768 maximum context length",
            "type": "invalid_request_prompt",
        },
        32768,
        40135,
    ),
    ("ollama", 400, {"error": "the input length exceeds the context length"}, None, None),
    (
        "llama.cpp",
        400,
        {
            "code": 400,
            "message": "the request exceeds the available context size. try increasing the "
            "context size or enable context shift",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 14429,
            "n_ctx": 8192,
        },
        8192,
        14429,
    ),
    (
        "llama.cpp, newer",
        400,
        {"message": "request (1407 tokens) exceeds the available context size (256 tokens)"},
        256,
        1407,
    ),
    (
        "llama-cpp-python",
        500,
        {"message": "Requested tokens (2285) exceed context window of 2048"},
        2048,
        2285,
    ),
    (
        "vllm",
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 21535) is longer than the maximum model length "
            "of 16384. Make sure that `max_model_len` is no smaller than the number of tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
        16384,
        21535,
    ),
    (
        "vllm, with the reply",
        400,
        {
            "message": "This model's maximum context length is 16384 tokens. However, you "
            "requested 8192 output tokens and your prompt contains at least 9000 input tokens, "
            "for a total of at least 17192 tokens.",
        },
        16384,
        17192,
    ),
    (
        "lm studio",
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the "
            "context length. Try to load the model with a larger context length."
        },
        None,
        None,
    ),
    (
        "lm studio, trimming",
        400,
        {
            "error": "Trying to keep the first 5121 tokens when context the overflows. However, "
            "the model is loaded with context length of only 4096 tokens, which is not enough."
        },
        4096,
        5121,
    ),
    ("lm studio, old", 400, {"error": "Input length 6491 exceeds context length 1500"}, 1500, 6491),
    (
        "openrouter",
        400,
        {
            "message": "This endpoint's maximum context length is 131072 tokens. However, you "
            "requested about 140000 tokens (139000 of text input, 1000 in the output).",
            "code": 400,
        },
        131072,
        140000,
    ),
    (
        "openrouter, wrapping another",
        502,
        {
            "message": "Provider returned error",
            "code": 502,
            "metadata": {
                "raw": '{"message":"This model\'s maximum context length is 16000 tokens. '
                'However, you requested 17165 tokens"}'
            },
        },
        16000,
        17165,
    ),
    (
        "xai",
        400,
        {
            "error": "This model's maximum prompt length is 131072 but the request contains "
            "537812 tokens."
        },
        131072,
        537812,
    ),
    (
        "groq",
        400,
        {
            "message": "Please reduce the length of the messages or completion.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        },
        None,
        None,
    ),
    (
        "groq, tokens per minute",
        413,
        {
            "message": "Request too large for model `llama-3.3-70b-versatile` in organization "
            "`org_x` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested "
            "14137, please reduce your message size and try again.",
            "type": "tokens",
            "code": "rate_limit_exceeded",
        },
        12000,
        14137,
    ),
    (
        "deepseek",
        400,
        {
            "message": "This model's maximum context length is 65536 tokens. However, you "
            "requested 87731 tokens (87731 in the messages, 0 in the completion). Please reduce "
            "the length of the messages or completion.",
            "type": "invalid_request_error",
            "code": "invalid_request_error",
        },
        65536,
        87731,
    ),
    (
        "together",
        422,
        {
            "message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= "
            "8193. Given: 9012 `inputs` tokens and 512 `max_new_tokens`",
            "type": "invalid_request_error",
        },
        8193,
        9012,
    ),
    ("bedrock", 400, {"message": "Input is too long for requested model."}, None, None),
    (
        "copilot",
        400,
        {"message": "prompt token count of 140000 exceeds the limit of 128000"},
        128000,
        140000,
    ),
    (
        "moonshot",
        400,
        {
            "message": "Invalid request: Your request exceeded model token limit: 131072 "
            "(requested: 140000)"
        },
        131072,
        140000,
    ),
    (
        "minimax",
        400,
        {"message": "invalid params, context window exceeds limit (2013)"},
        None,
        None,
    ),
    ("dashscope", 400, {"message": "Range of input length should be [1, 30720]"}, 30720, None),
    ("any proxy", 413, "<html>413 Request Entity Too Large</html>", None, None),
]

# Status and error of responses that are not overflows.
OTHERS: list[tuple[str, int, object]] = [
    (
        "openai, waiting helps",
        429,
        {
            "message": "Rate limit reached for gpt-4o in organization org-x on tokens per min "
            "(TPM): Limit 30000, Used 29937, Requested 385. Please try again in 644ms.",
            "code": "rate_limit_exceeded",
        },
    ),
    (
        "openai, nearly all at once",
        429,
        {
            "message": "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, "
            "Used 1000, Requested 29900. Please try again in 2s.",
            "code": "rate_limit_exceeded",
        },
    ),
    (
        "azure",
        429,
        {
            "code": "429",
            "message": "Requests to the ChatCompletions_Create Operation have exceeded token "
            "rate limit of your current OpenAI S0 pricing tier. Please retry after 86400 seconds.",
        },
    ),
    ("bedrock", 429, {"message": "Too many tokens, please wait before trying again."}),
    ("openrouter", 429, {"code": 429, "message": "Provider returned error"}),
    ("anthropic", 429, {"type": "rate_limit_error", "message": "Number of tokens too high"}),
    ("reply's own limit", 400, {"code": 400, "message": "Token limit reached"}),
    ("max_tokens", 400, {"message": "max_tokens is too large: 200000", "param": "max_tokens"}),
    ("bad request", 400, {"message": "Invalid value: 'tool'", "type": "invalid_request_error"}),
    ("server", 500, {"message": "The server had an error", "type": "server_error"}),
    ("no answer", 400, ""),
]


def _body(error: object) -> str:
    if isinstance(error, str):
        return error
    is_bare = isinstance(error, list) or "error" in dict(error)  # type: ignore[call-overload] # a table of samples
    return json.dumps(error if is_bare else {"error": error})


@pytest.mark.parametrize(
    ("status", "error", "limit", "actual"),
    [row[1:] for row in OVERFLOWS],
    ids=[row[0] for row in OVERFLOWS],
)
def test_f13_overflow_is_known_and_its_numbers_are_read(
    status: int, error: object, limit: int | None, actual: int | None
) -> None:
    failure = parse_response_failure(status=status, headers={}, body=_body(error))
    assert failure.code == "context_overflow"
    assert (failure.limit, failure.actual) == (limit, actual)
    assert not failure.retryable


@pytest.mark.parametrize(
    "error",
    [row[2] for row in OVERFLOWS if isinstance(row[2], dict) and row[1] != 413],
    ids=[row[0] for row in OVERFLOWS if isinstance(row[2], dict) and row[1] != 413],
)
def test_f13_overflow_within_a_stream_is_known(error: dict[str, object]) -> None:
    chunk = error if "error" in error else {"error": error}
    assert parse_stream_failure(chunk).code == "context_overflow"


@pytest.mark.parametrize(
    ("status", "error"), [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS]
)
def test_inv50_other_errors_are_no_overflow(status: int, error: object) -> None:
    failure = parse_response_failure(status=status, headers={}, body=_body(error))
    assert failure.code != "context_overflow"


def test_every_sentence_of_the_table_has_an_example() -> None:
    bodies = [_body(row[2]) for row in OVERFLOWS]
    unused = [
        (provider, pattern.pattern)
        for provider, pattern in PATTERNS
        if not any(pattern.search(body) for body in bodies)
    ]
    assert unused == []


def test_numbers_with_separators_are_read() -> None:
    failure = parse_response_failure(
        status=400, headers={}, body="prompt is too long: 213,462 tokens > 200,000 maximum"
    )
    assert (failure.limit, failure.actual) == (200_000, 213_462)
