"""Requests generated from the schema, to every endpoint: responses match the schema.

Schemathesis fills the parameters and bodies of each operation with valid and invalid values. Ids
are mostly those of Alice's objects, so that requests reach further than "not found". Every request
starts from the same data, because changes are rolled back.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
import schemathesis
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.core.parameters import ParameterLocation

from chats.api.core.schema import Generator
from tests.security.world import World
from tests.support.role_clients import create_client_of

pytestmark = pytest.mark.slow
# `make schema-fuzz EXAMPLES=…` runs more.
EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "3"))
load_all_checks()
CHECKS = schemathesis.checks.CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    ]
)
DOCUMENT = Generator().get_schema(public=True)  # type: ignore[no-untyped-call]  # untyped there
for operation in (o for path in DOCUMENT["paths"].values() for o in path.values()):
    for answer in operation["responses"].values():
        # OpenAPI 3.0 declares an event stream as text; Schemathesis expects that of each event.
        answer.get("content", {}).get("text/event-stream", {}).pop("schema", None)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
KNOWN = {"slug": "house", "number": 1, "assignment_id": 1}


class Application(WSGIHandler):
    """The product. Only the first part of its streams is read, because some never end."""

    def get_response(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a request."""
        answer = super().get_response(request)
        if isinstance(answer, StreamingHttpResponse) and answer.is_async:
            answer.streaming_content = [async_to_sync(first_part)(answer)]
        return answer


async def first_part(answer: StreamingHttpResponse) -> bytes:
    """Return the beginning of a stream, and close it."""
    async with aclosing(cast(AsyncGenerator[bytes, None], answer.streaming_content)) as parts:
        return await anext(parts, b"")


SCHEMA.app = Application()


@pytest.fixture
def program(world: World, alice: User) -> dict[str, str]:
    """The headers of an API client with all permissions of a key."""
    alice.is_superuser = alice.is_staff = True
    alice.save()
    authorization = str(create_client_of(alice).client.defaults["HTTP_AUTHORIZATION"])
    # The checks do not decompress responses.
    return {"Authorization": authorization, "Accept-Encoding": "identity"}


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_S19_every_endpoint_answers_as_its_schema_says(
    case: Any, world: World, program: dict[str, str]
) -> None:
    if is_meant_well(case, ParameterLocation.PATH):
        known = {**world.ids, **KNOWN}
        case.path_parameters = {n: str(known.get(n, v)) for n, v in case.path_parameters.items()}
    if is_meant_well(case, ParameterLocation.BODY) and isinstance(case.body, dict):
        known = {"chat": str(world.chat.pk), "policy": "house", "group": world.texts.group}
        case.body = {n: known.get(n, v) if v else v for n, v in case.body.items()}
    with transaction.atomic():
        try:
            case.call_and_validate(headers=program, checks=CHECKS)
        finally:
            transaction.set_rollback(True)


def is_meant_well(case: Any, place: ParameterLocation) -> bool:
    """Return True if this part of a request is valid by the schema."""
    part = case.meta.components.get(place)
    return part is not None and part.mode is GenerationMode.POSITIVE
