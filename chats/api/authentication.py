"""Authenticates requests: the owner of an API key, or the person of a browser session."""

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from chats.models import ApiKey
from chats.people import keys, signin


class KeyAuthentication(BaseAuthentication):
    """Reads `Authorization: Bearer plm_…`, and nothing else in that header.

    A request with the header is judged by it alone: a wrong key is refused even when a cookie
    would have opened the door, so a page cannot lend its session to a foreign request.
    """

    def authenticate(self, request: Request) -> tuple[object, ApiKey] | None:
        """Return the key's owner and the key; None without the header.

        Raises `KeyInAddress`, `InvalidKey` and `LoginThrottled`.
        """
        keys.refuse_in_address(request.META.get("QUERY_STRING", ""))
        authorization = request.headers.get("Authorization")
        if authorization is None:
            return None
        address = signin.client_address(
            remote_addr=request.META.get("REMOTE_ADDR", ""),
            forwarded_for=request.headers.get("X-Forwarded-For", ""),
        )
        key = keys.key_from_header(authorization=authorization, address=address, now=timezone.now())
        return key.owner, key

    def authenticate_header(self, request: Request) -> str:
        """Return what a 401 asks for."""
        return 'Bearer realm="Palimpsest"'
