"""Every refusal that a test of the API meets is listed in the schema of its operation."""

import re
from collections.abc import Iterator

import pytest
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from tests.support.api_schema import describe_api

# Any request can get these; the description of the API names them.
EVERYWHERE = {"method_not_allowed", "not_acceptable", "database_busy"}


def is_listed(*, method: str, route: str, status: int, code: str) -> bool:
    """Return True if the operation lists the code, or if the schema has no such operation."""
    path = "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route)
    operation = describe_api()["paths"].get(path, {}).get(method.lower().replace("head", "get"))
    responses = operation["responses"] if operation else {}
    described = responses.get(str(status), {}).get("description", "")
    return operation is None or f"`{code}`" in described


@pytest.fixture(autouse=True)
def listed_refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test in which an operation refuses with a code that its schema does not list."""
    handle = Endpoint.handle_exception
    missing: set[str] = set()

    def handle_exception(self: Endpoint, exc: Exception) -> Response:
        answer = handle(self, exc)
        code = answer.data["error"]["code"] if "error" in (answer.data or {}) else ""
        match, method = self.request.resolver_match, str(self.request.method)
        if code and match and code not in EVERYWHERE:
            status = answer.status_code
            if not is_listed(method=method, route=match.route, status=status, code=code):
                missing.add(f"{method} {match.route}: {status} {code}")
        return answer

    monkeypatch.setattr(Endpoint, "handle_exception", handle_exception)
    yield
    advice = "add them in chats/api/operation_refusals.py, then run make schema"
    assert not missing, f"the schema does not list these refusals: {missing}; {advice}"
