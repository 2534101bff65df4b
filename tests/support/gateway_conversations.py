"""Conversations of the gateway."""

import json
from typing import Any

from django.test import Client
from openai.types.conversations import Conversation

from tests.support.gateway_clients import GatewayClient


def call_conversations(
    program: GatewayClient, method: str, path: str = "", body: Any = None, **headers: str
) -> tuple[int, Any]:
    """Send a request below /v1/conversations, and return status and JSON."""
    client = Client(headers={"Authorization": f"Bearer {program.secret}", **headers})
    data = b"" if body is None else json.dumps(body).encode()
    answer = client.generic(method, f"/v1/conversations{path}", data, "application/json")
    return answer.status_code, answer.json()


def create_conversation(program: GatewayClient, **body: Any) -> str:
    """Create a conversation and return its id."""
    status, told = call_conversations(program, "POST", body=body)
    assert status == 200, told
    return str(Conversation.model_validate(told).id)
