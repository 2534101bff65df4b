"""Pages of other origins can use /v1 only if the operator lists their origin."""

from typing import Any

import pytest
from django.test import Client

from project import env
from tests.support.gateway_clients import GatewayClient, user

PAGE = "https://chat.example.org"
ALLOW = "Access-Control-Allow-Origin"
MISSING = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    """List one origin."""
    settings.GATEWAY_ORIGINS = [PAGE]


def preflight(origin: str, path: str = "/v1/chat/completions") -> Any:
    """Send the preflight request of a browser."""
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    return Client().options(path, headers=headers)


def test_a_listed_origin_may_ask_and_read(program: GatewayClient) -> None:
    before = preflight(PAGE)
    assert (before.status_code, before[ALLOW]) == (204, PAGE)
    assert before["Access-Control-Allow-Headers"] == "authorization, content-type"
    headers = {"Authorization": f"Bearer {program.secret}", "Origin": PAGE}
    answer = Client().get("/v1/models", headers=headers)
    assert (answer.status_code, answer[ALLOW]) == (200, PAGE)
    assert "Origin" in answer["Vary"]
    assert "X-Context-Status" in answer["Access-Control-Expose-Headers"]
    # The page can read the refusal too. The request has no key.
    refused = Client().get("/v1/models", headers={"Origin": PAGE})
    assert (refused.status_code, refused[ALLOW]) == (401, PAGE)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/ui-chats/x",
        "/api/v1/files",
        f"/api/v1/files/{MISSING}/content",
        f"/api/v1/chats/{MISSING}/messages/{MISSING}/images/{'0' * 64}",
    ],
)
def test_a_front_end_of_another_origin_loads_the_files_of_messages(db: None, path: str) -> None:
    before = preflight(PAGE, path)
    assert (before.status_code, before[ALLOW]) == (204, PAGE)
    assert Client().get(path, headers={"Origin": PAGE})[ALLOW] == PAGE


def test_a_page_can_read_each_header_of_the_gateway(program: GatewayClient) -> None:
    body = {"model": "demo", "messages": [user("Hi")], "keep_alive": 5}
    response = program.open(body, **{"Origin": PAGE, "Idempotency-Key": "one"})
    program.work(response["X-Context-Report-Id"])
    answer = program.close(response)
    own = {name for name in answer.headers if name.startswith(("X-Context-", "Idempotent-"))}
    assert "X-Context-Parameters-Left-Out" in own
    assert own <= set(answer.headers["Access-Control-Expose-Headers"].split(", "))


@pytest.mark.parametrize(
    ("origin", "path"),
    [
        ("https://evil.example.org", "/v1/models"),
        (f"{PAGE}.evil.org", "/v1/models"),
        ("null", "/v1/models"),
        (PAGE, "/api/v1/chats"),
        (PAGE, "/api/v1/filesystem"),
        (PAGE, f"/api/v1/chats/{MISSING}/messages/{MISSING}"),
        (PAGE, "/"),
    ],
)
def test_other_origins_and_addresses_may_not(db: None, origin: str, path: str) -> None:
    assert ALLOW not in preflight(origin, path)
    assert ALLOW not in Client().get(path, headers={"Origin": origin})


def test_no_origin_is_listed_at_first(db: None, settings: Any) -> None:
    settings.GATEWAY_ORIGINS = []
    assert ALLOW not in preflight(PAGE)


@pytest.mark.parametrize("value", ["*", "example.org", "https://a.org/path", "ftp://a.org", "null"])
def test_an_origin_of_another_form_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_ORIGINS", f"{PAGE}, {value}")
    with pytest.raises(env.Misconfigured, match="GATEWAY_ORIGINS"):
        env.read_origins("GATEWAY_ORIGINS")
