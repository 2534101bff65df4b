"""Mapping of error responses to error codes and retry delays."""

import json

import pytest

from chats.providers.base import ErrorCode, ProviderError
from chats.providers.failures import parse_response_failure, parse_stream_failure


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (302, "provider_rejected", False),
        (400, "provider_rejected", False),
        (401, "provider_auth", False),
        (403, "provider_rejected", False),
        (404, "provider_rejected", False),
        (408, "provider_timeout", True),
        (409, "provider_error", True),
        (422, "provider_rejected", False),
        (429, "provider_rate_limited", True),
        (500, "provider_unavailable", True),
        (529, "provider_unavailable", True),
    ],
)
@pytest.mark.parametrize("body", ["", "<html>", "[]", "null", '{"error":"x"}', "[" * 100_000])
def test_status_decides_when_the_body_says_nothing(
    status: int, code: ErrorCode, retryable: bool, body: str
) -> None:
    failure = parse_response_failure(status=status, headers={}, body=body)
    assert (failure.code, failure.status, failure.retryable) == (code, status, retryable)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(400, "stablelm2:latest does not support tools", id="ollama"),
        pytest.param(
            400,
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser',
            id="vllm",
        ),
        pytest.param(500, "Unsupported param: tools", id="llama.cpp, older"),
        pytest.param(500, "tools param requires --jinja flag", id="llama.cpp"),
        pytest.param(404, "No endpoints found that support tool use.", id="openrouter"),
        pytest.param(400, "`tool calling` is not supported with this model", id="groq"),
    ],
)
def test_a_model_that_takes_no_tools_is_told_from_other_refusals(status: int, message: str) -> None:
    body = json.dumps({"error": {"message": message, "type": "api_error"}})
    failure = parse_response_failure(status=status, headers={}, body=body)
    assert (failure.code, failure.retryable) == ("tools_unsupported", False)


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        pytest.param(403, {"code": "model_not_found"}, "provider_rejected", id="openai"),
        pytest.param(
            403, {"code": "model_permission_blocked_project"}, "provider_rejected", id="groq"
        ),
        pytest.param(
            403, {"code": 403, "message": "Key limit exceeded"}, "provider_rejected", id="router"
        ),
        pytest.param(403, {"type": "permission_error"}, "provider_rejected", id="anthropic"),
        pytest.param(403, {"code": "invalid_api_key"}, "provider_auth", id="key"),
        pytest.param(403, {"type": "authentication_error"}, "provider_auth", id="key by type"),
        pytest.param(400, {"code": "invalid_api_key"}, "provider_auth", id="key in 400"),
        pytest.param(503, {"code": "invalid_api_key"}, "provider_unavailable", id="unavailable"),
    ],
)
def test_only_a_code_about_the_key_makes_a_403_a_refused_key(
    status: int, error: dict[str, object], code: str
) -> None:
    failure = parse_response_failure(status=status, headers={}, body=json.dumps({"error": error}))
    assert (failure.code, failure.status, failure.retryable) == (
        code,
        status,
        code == "provider_unavailable",
    )


def build_google_error(reason: str, message: str = "Denied.") -> dict[str, object]:
    """Return an error as Google sends it, with the reason in its details."""
    kind = "type.googleapis.com/google.rpc.ErrorInfo"
    details = [{"@type": kind, "reason": reason, "domain": "googleapis.com"}]
    status = "INVALID_ARGUMENT"
    return {"error": {"code": 400, "message": message, "status": status, "details": details}}


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (400, build_google_error("API_KEY_INVALID"), "provider_auth"),
        (400, [build_google_error("API_KEY_INVALID")], "provider_auth"),
        (403, build_google_error("API_KEY_SERVICE_BLOCKED"), "provider_auth"),
        (403, build_google_error("API_KEY_IP_ADDRESS_BLOCKED"), "provider_auth"),
        (403, build_google_error("SERVICE_DISABLED"), "provider_rejected"),
        (400, build_google_error("FIELD_INVALID"), "provider_rejected"),
        (503, build_google_error("API_KEY_INVALID"), "provider_unavailable"),
        # xAI.
        (400, {"code": "Client specified an invalid argument",
               "error": "Incorrect API key provided: xa***en."}, "provider_auth"),
        (400, {"error": {"message": "API key not valid. Please pass one."}}, "provider_auth"),
        (400, {"error": {"message": "API key expired. Please renew it."}}, "provider_auth"),
        (400, {"error": {"message": "Bad value: invalid API key"}}, "provider_rejected"),
        (400, {"error": {"message": "The text “API key not valid” is long"}}, "provider_rejected"),
        (422, {"error": {"message": "API key not valid."}}, "provider_rejected"),
        (400, {"error": {"details": [{"reason": 5}, "x"], "message": 7}}, "provider_rejected"),
    ],
)  # fmt: skip
def test_a_400_that_rejects_the_key_is_a_refused_key(
    status: int, answer: object, code: str
) -> None:
    failure = parse_response_failure(status=status, headers={}, body=json.dumps(answer))
    assert failure.code == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "server_error"}, "provider_unavailable"),
        ({"type": "overloaded_error"}, "provider_unavailable"),
        ({"code": 401, "message": "x"}, "provider_auth"),
        ({"code": 403, "message": "Key limit exceeded"}, "provider_rejected"),
        ({"code": 403, "type": "authentication_error"}, "provider_auth"),
        ({"type": "permission_error"}, "provider_rejected"),
        ({"code": "429"}, "provider_rate_limited"),
        ({"type": "rate_limit_error"}, "provider_rate_limited"),
        ({"code": "insufficient_quota"}, "provider_rejected"),
        ({"code": 99999}, "provider_error"),
        ({"message": "Something."}, "provider_error"),
        ("Something.", "provider_error"),
    ],
)
def test_error_within_a_stream_has_a_code(error: object, code: str) -> None:
    assert parse_stream_failure({"error": error}).code == code


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "12"}, 0.25),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "later"}, None),
        (
            {
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
                "retry-after": "Wed, 21 Oct 2026 07:29:30 GMT",
            },
            90.0,
        ),
        (
            {
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
                "retry-after": "Wed, 21 Oct 2026 07:00:00 GMT",
            },
            0.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2026 07:29:30 GMT"}, None),
    ],
)
def test_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    failure = parse_response_failure(status=429, headers=headers, body="")
    assert failure.retry_after == seconds


@pytest.mark.parametrize(
    ("details", "headers", "seconds"),
    [
        ([{"@type": "QuotaFailure"}, {"@type": "RetryInfo", "retryDelay": "36s"}], {}, 36.0),
        ([{"retryDelay": "36.25s"}], {}, 36.25),
        ([{"retryDelay": "36s"}], {"retry-after": "5"}, 5.0),
        ([{"retryDelay": "soon"}, "x", {"retryDelay": 7}], {}, None),
        ([{"retryDelay": "-1s"}], {}, None),
        ({"retryDelay": "36s"}, {}, None),
    ],
)
def test_the_wait_that_google_states_in_the_body(
    details: object, headers: dict[str, str], seconds: float | None
) -> None:
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}
    body = json.dumps([{"error": error}])
    failure = parse_response_failure(status=429, headers=headers, body=body)
    assert (failure.code, failure.retry_after) == ("provider_rate_limited", seconds)


def test_every_code_has_a_sentence_that_says_what_to_do() -> None:
    codes: list[ErrorCode] = [
        "provider_auth",
        "provider_unavailable",
        "provider_rate_limited",
        "provider_timeout",
        "provider_protocol",
        "provider_rejected",
        "context_overflow",
        "provider_error",
    ]
    for code in codes:
        assert ProviderError(code).sentence.count(".") >= 2


FILTERED = [
    pytest.param(
        400,
        {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}},
        id="azure",
    ),
    pytest.param(400, {"code": None, "type": "content_filter"}, id="moonshot"),
    pytest.param(400, {"code": "content_policy_violation"}, id="openai"),
    pytest.param(400, {"code": "data_inspection_failed"}, id="alibaba"),
    pytest.param(400, {"code": "1301", "message": "系统检测到敏感内容"}, id="zhipu"),
    pytest.param(
        403, {"code": 403, "metadata": {"reasons": ["x"], "flagged_input": "…"}}, id="openrouter"
    ),
]


@pytest.mark.parametrize(("status", "error"), FILTERED)
def test_a_filter_is_told_from_other_refusals(status: int, error: dict[str, object]) -> None:
    answer = {"error": error}
    for failure in (
        parse_response_failure(status=status, headers={}, body=json.dumps(answer)),
        parse_stream_failure(answer),
    ):
        assert (failure.code, failure.retryable) == ("content_filtered", False)
        assert "content filter" in failure.sentence
