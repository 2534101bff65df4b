"""REST API calls from a page of the product, with the session of the signed-in person."""

from typing import Any

from tests.browser.desk import Person


def ask(person: Person, path: str, body: object = None, *, method: str = "POST") -> Any:
    """Send a request as the signed-in person; return the JSON of a successful response."""
    context = person.page.context
    tokens = (cookie["value"] for cookie in context.cookies() if cookie["name"] == "csrftoken")
    answer = context.request.fetch(
        f"{person.product.url}/api/v1/{path}",
        method=method,
        headers={"X-CSRFToken": next(tokens, ""), "Origin": person.product.url},
        data=None if body is None else body,
    )
    if not answer.ok:
        raise AssertionError(f"{method} {path}: {answer.status} {answer.text()}")
    return answer.json() if answer.text() else None


def read(person: Person, path: str) -> Any:
    """Send a GET request as the signed-in person."""
    return ask(person, path, method="GET")
