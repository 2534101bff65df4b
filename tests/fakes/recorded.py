"""Replays recorded responses of a provider, one for each request."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.fakes.http_server import HttpRequest, read_request, send_json


class Recording:
    """One file: `interactions`, each a `request` and its `response` (status, headers, body)."""

    def __init__(self, path: Path) -> None:
        self.interactions: list[dict[str, Any]] = json.loads(path.read_text())["interactions"]
        self.received: list[HttpRequest] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection with the recorded responses, in their order."""
        while (request := await read_request(reader)) is not None:
            response = self.interactions[len(self.received)]["response"]
            self.received.append(request)
            body = response["body"]
            if isinstance(body, str):
                head = (
                    f"HTTP/1.1 {response['status']} OK\r\ncontent-length: {len(body.encode())}\r\n"
                )
                head += "".join(f"{k}: {v}\r\n" for k, v in response["headers"].items())
                writer.write((head + "\r\n" + body).encode())
            else:
                await send_json(writer, body, status=response["status"])
        writer.close()
