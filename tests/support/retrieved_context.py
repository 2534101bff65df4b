"""Retrieved context of a prompt, from messages of other chats."""

from collections.abc import Callable

from chats.models import Chat, Receipt
from chats.providers.base import ProviderRequest

REFERENCE_TITLE = "Relevant reference (semantic):"
Say = Callable[..., ProviderRequest]
Elsewhere = Callable[..., Chat]


def find_retrieved_context(request: ProviderRequest) -> str:
    """Return the retrieved context of a request, or an empty text."""
    found = [m.content for m in request.messages if REFERENCE_TITLE in m.content]
    return found[0] if found else ""


def get_newest_receipt() -> Receipt:
    """Return the newest receipt of all chats."""
    receipt = Receipt.objects.order_by("-created_at").first()
    assert receipt is not None
    return receipt
