"""Requests to the model that replies in a chat."""

from collections.abc import Callable
from typing import Any

from chats.providers.base import ProviderRequest

Work = Callable[..., Any]
Ask = Callable[..., ProviderRequest]


def list_sent_messages(request: ProviderRequest) -> list[tuple[str, str]]:
    """Return role and content of each message of a request."""
    return [(message.role, message.content) for message in request.messages]
