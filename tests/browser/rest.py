"""The REST API as a page of the product asks it: with the session of the person at the browser."""

from typing import Any

from tests.browser.desk import Person


def ask(person: Person, path: str, body: object = None, *, method: str = "POST") -> Any:
    """Ask as the person who is signed in; the JSON of the answer, which has to be a success."""
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
    """Read as the person who is signed in."""
    return ask(person, path, method="GET")
