"""Authentication by API key."""

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from chats.models import ApiKey
from chats.people import keys, signin


class KeyAuthentication(BaseAuthentication):
    """Authentication by `Authorization: Bearer plm_…`. No other scheme is accepted.

    A request with this header never falls back to the session cookie. A page therefore cannot lend
    its session to a request with a wrong key.
    """

    def authenticate(self, request: Request) -> tuple[object, ApiKey] | None:
        """Return the key's owner and the key, or None if the header is missing.

        Raises `KeyInAddress`, `InvalidKey` and `LoginThrottled`.
        """
        keys.refuse_in_address(request.META.get("QUERY_STRING", ""))
        authorization = request.headers.get("Authorization")
        if authorization is None:
            return None
        address = signin.resolve_client_address(
            remote_addr=request.META.get("REMOTE_ADDR", ""),
            forwarded_for=request.headers.get("X-Forwarded-For", ""),
        )
        key = keys.get_key_from_header(
            authorization=authorization, address=address, now=timezone.now()
        )
        return key.owner, key

    def authenticate_header(self, request: Request) -> str:
        """Return the value of the `WWW-Authenticate` header of a 401."""
        return 'Bearer realm="Palimpsest"'
