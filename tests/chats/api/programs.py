"""A client of the API."""

import json
from collections.abc import Callable
from typing import Any

from django.test import Client


class Program:
    """A client with a key. `call` sends a request and returns the response."""

    def __init__(self, secret: str, **options: Any) -> None:
        self.client = Client(
            headers={"Authorization": f"Bearer {secret}"} if secret else None, **options
        )

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a request below /api/v1/. `body` is JSON-ready, or bytes that are sent unchanged."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body)
        return self.client.generic(
            method, f"/api/v1/{path}", data, content_type="application/json", **options
        )

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET."""
        return self.client.get(f"/api/v1/{path}", query)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """Send a POST."""
        return self.call("POST", path, body, **options)


MakeProgram = Callable[..., Program]
