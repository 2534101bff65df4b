"""Embeddings through OpenAI's client, with a model server behind the gateway."""

import json
from typing import Any

import httpx2
import openai
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.background import due_jobs
from chats.models import ApiKey, Chat, Message, PassedOn, ProviderAccount
from chats.providers.base import ProviderError
from chats.providers.embeddings import parse_embeddings
from chats.record import passthrough_requests
from chats.record.usage import sum_person_usage
from contextpolicy.models import (
    AuditEvent,
    ContextPolicy,
    ModelSpec,
    PolicyAssignment,
    PolicyVersion,
)
from tests.chats.providers.conftest import openai_server, running_openai
from tests.fakes.fake_server import FakeServer
from tests.support.gateway_clients import GatewayClient, MakeClient, get_client_key

__all__ = ["openai_server", "running_openai"]

pytestmark = pytest.mark.django_db

SECRET = "The words of the quarterly report"


class Through(httpx2.BaseTransport):
    """A transport that connects a client to the gateway in this process."""

    def __init__(self, program: GatewayClient) -> None:
        self.program = program

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response of the gateway."""
        path = request.url.path.removeprefix("/v1/")
        answer = self.program.close(self.program.open(request.read(), path=path))
        headers = {"content-type": answer.headers["Content-Type"]}
        return httpx2.Response(answer.status, headers=headers, text=answer.body)


def client_of(program: GatewayClient) -> openai.OpenAI:
    """Return OpenAI's client with a key of the user."""
    http = httpx2.Client(transport=Through(program))
    return openai.OpenAI(
        base_url="http://gateway/v1", api_key=program.secret, http_client=http, max_retries=0
    )


@pytest.fixture
def embedder(openai_server: FakeServer, settings: Settings) -> ModelSpec:
    """An embedding model that no chat uses."""
    settings.ALLOWED_PRIVATE_PROVIDERS = frozenset({openai_server.host})
    ProviderAccount.objects.create(slug="vectors", name="Vectors", base_url=openai_server.base_url)
    return ModelSpec.objects.create(
        slug="vectors-embed",
        provider="vectors",
        name="text-embedding-3",
        embeds=True,
        enabled=False,
    )


def events() -> list[dict[str, Any]]:
    """Return the ledger events of pass-through requests."""
    return [
        event.data for event in AuditEvent.objects.filter(type="gateway.passed_on").order_by("pk")
    ]


@pytest.mark.parametrize("name", ["text-embedding-3", "vectors-embed"])
def test_embeddings_come_back_counted_and_nothing_is_stored(
    program: GatewayClient, alice: User, embedder: ModelSpec, openai_server: FakeServer, name: str
) -> None:
    client = client_of(program)
    for texts, size, form in (
        (SECRET, 4, openai.NOT_GIVEN),
        (["a", SECRET], 8, "float"),
        ([[1, 2, 3], [4]], 2, "base64"),
        ([7, 8], 4, openai.NOT_GIVEN),
    ):
        made: Any = client.embeddings.create(
            model=name,
            input=texts,
            dimensions=size,
            encoding_format=form,  # type: ignore[arg-type]  # its values are tried by name
        )
        sent = openai_server.requests()[-1]["body"]
        assert (sent["model"], sent["input"], sent["dimensions"]) == (embedder.name, texts, size)
        wanted = 1 if isinstance(texts, str) or isinstance(texts[0], int) else len(texts)
        assert (len(made.data), made.model) == (wanted, name)
        if form != "base64":
            assert len(made.data[0].embedding) == size
    assert made.usage.prompt_tokens == 2
    total = 2 * len(SECRET) + 1 + 4 + 2
    row = sum_person_usage(owner=alice, since=passed().created_at, until=timezone.now(), by="key")[
        0
    ]
    assert (row.group, row.calls, row.failed, row.input) == ("app", 4, 0, total)
    first = events()[0]
    assert first["key"] == str(get_client_key(program).pk)
    assert (first["model"], first["kind"], first["why"]) == ("vectors-embed", "embeddings", "kind")
    assert (first["outcome"], first["input_tokens"]) == ("ok", len(SECRET))
    assert (Chat.objects.count(), Message.objects.count(), len(events())) == (0, 0, 4)
    assert SECRET not in json.dumps([list(PassedOn.objects.values()), events()], default=str)


def passed() -> PassedOn:
    """Return the first pass-through request."""
    return PassedOn.objects.order_by("pk")[0]


@pytest.mark.usefixtures("embedder")
def test_models_that_embed_are_listed_but_in_no_chat(program: GatewayClient) -> None:
    client = client_of(program)
    names = [model["id"] for model in listed(program)]
    assert names[-1] == "vectors-embed"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(
            model="vectors-embed", messages=[{"role": "user", "content": "hi"}]
        )


def listed(program: GatewayClient) -> list[dict[str, Any]]:
    """Return the names in the model list."""
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    data: list[dict[str, Any]] = client.get("/v1/models").json()["data"]
    return data


@pytest.mark.parametrize(
    ("changes", "status", "code", "param"),
    [
        ({"model": "nothing"}, 404, "model_not_found", "model"),
        ({"model": "policy:x"}, 404, "model_not_found", "model"),
        ({"model": "demo"}, 400, "model_makes_no_embeddings", "model"),
        ({"model": ""}, 400, "missing_field", "model"),
        ({"input": ""}, 400, "missing_field", "input"),
        ({"input": [["a"]]}, 400, "invalid_value", "input"),
        ({"input": ["a", ""]}, 400, "invalid_value", "input"),
        ({"input": [True]}, 400, "invalid_value", "input"),
        ({"input": ["a"] * 2049}, 400, "invalid_value", "input"),
        ({"input": "a" * 70_000}, 413, "request_too_large", None),
        ({"dimensions": 0}, 400, "invalid_value", "dimensions"),
        ({"dimensions": 10**6}, 400, "invalid_value", "dimensions"),
        ({"encoding_format": "hex"}, 400, "invalid_value", "encoding_format"),
        ({"api_base": "x"}, 400, "unsupported_parameter", "api_base"),
    ],
)
@pytest.mark.usefixtures("embedder")
def test_what_cannot_be_embedded_is_refused_in_the_form_of_openai(
    program: GatewayClient,
    settings: Settings,
    changes: Any,
    status: int,
    code: str,
    param: str | None,
) -> None:
    settings.GATEWAY_BYTES = 65_536
    asked = {"model": "vectors-embed", "input": "a", **changes}
    answer = program.close(program.open(asked, path="embeddings"))
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (answer.status, error["code"], error["param"]) == (status, code, param)
    assert not PassedOn.objects.exists()


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("500", 502, "provider_unavailable"),
        ("401", 502, "provider_auth"),
        ("429", 429, "rate_limit_exceeded"),
        ("context", 400, "context_length_exceeded"),
    ],
)
def test_a_failure_of_the_provider_is_told_and_counted(
    program: GatewayClient,
    embedder: ModelSpec,
    openai_server: FakeServer,
    fault: str,
    status: int,
    code: str,
) -> None:
    openai_server.configure(faults=[{"fault": fault}])
    with pytest.raises(openai.APIStatusError) as caught:
        client_of(program).embeddings.create(model="vectors-embed", input=SECRET)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert (events()[0]["outcome"], passed().outcome) == ("failed", "failed")
    is_paused = ProviderAccount.objects.get(slug="vectors").paused_until is not None
    assert is_paused == (fault == "401")


def test_a_provider_that_is_down_is_told(program: GatewayClient, embedder: ModelSpec) -> None:
    ProviderAccount.objects.update(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(openai.APIStatusError) as caught:
        client_of(program).embeddings.create(model="vectors-embed", input=SECRET)
    assert (caught.value.status_code, caught.value.code) == (502, "provider_unavailable")


@pytest.mark.parametrize("count", ["-1", "1e300", "18446744073709551615", "true", '"many"', "[]"])
def test_an_impossible_count_of_tokens_is_no_report(count: str) -> None:
    answer = f'{{"data": [{{"embedding": [1]}}], "usage": {{"prompt_tokens": {count}}}}}'
    assert parse_embeddings(answer.encode(), wanted=1).tokens is None


@pytest.mark.parametrize(
    "answer",
    [b"[]", b"x", b'{"data": []}', b'{"data": [{}]}', b'{"data": [1]}', b'{"data": ["embedding"]}',
     b'{"data": [{"embedding": [NaN]}]}', b'{"data": [{"embedding": [-Infinity]}]}',
     b'{"data": [{"embedding": [1e400]}]}'],
)  # fmt: skip
def test_an_answer_that_is_none_is_not_passed_on(answer: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        parse_embeddings(answer, wanted=1)
    assert caught.value.code == "provider_protocol"


def test_a_policy_says_which_models_embed(
    program: GatewayClient, make: MakeClient, alice: User, bob: User, embedder: ModelSpec
) -> None:
    policy = ContextPolicy.objects.create(slug="narrow", name="Narrow")
    policy.current = PolicyVersion.objects.create(
        policy=policy, number=1, values={"allowed_models": ["demo"]}, created_at=timezone.now()
    )
    policy.save()
    PolicyAssignment.objects.create(policy=policy, level="user", user=alice)
    asked = {"model": "vectors-embed", "input": "a"}
    refused = program.close(program.open(asked, path="embeddings"))
    assert (refused.status, refused.json["error"]["code"]) == (403, "model_not_allowed")
    assert "vectors-embed" not in [model["id"] for model in listed(program)]
    assert make(bob).open(asked, path="embeddings").status_code == 200


def test_a_key_has_so_many_requests_under_way_and_a_lost_one_is_told(
    program: GatewayClient, embedder: ModelSpec, settings: Settings
) -> None:
    settings.GATEWAY_TURNS_PER_KEY = 1
    key: ApiKey = get_client_key(program)
    now = timezone.now()
    lost = passthrough_requests.start_passthrough(
        key=key, model=embedder, kind="embeddings", why="kind", now=now
    )
    asked = {"model": "vectors-embed", "input": "a"}
    refused = program.close(program.open(asked, path="embeddings"))
    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_passed_on")
    assert refused.headers["Retry-After"] == "5"
    due_jobs.run_all_due_jobs(now=now)
    assert not events()
    due_jobs.run_all_due_jobs(now=now + 2 * passthrough_requests.get_longest_call())
    due_jobs.run_all_due_jobs(now=now + 2 * passthrough_requests.get_longest_call())
    assert [event["outcome"] for event in events()] == ["lost"]
    lost.refresh_from_db()
    assert lost.outcome == "lost"
    assert program.open(asked, path="embeddings").status_code == 200
