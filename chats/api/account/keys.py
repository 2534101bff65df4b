"""API keys of a user. Requires a session, so that a stolen key cannot create more keys."""

import uuid

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.account.account_inputs import NewKey
from chats.api.account.account_outputs import KeyOut, NewKeyOut
from chats.api.core.base import NO_KEY, Endpoint
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import serialize_row, serialize_rows
from chats.people import keys, sessions


class KeyList(serializers.Serializer[object]):
    """All API keys, on one page."""

    data = KeyOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class KeyViewSet(Endpoint):
    serializer_class = KeyOut
    read_scope = write_scope = NO_KEY
    lookup_url_kwarg = "key_id"

    @extend_schema(summary="List API keys", responses=KeyList)
    def list(self, request: Request) -> Response:
        """List your API keys, newest first, including revoked and expired ones, without secrets."""
        return Response({"data": serialize_rows(KeyOut, keys.list_api_keys(owner=self.user))})

    @extend_schema(summary="Create an API key", request=NewKey, responses=NewKeyOut)
    def create(self, request: Request) -> Response:
        """Create an API key. Only this response contains `secret`.

        You must have signed in within the last 15 minutes.
        """
        now = timezone.now()
        sessions.require_recent(session=request.session, now=now)
        values = NewKey.read(request.data)
        key, secret = keys.create_key(owner=self.user, now=now, **values)
        return Response({**serialize_row(KeyOut, key), "secret": secret}, status=201)

    @extend_schema(operation_id="keys_revoke", summary="Revoke an API key", responses={200: KeyOut})
    def destroy(self, request: Request, key_id: uuid.UUID) -> Response:
        """Revoke an API key immediately and permanently.

        Later requests with the key fail with 401. The key stays in the list. Repeating the
        request has no effect.
        """
        key = keys.get_own_api_key(user=self.user, key_id=key_id)
        EmptyBody.read(request.data)
        return self.respond(keys.revoke_key(key=key, actor=self.actor, now=timezone.now()))
